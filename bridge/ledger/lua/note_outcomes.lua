-- Notes how attempts ended, each of one handler on one topic. KEYS: their hashes. ARGV: seconds within which lost
-- processes are one incident, seconds that all is kept, then for each hash: seconds since the last success ('': none),
-- since the last failure ('': none), since the first failure after that success, how many failed after it, the last
-- error, how many processes were lost. Times are Redis's: workers report how long ago it was.
local time = redis.call('TIME')
local now = time[1] + time[2] / 1e6
local function text(value) return string.format('%.17g', value) end
for index, key in ipairs(KEYS) do
  local at = 2 + (index - 1) * 6
  local row = redis.call('HMGET', key, 'done_at', 'failed_at', 'failing_since', 'failed', 'lost_at', 'lost_since',
    'lost')
  local function number(field) return tonumber(row[field] or 0) or 0 end
  local done_at, failed_at, since, failed = number(1), number(2), number(3), number(4)
  local lost_at, lost_since, lost = number(5), number(6), number(7)

  if ARGV[at + 1] ~= '' then
    local done = now - tonumber(ARGV[at + 1])
    if done > done_at then
      done_at = done
      -- A success ends the failures before it. At least one of other processes' failures after it is known.
      if since > 0 and done > since then
        if failed_at > done then since, failed = failed_at, 1 else since, failed = 0, 0 end
      end
    end
  end
  if ARGV[at + 2] ~= '' then
    local last, first = now - tonumber(ARGV[at + 2]), now - tonumber(ARGV[at + 3])
    if last > done_at then
      first = math.max(first, done_at)
      since = since > 0 and math.min(since, first) or first
      failed = failed + tonumber(ARGV[at + 4])
    end
    if last > failed_at then
      failed_at = last
      redis.call('HSET', key, 'error', ARGV[at + 5])
    end
  end
  local deaths = tonumber(ARGV[at + 6])
  if deaths > 0 then
    if now - lost_at > tonumber(ARGV[1]) then lost_since, lost = now, 0 end
    lost_at, lost = now, lost + deaths
  end
  redis.call('HSET', key, 'done_at', text(done_at), 'failed_at', text(failed_at), 'failing_since', text(since),
    'failed', text(failed), 'lost_at', text(lost_at), 'lost_since', text(lost_since), 'lost', text(lost))
  redis.call('EXPIRE', key, ARGV[2])
end
