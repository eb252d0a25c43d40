-- Acknowledges what a rider goes along with. KEYS: the owner's hash. ARGV, and what it returns: see acknowledge.lua.

-- @include acknowledge
return acknowledge(KEYS[1], 1)
