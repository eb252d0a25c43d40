"""As what somebody has seen a plan, when they decide on it (pure)."""


def key(state: str, last_act: int) -> str:
    """Changes with everything that is done with a plan: who decides says it, and so the same is not done twice.

    Parameters:
        last_act: id of the last entry of the trail about it; 0: there is none.
    """
    return f"{state}-{last_act}"
