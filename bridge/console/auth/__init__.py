"""Authentication and authorization: sessions, passwords, tokens, OpenID Connect, roles, request checks."""
