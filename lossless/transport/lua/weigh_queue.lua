-- Weighs a queue and samples its messages; read-only. KEYS: its lists, then all other keys that hold messages of it.
-- ARGV: how many of KEYS are its lists, the places of the samples in the queue (numbers from 0 up to 1, separated by
-- blanks), then names of lists that messages may carry. A queue with fewer messages than samples is read whole; in
-- either case only up to some megabyte.
--
-- Returns the bytes that all of KEYS take, and for each message that was looked at its task and how many items it
-- carries: 1 where it carries no such list, or is too large to be read through.
local READ, MOST = 65536, 1000000
local bytes, lengths, total = 0, {}, 0
for i, key in ipairs(KEYS) do
  bytes = bytes + (redis.call('MEMORY', 'USAGE', key, 'SAMPLES', 10) or 0)
  if i <= tonumber(ARGV[1]) then
    lengths[i] = redis.call('LLEN', key)
    total = total + lengths[i]
  end
end

local function read_message(place)  -- the message at this place of all lists together
  for i = 1, #lengths do
    if place < lengths[i] then return redis.call('LINDEX', KEYS[i], place) end
    place = place - lengths[i]
  end
end

local function count_nested(raw, name)
  local read, message = pcall(cjson.decode, #raw <= READ and raw or '')
  if not read or type(message) ~= 'table' or type(message.headers) ~= 'table' then return 1 end
  for _, header in pairs(message.headers) do
    if type(header) == 'table' and type(header[name]) == 'table' then return #header[name] end
  end
  return 1
end

local function count_carried(raw)
  for i = 3, #ARGV do
    local _, start = string.find(raw, '"' .. ARGV[i] .. '": [', 1, true)
    if start and string.sub(raw, start + 1, start + 1) == '[' then return count_nested(raw, ARGV[i]) end
    if start then
      local stop = string.find(raw, ']', start, true) or #raw
      return select(2, string.gsub(string.sub(raw, start, stop), ',', '')) + 1
    end
  end
  return 1
end

local places = {}
for each in string.gmatch(ARGV[2], '%S+') do places[#places + 1] = tonumber(each) end
local found, many, read = {}, math.min(#places, total), 0
for i = 1, many do
  local place = total <= #places and i - 1 or math.min(total - 1, math.floor(places[i] * total))
  local raw = read < MOST and read_message(place)
  if raw then
    read = read + #raw
    local task = string.match(string.sub(raw, 1, READ), '"task": "([^"]*)"') or ''
    found[#found + 1] = {task, count_carried(raw)}
  end
end
return {bytes, found}
