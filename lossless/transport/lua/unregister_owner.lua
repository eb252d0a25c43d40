-- Ends an owner that holds nothing. KEYS: its hash, the owners. ARGV: owner. Returns how many it still holds.

-- @include end_owner
return end_owner(KEYS[1], KEYS[2], ARGV[1])
