"""What a role may not see of letters: masked in values, keys, headers and the errors that quote them."""
