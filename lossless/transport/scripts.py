"""The Lua scripts of the transport: every step that moves a message from one place to another.

A message is always in exactly one of three places: the list of its queue (kombu's own form), the hash of
the owner that has taken it (``_taken.<owner>``), or the sorted set of its queue's waiting messages
(``_waiting.<queue>``). A taken or waiting message is stored as ``<list key> NUL <message as it lay in the
list>``, so it can be put back byte for byte without decoding it.

Five rules hold in all of them:

* A push comes before the removal that it replaces, and a refused push (``pcall``) skips the removal: Redis
  does not roll a script back, and a repeated message is better than a lost one.
* A full Redis (``maxmemory``, ``noeviction``) refuses a script's first growing command, but none after the
  script has written. Each script therefore begins with a removal, so that a full Redis can still be
  drained.
* The lists that messages go to stand in the stored messages, or in arguments, and are not declared as keys: with one
  that an ACL forbids Redis would refuse the whole script, and what belongs to other lists with it.
* Time is the server's (``TIME``), so that clocks of workers need not agree. Needs Redis 5 (replication of a
  script's effects); kombu itself needs 6.2.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Script:
    """A Lua script and the name under which Redis remembers it."""

    text: str
    sha: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "sha", hashlib.sha1(self.text.encode()).hexdigest())


#: The field of an owner's hash that holds its epoch, never a message.
EPOCH_FIELD = "@"

#: Acknowledges, then takes; who finds too little is noted as idle, to be rung for. KEYS: the owner's hash, the set
#: of queues with idle owners, the idle owners of each of ``ARGV[4]`` queues, then lists, highest priority first,
#: ``ARGV[4]`` of each priority. ARGV: epoch, first field, most to take, queues, "1" to serve those in turn ("0":
#: drain the first list first), "1" per queue that is consumed without acknowledgement else "0", how many of the
#: most somebody can begin with at once, owner to be noted as idle ('': nobody), the most to take of each queue
#: (-1: any number; 0: it is left to others, and the owner is not idle there), then fields to acknowledge.
#:
#: What nobody here can begin with is taken only while no other owner is idle: prefetching starves nobody. The same
#: holds where a number is asked of a queue: this owner knew nothing of what it took there last, and is rung last.
#:
#: Returns 1 (0: the epoch is not the owner's, nothing was taken), the server's time, how many lay in each queue of
#: which a number was asked (else -1), then list index and message for each one taken; those that must be acknowledged
#: have the fields first, first + 1 ...
TAKE = Script("""
local held, most, size, field = KEYS[1], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[2])
local free, owner = tonumber(ARGV[7]), ARGV[8]
if #ARGV > 9 then redis.call('HDEL', held, unpack(ARGV, 10)) end
local now = redis.call('TIME')
local reply = {1, string.format('%d.%06d', now[1], now[2]), ''}
if most == 0 then return reply end
if ARGV[1] ~= '' and redis.call('HGET', held, '@') ~= ARGV[1] then
  reply[1] = 0
  return reply
end
local taken, idle_others, quota = 0, {}, {}
local queue = 0
for number in string.gmatch(ARGV[9], '[^,]+') do
  local lie = -1
  if number ~= '-1' then quota[queue] = tonumber(number) end
  if quota[queue] and quota[queue] > 0 then
    lie = 0
    for list = 3 + size + queue, #KEYS, size do lie = lie + redis.call('LLEN', KEYS[list]) end
  end
  reply[3] = reply[3] .. lie .. ','
  queue = queue + 1
end
local function others(queue)
  if not idle_others[queue] then
    local key = KEYS[3 + queue]
    local own = redis.call('ZSCORE', key, owner)
    idle_others[queue] = redis.call('ZCOUNT', key, '-inf', '(1e12') - (own and tonumber(own) < 1e12 and 1 or 0)
  end
  return idle_others[queue]
