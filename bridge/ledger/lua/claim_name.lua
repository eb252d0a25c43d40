-- Claims a unique name for a record. KEYS[1]: the name's key. ARGV: the record, milliseconds of the lease, "h" or "r".
-- The key's value is "h RECORD" while the record runs ("r RECORD": a replay), and "d RECORD" once it is done (write_fates.lua).
-- A name that the record itself has done stays done: this may be a late copy of it.
-- Returns nothing if the record has the name now, else that value: another record has it.
local held = redis.call('GET', KEYS[1])
if held and string.sub(held, 3) ~= ARGV[1] then return held end
if held and string.sub(held, 1, 1) == 'd' then return false end
redis.call('SET', KEYS[1], ARGV[3] .. ' ' .. ARGV[1], 'PX', ARGV[2])
return false
