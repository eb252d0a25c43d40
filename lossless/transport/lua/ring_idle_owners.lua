-- Rings for idle owners of queues with messages, one owner a message, and renews the notifier's lease. KEYS: the lease,
-- the set of queues with idle owners, then per queue its idle owners and its lists. ARGV: notifier, milliseconds of the
-- lease (0: it is given up), the prefix of an owner's channel, seconds in which a rung owner has to come, seconds after
-- which an owner that was not seen is no longer idle, "1" to forget queues without idle owners, the keys of shut gates
-- and of messages set aside (message_gates.py), then the number of lists of each queue.
--
-- An idle owner's score is when it was seen, 1e12 more if it has room but no free process, and negative, when it was
-- rung, until it comes. Returns 1 (0: another is the notifier, 2: there was none), 1 if a rung owner has not come yet,
-- the number of idle owners per queue, the queues with idle owners. Reads last the keys that a tracking client needs.

-- @include gate_state
-- @include nonempty_keys
redis.call('SREM', KEYS[2], '')
local key_of_lease, me, lease = KEYS[1], ARGV[1], tonumber(ARGV[2])
local holder = redis.call('GET', key_of_lease)
if holder and holder ~= me then return {0} end
if lease == 0 then
  redis.call('DEL', key_of_lease)
  return {0}
end
if redis.call('PTTL', key_of_lease) < lease / 2 then redis.call('SET', key_of_lease, me, 'PX', lease) end
local time = redis.call('TIME')
local now = time[1] + time[2] / 1e6
local function format_score(score) return string.format('%.6f', score) end
local function find_first(key, low, high) return redis.call('ZRANGEBYSCORE', key, low, high, 'LIMIT', 0, 1)[1] end
local function find_next_owner(key)
  local owner = find_first(key, '0', '(1e12')
  if owner or redis.call('ZCOUNT', key, '-inf', '(0') > 0 then return owner end
  return find_first(key, '1e12', '+inf')
end
local function forget_absent(key)
  redis.call('ZREMRANGEBYSCORE', key, format_score(ARGV[4] - now), '(0')
  redis.call('ZREMRANGEBYSCORE', key, '0', format_score(now - ARGV[5]))
  redis.call('ZREMRANGEBYSCORE', key, '1e12', format_score(1e12 + now - ARGV[5]))
end
local function ring_owners(key, messages)
  local wanted = messages - redis.call('ZCOUNT', key, '-inf', '(0')
  while wanted > 0 do
    local owner = find_next_owner(key)
    if not owner then break end
    if redis.call('PUBLISH', ARGV[3] .. owner, '') == 0 then redis.call('ZREM', key, owner)
    else
      redis.call('ZADD', key, format_score(-now), owner)
      wanted = wanted - 1
    end
  end
end
local shut, lists = read_gates(ARGV[7], ARGV[8])
local function count_set_aside(list)
  local count = 0
  for _, member in ipairs(lists and lists[list] or {}) do count = count + count_passable(shut, ARGV[8], member) end
  return count
end
-- Of many lists most are empty: few commands tell it of all, and read each, so that a tracking client hears of it.
local many, nonempty = #KEYS > 80, {}
if many then
  local all, places, i = {}, {}, 3
  for n = 9, #ARGV do
    for list = i + 1, i + tonumber(ARGV[n]) do all[#all + 1], places[#places + 1] = KEYS[list], list end
    i = i + tonumber(ARGV[n]) + 1
  end
  local found = {}
  find_nonempty_keys(all, 1, #all, found)
  for n in pairs(found) do nonempty[places[n]] = true end
end
local awaited, counts, i = 0, {}, 3
for n = 9, #ARGV do
  local key, last = KEYS[i], i + tonumber(ARGV[n])
  local messages = 0
  for list = i + 1, last do
    local length = (not many or nonempty[list]) and redis.pcall('LLEN', KEYS[list])
    if type(length) == 'number' then messages = messages + length end  -- a foreign value is none of ours
    messages = messages + count_set_aside(KEYS[list])
  end
  if messages > 0 or ARGV[6] == '1' then forget_absent(key) end
  if messages > 0 then ring_owners(key, messages) end
  counts[#counts + 1] = redis.call('ZCARD', key)
  if messages > 0 and counts[#counts] > 0 then awaited = 1 end
  if ARGV[6] == '1' and counts[#counts] == 0 and last > i then
    local names = {}
    for list = i, last do names[#names + 1] = KEYS[list] end
    redis.call('SREM', KEYS[2], table.concat(names, '\0'))
  end
  i = last + 1
end
return {holder and 1 or 2, awaited, counts, redis.call('SMEMBERS', KEYS[2])}
