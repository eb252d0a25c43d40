-- Makes (or finds again) an owner. KEYS: its hash, the owners. ARGV: owner, epoch. Returns the fields it
-- holds.

redis.call('HDEL', KEYS[2], '')
redis.call('HINCRBY', KEYS[2], ARGV[1], 1)
redis.call('HSET', KEYS[1], '@', ARGV[2])
return redis.call('HKEYS', KEYS[1])
