-- Rings for idle owners of queues with messages, one owner a message, and renews the notifier's lease. KEYS: the lease,
-- the set of queues with idle owners, then per queue its idle owners and its lists. ARGV: notifier, milliseconds of the
-- lease (0: it is given up), the prefix of an owner's channel, seconds in which a rung owner has to come, seconds after
-- which an owner that was not seen is no longer idle, "1" to forget queues without idle owners, the keys of shut gates
-- and of messages set aside (message_gates.py), "1" to renew the lease, then the number of lists of each queue.
--
-- An idle owner's score is when it was seen, 1e12 more if it has room but no free process, and negative, when it was
-- rung, until it comes. Returns 1 (0: another is the notifier, 2: there was none), 1 if a rung owner has not come yet,
-- the number of idle owners per queue, the queues with idle owners. Reads last the keys that a tracking client needs.

-- @include gate_state
-- @include nonempty_keys
local key_of_lease, me, lease = KEYS[1], ARGV[1], tonumber(ARGV[2])
local holder = redis.call('GET', key_of_lease)
if holder and holder ~= me then return {0} end
if lease == 0 then
  redis.call('DEL', key_of_lease)
  return {0}
end
-- A full Redis refuses a script's first growing command, and none behind one that does not grow.
local wrote = false
local function before_growth()
  if not wrote then redis.call('SREM', KEYS[2], '') end
  wrote = true
end
if not holder or ARGV[9] == '1' then
  before_growth()
  redis.call('SET', key_of_lease, me, 'PX', lease)
end
local time
local function now()
  if not time then
    local read = redis.call('TIME')
    time = read[1] + read[2] / 1e6
  end
  return time
end
local function format_score(score) return string.format('%.6f', score) end
local function find_first(key, low, high) return redis.call('ZRANGEBYSCORE', key, low, high, 'LIMIT', 0, 1)[1] end
-- Those that were not seen for long are passed over, and forgotten when nobody else is left.
local function find_next_owner(key, rung)
  local owner = find_first(key, '(' .. format_score(now() - ARGV[5]), '(1e12')
  if owner or rung > 0 then return owner end
  return find_first(key, '(' .. format_score(1e12 + now() - ARGV[5]), '+inf')
end
local function forget_absent(key)
  redis.call('ZREMRANGEBYSCORE', key, format_score(ARGV[4] - now()), '(0')
  redis.call('ZREMRANGEBYSCORE', key, '0', format_score(now() - ARGV[5]))
  redis.call('ZREMRANGEBYSCORE', key, '1e12', format_score(1e12 + now() - ARGV[5]))
end
local function count_rung(key) return redis.call('ZCOUNT', key, '-inf', '(0') end
local function ring_owners(key, messages)
  local rung = count_rung(key)
  if rung > 0 then
    rung = rung - redis.call('ZREMRANGEBYSCORE', key, format_score(ARGV[4] - now()), '(0')
  end
  while rung < messages do
    local owner = find_next_owner(key, rung)
    if not owner then
      if rung == 0 then forget_absent(key) end
      break
    end
    if redis.call('PUBLISH', ARGV[3] .. owner, '') == 0 then redis.call('ZREM', key, owner)
    else
      before_growth()
      redis.call('ZADD', key, format_score(-now()), owner)
      rung = rung + 1
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
  for n = 10, #ARGV do
    for list = i + 1, i + tonumber(ARGV[n]) do all[#all + 1], places[#places + 1] = KEYS[list], list end
    i = i + tonumber(ARGV[n]) + 1
  end
  local found = {}
  find_nonempty_keys(all, 1, #all, found)
  for n in pairs(found) do nonempty[places[n]] = true end
end
local awaited, counts, i = 0, {}, 3
for n = 10, #ARGV do
  local key, last = KEYS[i], i + tonumber(ARGV[n])
  local messages, left = 0, 0
  if not many and last > i then left = redis.call('EXISTS', unpack(KEYS, i + 1, last)) end
  for list = i + 1, last do
    local length = (left > 0 or nonempty[list]) and redis.pcall('LLEN', KEYS[list])
    if length and length ~= 0 then left = left - 1 end
    if type(length) == 'number' then messages = messages + length end  -- a foreign value is none of ours
    messages = messages + count_set_aside(KEYS[list])
  end
  if ARGV[6] == '1' then forget_absent(key) end
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
