"""Values edited before they are replayed: by hand, by patch, and checked against their handlers."""
