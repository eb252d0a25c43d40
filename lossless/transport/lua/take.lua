-- Acknowledges, then takes; an owner that finds too little is noted as idle, to be rung for. What a take costs does not
-- grow with the number of queues: it looks at those lists of the owner's set of queues (queue_set.py) that are marked as
-- ready. The lookout marks them (ring.lua), and so does a take that looks at all of them.
--
-- KEYS: the owner's hash; then either lists, highest priority first, of each priority ``ARGV[15]``: these are looked at,
-- and no owner is noted; or the set's idle owners, its ready lists, its lists, the sets, the sets of each list, what
-- owners leave to others, when each set was seen, and the set's lists where they are to be noted.
-- ARGV: epoch, first field, most to take, the set ('': none), "1" to serve queues in turn ("0": drain the first list
-- first), "1" per queue that is consumed without acknowledgement else "0" (where lists are given), how many of the most
-- somebody can begin with at once, owner to be noted as idle ('': nobody), what is taken of a queue at most (its number
-- in the set, ``:``, how many, ``,``; 0: it is left to others, and the owner is not idle there; -1: no longer limited),
-- the keys of shut gates and of what is set aside (gates.py), the most to set aside, how to look ("ready", "all": mark
-- first what is there, "small": at all lists, without marks), the number of the queue to begin with, how many queues,
-- how many priorities, what the keys of idle owners begin with, then what is to be acknowledged (see acknowledge.lua).
--
-- What nobody here can begin with is taken only while no other owner is idle: prefetching starves nobody. The same
-- holds where a number is asked of a queue: this owner knew nothing of what it took there last, and is rung last.
--
-- A message of which a gate is shut is set aside instead; what was set aside is taken first when its gate is open.
--
-- Returns 1 (0: the epoch is not the owner's, nothing was taken; 2: there is more to set aside; 3: the set is not noted,
-- nothing was taken), the server's time, how many lie in each queue of which a number was asked (its number, ``:``, how
-- many, ``,``), what acknowledge.lua returns, then list, message and what the rider found for each one taken; those that
-- must be acknowledged have the fields first, first + 1 ...

-- @include acknowledge
-- @include gated
-- @include places

local held, most, field = KEYS[1], tonumber(ARGV[3]), tonumber(ARGV[2])
local set, size, priorities, start = ARGV[4], tonumber(ARGV[15]), tonumber(ARGV[16]), tonumber(ARGV[14])
local free, owner, how = tonumber(ARGV[7]), ARGV[8], ARGV[13]
local refused = acknowledge(held, 18)
local now = redis.call('TIME')
local reply = {1, string.format('%d.%06d', now[1], now[2]), '', refused}
if most == 0 then return reply end
if ARGV[1] ~= '' and redis.call('HGET', held, '@') ~= ARGV[1] then
  reply[1] = 0
  return reply
end
local idle, ready, consumed, sets, sets_of, left = KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7]
local function note_set()
  redis.call('HDEL', held, '')
  for i = 9, #KEYS do
    local rank, queue = math.floor((i - 9) / size), (i - 9) % size
    redis.call('ZADD', consumed, place_of(rank, queue, string.sub(ARGV[6], queue + 1, queue + 1) == '1'), KEYS[i])
    local known = redis.call('HGET', sets_of, KEYS[i]) or ''
    if not string.find(',' .. known, ',' .. set .. ',', 1, true) then
      redis.call('HSET', sets_of, KEYS[i], known .. set .. ',')
    end
  end
end
if set ~= '' then
  if #KEYS > 8 then note_set()
  elseif redis.call('EXISTS', consumed) == 0 then
    reply[1] = 3
    return reply
  end
end
local function next_of(list) return redis.call('RPOP', list) end
local function goes_on() return false end
local shut, aside = gates_of(ARGV[10], ARGV[11])
if shut then
  redis.call('HDEL', held, '')
  next_of, goes_on = taking(shut, aside, ARGV[10], ARGV[11], tonumber(ARGV[12]))
end

-- What is taken of each queue at most.

