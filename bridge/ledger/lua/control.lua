-- Notes what was decided, in four ways. An older decision never takes the place of a newer one.
-- KEYS: 1 = the hash of all decisions: `is KEY` holds "OFFSET ID JSON" of what Kafka has, `wants KEY` "ID JSON" of what
-- it does not have yet, `version` another word after each change; `whole` is there once a bridge has seen that nothing
-- is missing that Kafka has, and goes with all else when Redis is wiped.
-- ARGV: 1 = the new version, 2 = what is noted: 'is', 'wants', 'anew' or 'whole'; then
-- is: KEY, OFFSET, ID, JSON: what Kafka has; what it does not have yet, and this one counts over, is settled by it.
-- wants: KEY, ID, JSON: what Kafka does not have yet, unless something that it has counts over it.
-- anew: the control topic has another log, and its offsets say nothing of those that are known: all is to be published
--   once more, and counts meanwhile.
-- whole: the VERSION that the bridge has seen, empty for none.
-- A Redis that is full refuses what may cost memory, but not in a script that has written already.
redis.call('HDEL', KEYS[1], '')
local what, changed = ARGV[2], false
local function at(json)
  local read, said = pcall(cjson.decode, json)
  return read and type(said) == 'table' and tonumber(said.at) or 0
end
-- As Decision.counts_over: who decided knew of the other, or neither of the other, and was later. An id is 16 random
-- digits: it stands nowhere else.
local function knows(json, id) return id ~= '' and string.find(json, '"' .. id .. '"', 1, true) end
local function counts_over(id, json, other, of_other)
  if id == other then return false end
  if knows(json, other) then return true end
  return id ~= '' and other ~= '' and not knows(of_other, id) and at(json) > at(of_other)
end
if what == 'is' then
  local is, wants = 'is ' .. ARGV[3], 'wants ' .. ARGV[3]
  local there = redis.call('HGET', KEYS[1], is)
  local offset, id, json = string.match(there or '', '^(%S+) (%S*) (.*)$')
  local newer = not there or tonumber(offset) < tonumber(ARGV[4])
  -- This one came late: what is there was decided since.
  if there and counts_over(id, json, ARGV[5], ARGV[6]) then newer = false end
  if newer then
    redis.call('HSET', KEYS[1], is, ARGV[4] .. ' ' .. ARGV[5] .. ' ' .. ARGV[6])
    changed = true
  end
  local wanted, said = string.match(redis.call('HGET', KEYS[1], wants) or '', '^(%S+) (.*)$')
  if wanted and (wanted == ARGV[5] or counts_over(ARGV[5], ARGV[6], wanted, said)) then
    redis.call('HDEL', KEYS[1], wants)
    changed = true
  end
elseif what == 'wants' then
  local _, id, json = string.match(redis.call('HGET', KEYS[1], 'is ' .. ARGV[3]) or '', '^(%S+) (%S*) (.*)$')
  if not id or not counts_over(id, json, ARGV[4], ARGV[5]) then
    redis.call('HSET', KEYS[1], 'wants ' .. ARGV[3], ARGV[4] .. ' ' .. ARGV[5])
    changed = true
  end
elseif what == 'whole' then
  if (redis.call('HGET', KEYS[1], 'version') or '') == ARGV[3] then
    redis.call('HSET', KEYS[1], 'whole', '1')
    changed = true
  end
else
  local all = redis.call('HGETALL', KEYS[1])
  for i = 1, #all, 2 do
    local key, said = string.match(all[i], '^is (.*)$'), string.match(all[i + 1], '^%S+ (.*)$')
    if key and said then
      redis.call('HSET', KEYS[1], all[i], '-1 ' .. said)
      redis.call('HSETNX', KEYS[1], 'wants ' .. key, said)
      changed = true
    end
  end
end
if changed then redis.call('HSET', KEYS[1], 'version', ARGV[1]) end
return changed and 1 or 0
