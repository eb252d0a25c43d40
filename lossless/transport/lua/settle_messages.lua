-- Settles taken messages. KEYS: the owner's hash, the set of queues with waiting messages. ARGV, six a message:
-- how ("ack", "front": next to run, "back": last to run, "wait"; "first": the first that a gate lets through, "aside":
-- before all that was not given back to it so), field, key to push to, message, due time in seconds, queue ("first",
-- "aside": the member of `_aside` that the key is of). What is no longer the owner's is left alone. Returns the fields
-- whose push was refused.

local function was_given_back(raw)
  local at, properties = 0, nil
  while at do properties, at = at, string.find(raw, '"properties":', at + 1, true) end
  return string.find(raw, '"redelivered": ?true', properties) ~= nil
end

local function push_aside(key, raw, first)
  local before = {}
  -- The order in which they were taken, as far as a worker takes ahead.
  while not first and #before < 200 do
    local other = redis.call('LINDEX', key, -1)
    if not other or not was_given_back(other) then break end
    before[#before + 1] = redis.call('RPOP', key)
  end
  local done = redis.pcall('RPUSH', key, raw)
  for i = #before, 1, -1 do redis.call('RPUSH', key, before[i]) end
  return done
end

-- A user who may not know of gates (an ACL of before they came) puts it in front of its list.
local function set_aside(key, raw, member, first)
  local done = redis.pcall('SADD', string.sub(key, 1, -2 - #member), member)
  if type(done) == 'number' then done = push_aside(key, raw, first) end
  if type(done) == 'number' then return done end
  return redis.pcall('RPUSH', string.sub(member, string.find(member, '\0', 1, true) + 1), raw)
end

redis.call('HDEL', KEYS[1], '')
local refused = {}
for i = 1, #ARGV, 6 do
  local how, field, key, raw = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]
  if redis.call('HEXISTS', KEYS[1], field) == 1 then
    local done
    if how == 'front' then done = redis.pcall('RPUSH', key, raw)
    elseif how == 'back' then done = redis.pcall('LPUSH', key, raw)
    elseif how == 'aside' or how == 'first' then done = set_aside(key, raw, ARGV[i + 5], how == 'first')
    elseif how == 'wait' then
      done = redis.pcall('ZADD', key, ARGV[i + 4], raw)
      redis.pcall('SADD', KEYS[2], ARGV[i + 5])
    end
    if type(done) == 'table' and done.err then refused[#refused + 1] = field
    else redis.call('HDEL', KEYS[1], field) end
  end
end
return refused
