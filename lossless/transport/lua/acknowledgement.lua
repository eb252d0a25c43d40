-- Acknowledges. ARGV[at]: how many fields without a step, those fields, then for each field with a bundled step: the
-- field, the step's number of keys, its keys, its number of arguments, its arguments. Returns the fields whose step was
-- refused, each with a comma behind it, then a newline and the first reason: they stay held, unchanged.
local run = {}
local function run_step(at)
  local keys, args, count = {}, {}, tonumber(ARGV[at])
  for i = 1, count do keys[i] = ARGV[at + i] end
  at = at + count + 1
  count = tonumber(ARGV[at])
  for i = 1, count do args[i] = ARGV[at + i] end
  local done, why = pcall(step, keys, args, run)
  return done, at + count + 1, not done and tostring(type(why) == 'table' and why.err or why)
end

local function acknowledge(held, at)
  local refused, first, last = '', '', at + tonumber(ARGV[at])
  if last > at then redis.call('HDEL', held, unpack(ARGV, at + 1, last))
  elseif last < #ARGV then redis.call('HDEL', held, '') end
  at = last + 1
  local settled = {}
  while at <= #ARGV do
    local field, done, why = ARGV[at], false, false
    done, at, why = run_step(at + 1)
    if done then settled[#settled + 1] = field
    else
      if first == '' then first = why end
      refused = refused .. field .. ','
    end
  end
  if #settled > 0 then redis.call('HDEL', held, unpack(settled)) end
  return refused == '' and '' or refused .. '\n' .. first
end
