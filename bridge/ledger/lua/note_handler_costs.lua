-- The recent cost of deliveries to one handler. KEYS: the handler's hash. ARGV: seconds to keep it, seconds after which
-- earlier measurements count a third, how many deliveries were handled, seconds that they took, the sum of the squares
-- of the times, seconds besides, whether a process was lost, whether a delivery was slow, and how many deliveries a
-- process runs side by side (0: unchanged).
-- Earlier measurements fade with the time that the new deliveries took, so that a slow one is noticed at once.
-- A value that is no finite number of at least 0 was never measured: all values are reset then.
local names, before = {'deliveries', 'seconds', 'squares', 'beside'}, {0, 0, 0, 0}
local kind = redis.call('TYPE', KEYS[1]).ok
if kind ~= 'hash' and kind ~= 'none' then redis.call('DEL', KEYS[1]) end
for i, found in ipairs(redis.call('HMGET', KEYS[1], unpack(names))) do
  before[i] = tonumber(found or 0)
  if not (before[i] and before[i] >= 0 and before[i] < 1e15) then
    before = {0, 0, 0, 0}
    break
  end
end

local fade = math.exp(-(ARGV[4] + ARGV[6]) / ARGV[2])
for i, name in ipairs(names) do
  redis.call('HSET', KEYS[1], name, string.format('%.17g', before[i] * fade + ARGV[i + 2]))
end
if ARGV[7] == '1' then redis.call('HSET', KEYS[1], 'lost', redis.call('TIME')[1]) end
if ARGV[8] == '1' then redis.call('HSET', KEYS[1], 'slow', redis.call('TIME')[1]) end
if ARGV[9] ~= '0' then redis.call('HSET', KEYS[1], 'at_once', ARGV[9]) end
redis.call('EXPIRE', KEYS[1], ARGV[1])
