-- Returns of a stored message the key of its list, and the message; nil where it is none of ours.
local function split_stored_message(value)
  local cut = string.find(value, '\0', 1, true)
  if cut then return string.sub(value, 1, cut - 1), string.sub(value, cut + 1) end
end
