-- Rings for idle owners where messages lie, one owner a message, and holds the lookout's place. What it costs does not
-- grow with the number of queues: it looks at those lists that have changed, and at those that are marked as ready.
-- KEYS: the place, the sets of queues (queue_set.py), the sets of each list, what owners leave to others, when each set
-- was seen; the idle owners and the ready lists of each set that the lookout knows; lists that have changed. ARGV: lookout, milliseconds for which the place is its own (0: it leaves), what an owner's channel begins
-- with, seconds in which a rung owner has to come, seconds after which an owner that was not seen is none, seconds after
-- which a set that was not seen is forgotten (0: none is looked for), the keys of shut gates and of what is set aside
-- (gates.py), what the keys of a set's idle owners, of its ready lists and of its lists begin with, where in KEYS those
-- begin that have changed, then the sets of which the lists are asked for.
--
-- An owner's score is when it was seen, 1e12 more where it has room but nobody to begin at once, and negative, when
-- it was rung, until it comes. Returns 1 (0: another is the lookout, 2: nobody was), 1 if somebody is awaited, the sets,
-- the lists that are marked as ready, and the lists of each set that was asked for. A tracking client hears of what
-- changes after it was read here, and was named in KEYS: Redis 7.0 tells of no other key.

-- @include gates
redis.call('SREM', KEYS[2], '')
local place, sets, sets_of, left, seen = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local me, lease, idle, ready, consumed = ARGV[1], tonumber(ARGV[2]), ARGV[9], ARGV[10], ARGV[11]
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

-- What was not seen for long.

local function forget_owners(key)
  redis.call('ZREMRANGEBYSCORE', key, at(ARGV[4] - now), '(0')
  redis.call('ZREMRANGEBYSCORE', key, '0', at(now - ARGV[5]))
  redis.call('ZREMRANGEBYSCORE', key, '1e12', at(1e12 + now - ARGV[5]))
end
local function forget_set(set)
  for _, list in ipairs(redis.call('ZRANGE', consumed .. set, 0, -1)) do
    local others = ''
    for each in string.gmatch(redis.call('HGET', sets_of, list) or '', '[^,]+') do
      if each ~= set then others = others .. each .. ',' end
    end
    if others == '' then redis.call('HDEL', sets_of, list) else redis.call('HSET', sets_of, list, others) end
  end
  redis.call('DEL', consumed .. set, ready .. set, idle .. set)
  redis.call('SREM', sets, set)
  redis.call('ZREM', seen, set)
end
local leaves = redis.call('EXISTS', left) == 1
local function forget_what_is_left(all)
  for _, name in ipairs(redis.call('HKEYS', left)) do
    local owner, known = string.match(name, '^(%Z*)'), false
    for _, set in ipairs(all) do known = known or redis.call('ZSCORE', idle .. set, owner) end
    if not known then redis.call('HDEL', left, name) end
  end
end
local forgets = tonumber(ARGV[6]) > 0
if forgets then
  for _, set in ipairs(redis.call('ZRANGEBYSCORE', seen, '-inf', at(now - ARGV[6]))) do forget_set(set) end
end
local all = redis.call('SMEMBERS', sets)
if forgets then
  for _, set in ipairs(all) do forget_owners(idle .. set) end
  if leaves then forget_what_is_left(all) end
end

-- Which lists are ready.

