"""The erasure of a person: found everywhere, erased where that is possible, and certified with what remains."""
