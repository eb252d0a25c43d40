-- Replaces or removes a message where it is queued, set aside or waits. KEYS: the list, or the sorted set. ARGV: `list`
-- or `set`, the message as it is stored, the new one as it is to be stored; empty: it is removed. A message that is not
-- there any more is left alone. Returns 1 if it was there, or why Redis refused.

if ARGV[1] == 'list' then
  local at = redis.call('LPOS', KEYS[1], ARGV[2])
  if not at then return 0 end
  if ARGV[3] == '' then return redis.call('LREM', KEYS[1], 1, ARGV[2]) end
  redis.call('LSET', KEYS[1], at, ARGV[3])
  return 1
end
local due = redis.call('ZSCORE', KEYS[1], ARGV[2])
if not due then return 0 end
if ARGV[3] ~= '' then
  local done = redis.pcall('ZADD', KEYS[1], due, ARGV[3])
  if type(done) == 'table' then return done end
end
return redis.call('ZREM', KEYS[1], ARGV[2])
