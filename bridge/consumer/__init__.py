"""The poll loop of a bridge: it reads, hands off and commits; rebalances, start offsets and log identity."""
