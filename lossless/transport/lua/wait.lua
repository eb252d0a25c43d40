-- Lets a message wait. KEYS: the queue's waiting set, the set of queues. ARGV: due time, stored message,
-- queue.

redis.call('ZADD', KEYS[1], ARGV[1], ARGV[2])
redis.call('SADD', KEYS[2], ARGV[3])
return 1
