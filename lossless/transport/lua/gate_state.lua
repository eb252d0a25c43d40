-- Gates (lossless/transport/message_gates.py), as a script sees them that takes or rings. Reads `_gates` and `_aside`.
local function split_member(member)  -- of `_aside`: the gate, and the key of the list that its messages lay in
  local cut = string.find(member, '\0', 1, true)
  return string.sub(member, 1, cut - 1), string.sub(member, cut + 1)
end

-- How many each shut gate lets through still, and by list what was set aside; nil where all gates are open and nothing
-- is aside, or where this user may not know.
local function read_gates(gates, aside)
  local exist = redis.pcall('EXISTS', gates, aside)
  if type(exist) ~= 'number' or exist == 0 then return end
  local shut, lists = {}, {}
  local found = redis.call('HGETALL', gates)
  for i = 1, #found, 2 do shut[found[i]] = tonumber(found[i + 1]) or 0 end
  for _, member in ipairs(redis.call('SMEMBERS', aside)) do
    local _, list = split_member(member)
    lists[list] = lists[list] or {}
    table.insert(lists[list], member)
  end
  return shut, lists
end

-- How many of what a member of `_aside` names may be taken.
local function count_passable(shut, aside, member)
  local allowed = shut[split_member(member)]
  if allowed and allowed <= 0 then return 0 end
  local length = redis.call('LLEN', aside .. '.' .. member)
  return math.min(length, allowed or length)
end
