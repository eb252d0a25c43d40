"""The problems that need a person, declared once for status, the console, metrics, alerts and runbooks (pure)."""
