-- Notes decisions of the group, in four ways. An older decision never replaces a newer one.
-- KEYS: 1 = the hash of all decisions: `is KEY` holds "OFFSET ID JSON" of a decision in Kafka, `wants KEY` "ID JSON" of
-- an unpublished one, `version` a random word after each change; `whole` is set once a bridge has checked that the hash
-- has all that Kafka has, and is lost with the rest when Redis is wiped.
-- ARGV: 1 = the new version, 2 = the kind of note: 'is', 'wants', 'anew' or 'whole'; then
-- is: KEY, OFFSET, ID, JSON of a decision in Kafka; an unpublished one that it counts over is deleted.
-- wants: KEY, ID, JSON of an unpublished decision, unless one in Kafka counts over it.
-- anew: the control topic was recreated or truncated, and known offsets mean nothing: all is to be published again, and
--   is in force meanwhile.
-- whole: the VERSION that the bridge has seen, empty for none.
-- A full Redis refuses commands that may cost memory, but not in a script that has already written.
redis.call('HDEL', KEYS[1], '')
local what, changed = ARGV[2], false
local function at(json)
  local read, said = pcall(cjson.decode, json)
  return read and type(said) == 'table' and tonumber(said.at) or 0
end
-- As GroupDecision.counts_over: made knowing the other, or if neither was, later. An id is 16 random digits: it
-- occurs nowhere else.
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
  -- A late note: the decision that is there was made since.
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
