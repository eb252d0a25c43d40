-- Lets messages through a shut gate. KEYS: the hash of shut gates. ARGV: gate, how many from now on. Returns 1, 0 where
-- it is open.

if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return 0 end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
return 1
