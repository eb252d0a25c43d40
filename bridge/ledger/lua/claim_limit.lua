-- Claims starts of a shared limit for deliveries, in one step. Rate: a bucket of credit by Redis's clock (GCRA).
-- Concurrency: a lease for each delivery that runs. Fairness: each lane (a key of a handler) has a virtual time.
-- KEYS: the limit's hash; leases ("lane|delivery" by expiry); active lanes (by the time until which they are); lanes
-- whose turn it is (by the time until which starts are left for them).
-- ARGV: the time ("": Redis's), starts a second (0: any number), seconds of credit, runs at once (0: any number),
-- seconds of a lease, seconds that a run takes, then for each delivery: lane, lease.
-- Returns for each delivery the milliseconds that it waits; 0: it starts now.
-- Fields of the hash: "tat" until when all starts are paid for, "tail" the last waiting delivery's turn, "near" the same
-- of those that look again soon, "denied" when one had to wait last, "far" when those without a turn look again,
-- "w"SECOND how many look again in a second, "swept" the first second that may have such a field, "at" the time of the
-- last claim, "s"LANE and "t"LANE a lane's next start and turn.
local call, max, min, floor = redis.call, math.max, math.min, math.floor
local state, leases, lanes, turns = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local clock = call('TIME')
local now = tonumber(ARGV[1]) or tonumber(clock[1]) + tonumber(clock[2]) / 1000000
local rate, depth, slots = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local lease, takes = tonumber(ARGV[5]), max(0.001, tonumber(ARGV[6]))
-- How many start in a second while deliveries wait.
local pace = rate
if slots > 0 and (rate == 0 or slots / takes < rate) then pace = slots / takes end

local function text(number) return string.format('%.6f', number) end
local read = call('HMGET', state, 'tat', 'tail', 'near', 'denied', 'far', 'swept', 'at', 'started', 'waited')
for number = 1, 9 do read[number] = tonumber(read[number] or nil) or 0 end
local tat, tail, near, denied, far, swept = unpack(read, 1, 6)
-- The clock was set back: no time of before it counts, and leases end as if they had begun now.
if now < read[7] - 1 then
  tat, tail, near, denied, swept = now, now, now, 0, 0
  call('DEL', state, lanes, turns)
  call('HSET', state, 'started', string.format('%.0f', read[8]), 'waited', string.format('%.0f', read[9]))
  for _, member in ipairs(call('ZRANGEBYSCORE', leases, '(' .. text(now + lease), '+inf')) do
    call('ZADD', leases, text(now + lease), member)
  end
end
-- A rate that was raised holds back nothing for longer than one start takes.
if rate > 0 then tat = min(tat, now + 1 / rate) end
if near > now + 2 then near = now end
-- Nobody has waited for a while: what the tail counts has gone elsewhere.
if now - denied > 1 or tail > now + 120 then tail = now end

if slots > 0 then call('ZREMRANGEBYSCORE', leases, '-inf', text(now)) end
local gone = call('ZRANGEBYSCORE', lanes, '-inf', text(now - 1), 'LIMIT', 0, 32)
for _, lane in ipairs(gone) do
  call('HDEL', state, 's' .. lane, 't' .. lane)
  call('ZREM', lanes, lane)
end
call('ZREMRANGEBYSCORE', turns, '-inf', text(now))
local active = call('ZCOUNT', lanes, text(now), '+inf')
-- What one lane leaves for the others is kept beside the burst.
if active > 1 and rate > 0 then depth = depth + min(active - 1, 8) / rate end
local held, free = nil, slots - (slots > 0 and call('ZCARD', leases) or 0)

local function held_by(lane)
  if not held then
    held = {}
    for _, member in ipairs(call('ZRANGE', leases, 0, -1)) do
      local name = string.match(member, '^[^|]*')
      held[name] = (held[name] or 0) + 1
    end
  end
  return held[lane] or 0
end

local function stay_active(lane, till)
  local known = tonumber(call('ZSCORE', lanes, lane) or nil)
  if not known or known < now then active = active + 1 end
  if not known or known < till then call('ZADD', lanes, text(till), lane) end
end

-- Returns when one looks again soon, so that no start is left over; nil: enough do.
local function look_soon(spare)
  local soon = max(near, now) + 1 / (pace + spare)
  if soon - now > 1 then return nil end
  near = soon
  return soon
end

-- Returns when a delivery that must wait looks again: in a minute at most, as lanes come and go, and numbers change.
-- What would wait longer looks for a turn then; the times are spread as turns are.
local function take_turn(lane, is_entitled)
  local most = active > 1 and 20 or 60
  if active > 1 then
    -- A lease ends at any time: a lane that is due the next one looks often.
    local soon = is_entitled and slots > 0 and look_soon(8)
    if soon then return soon end
    -- Somewhat before its fair turn: other lanes may be through by then.
    local turn = min(tonumber(call('HGET', state, 't' .. lane) or nil) or 0, now + 21)
    turn = max(turn, now) + (slots > 0 and 0.5 or 0.75) * active / pace
    if turn - now <= most then
      call('HSET', state, 't' .. lane, text(turn))
      return turn
    end
  end
  local soon = look_soon(2)
  if soon then return soon end
  local room = max(tail, now) - now
  if room < most then
    tail = now + room + 1 / pace
    return min(tail, now + most)
  end
  far = far + 1 / pace
  return now + most / 2 + far % most
end

local answers, started, looks = {}, 0, {}
for at = 7, #ARGV, 2 do
  local lane, member = ARGV[at], ARGV[at] .. '|' .. ARGV[at + 1]
  stay_active(lane, now + 1)
  local own = slots > 0 and call('ZSCORE', leases, member)
  local start = max(tonumber(call('HGET', state, 's' .. lane) or nil) or 0, now - depth)
  start = min(start, now + 20 + active / pace)
  local is_entitled = true
  if active > 1 then
    -- Of fewer leases than lanes each may have one, and the next only after the others.
    local is_due = start <= now or (rate == 0 and slots >= active)
    is_entitled = is_due and (slots == 0 or held_by(lane) < max(1, floor(slots / active)))
  end
  -- A lane above its share leaves starts for the others that wait and are not far above theirs.
  local left = 0
  if not is_entitled then
    left = call('ZCARD', turns)
    if left > 0 and call('ZSCORE', turns, lane) then left = left - 1 end
  end
  -- Of a rate so many as are due for each until workers look again.
  local has_credit = rate == 0 or max(tat, now - depth) + left * math.ceil(0.1 * pace / active) / rate <= now
  if has_credit and (own or slots == 0 or free > left) then
    if rate > 0 then tat = max(tat, now - depth) + 1 / rate end
    if slots > 0 then
      call('ZADD', leases, text(now + lease), member)
      if not own then free = free - 1 end
      if held and not own then held[lane] = (held[lane] or 0) + 1 end
    end
    start = start + active / pace
    call('HSET', state, 's' .. lane, text(start))
    if slots > 0 or start > now + 0.5 then call('ZREM', turns, lane) end
    stay_active(lane, start)
    started = started + 1
    answers[#answers + 1] = 0
  else
    local wait = max(0.2, take_turn(lane, is_entitled) - now)
    if active > 1 and (is_entitled or (slots == 0 and start <= now + 0.5)) then
      call('ZADD', turns, text(now + wait + 1), lane)
    end
    stay_active(lane, now + wait + 1)
    denied = now
    looks[floor(now + wait)] = (looks[floor(now + wait)] or 0) + 1
    answers[#answers + 1] = floor(wait * 1000 + 0.5)
  end
end
call('HSET', state, 'tat', text(tat), 'tail', text(tail), 'near', text(near), 'denied', text(denied), 'at', text(now),
  'pace', text(pace))
if started > 0 then call('HINCRBY', state, 'started', started) end
if started < #answers then
  -- None looks again later than in 90 s.
  for second = swept, swept > 0 and min(floor(now) - 2, swept + 95) or -1 do call('HDEL', state, 'w' .. second) end
  for second, number in pairs(looks) do call('HINCRBY', state, 'w' .. second, number) end
  call('HSET', state, 'far', text(far % 120), 'swept', floor(now) - 1)
  call('HINCRBY', state, 'waited', #answers - started)
end
call('EXPIRE', state, 604800)
call('EXPIRE', leases, math.ceil(lease) + 60)
call('EXPIRE', lanes, 7200)
call('EXPIRE', turns, 7200)
return answers
