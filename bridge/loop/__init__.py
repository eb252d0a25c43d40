"""Poll, hand off, commit: one turn of the loop, and what interrupts it."""
