-- Announces a member and its state.
-- KEYS: 1 = its state, 2 = all members, 3 = when each name was last announced.
-- ARGV: the member, its state, milliseconds that it is valid, seconds that names are kept, name...
-- A full Redis refuses commands that may cost memory, but not in a script that has already written: so DEL comes
-- first, and a member does not count as lost just when somebody looks for the cause.
redis.call('DEL', KEYS[1])
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
redis.call('SADD', KEYS[2], ARGV[1])
local now = redis.call('TIME')[1]
for i = 5, #ARGV do redis.call('HSET', KEYS[3], ARGV[i], now) end
redis.call('EXPIRE', KEYS[3], ARGV[4])
