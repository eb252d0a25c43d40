"""The commands that ask and mend, a file each, and the tables that they print."""
