-- Let the time to live of pages begin anew, of those that are there. KEYS: pages. ARGV: seconds to keep.
-- @include page_notes
for i = 1, #KEYS do
  if redis.call('EXISTS', KEYS[i]) == 1 then keep_page(KEYS[i], ARGV[1]) end
end
