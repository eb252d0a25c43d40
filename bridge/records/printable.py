"""Text of others, fit for a terminal: what an error, a key or a header says may hold escapes and line breaks."""


def printable(text: str, keep: str = "") -> str:
    r"""Write what is not printable as `\x1b`, `\n` or `\u202e`: it neither colours, nor begins a line of its own.

    Parameters:
        keep: characters that stay as they are all the same.
    """
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() or each in keep else each.encode("unicode_escape").decode("ascii") for each in text
    )
