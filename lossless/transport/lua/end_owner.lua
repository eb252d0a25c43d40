-- Ends an owner, given its hash and the hash of owners, if it holds nothing. Returns how many it still holds.
local function end_owner(held, owners, owner)
  local left = redis.call('HLEN', held) - redis.call('HEXISTS', held, '@')
  if left == 0 then
    redis.call('DEL', held)
    redis.call('HDEL', owners, owner)
    redis.call('HDEL', owners .. '_begun', owner)
  end
  return left
end
