-- Acknowledges, with the steps of a script hook. KEYS: the owner's hash. ARGV, answer: see acknowledgement.lua.

-- @include acknowledgement
return acknowledge(KEYS[1], 1)
