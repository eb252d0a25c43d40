"""A range of a source topic, sent again."""
