"""People sign in by an issuer of OpenID Connect: authorization code, PKCE, and an ID token that is verified."""
