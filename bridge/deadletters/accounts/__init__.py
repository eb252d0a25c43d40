"""Users with roles, sessions, API tokens, idempotency keys and the audit log."""
