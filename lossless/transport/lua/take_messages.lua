-- Acknowledges, then takes; an owner that finds too little is noted as idle, to be rung for. KEYS: the owner's hash,
-- the set of queues with idle owners, the idle owners of each of ``ARGV[4]`` queues, then lists, highest priority
-- first, ``ARGV[4]`` of each priority. ARGV: epoch, first field, most to take, number of queues, "1" to serve them in
-- turn ("0": drain the first list first), "1" per queue that is consumed without acknowledgement else "0", how many
-- messages can begin at once, owner to be noted as idle ('': none), the most to take of each queue (-1: any number; 0:
-- it is left to others, and the owner is not idle there), the keys of shut gates and of messages set aside
-- (message_gates.py), the most to set aside, "1" if the owner may be noted as idle, the hash of owners, how many others
-- there are (-1: count them), how many messages wait here for a process already (-1: that does not matter), then what to
-- acknowledge (see acknowledgement.lua).
--
-- Messages that cannot begin here at once are taken only while no other owner is idle: prefetching starves nobody. The
-- same holds for a queue with a number: this owner did not know the messages that it took there last, and is rung last.
-- And they are taken only while the others have plenty left, `LEFT_EACH` for each message that would wait here: by the
-- time it begins here, each of them would have begun one.
--
-- A message whose gate is shut is set aside instead; messages set aside are taken first when their gate is open.
--
-- Returns 1 (0: the epoch is not the owner's, nothing was taken; 2: there is more to set aside), the server's time (0 if
-- nothing was asked for), the length of each queue with a number (else -1), what acknowledgement.lua returns, how many other
-- owners there are, how many messages may wait here by what is left (-1: any number), then list index, message and the
-- hook's answer for each message taken; those that must be acknowledged have the fields first, first + 1 ...

-- @include acknowledgement
-- @include gated_take
-- @include nonempty_keys

local LEFT_EACH = 8
local held, most, size, field = KEYS[1], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[2])
local free, owner = tonumber(ARGV[7]), ARGV[8]
local refused = acknowledge(held, 17)
local reply = {1, '0', '', refused, -1, -1}
if most == 0 then return reply end
local now = redis.call('TIME')
reply[2] = string.format('%d.%06d', now[1], now[2])
if ARGV[1] ~= '' and redis.call('HGET', held, '@') ~= ARGV[1] then
  reply[1] = 0
  return reply
end
local function take_next(list) return redis.call('RPOP', list) end
local function has_more() return false end
local shut, aside = read_gates(ARGV[10], ARGV[11])
if shut then
  redis.call('HDEL', held, '')
  take_next, has_more = make_gated_take(shut, aside, ARGV[10], ARGV[11], tonumber(ARGV[12]))
end
local taken, idle_others, quota = 0, {}, {}
local queue = 0
for number in string.gmatch(ARGV[9], '[^,]+') do
  local length = -1
  if number ~= '-1' then quota[queue] = tonumber(number) end
  if quota[queue] and quota[queue] > 0 then
    length = 0
    for list = 3 + size + queue, #KEYS, size do length = length + redis.call('LLEN', KEYS[list]) end
  end
  reply[3] = reply[3] .. length .. ','
  queue = queue + 1
end
local others, waiting = tonumber(ARGV[15]), tonumber(ARGV[16])
if others < 0 and waiting >= 0 then others = math.max(0, redis.call('HLEN', ARGV[14]) - 1) end
local function count_idle_others(queue)
  if others == 0 then return 0 end
  if not idle_others[queue] then
    local key = KEYS[3 + queue]
    local own = redis.call('ZSCORE', key, owner)
    idle_others[queue] = redis.call('ZCOUNT', key, '-inf', '(1e12') - (own and tonumber(own) < 1e12 and 1 or 0)
  end
  return idle_others[queue]
end
local lengths, last_list = {}, nil
local needed = waiting < 0 and 0 or LEFT_EACH * others
local function count_left(i)
  lengths[i] = lengths[i] or redis.call('LLEN', KEYS[i])
  return lengths[i]
end
local function has_plenty(i) return needed == 0 or count_left(i) > needed * (waiting + taken - free + 1) end
local function count_allowed_ahead()
  if needed == 0 then return -1 end
  return last_list and math.max(0, math.floor((count_left(last_list) - 1) / needed)) or 0
end
-- Of many lists most are empty: one command tells it of all. Where there are few, the first that is empty has all others
-- looked at; where a gate is shut, each is.
local many, nonempty = #KEYS - 2 - size > 40 and not shut, {}
local are_all_empty = nil
local function look_at_others(i)
  if are_all_empty ~= nil or many or shut then return end
  local names = {}
  for list = 3 + size, #KEYS do
    if list ~= i then names[#names + 1] = KEYS[list] end
  end
  are_all_empty = #names == 0 or redis.call('EXISTS', unpack(names)) == 0
end
local function pop(i)
  local queue = (i - 3) % size
  if are_all_empty or quota[queue] == 0 or (many and not nonempty[i]) then return false end
  if (taken >= free or quota[queue]) and owner ~= '' and count_idle_others(queue) > 0 then return false end
  if taken >= free and not has_plenty(i) then return false end
  local raw = take_next(KEYS[i])
  if not raw then
    look_at_others(i)
    return false
  end
  if lengths[i] then lengths[i] = lengths[i] - 1 end
  if string.sub(ARGV[6], queue + 1, queue + 1) == '0' then
    redis.call('HSET', held, string.format('%d', field), KEYS[i] .. '\0' .. raw)
  end
  field, taken, last_list = field + 1, taken + 1, i
  quota[queue] = quota[queue] and quota[queue] - 1
  reply[#reply + 1] = i - 3 - size
  reply[#reply + 1] = raw
  local seen, found = pcall(look, raw)
  reply[#reply + 1] = seen and found or ''
  return true
end
for first = 3 + size, #KEYS, size do
  if many then find_nonempty_keys(KEYS, first, first + size - 1, nonempty) end
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
if has_more() then reply[1] = 2 end
reply[5], reply[6] = others, count_allowed_ahead()
if owner == '' then return reply end
if taken == most or has_more() then
  if ARGV[13] == '1' then
    for i = 3, 2 + size do redis.call('ZREM', KEYS[i], owner) end
  end
  return reply
end
local waited_for = {}
for i = 3, 2 + size do
  if quota[i - 3] == 0 then redis.call('ZREM', KEYS[i], owner)
  else
    local last = (quota[i - 3] or taken >= free) and 1e12 or 0
    local score = string.format('%.6f', now[1] + now[2] / 1e6 + last)
    if redis.pcall('ZADD', KEYS[i], score, owner) == 1 then  -- while it is there, so is the queue in the set
      local names = {KEYS[i]}
      for list = i + size, #KEYS, size do names[#names + 1] = KEYS[list] end
      waited_for[#waited_for + 1] = table.concat(names, '\0')
    end
  end
end
for first = 1, #waited_for, 1000 do
  redis.pcall('SADD', KEYS[2], unpack(waited_for, first, math.min(first + 999, #waited_for)))
end
return reply
