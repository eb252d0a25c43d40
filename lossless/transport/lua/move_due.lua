-- Moves due messages to the back of their lists. KEYS: the set of queues with waiting messages, the list of what is
-- no message. ARGV: the waiting sets' key without the queue, most to move of each queue. Returns how many were
-- moved of the queue with the most, then what was wrong. What cannot be moved is tried again in a minute, and
-- keeps nothing else.

-- @include stored_message
local queues = redis.call('SMEMBERS', KEYS[1])
if #queues == 0 then return {0} end
redis.call('SREM', KEYS[1], '')
local time = redis.call('TIME')
local now, later = string.format('%d.%06d', time[1], time[2]), string.format('%d.%06d', time[1] + 60, time[2])
local reply = {0}
local function wrong(where, what) if #reply < 20 then reply[#reply + 1] = where .. ': ' .. what end end
local function move(waiting, value)
  local key, raw = split_stored_message(value)
  local done
  if key then done = redis.pcall('LPUSH', key, raw)
  else
    wrong(waiting, 'a value that is none of ours was moved to the list ' .. KEYS[2])
    done = redis.pcall('LPUSH', KEYS[2], value)
  end
  if type(done) ~= 'table' then return redis.call('ZREM', waiting, value) end
  wrong(waiting, 'what is due cannot be moved: ' .. done.err)
  redis.call('ZADD', waiting, later, value)
  return 0
end
for _, queue in ipairs(queues) do
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
