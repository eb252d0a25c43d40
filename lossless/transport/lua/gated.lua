-- Taking where gates are shut, or something was set aside.

-- @include gates
-- Where something is found last, from a place on.
local function last(raw, what, from)
  local at, found = nil, string.find(raw, what, from, true)
  while found do at, found = found, string.find(raw, what, found + 1, true) end
  return at
end

-- The names in a message's property `gates`. Properties stand behind all else, are short, and hold no object that has
-- such a name; and within a text a quote is written \".
local function gates_in(raw)
  local at = last(raw, '"properties":', -8000)
  at = at and string.find(raw, '"gates":', at, true)
  return at and string.match(raw, '^"gates": ?"([^"]*)"', at) or ''
end

-- Returns a function that takes the next message of a list, and one that says whether it should be called again soon.
local function taking(shut, lists, gates, aside, most)
  local function keeper(raw)
    local own = {}
    for name in string.gmatch(gates_in(raw), '%S+') do
      if shut[name] and shut[name] <= 0 then return name end
      if shut[name] then own[#own + 1] = name end
    end
    return nil, own
  end
  -- What may go on of what was set aside of a list, looked for once: a thousand shut gates are not asked a message.
  local passing = {}
  local function passing_of(list)
    if not passing[list] then
      passing[list] = {}
      for _, member in ipairs(lists[list] or {}) do
        if (shut[split(member)] or 1) > 0 then table.insert(passing[list], member) end
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
  local function from(key, list)
    while most > 0 do
      local raw = redis.call('LINDEX', key, -1)
      if not raw then return false end
      local gate, own = keeper(raw)
      if not gate then
        redis.call('RPOP', key)
        for _, name in ipairs(own) do
          shut[name] = shut[name] - 1
          redis.call('HINCRBY', gates, name, -1)
        end
        return raw
      end
      if not set_aside(key, gate, list) then return false end
    end
    return false
  end
  local function next_of(list)
    local own, place = passing_of(list), 1
    while own[place] do
      local raw = passable(shut, aside, own[place]) > 0 and from(aside .. '.' .. own[place], list)
      if redis.call('EXISTS', aside .. '.' .. own[place]) == 0 then
        redis.call('SREM', aside, table.remove(own, place))
      else place = place + 1 end
      if raw then return raw end
    end
    return from(list, list)
  end
  return next_of, function() return most <= 0 end
end
