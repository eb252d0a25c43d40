"""How what was sent back has ended."""
