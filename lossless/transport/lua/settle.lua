-- Ends what was taken. KEYS: the owner's hash, the set of queues with waiting messages. ARGV, six a message:
-- how ("ack", "front": next to run, "back": last to run, "wait"), field, key to push to, message, due time in
-- seconds, queue. What is no longer the owner's is left alone. Returns the fields whose push was refused.

redis.call('HDEL', KEYS[1], '')
local refused = {}
for i = 1, #ARGV, 6 do
  local how, field, key, raw = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]
  if redis.call('HEXISTS', KEYS[1], field) == 1 then
    local done
    if how == 'front' then done = redis.pcall('RPUSH', key, raw)
    elseif how == 'back' then done = redis.pcall('LPUSH', key, raw)
    elseif how == 'wait' then
      done = redis.pcall('ZADD', key, ARGV[i + 4], raw)
      redis.pcall('SADD', KEYS[2], ARGV[i + 5])
    end
    if type(done) == 'table' and done.err then refused[#refused + 1] = field
    else redis.call('HDEL', KEYS[1], field) end
  end
end
return refused
