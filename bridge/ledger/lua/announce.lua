-- Says that a member lives, and how it is.
-- KEYS: 1 = its state, 2 = all members, 3 = when each name was seen last.
-- ARGV: the member, its state, for how many milliseconds, for how many seconds names are kept, name...
-- A Redis that is full refuses what may cost memory, but not in a script that has written already: so that a member
-- does not fall silent, and is held to be dead, just when somebody looks for what is wrong.
redis.call('DEL', KEYS[1])
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
redis.call('SADD', KEYS[2], ARGV[1])
local now = redis.call('TIME')[1]
for i = 5, #ARGV do redis.call('HSET', KEYS[3], ARGV[i], now) end
redis.call('EXPIRE', KEYS[3], ARGV[4])
