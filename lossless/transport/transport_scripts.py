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
TAKE = _load_script("take")
RING = _load_script("ring")

# From an owner to the next place of its message.
SETTLE = _load_script("settle")
ACK = _load_script("ack")  # with the script hook's Lua in front

# An owner's life: register, put back unknown messages, send heartbeats, leave; or die.
REGISTER = _load_script("register")
PUT_BACK = _load_script("put_back")
BEAT = _load_script("beat")
BEGUN = _load_script("begun")
LEAVE = _load_script("leave")
SWEEP = _load_script("sweep")

# Waiting: until it is due, or until it is hurried.
WAIT = _load_script("wait")
MOVE_DUE = _load_script("move_due")
HURRY = _load_script("hurry")

# Gates: how many messages pass a shut one.
ALLOW = _load_script("allow")

# The weight of a queue.
WEIGH = _load_script("weigh")

#: The commands that the ACL refuses to this Redis user.
ASK = _load_script("ask")
