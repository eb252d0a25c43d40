"""Plans: made, counted, approved, applied, stopped, waited for."""
