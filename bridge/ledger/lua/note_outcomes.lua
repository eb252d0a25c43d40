-- Notes how attempts of one handler on one topic ended. KEYS: its hash. ARGV: seconds since the last success ('':
-- none), since the last failure ('': none), since the first failure after that success, how many failed after it, the
-- last error, how many processes were lost, seconds within which lost processes are one incident, seconds that all is
-- kept. Times are Redis's: workers report how long ago it was.
local time = redis.call('TIME')
local now = time[1] + time[2] / 1e6
local row = redis.call('HMGET', KEYS[1], 'done_at', 'failed_at', 'failing_since', 'failed', 'lost_at', 'lost_since', 'lost')
local function number(at) return tonumber(row[at] or 0) or 0 end
local done_at, failed_at, since, failed = number(1), number(2), number(3), number(4)
local lost_at, lost_since, lost = number(5), number(6), number(7)

if ARGV[1] ~= '' then
  local done = now - tonumber(ARGV[1])
  if done > done_at then
    done_at = done
    -- A success ends the failures before it. At least one of other processes' failures after it is known.
    if since > 0 and done > since then
      if failed_at > done then since, failed = failed_at, 1 else since, failed = 0, 0 end
    end
  end
end
if ARGV[2] ~= '' then
  local last, first = now - tonumber(ARGV[2]), now - tonumber(ARGV[3])
  if last > done_at then
    first = math.max(first, done_at)
    since = since > 0 and math.min(since, first) or first
    failed = failed + tonumber(ARGV[4])
  end
  if last > failed_at then
    failed_at = last
    redis.call('HSET', KEYS[1], 'error', ARGV[5])
  end
end
local deaths = tonumber(ARGV[6])
if deaths > 0 then
  if now - lost_at > tonumber(ARGV[7]) then lost_since, lost = now, 0 end
  lost_at, lost = now, lost + deaths
end
local function text(value) return string.format('%.17g', value) end
redis.call('HSET', KEYS[1], 'done_at', text(done_at), 'failed_at', text(failed_at), 'failing_since', text(since),
  'failed', text(failed), 'lost_at', text(lost_at), 'lost_since', text(lost_since), 'lost', text(lost))
redis.call('EXPIRE', KEYS[1], ARGV[8])
return 1
