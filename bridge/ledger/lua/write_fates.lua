-- Every write of fates: reads, decides, pushes and marks in one step. A script runs alone in Redis, so reading a byte,
-- changing half of it and writing it back cannot touch its neighbour.
--
-- Before it stands what ledger_scripts.py makes of bridge.ledger.fate_rules:
--   ROWS   wanted fate : for each of 16 old fates the new one, as a letter from "@" on (tables cost Lua more)
--   ENDS   the fates that a full Redis must take
--   PAGE, GAP   offsets of a page; the fate of a gap
--   run   a table of what this run of the script has done already (for a hook's step: what the steps before it have)
--
-- KEYS: 1 = count of writes, 2 = from which offset on each account is known, 3 = which offset each has reached;
-- others by number.
-- ARGV: seconds to keep, then for each item:
--   fate, "mark" | "each" | "whole", queue's key, index's key (0: none), lowest offset, highest offset,
--   number of stretches, {page's key, first byte, mask}..., number of entries, entry...
-- or, in the same places: a fate, "name", a unique name's key, 0, 0, 0, 0, 2, its value, milliseconds to keep it;
-- or the key of a limit's leases, the lease that ends, 0.
-- Answers for each item the stretches as they were before.
local byte, char, rep, sub, floor = string.byte, string.char, string.rep, string.sub, math.floor
local call = redis.call
local at, keep, changed_any = 2, ARGV[1], false
-- The pages whose expiry is renewed, and the counts of writes that are raised.
run.kept = run.kept or {}

local function one(old, mask, row)
  local high, low, whole = floor(old / 16), old % 16, true
  if mask >= 240 then
    local new = byte(row, high + 1) - 64
    whole = new ~= high
    high = new
  end
  if mask % 16 == 15 then
    local new = byte(row, low + 1) - 64
    whole = whole and new ~= low
    low = new
  end
  return high * 16 + low, whole
end

-- Returns the new bytes, and whether every half that was asked for changed.
local function change(old, mask, row)
  local size = #mask
  if size > 4 and sub(mask, 2, -2) == rep('\255', size - 2) then
    local inner = byte(old, 2)
    if sub(old, 2, -2) == rep(char(inner), size - 2) then
      local a, whole_a = one(byte(old, 1), byte(mask, 1), row)
      local b, whole_b = one(inner, 255, row)
      local c, whole_c = one(byte(old, size), byte(mask, size), row)
      return char(a) .. rep(char(b), size - 2) .. char(c), whole_a and whole_b and whole_c
    end
  end
  local parts, whole_all = {}, true
  for i = 1, size do
    local new, whole = one(byte(old, i), byte(mask, i), row)
    parts[i] = char(new)
    whole_all = whole_all and whole
  end
  return table.concat(parts), whole_all
end

-- SETRANGE lets Redis double a string that it makes longer: up to one byte per fate. A new string of a size
-- that jemalloc has (four to each doubling) wastes a quarter at most.
local function lengthen(key, size)
  local total, power = size + 6, 64
  while power < total do power = power * 2 end
  local step = power / 8
  local room = math.min(math.ceil(total / step) * step - 6, 32768)
  local old = call('GET', key) or ''
  if #old < size then call('SET', key, old .. rep('\0', room - #old), 'KEEPTTL') end
end

-- @include page_expiry

-- A page that expired and is written again knows nothing of what was committed before: those offsets are no open
-- deliveries, and none that anybody lost. They become gaps, over which everything may be written.
local function refill(key)
  local notes, page, account = notes_of(key)
  local due = tonumber(call('HGET', notes, page) or nil)
  if due and due > now() then call('HSET', notes, '!' .. page, due) end
  local joined = tonumber(call('HGET', KEYS[2], 'ledger:' .. account) or nil)
  local reached = tonumber(call('HGET', KEYS[3], 'ledger:' .. account) or nil)
  if not joined or not reached then return false end
  local base = tonumber(page) * PAGE
  local from, to = math.max(joined - base, 0), math.min(reached - base, PAGE)
  if from >= to then return false end
  local fates = rep('\0', floor(from / 2))
  if from % 2 == 1 then fates = fates .. char(GAP) end
  fates = fates .. rep(char(GAP * 17), floor(to / 2) - math.ceil(from / 2))
  if to % 2 == 1 then fates = fates .. char(GAP * 16) end
  call('SET', key, fates, 'EX', keep)
  return true
end

local function push(queue, entries)
  for i = 1, #entries, 1000 do
    call('LPUSH', queue, unpack(entries, i, math.min(i + 999, #entries)))
  end
end

-- The entries whose half of a byte changes.
local function due(entries, stretches, row)
  local picked, n = {}, 0
  for _, s in ipairs(stretches) do
    for i = 1, #s.mask do
      local old, mask = byte(s.old, i), byte(s.mask, i)
      for _, half in ipairs({{240, floor(old / 16)}, {15, old % 16}}) do
        if (half[1] == 240 and mask >= 240) or (half[1] == 15 and mask % 16 == 15) then
          n = n + 1
          if byte(row, half[2] + 1) - 64 ~= half[2] then picked[#picked + 1] = entries[n] end
        end
      end
    end
  end
  return picked
end

-- When which offsets were handed, in steps of ten seconds, so that what is stuck can be found: from which offset to
-- which, for each index.
local spans = {}
local function widen(span, low, high)
  if not span then return {low, high} end
  if tonumber(low) < tonumber(span[1]) then span[1] = low end
  if tonumber(high) > tonumber(span[2]) then span[2] = high end
  return span
end

-- Its expiry is renewed with each step, and with each hand-off only while that is a part of it that counts.
local function note_times()
  local bucket = next(spans) and floor(now() / 10)
  for key, span in pairs(spans) do
    local known = call('HGET', key, bucket)
    if known then span = widen(span, string.match(known, '(%d+)-(%d+)')) end
    local value = span[1] .. '-' .. span[2]
    if value ~= known then
      call('HSET', key, bucket, value)
      if not known or tonumber(keep) < 100 then call('EXPIRE', key, keep) end
    end
  end
end

local function item()
  local row, mode = ROWS[tonumber(ARGV[at])], ARGV[at + 1]
  local queue, index = KEYS[tonumber(ARGV[at + 2])], KEYS[tonumber(ARGV[at + 3])]
  local low, high = ARGV[at + 4], ARGV[at + 5]
  local count = tonumber(ARGV[at + 6])
  -- A full Redis refuses a script's first growing command and none after the script has written. What has ended
  -- may always be marked, for its message is acknowledged then, which frees more; what is pushed must be refused.
  if not run.wrote and mode == 'mark' and ENDS[tonumber(ARGV[at])] then
    call('PERSIST', KEYS[1])
    run.wrote = true
  end
  at = at + 7
  local stretches, olds, whole = {}, {}, true
  for i = 1, count do
    local s = {key = KEYS[tonumber(ARGV[at])], first = tonumber(ARGV[at + 1]), mask = ARGV[at + 2]}
    at = at + 3
    local size = #s.mask
    s.old = call('GETRANGE', s.key, s.first, s.first + size - 1)
    s.missing = #s.old == 0 and call('EXISTS', s.key) == 0
    if s.missing and refill(s.key) then s.old = call('GETRANGE', s.key, s.first, s.first + size - 1) end
    s.short = #s.old < size
    if s.short then s.old = s.old .. rep('\0', size - #s.old) end
    local all
    s.new, all = change(s.old, s.mask, row)
    whole = whole and all
    stretches[i], olds[i] = s, s.old
  end
  local entries, number = {}, tonumber(ARGV[at])
  for i = 1, number do entries[i] = ARGV[at + i] end
  at = at + 1 + number
  if mode == 'name' then
    if entries[2] == '0' then call('ZREM', queue, entries[1]) else call('SET', queue, entries[1], 'PX', entries[2]) end
    return olds
  end
  if mode == 'whole' and not whole then return olds end
  if mode == 'each' and not whole then entries = due(entries, stretches, row) end
  push(queue, entries)
  local changed = false
  for _, s in ipairs(stretches) do
    if s.new ~= s.old then
      if s.short then lengthen(s.key, s.first + #s.mask) end
      call('SETRANGE', s.key, s.first, s.new)
      if not run.kept[s.key] then keep_page(s.key, keep, s.missing) end
      run.kept[s.key], changed = true, true
    end
  end
  if changed and index then spans[index] = widen(spans[index], low, high) end
  changed_any = changed_any or changed
  return olds
end

local answers = {}
local done, why = pcall(function()
  while at <= #ARGV do answers[#answers + 1] = item() end
end)
note_times()
if changed_any and not run.kept[KEYS[1]] then
  call('INCR', KEYS[1])
  run.kept[KEYS[1]] = true
end
if not done then error(why, 0) end
return answers
