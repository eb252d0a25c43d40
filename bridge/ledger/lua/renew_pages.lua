-- Renews the expiry of existing pages. KEYS: pages. ARGV: seconds to keep.
-- @include page_expiry
for i = 1, #KEYS do
  if redis.call('EXISTS', KEYS[i]) == 1 then keep_page(KEYS[i], ARGV[1]) end
end
