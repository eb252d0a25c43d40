-- Narrows the index of hand-off times to the deliveries in flight.
-- KEYS: 1 = the index. ARGV, for each step: its field, its old value, its new value ('' deletes it).
-- Only if unchanged: Redis's clock may have been set back and the step be written again.
for i = 1, #ARGV, 3 do
  if redis.call('HGET', KEYS[1], ARGV[i]) == ARGV[i + 1] then
    if ARGV[i + 2] == '' then redis.call('HDEL', KEYS[1], ARGV[i])
    else redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 2]) end
  end
end
