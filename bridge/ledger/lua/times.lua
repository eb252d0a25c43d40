-- What deliveries to one handler cost lately. KEYS: the handler's hash. ARGV: seconds to keep it, seconds after which
-- what was known counts a third, how many deliveries were handled, seconds that they took, the sum of the squares of
-- what each took, seconds besides them, and whether a process was lost.
-- What was known fades with the time that the new ones took, so that one that is slow is heeded at once.
local function known(field) return tonumber(redis.call('HGET', KEYS[1], field)) or 0 end

local fade = math.exp(-(ARGV[4] + ARGV[6]) / ARGV[2])
redis.call('HSET', KEYS[1],
  'deliveries', string.format('%.17g', known('deliveries') * fade + ARGV[3]),
  'seconds', string.format('%.17g', known('seconds') * fade + ARGV[4]),
  'squares', string.format('%.17g', known('squares') * fade + ARGV[5]),
  'beside', string.format('%.17g', known('beside') * fade + ARGV[6]))
if ARGV[7] == '1' then redis.call('HSET', KEYS[1], 'lost', redis.call('TIME')[1]) end
redis.call('EXPIRE', KEYS[1], ARGV[1])
