-- The place of a list in a set of queues (queue_set.py): its priority, the number of its queue, and whether that is
-- consumed without acknowledgement.
local SPAN = 1048576
local function place_of(rank, queue, unheld) return rank * SPAN + 2 * queue + (unheld and 1 or 0) end
local function parts_of_place(place)
  local within = place % SPAN
  return math.floor(place / SPAN), math.floor(within / 2), within % 2 == 1
end

-- Those of some lists that hold something: many are asked about at once, as most are empty.
local function not_empty(lists)
  local found = {}
  for first = 1, #lists, 500 do
    local last = math.min(first + 499, #lists)
    if redis.call('EXISTS', unpack(lists, first, last)) > 0 then
      for i = first, last do
        if redis.call('EXISTS', lists[i]) == 1 then found[#found + 1] = lists[i] end
      end
    end
  end
  return found
end
