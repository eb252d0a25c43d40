-- Notes the messages that an owner's tasks have begun with. KEYS: the owners, the begun messages. ARGV: owner, fields
-- with commas between.
redis.call('HDEL', KEYS[2], '')
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1 then redis.call('HSET', KEYS[2], ARGV[1], ARGV[2]) end
