-- The expiry of a page of fates, and its note. The notes of an account's pages are a hash that never expires: <page> is
-- the earliest Unix time at which the page may expire, !<page> the same for one that was evicted (or deleted) before
-- that and written again.
local function notes_of(key)
  local group, account, page = string.match(key, '^(ledger:[^:]*:[^:]*:)fates:(.*):(%d+)$')
  return group .. 'pages:' .. account, page, account
end

-- The time by Redis's clock, which stands still while a script runs.
local time
local function now()
  time = time or tonumber(redis.call('TIME')[1])
  return time
end

-- A page's expiry and its note are set together, and the expiry is only ever extended: a process with a lower
-- kafka_ledger_days never lets a page expire that the note still expects. Both are left alone while they are at most
-- ten seconds (for short times a tenth) old.
local function keep_page(key, keep, new)
  keep = tonumber(keep)
  if not new and redis.call('PTTL', key) >= (keep - math.min(10, keep / 10)) * 1000 then return end
  redis.call('EXPIRE', key, keep)
  local notes, page = notes_of(key)
  redis.call('HSET', notes, page, now() + keep)
  if not new then return end
  local known = redis.call('HGETALL', notes)
  for i = 1, #known, 2 do
    if tonumber(known[i + 1]) <= now() then redis.call('HDEL', notes, known[i]) end
  end
end
