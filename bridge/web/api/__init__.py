"""The console's JSON API: the desk's verbs for programs, described by the same table that answers."""
