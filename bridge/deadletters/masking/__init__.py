"""Masks for roles that may not see every field of a letter: in values, keys, headers and the errors that quote them."""
