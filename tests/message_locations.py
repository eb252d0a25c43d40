"""Where the messages of the transport are at one instant: in lists, set aside, held, or waiting."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import redis


def everywhere(client: "redis.Redis", *queues: str, waiting: str = "*") -> list[bytes]:
    """What lies in the lists of these queues, what all owners hold, and what waits for its time or for a gate.

    Each as it lay in its list.

    Parameters:
        client: of the broker.
        queues: whose lists to look at; of priority 0, where messages of no priority lie.
        waiting: of which queues what waits is wanted, a pattern.
    """
    found: Any = client.eval(_EVERYWHERE, len(queues), *queues, waiting)
    return [entry.partition(b"\0")[2] if b"\0" in entry else entry for entry in found]


# The field @ of an owner is no message.
_EVERYWHERE = """
local found = {}
for _, list in ipairs(KEYS) do
  for _, entry in ipairs(redis.call('LRANGE', list, 0, -1)) do found[#found + 1] = entry end
end
for _, key in ipairs(redis.call('KEYS', '_waiting.' .. ARGV[1])) do
  for _, entry in ipairs(redis.call('ZRANGE', key, 0, -1)) do found[#found + 1] = entry end
end
for _, key in ipairs(redis.call('KEYS', '_aside.*' .. ARGV[1] .. '*')) do
  for _, entry in ipairs(redis.call('LRANGE', key, 0, -1)) do found[#found + 1] = entry end
end
for _, key in ipairs(redis.call('KEYS', '_taken.*')) do
  local held = redis.call('HGETALL', key)
  for i = 1, #held, 2 do
    if held[i] ~= '@' then found[#found + 1] = held[i + 1] end
  end
end
return found
"""
