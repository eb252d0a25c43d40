-- Gives back starts of a shared limit that were claimed and not used, and the leases of deliveries that have ended.
-- KEYS: the limit's hash; its leases. ARGV: starts that were not used, starts a second (0: any number), then leases.
local unused, rate = tonumber(ARGV[1]), tonumber(ARGV[2])
if unused > 0 then
  local tat = tonumber(redis.call('HGET', KEYS[1], 'tat') or nil)
  if tat and rate > 0 then redis.call('HSET', KEYS[1], 'tat', string.format('%.6f', tat - unused / rate)) end
  redis.call('HINCRBY', KEYS[1], 'started', -unused)
end
for at = 3, #ARGV do redis.call('ZREM', KEYS[2], ARGV[at]) end
return false
