"""What a role does not see of letters: masked in values, keys, headers and what errors quote of them."""
