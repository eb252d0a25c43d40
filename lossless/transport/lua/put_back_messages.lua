-- Puts back messages that an owner holds without knowing them. KEYS: its hash, the list of what is no message.
-- ARGV: fields, newest first. Returns how many were none of ours, and how many could not be put back.

-- @include stored_message
redis.call('HDEL', KEYS[1], '')
local aside, refused = 0, 0
for _, field in ipairs(ARGV) do
  local value = redis.call('HGET', KEYS[1], field)
  if value then
    local key, raw = split_stored_message(value)
    local done
    if key then done = redis.pcall('RPUSH', key, raw)
    else done, aside = redis.pcall('LPUSH', KEYS[2], value), aside + 1 end
    if type(done) == 'table' then refused = refused + 1
    else redis.call('HDEL', KEYS[1], field) end
  end
end
return {aside, refused}