local function sets_with(list)
  local found = {}
  for set in string.gmatch(redis.call('HGET', sets_of, list) or '', '[^,]+') do found[#found + 1] = set end
  return found
end
local function mark(list, there)
  for _, set in ipairs(sets_with(list)) do
    if not redis.call('ZSCORE', ready .. set, list) then
      if there == nil then there = redis.call('EXISTS', list) == 1 end
      local where = there and redis.call('ZSCORE', consumed .. set, list)
      if where then redis.call('ZADD', ready .. set, where, list) end
    end
  end
end
for n = tonumber(ARGV[12]), #KEYS do mark(KEYS[n]) end
local shut, aside = gates_of(ARGV[7], ARGV[8])
local function set_aside(list)
  local count = 0
  for _, member in ipairs(aside and aside[list] or {}) do count = count + passable(shut, ARGV[8], member) end
  return count
end
for list in pairs(aside or {}) do
  if set_aside(list) > 0 then mark(list, true) end
end

-- Who is rung.

local function turn_of(owner, list)  -- 1: as its score says, 2: after all others, nil: it is left to others
  local most = leaves and redis.call('HGET', left, owner .. '\0' .. list)
  if not most then return 1 end
  return tonumber(most) > 0 and 2 or nil
end
local function first(set, low, high, list, turn)
  if not leaves then
    local found = redis.call('ZRANGEBYSCORE', idle .. set, low, high, 'WITHSCORES', 'LIMIT', 0, 1)
    if turn == 1 and found[1] then return found[1], tonumber(found[2]) end
    return
  end
  local found = redis.call('ZRANGEBYSCORE', idle .. set, low, high, 'WITHSCORES')
  for i = 1, #found, 2 do
    if turn_of(found[i], list) == turn then return found[i], tonumber(found[i + 1]) end
  end
end
local function first_of(sets_there, low, high, list, turn)
  local best, least, of
  for _, set in ipairs(sets_there) do
    local owner, score = first(set, low, high, list, turn)
    if owner and (not least or score < least) then best, least, of = owner, score, set end
  end
  return best, of
end
local function rung_of(sets_there)
  local count = 0
  for _, set in ipairs(sets_there) do count = count + redis.call('ZCOUNT', idle .. set, '-inf', '(0') end
  return count
end
local function next_of(sets_there, list)
  local owner, set = first_of(sets_there, '0', '(1e12', list, 1)
  if owner or rung_of(sets_there) > 0 then return owner, set end
  owner, set = first_of(sets_there, '1e12', '+inf', list, 1)
  if owner then return owner, set end
  return first_of(sets_there, '0', '+inf', list, 2)
end
local coming = {}  -- of each set, how many were rung that are not counted for a message yet
local function ring(list, messages, sets_there)
  for _, set in ipairs(sets_there) do
    local count = math.min(messages, coming[set] or 0)
    coming[set], messages = (coming[set] or 0) - count, messages - count
  end
  while messages > 0 do
    local owner, set = next_of(sets_there, list)
    if not owner then return end
    if redis.call('PUBLISH', ARGV[3] .. owner, '') == 0 then redis.call('ZREM', idle .. set, owner)
    else
      redis.call('ZADD', idle .. set, at(-now), owner)
      messages = messages - 1
    end
  end
end
local marked, known, waited_for, awaited = {}, {}, {}, 0
for _, set in ipairs(all) do
  local lists = redis.call('ZRANGE', ready .. set, 0, -1)
  if #lists > 0 then
    forget_owners(idle .. set)
    waited_for[set] = redis.call('ZCARD', idle .. set) > 0
    coming[set] = redis.call('ZCOUNT', idle .. set, '-inf', '(0')
  end
  for _, list in ipairs(lists) do
    if not known[list] then
      known[list] = true
      marked[#marked + 1] = list
    end
  end
end
for _, list in ipairs(marked) do
  local there, waited = sets_with(list), false
  for _, set in ipairs(there) do waited = waited or waited_for[set] end
  if waited then
    local length = redis.pcall('LLEN', list)
    local messages = (type(length) == 'number' and length or 0) + set_aside(list)  -- a foreign value is none of ours
    if messages == 0 then
      for _, set in ipairs(there) do redis.call('ZREM', ready .. set, list) end  -- its length was read: it is told of
    else
      ring(list, messages, there)
      for _, set in ipairs(there) do
        if redis.call('ZCARD', idle .. set) > 0 then awaited = 1 end
      end
    end
  end
end
-- Read last: what this script writes after it has read it, Redis does not tell of any more.
marked, known = {}, {}
for _, set in ipairs(all) do
  redis.call('EXISTS', idle .. set)
  for _, list in ipairs(redis.call('ZRANGE', ready .. set, 0, -1)) do
    if not known[list] then
      known[list] = true
      marked[#marked + 1] = list
    end
  end
end
local asked = {}
for n = 13, #ARGV do asked[#asked + 1] = redis.call('ZRANGE', consumed .. ARGV[n], 0, -1) end
return {holder and 1 or 2, awaited, redis.call('SMEMBERS', sets), marked, asked}
