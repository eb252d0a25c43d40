"""The dead-letter desk: recorded, understood, mended, sent back. `desk` is its door."""
