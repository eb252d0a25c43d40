-- Lets a message wait. KEYS: the queue's waiting set, the set of queues. ARGV: due time, stored message, queue, the
-- text of the header `joins` ('': it joins none), the text before the list that is joined, the most in one list, the
-- most bytes of a message, how many that are due then are looked at. Returns 2 where it has joined another, else 1. See
-- lossless/transport/delayed_messages.py.

local waiting, due, value, joins = KEYS[1], ARGV[1], ARGV[2], ARGV[4]

-- Where the inside of a message's list lies, and how many are in it; nil where that is not beyond doubt.
local function find_list(message)
  local _, before = string.find(message, ARGV[5], 1, true)
  local after, _, count = string.find(message, '%], "joined": "(%d%d%d%d)"}')
  if not before or not after or before >= after or string.find(message, ARGV[5], before, true) then return end
  if string.find(message, '], "joined": "', after + 1, true) then return end
  return before + 1, after - 1, tonumber(count)
end

-- The message with the other's list behind its own; the message itself where it has that already.
local function join_messages(message, list_of, count)
  if not string.find(message, joins, 1, true) then return end
  local key, other = string.find(message, '\0', 1, true), string.find(value, '\0', 1, true)
  if string.sub(message, 1, key) ~= string.sub(value, 1, other) then return end
  local first, last, before = find_list(message)
  if not first then return end
  -- Before the limits are looked at: what filled it may be sent again.
  if string.find(message, list_of, first, true) then return message end
  if before + count > tonumber(ARGV[6]) or #message + #list_of > tonumber(ARGV[7]) then return end
  local head = string.sub(message, 1, last) .. ', ' .. list_of
  return head .. string.format('], "joined": "%04d"}', before + count) .. string.sub(message, last + 21)
end

if joins ~= '' and not redis.call('ZSCORE', waiting, value) then
  local first, last, count = find_list(value)
  local due_then = first and redis.call('ZRANGEBYSCORE', waiting, due, due, 'LIMIT', 0, ARGV[8]) or {}
  for _, message in ipairs(due_then) do
    local made = join_messages(message, string.sub(value, first, last), count)
    if made then
      if made ~= message then
        redis.call('ZADD', waiting, due, made)
        redis.call('ZREM', waiting, message)
      end
      return 2
    end
  end
end
redis.call('ZADD', waiting, due, value)
redis.call('SADD', KEYS[2], ARGV[3])
return 1
