-- Puts back the messages of a dead owner, and ends it; a key says so for a day, should the owner wake. KEYS: its
-- hash, the owners. ARGV: owner, the beat it stopped at ('': it is no more among the owners), then three a message,
-- newest first: field, key to push to, message. Returns how many were put back, -1 if the owner lives.

-- @include end_owner
if (redis.call('HGET', KEYS[2], ARGV[1]) or '') ~= ARGV[2] then return -1 end
redis.call('HDEL', KEYS[1], '')
redis.pcall('SET', KEYS[2] .. '_swept.' .. ARGV[1], '1', 'EX', 86400)
local n = 0
for i = 3, #ARGV, 3 do
  if redis.call('HEXISTS', KEYS[1], ARGV[i]) == 1 then
    local done = redis.pcall('RPUSH', ARGV[i + 1], ARGV[i + 2])
    if type(done) ~= 'table' then
      redis.call('HDEL', KEYS[1], ARGV[i])
      n = n + 1
    end
  end
end
end_owner(KEYS[1], KEYS[2], ARGV[1])
return n
