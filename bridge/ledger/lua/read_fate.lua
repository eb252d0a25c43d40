-- The body of a function of ``raw``, a Celery message as it is in its queue; runs as the message is taken.
-- Returns "f" and the byte of the page that the message's property ``look`` names; '' for a message without one.
-- That property stands near the end of a message: a long one is not searched.
local at = string.find(raw, '"look":', -1000, true)
if not at then return '' end
local page, place = string.match(raw, '^"look": ?"(ledger:[^" ]+) (%d+)"', at)
return page and 'f' .. redis.call('GETRANGE', page, place, place) or ''
