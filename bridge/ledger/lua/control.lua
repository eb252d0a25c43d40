-- Notes what was decided, in four ways. An older decision never takes the place of a newer one.
-- KEYS: 1 = the hash of all decisions: `is KEY` holds "OFFSET ID JSON" of what Kafka has, `wants KEY` "ID JSON" of what
-- it does not have yet, `version` another word after each change; `whole` is there once a bridge has seen that nothing
-- is missing that Kafka has, and goes with all else when Redis is wiped.
-- ARGV: 1 = the new version, 2 = what is noted: 'is', 'wants', 'anew' or 'whole'; then
-- is: KEY, OFFSET, ID, JSON, the ids of the decisions before it: what Kafka has; what it does not have yet and is one of
--   these is settled by it.
-- wants: KEY, ID, JSON.
-- anew: the control topic has another log, and its offsets say nothing of those that are known: all is to be published
--   once more, and counts meanwhile.
-- whole: the VERSION that the bridge has seen, empty for none.
-- A Redis that is full refuses what may cost memory, but not in a script that has written already.
redis.call('HDEL', KEYS[1], '')
local what, changed = ARGV[2], false
if what == 'is' then
  local is, wants = 'is ' .. ARGV[3], 'wants ' .. ARGV[3]
  local there = redis.call('HGET', KEYS[1], is)
  local offset, id = string.match(there or '', '^(%S+) (%S*)')
  local newer = not there or tonumber(offset) < tonumber(ARGV[4])
  -- Whoever decided what is there knew of this one, which came late. An id is 16 random digits: it stands nowhere else.
  if there and ARGV[5] ~= '' and id ~= ARGV[5] and string.find(there, '"' .. ARGV[5] .. '"', 1, true) then
    newer = false
  end
  if newer then
    redis.call('HSET', KEYS[1], is, ARGV[4] .. ' ' .. ARGV[5] .. ' ' .. ARGV[6])
    changed = true
  end
  local wanted = string.match(redis.call('HGET', KEYS[1], wants) or '', '^%S+')
  for i = 5, #ARGV do
    if i ~= 6 and wanted == ARGV[i] then
      redis.call('HDEL', KEYS[1], wants)
      changed = true
    end
  end
elseif what == 'wants' then
  redis.call('HSET', KEYS[1], 'wants ' .. ARGV[3], ARGV[4] .. ' ' .. ARGV[5])
  changed = true
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
