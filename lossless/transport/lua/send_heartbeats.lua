-- Sends the heartbeats of owners. KEYS: the owners. ARGV: owners. Returns those that were swept meanwhile.

redis.call('HDEL', KEYS[1], '')
local gone = {}
for _, owner in ipairs(ARGV) do
  if redis.call('HEXISTS', KEYS[1], owner) == 1 then redis.call('HINCRBY', KEYS[1], owner, 1)
  else gone[#gone + 1] = owner end
end
return gone
