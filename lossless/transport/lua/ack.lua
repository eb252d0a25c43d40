-- Acknowledges, with the steps of a script hook. KEYS: the owner's hash. ARGV and return value: see acknowledge.lua.

-- @include acknowledge
return acknowledge(KEYS[1], 1)
