"""Letters in files: exported, imported, archived."""
