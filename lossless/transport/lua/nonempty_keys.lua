-- Finds which of many keys exist, of which most do not: one command tells it where none does, or each.
-- `found[i]` is true then for ``names[i]``.
local function find_nonempty_keys(names, first, last, found)
  if first > last then return end
  local count = -1
  if last - first < 1000 then count = redis.call('EXISTS', unpack(names, first, last)) end  -- Lua unpacks some thousand
  if count == 0 then return end
  if count == last - first + 1 then
    for i = first, last do found[i] = true end
    return
  end
  local middle = math.floor((first + last) / 2)
  find_nonempty_keys(names, first, middle, found)
  find_nonempty_keys(names, middle + 1, last, found)
end
