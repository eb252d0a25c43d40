-- What deliveries to one handler cost lately. KEYS: the handler's hash. ARGV: seconds to keep it, seconds after which
-- what was known counts a third, how many deliveries were handled, seconds that they took, the sum of the squares of
-- what each took, seconds besides them, whether a process was lost, and whether a delivery was slow.
-- What was known fades with the time that the new ones took, so that one that is slow is heeded at once.
-- What is no finite number of at least 0 was never measured: all that was known is forgotten then.
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
redis.call('EXPIRE', KEYS[1], ARGV[1])
