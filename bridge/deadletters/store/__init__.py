"""The desk's database: the only SQL of the desk."""