end
local function pop(i)
  local queue = (i - 3) % size
  if quota[queue] == 0 then return false end
  if (taken >= free or quota[queue]) and owner ~= '' and others(queue) > 0 then return false end
  local raw = redis.call('RPOP', KEYS[i])
  if not raw then return false end
  if string.sub(ARGV[6], queue + 1, queue + 1) == '0' then
    redis.call('HSET', held, string.format('%d', field), KEYS[i] .. '\\0' .. raw)
  end
  field, taken = field + 1, taken + 1
  quota[queue] = quota[queue] and quota[queue] - 1
  reply[#reply + 1] = i - 3 - size
  reply[#reply + 1] = raw
  return true
end
for first = 3 + size, #KEYS, size do
  local more = true
  while more and taken < most do
    more = false
    for i = first, first + size - 1 do
      while taken < most and pop(i) do
        more = true
        if ARGV[5] == '1' then break end
      end
    end
  end
  if taken == most then break end
end
if owner == '' then return reply end
if taken == most then
  for i = 3, 2 + size do redis.call('ZREM', KEYS[i], owner) end
  return reply
end
for i = 3, 2 + size do
  if quota[i - 3] == 0 then redis.call('ZREM', KEYS[i], owner)
  else
    local names = {KEYS[i]}
    for list = i + size, #KEYS, size do names[#names + 1] = KEYS[list] end
    redis.pcall('SADD', KEYS[2], table.concat(names, '\\0'))
    local last = (quota[i - 3] or taken >= free) and 1e12 or 0
    redis.pcall('ZADD', KEYS[i], string.format('%.6f', now[1] + now[2] / 1e6 + last), owner)
  end
end
return reply
""")

#: Rings for idle owners where messages lie, one owner a message, and holds the lookout's place. KEYS: the place, the
#: set of queues with idle owners, then per queue its idle owners and its lists. ARGV: lookout, milliseconds for which
#: the place is its own (0: it leaves), what an owner's channel begins with, seconds in which a rung owner has to come,
#: seconds after which an owner that was not seen is none, "1" to forget queues without idle owners, then the number
#: of lists of each queue.
#:
#: An idle owner's score is when it was seen, 1e12 more where it has room but nobody to begin at once, and negative,
#: when it was rung, until it comes. Returns 1 (0: another is the lookout, 2: nobody was), 1 if somebody is awaited,
#: the number of idle owners per queue, the queues with idle owners. Reads last what a tracking client must hear of.
RING = Script("""
redis.call('SREM', KEYS[2], '')
local place, me, lease = KEYS[1], ARGV[1], tonumber(ARGV[2])
local holder = redis.call('GET', place)
if holder and holder ~= me then return {0} end
if lease == 0 then
  redis.call('DEL', place)
  return {0}
end
if redis.call('PTTL', place) < lease / 2 then redis.call('SET', place, me, 'PX', lease) end
local time = redis.call('TIME')
local now = time[1] + time[2] / 1e6
local function at(score) return string.format('%.6f', score) end
local function first(key, low, high) return redis.call('ZRANGEBYSCORE', key, low, high, 'LIMIT', 0, 1)[1] end
local function next_of(key)
  local owner = first(key, '0', '(1e12')
  if owner or redis.call('ZCOUNT', key, '-inf', '(0') > 0 then return owner end
  return first(key, '1e12', '+inf')
end
local function forget(key)
  redis.call('ZREMRANGEBYSCORE', key, at(ARGV[4] - now), '(0')
  redis.call('ZREMRANGEBYSCORE', key, '0', at(now - ARGV[5]))
  redis.call('ZREMRANGEBYSCORE', key, '1e12', at(1e12 + now - ARGV[5]))
end
local function ring(key, messages)
  local wanted = messages - redis.call('ZCOUNT', key, '-inf', '(0')
  while wanted > 0 do
    local owner = next_of(key)
    if not owner then break end
    if redis.call('PUBLISH', ARGV[3] .. owner, '') == 0 then redis.call('ZREM', key, owner)
    else
      redis.call('ZADD', key, at(-now), owner)
      wanted = wanted - 1
    end
  end
end
local awaited, counts, i = 0, {}, 3
for n = 7, #ARGV do
  local key, last = KEYS[i], i + tonumber(ARGV[n])
  local messages = 0
  for list = i + 1, last do
    local length = redis.pcall('LLEN', KEYS[list])
    if type(length) == 'number' then messages = messages + length end  -- a foreign value is none of ours
  end
  if messages > 0 or ARGV[6] == '1' then forget(key) end
  if messages > 0 then ring(key, messages) end
  counts[#counts + 1] = redis.call('ZCARD', key)
  if messages > 0 and counts[#counts] > 0 then awaited = 1 end
  if ARGV[6] == '1' and counts[#counts] == 0 and last > i then
    local names = {}
    for list = i, last do names[#names + 1] = KEYS[list] end
    redis.call('SREM', KEYS[2], table.concat(names, '\\0'))
  end
  i = last + 1
end
return {holder and 1 or 2, awaited, counts, redis.call('SMEMBERS', KEYS[2])}
""")

#: Ends what was taken. KEYS: the owner's hash, the set of queues with waiting messages. ARGV, six a message:
#: how ("ack", "front": next to run, "back": last to run, "wait"), field, key to push to, message, due time in
#: seconds, queue. What is no longer the owner's is left alone. Returns the fields whose push was refused.
SETTLE = Script("""
redis.call('HDEL', KEYS[1], '')
local refused = {}
for i = 1, #ARGV, 6 do
  local how, field, key, raw = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]
  if redis.call('HEXISTS', KEYS[1], field) == 1 then
    local done
    if how == 'front' then done = redis.pcall('RPUSH', key, raw)
    elseif how == 'back' then done = redis.pcall('LPUSH', key, raw)
    elseif how == 'wait' then
      done = redis.pcall('ZADD', key, ARGV[i + 4], raw)
      redis.pcall('SADD', KEYS[2], ARGV[i + 5])
    end
    if type(done) == 'table' and done.err then refused[#refused + 1] = field
    else redis.call('HDEL', KEYS[1], field) end
  end
end
return refused
""")

#: Makes (or finds again) an owner. KEYS: its hash, the owners. ARGV: owner, epoch. Returns the fields it
#: holds.
REGISTER = Script("""
redis.call('HDEL', KEYS[2], '')
redis.call('HINCRBY', KEYS[2], ARGV[1], 1)
redis.call('HSET', KEYS[1], '@', ARGV[2])
return redis.call('HKEYS', KEYS[1])
""")

#: Puts back what an owner holds without having heard of it. KEYS: its hash, the list of what is no message.
#: ARGV: fields, newest first. Returns how many were none of ours, and how many could not be put back.
PUT_BACK = Script("""
redis.call('HDEL', KEYS[1], '')
local aside, refused = 0, 0
for _, field in ipairs(ARGV) do
  local value = redis.call('HGET', KEYS[1], field)
  if value then
    local cut, done = string.find(value, '\\0', 1, true), nil
    if cut then done = redis.pcall('RPUSH', string.sub(value, 1, cut - 1), string.sub(value, cut + 1))
    else done, aside = redis.pcall('LPUSH', KEYS[2], value), aside + 1 end
    if type(done) == 'table' then refused = refused + 1
    else redis.call('HDEL', KEYS[1], field) end
  end
end
return {aside, refused}
""")

#: Ends an owner that holds nothing. KEYS: its hash, the owners. ARGV: owner. Returns how many it still holds.
LEAVE = Script("""
local left = redis.call('HLEN', KEYS[1]) - redis.call('HEXISTS', KEYS[1], '@')
if left == 0 then
  redis.call('DEL', KEYS[1])
  redis.call('HDEL', KEYS[2], ARGV[1])
end
return left
""")

#: Shows that owners live. KEYS: the owners. ARGV: owners. Returns those that somebody has swept meanwhile.
BEAT = Script("""
redis.call('HDEL', KEYS[1], '')
local gone = {}
for _, owner in ipairs(ARGV) do
  if redis.call('HEXISTS', KEYS[1], owner) == 1 then redis.call('HINCRBY', KEYS[1], owner, 1)
  else gone[#gone + 1] = owner end
end
return gone
""")

#: Puts back what a dead owner held. KEYS: its hash, the owners. ARGV: owner, the beat it stopped at, then
#: three a message, newest first: field, key to push to, message. Returns how many were put back, -1 if the
#: owner lives.
SWEEP = Script("""
if redis.call('HGET', KEYS[2], ARGV[1]) ~= ARGV[2] then return -1 end
redis.call('HDEL', KEYS[1], '')
local n = 0
for i = 3, #ARGV, 3 do
  if redis.call('HEXISTS', KEYS[1], ARGV[i]) == 1 then
    local done = redis.pcall('RPUSH', ARGV[i + 1], ARGV[i + 2])
    if type(done) ~= 'table' then
      redis.call('HDEL', KEYS[1], ARGV[i])
      n = n + 1
    end
  end
end
if redis.call('HLEN', KEYS[1]) - redis.call('HEXISTS', KEYS[1], '@') == 0 then
  redis.call('DEL', KEYS[1])
  redis.call('HDEL', KEYS[2], ARGV[1])
end
return n
""")

#: Lets a message wait. KEYS: the queue's waiting set, the set of queues. ARGV: due time, stored message,
#: queue.
WAIT = Script("""
redis.call('ZADD', KEYS[1], ARGV[1], ARGV[2])
redis.call('SADD', KEYS[2], ARGV[3])
return 1
""")

#: Puts a waiting message back into its list before its time. KEYS: the queue's waiting set, the list. ARGV: the stored
#: message, the message. Nothing happens where it does not wait any more.
HURRY = Script("""
redis.call('ZREM', KEYS[1], '')
if redis.call('ZSCORE', KEYS[1], ARGV[1]) then
  local done = redis.pcall('LPUSH', KEYS[2], ARGV[2])
  if type(done) == 'table' then return done end
  redis.call('ZREM', KEYS[1], ARGV[1])
end
return 1
""")

#: Moves what is due to the back of its list. KEYS: the set of queues with waiting messages, the list of what is
#: no message. ARGV: the waiting sets' key without the queue, most to move of each queue. Returns how many were
#: moved of the queue with the most, then what was wrong. What cannot be moved is tried again in a minute, and
#: keeps nothing else.
MOVE_DUE = Script("""
redis.call('SREM', KEYS[1], '')
local time = redis.call('TIME')
local now, later = string.format('%d.%06d', time[1], time[2]), string.format('%d.%06d', time[1] + 60, time[2])
local reply = {0}
local function wrong(where, what) if #reply < 20 then reply[#reply + 1] = where .. ': ' .. what end end
local function move(waiting, value)
  local cut, done = string.find(value, '\\0', 1, true), nil
  if cut then done = redis.pcall('LPUSH', string.sub(value, 1, cut - 1), string.sub(value, cut + 1))
  else
    wrong(waiting, 'a value that is none of ours was moved to the list ' .. KEYS[2])
    done = redis.pcall('LPUSH', KEYS[2], value)
  end
  if type(done) ~= 'table' then return redis.call('ZREM', waiting, value) end
  wrong(waiting, 'what is due cannot be moved: ' .. done.err)
  redis.call('ZADD', waiting, later, value)
  return 0
end
for _, queue in ipairs(redis.call('SMEMBERS', KEYS[1])) do
  local waiting, moved = ARGV[1] .. queue, 0
  local due = redis.pcall('ZRANGEBYSCORE', waiting, '-inf', now, 'LIMIT', 0, tonumber(ARGV[2]))
  if due.err then wrong(waiting, due.err)
  else
    for _, value in ipairs(due) do moved = moved + move(waiting, value) end
    if redis.call('EXISTS', waiting) == 0 then redis.call('SREM', KEYS[1], queue) end
  end
  reply[1] = math.max(reply[1], moved)
end
return reply
""")
