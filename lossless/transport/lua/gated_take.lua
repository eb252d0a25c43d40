-- Taking where gates are shut, or something was set aside.

-- @include gate_state
-- Where something is found last, from a place on.
local function find_last(raw, what, from)
  local at, found = nil, string.find(raw, what, from, true)
  while found do at, found = found, string.find(raw, what, found + 1, true) end
  return at
end

-- The names in a message's property `gates`. Properties stand behind all else, are short, and hold no object that has
-- such a name; and within a text a quote is written \".
local function parse_message_gates(raw)
  local at = find_last(raw, '"properties":', -8000)
  at = at and string.find(raw, '"gates":', at, true)
  return at and string.match(raw, '^"gates": ?"([^"]*)"', at) or ''
end

-- Returns a function that takes the next message of a list, and one that says whether it should be called again soon.
local function make_gated_take(shut, lists, gates, aside, most)
  local function find_closed_gate(raw)
    local counted = {}
    for name in string.gmatch(parse_message_gates(raw), '%S+') do
      if shut[name] and shut[name] <= 0 then return name end
      if shut[name] then counted[#counted + 1] = name end
    end
    return nil, counted
  end
  -- What may go on of what was set aside of a list, looked for once: a thousand shut gates are not asked a message.
  local passing = {}
  local function list_passing(list)
    if not passing[list] then
      passing[list] = {}
      for _, member in ipairs(lists[list] or {}) do
        if (shut[split_member(member)] or 1) > 0 then table.insert(passing[list], member) end
      end
    end
    return passing[list]
  end
  local function set_aside(from, gate, list)
    local member = gate .. '\0' .. list
    local done = redis.pcall('LMOVE', from, aside .. '.' .. member, 'RIGHT', 'LEFT')
    if type(done) == 'table' then return false end  -- refused: it stays, and holds up what lies behind it
    most = most - 1
    redis.call('SADD', aside, member)
    return true
  end
  local function take_from(key, list)
    while most > 0 do
      local raw = redis.call('LINDEX', key, -1)
      if not raw then return false end
      local gate, counted = find_closed_gate(raw)
      if not gate then
        redis.call('RPOP', key)
        for _, name in ipairs(counted) do
          shut[name] = shut[name] - 1
          redis.call('HINCRBY', gates, name, -1)
        end
        return raw
      end
      if not set_aside(key, gate, list) then return false end
    end
    return false
  end
  local function take_next(list)
    local members, place = list_passing(list), 1
    while members[place] do
      local raw = count_passable(shut, aside, members[place]) > 0 and take_from(aside .. '.' .. members[place], list)
      if redis.call('EXISTS', aside .. '.' .. members[place]) == 0 then
        redis.call('SREM', aside, table.remove(members, place))
      else place = place + 1 end
      if raw then return raw end
    end
    return take_from(list, list)
  end
  return take_next, function() return most <= 0 end
end
