-- The recent cost of deliveries to handlers. KEYS: a hash for each handler. ARGV: seconds to keep them, seconds after
-- which earlier measurements count a third, then for each handler: how many deliveries were handled, seconds that they
-- took, the sum of the squares of the times, seconds besides, those of them that a message takes once, whether a process
-- was lost, whether a delivery was slow, and how many deliveries a process runs side by side (0: unchanged).
-- Earlier measurements fade with the time that the new deliveries took, so that a slow one is noticed at once.
-- A value that is no finite number of at least 0 was never measured: all values are reset then.
local names = {'deliveries', 'seconds', 'squares', 'beside', 'once'}
for number, key in ipairs(KEYS) do
  local at, before, fields = 3 + (number - 1) * 8, {0, 0, 0, 0, 0}, {}
  local found = redis.pcall('HMGET', key, unpack(names))
  if found.err then
    redis.call('DEL', key)
    found = {}
  end
  for i = 1, #names do
    before[i] = tonumber(found[i] or 0)
    if not (before[i] and before[i] >= 0 and before[i] < 1e15) then
      before = {0, 0, 0, 0, 0}
      break
    end
  end
  local fade = math.exp(-(ARGV[at + 1] + ARGV[at + 3]) / ARGV[2])
  for i, name in ipairs(names) do
    fields[#fields + 1] = name
    fields[#fields + 1] = string.format('%.17g', before[i] * fade + ARGV[at + i - 1])
  end
  for i, name in ipairs({'lost', 'slow'}) do
    if ARGV[at + 4 + i] == '1' then
      fields[#fields + 1] = name
      fields[#fields + 1] = redis.call('TIME')[1]
    end
  end
  if ARGV[at + 7] ~= '0' then
    fields[#fields + 1] = 'at_once'
    fields[#fields + 1] = ARGV[at + 7]
  end
  redis.call('HSET', key, unpack(fields))
  redis.call('EXPIRE', key, ARGV[1])
end
