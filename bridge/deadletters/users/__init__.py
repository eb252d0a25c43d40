"""Who may see and do what at the desk: people with roles, and who of them is signed in."""
