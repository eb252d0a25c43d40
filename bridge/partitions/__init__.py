"""One assigned partition: what was read, what may go out now, which offset is safe; nothing acts."""
