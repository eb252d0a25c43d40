-- Puts waiting messages to the back of their list before their time. KEYS: the queue's waiting set, the list. ARGV: two
-- a message, the first due in front: as it is stored, message. What does not wait any more is left alone. Returns how
-- many were moved, or why the list refused one.

redis.call('ZREM', KEYS[1], '')
local n = 0
for i = 1, #ARGV, 2 do
  if redis.call('ZSCORE', KEYS[1], ARGV[i]) then
    local done = redis.pcall('LPUSH', KEYS[2], ARGV[i + 1])
    if type(done) == 'table' then return done end
    redis.call('ZREM', KEYS[1], ARGV[i])
    n = n + 1
  end
end
return n
