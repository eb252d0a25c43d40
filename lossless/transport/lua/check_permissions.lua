-- Which of these commands the user may not run on these keys. ARGV: command, key ("": none), command, key ...
-- Returns the positions of those that are refused, from 0; Redis before 7 knows of none.

local refused = {}
if not redis.acl_check_cmd then return refused end
for i = 1, #ARGV, 2 do
  local key, allowed = ARGV[i + 1], nil
  if key == '' then allowed = redis.acl_check_cmd(ARGV[i])
  else allowed = redis.acl_check_cmd(ARGV[i], key, key, key) end
  if not allowed then refused[#refused + 1] = (i - 1) / 2 end
end
return refused
