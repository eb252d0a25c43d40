"""Webhooks: what a person must hear of is noticed, and told to addresses on the web until they have it."""
