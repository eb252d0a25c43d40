-- Narrows the index of hand-off times to what is still under way.
-- KEYS: 1 = the index. ARGV, for each step: its field, what it held, what it is to hold ('': nothing).
-- Only if unchanged: Redis's clock may have been set back and the step be written again.
for i = 1, #ARGV, 3 do
  if redis.call('HGET', KEYS[1], ARGV[i]) == ARGV[i + 1] then
    if ARGV[i + 2] == '' then redis.call('HDEL', KEYS[1], ARGV[i])
    else redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 2]) end
  end
end
