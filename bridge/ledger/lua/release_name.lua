-- Releases a unique name whose record did not get done. KEYS[1]: the name's key. ARGV: the record.
local held = redis.call('GET', KEYS[1])
if held == 'h ' .. ARGV[1] or held == 'r ' .. ARGV[1] then redis.call('DEL', KEYS[1]) end
return false