local quota = {}
local function lists_of(queue)
  local lists = {}
  for rank = 0, priorities - 1 do
    local place = place_of(rank, queue, false)
    lists[#lists + 1] = redis.call('ZRANGEBYSCORE', consumed, place, place + 1)[1]
  end
  return lists
end
for queue, number in string.gmatch(ARGV[9], '(%d+):(-?%d+)') do
  local lie = 0
  if number ~= '-1' then quota[tonumber(queue)] = tonumber(number) end
  if tonumber(number) > 0 then
    for _, list in ipairs(lists_of(queue)) do lie = lie + redis.call('LLEN', list) end
    reply[3] = reply[3] .. queue .. ':' .. lie .. ','
  end
end

-- Which lists are looked at: of each priority, in turn from a queue on.

local function ranked(rank, entries, found)
  for i = 1, #found, 2 do
    local _, queue, unheld = parts_of_place(tonumber(found[i + 1]))
    entries[#entries + 1] = {list = found[i], queue = queue, held = not unheld}
  end
  return entries
end
local function given(rank)
  local entries = {}
  for queue = 0, size - 1 do
    local held_there = string.sub(ARGV[6], queue + 1, queue + 1) == '0'
    entries[#entries + 1] = {list = KEYS[2 + rank * size + queue], queue = queue, held = held_there}
  end
  return entries
end
local function of_set(key, rank, limit)
  local first, last = place_of(rank, 0, false), place_of(rank + 1, 0, false)
  local from = place_of(rank, start, false)
  local function range(low, high, count)
    return redis.call('ZRANGEBYSCORE', key, low, high, 'WITHSCORES', 'LIMIT', 0, count)
  end
  local entries = ranked(rank, {}, range(from, '(' .. last, limit))
  if start == 0 or #entries >= limit then return entries end
  return ranked(rank, entries, range(first, '(' .. from, limit - #entries))
end
local marks = set ~= '' and how ~= 'small'
if marks then
  if how == 'all' then
    redis.call('HDEL', held, '')
    for _, list in ipairs(not_empty(redis.call('ZRANGE', consumed, 0, -1))) do
      redis.pcall('ZADD', ready, redis.call('ZSCORE', consumed, list), list)
    end
  end
  for list in pairs(aside or {}) do
    local place = redis.call('ZSCORE', consumed, list)
    if place then redis.call('ZADD', ready, place, list) end
  end
end

-- Whether others are idle that could begin with what lies in a list.

local idle_others = {}
local leaves = owner ~= '' and redis.call('EXISTS', left) == 1
local function idle_of(key, list)
  if not leaves then
    local own = redis.call('ZSCORE', key, owner)
    return redis.call('ZCOUNT', key, '-inf', '(1e12') - (own and tonumber(own) < 1e12 and 1 or 0)
  end
  local count = 0
  for _, other in ipairs(redis.call('ZRANGEBYSCORE', key, '-inf', '(1e12')) do
    if other ~= owner and not redis.call('HGET', left, other .. '\0' .. list) then count = count + 1 end
  end
  return count
end
local function others(list)
  if not idle_others[list] then
    local count = 0
    for each in string.gmatch(redis.call('HGET', sets_of, list) or '', '[^,]+') do
      count = count + idle_of(ARGV[17] .. each, list)
    end
    idle_others[list] = count
  end
  return idle_others[list]
end

local taken = 0
local function pop(entry)
  local queue = entry.queue
  if quota[queue] == 0 then return false end
  if (taken >= free or quota[queue]) and owner ~= '' and others(entry.list) > 0 then return false end
  local raw = next_of(entry.list)
  if not raw then
    entry.empty = redis.call('LLEN', entry.list) == 0
    return false
  end
  if entry.held then redis.call('HSET', held, string.format('%d', field), entry.list .. '\0' .. raw) end
  field, taken = field + 1, taken + 1
  quota[queue] = quota[queue] and quota[queue] - 1
  reply[#reply + 1] = entry.list
  reply[#reply + 1] = raw
  local seen, found = pcall(look, raw)
  reply[#reply + 1] = seen and found or ''
  return true
end
local function take_of(entries)
  local more = true
  while more and taken < most do
    more = false
    for _, entry in ipairs(entries) do
      while not entry.over and taken < most do
        if pop(entry) then more = true else entry.over = true end
        if ARGV[5] == '1' then break end
      end
    end
  end
end
local function take_ready(rank)
  local over, kept = {}, 0
  while taken < most do
    local limit, entries = most + kept, {}
    local found = of_set(ready, rank, limit)
    for _, entry in ipairs(found) do
      if not over[entry.list] then entries[#entries + 1] = entry end
    end
    take_of(entries)
    for _, entry in ipairs(entries) do
      if entry.empty then redis.call('ZREM', ready, entry.list)
      elseif entry.over then over[entry.list], kept = true, kept + 1 end
    end
    if #found < limit then return end
  end
end
if not marks then
  for rank = 0, priorities - 1 do
    take_of(set == '' and given(rank) or of_set(consumed, rank, size))
    if taken == most then break end
  end
elseif redis.call('EXISTS', ready) == 1 then
  for rank = 0, priorities - 1 do take_ready(rank) end
end
if goes_on() then reply[1] = 2 end
if owner == '' then return reply end

-- Who is idle, and what is left to others.

if how ~= 'ready' then redis.pcall('SADD', sets, set) end
if how ~= 'ready' then redis.pcall('ZADD', KEYS[8], now[1], set) end
for queue, number in string.gmatch(ARGV[9], '(%d+):(-?%d+)') do
  for _, list in ipairs(lists_of(queue)) do
    if number == '-1' then redis.call('HDEL', left, owner .. '\0' .. list)
    else redis.pcall('HSET', left, owner .. '\0' .. list, number) end
  end
end
if taken == most or goes_on() then redis.call('ZREM', idle, owner)
else
  redis.pcall('ZADD', idle, string.format('%.6f', now[1] + now[2] / 1e6 + (taken >= free and 1e12 or 0)), owner)
end
return reply
