"""The Lua scripts of the transport (``lua/*.lua``): every step that moves a message from one place to another.

A message is always in exactly one of four places: the list of its queue (kombu's own form), a list of what a shut
gate has kept of that (``_aside.<gate> NUL <list key>``, likewise), the hash of the owner that has taken it
(``_taken.<owner>``), or the sorted set of its queue's waiting messages (``_waiting.<queue>``). A taken or waiting
message is stored as ``<list key> NUL <message as it lay in the list>``, so it can be put back byte for byte without
decoding it.

Four rules hold in all of them:

* A push comes before the removal that it replaces, and a refused push (``pcall``) skips the removal: Redis
  does not roll a script back, and a repeated message is better than a lost one.
* A full Redis (``maxmemory``, ``noeviction``) refuses a script's first growing command, but none after the
  script has written. Each script's first write is therefore a removal, so that a full Redis can still be
  drained.
* The lists that messages go to stand in the stored messages, or in arguments, and are not declared as keys: with one
  that an ACL forbids Redis would refuse the whole script, and what belongs to other lists with it.
* Time is the server's (``TIME``), so that clocks of workers need not agree. Needs Redis 5 (replication of a
  script's effects); kombu itself needs 6.2.

What KEYS and ARGV are, and what comes back, says each file at its top; `lossless.lua` says how they are composed.
"""

from __future__ import annotations

from lossless.lua import Script, script

#: The field of an owner's hash that holds its epoch, never a message.
EPOCH_FIELD = "@"


def _load_script(name: str) -> Script:
    return script("lossless.transport", name)


# From a queue to an owner (with the script hook's Lua in front), and the ringing for idle owners.
TAKE_MESSAGES = _load_script("take_messages")
RING_IDLE_OWNERS = _load_script("ring_idle_owners")

# From an owner to the next place of its message.
SETTLE_MESSAGES = _load_script("settle_messages")
ACKNOWLEDGE = _load_script("acknowledge")  # with the script hook's Lua in front

# An owner's life: register, put back unknown messages, send heartbeats, leave; or die.
REGISTER_OWNER = _load_script("register_owner")
PUT_BACK_MESSAGES = _load_script("put_back_messages")
SEND_HEARTBEATS = _load_script("send_heartbeats")
NOTE_BEGUN = _load_script("note_begun")
UNREGISTER_OWNER = _load_script("unregister_owner")
SWEEP_OWNER = _load_script("sweep_owner")

# Waiting: until it is due, or until it is hurried.
DELAY_MESSAGE = _load_script("delay_message")
MOVE_DUE = _load_script("move_due")
RELEASE_EARLY = _load_script("release_early")

# Gates: how many messages pass a shut one.
ADMIT_MESSAGES = _load_script("admit_messages")

# The replacement of a message where it is.
REPLACE_MESSAGE = _load_script("replace_message")

# The weight of a queue.
WEIGH_QUEUE = _load_script("weigh_queue")

#: The commands that the ACL refuses to this Redis user.
CHECK_PERMISSIONS = _load_script("check_permissions")
