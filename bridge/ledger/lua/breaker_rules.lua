-- The circuit breaker of one dependency. KEYS: its hash, and the sorted sets of the deliveries that failed and that
-- died recently (by time). ARGV: the time in seconds ('': the server's), the act ("report", "admit", "look"), the trial
-- request's name ('': none), the terms (see breaker_state.py): failures, ratio, window, dead letters, seconds to the
-- first trial request and at most, seconds that one may take, seconds of the ramp, whether a time limit ends one within
-- its time; and for a report: how many runs succeeded, whether one ended unclear, the seconds since the first failure,
-- the seconds since it was admitted, whether its delivery dies unless this is down, how many failed, their deliveries,
-- how many died, theirs, and the last of their errors ('': none).
-- 
-- tests/breaker_model.py has the same rules in Python. Returns the state before and now, the since, opened, until and
-- probe times, why, whether it is admitted, how many messages a shut gate may let through now, when it was last tried,
-- until when no other trial request joins that one, and how many are silent: they have not ended within their time.
local SETTLE, MEMORY, MOST, KEPT, START, DOUBLINGS, AGAIN = 1, 604800, 1000, 604800, 5, 10, 3
-- Seconds after which another trial request joins a silent one; longer, up to LONGEST, if MANY are silent.
local SOON, MANY, LONGEST = 300, 16, 3600
local hash, failed, dead = KEYS[1], KEYS[2], KEYS[3]
local now, act, probe = tonumber(ARGV[1]), ARGV[2], ARGV[3]
if not now then
  local time = redis.call('TIME')
  now = time[1] + time[2] / 1e6
end
local failures, ratio, window, deaths = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local first_pause, last_pause = tonumber(ARGV[8]), tonumber(ARGV[9])
local lease, ramp, ends = tonumber(ARGV[10]), tonumber(ARGV[11]), ARGV[12] == '1'

local s, found = {}, redis.call('HGETALL', hash)
for i = 1, #found, 2 do s[found[i]] = found[i + 1] end
local state, before = s.state or 'closed', s.state or 'closed'
local function number(name) return tonumber(s[name] or 0) end
local changed = {}
local function set(name, value)
  if type(value) == 'number' then value = string.format('%.17g', value) end
  s[name], changed[name] = value, value
end
local function count(key, from) return redis.call('ZCOUNT', key, string.format('%.17g', from), '+inf') end

local function open(why, since, pause)
  state = 'open'
  set('since', since)
  set('opened', now)
  if (s.error or '') ~= '' then why = why .. '; the last error: ' .. s.error end
  set('why', why)
  set('pause', pause)
  set('probe', now + pause)
  set('silent', 0)
  redis.call('DEL', failed, dead)
end
local function close()
  state = 'closed'
  set('until', now)
  set('begun', now)
  set('first', 0)
  set('good', 0)
  redis.call('DEL', failed, dead)
end
local function admitted_by(at)  -- deliveries from the ramp's beginning until then
  return math.floor(START * 2 ^ (DOUBLINGS * (at - number('ramp')) / ramp))
end

if state == 'ramping' and now >= number('ramp') + ramp then close() end
if state == 'probing' and now >= number('lease') then
  state = 'open'
  set('probe', now)
  -- A trial request that a time limit ended does not hang.
  if s.ends ~= '1' then set('silent', number('silent') + 1) end
end

-- Silent trial requests hang, or their workers died: not all workers may get stuck in one that hangs.
local function within()
  local silent = number('silent')
  if ends then return lease end
  if silent < MANY then return math.max(lease, math.min(SOON, lease * 2 ^ silent)) end
  return math.max(lease, math.min(LONGEST, SOON * 2 ^ (math.min(silent, 100) - MANY + 1)))
end

local function notes(key, at, many)
  for i = at + 1, at + many do redis.call('ZADD', key, string.format('%.17g', now), ARGV[i]) end
  if many > 0 then
    redis.call('ZREMRANGEBYSCORE', key, '-inf', string.format('%.17g', now - MEMORY))
    redis.call('ZREMRANGEBYRANK', key, 0, -MOST - 1)
    redis.call('EXPIRE', key, KEPT)
  end
end

-- A delivery that dies now: the breaker opens if others failed too, and none has succeeded while it failed.
local function spare(age)
  local first = number('first')
  local many = first > 0 and count(failed, first) or 0
  -- Enough at once: retries that are over within the SETTLE second are not waited for.
  if many < failures and (many < 2 or age < window) then return end
  open(string.format('%d deliveries failed, the first to its last retry, and none succeeded between', many), first,
    first_pause)
end

local function judge()
  if now - number('begun') < SETTLE then return end
  local first = number('first')
  local lately, good = count(failed, now - window), number('good')
  if first > 0 and now - first >= SETTLE then
    local many, died = count(failed, first), count(dead, first)
    if many >= failures then
      return open(string.format('%d deliveries failed, and none succeeded between', many), first, first_pause)
    end
    if many + died >= deaths then
      return open(string.format('%d deliveries failed or died, and none succeeded between', many + died), first,
        first_pause)
    end
  end
  if lately >= failures and lately >= ratio * (lately + good) then
    open(string.format('%d deliveries of %d failed within %d s', lately, lately + math.floor(good), window),
      now - window, first_pause)
  end
end

local function report()
  local good, unclear, age, bad = tonumber(ARGV[13]), ARGV[14] == '1', tonumber(ARGV[15]), tonumber(ARGV[18])
  local died = tonumber(ARGV[19 + bad])
  local said = ARGV[20 + bad + died] or ''
  if bad + died > 0 and said ~= '' then set('error', said) end
  local admitted_at, last = now - tonumber(ARGV[16]), ARGV[17] == '1'
  -- A failure before others' successes does not count: its own delivery is probably at fault.
  local witness = now - age >= number('ok_at')
  if good > 0 then set('ok_at', now) end
  if state == 'closed' then
    if number('begun') == 0 then set('begun', now) end
    local at = number('good_at')
    if good > 0 or at > 0 then
      set('good', number('good') * math.exp(-math.max(0, now - at) / window) + good)
      set('good_at', now)
    end
    if good > 0 then set('first', 0) end
    if bad + died > 0 and witness then
      if number('first') == 0 then set('first', now) end
      notes(failed, 18, bad)
      notes(dead, 19 + bad, died)
      judge()
      if state == 'closed' and last then spare(age) end
    end
  elseif state ~= 'ramping' and good > 0 and probe ~= '' and admitted_at >= number('opened') then
    -- Also of a trial request that was replaced: it took long, and succeeded.
    state = 'ramping'
    set('ramp', now)
    set('admitted', 0)
    set('good', good)
    redis.call('DEL', failed, dead)
  elseif state == 'probing' and probe ~= '' and probe == s.prober then
    if bad + died > 0 or unclear then set('silent', 0) end
    if bad + died > 0 then
      local pause = math.min(number('pause') * 2, last_pause)
      state = 'open'
      set('pause', pause)
      set('probe', now + pause)
    elseif unclear then
      state = 'open'
      set('probe', now)
    end
  elseif state ~= 'ramping' and probe ~= '' and admitted_at >= number('opened') then
    -- A silent trial request has ended after all.
    if bad + died > 0 or unclear then set('silent', math.max(0, number('silent') - 1)) end
  elseif state == 'ramping' and probe ~= '' then
    set('good', number('good') + good)
    if witness then
      notes(failed, 18, bad)
      notes(dead, 19 + bad, died)
    end
    local wrong = count(failed, 0) + count(dead, 0)
    if bad + died > 0 and wrong >= AGAIN and wrong >= ratio * (wrong + number('good')) then
      open(string.format('%d deliveries of %d failed as it was tried again', wrong, wrong + number('good')),
        number('since'), last_pause)
    end
  end
end

local granted = 0
if act == 'report' then report()
elseif act == 'admit' then
  if state == 'closed' then granted = 1
  elseif state == 'open' and now >= number('probe') then
    granted, state = 1, 'probing'
    set('prober', probe)
    set('tried', now)
    set('lease', now + within())
    set('ends', ends and 1 or 0)
  elseif state == 'ramping' and number('admitted') < admitted_by(now) then
    granted = 1
    set('admitted', number('admitted') + 1)
  end
end

local allowed = 0
if state == 'open' and now >= number('probe') then allowed = 1
elseif state == 'ramping' then allowed = math.max(1, admitted_by(now + 1) - number('admitted')) end
if state ~= before then set('state', state) end
if next(changed) then
  local fields = {}
  for name, value in pairs(changed) do
    fields[#fields + 1] = name
    fields[#fields + 1] = value
  end
  redis.call('HSET', hash, unpack(fields))
  redis.call('EXPIRE', hash, KEPT)
end
local function text(name) return s[name] or '0' end
return {
  before, state, text('since'), text('opened'), text('until'), text('probe'), s.why or '', granted, allowed,
  text('tried'), text('lease'), text('silent')
}
