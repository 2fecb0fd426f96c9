"""Exceptions whose messages are shown to the user."""


class Incomplete(Exception):
    """Work that is only partly done: one sentence on what is missing, and the result so far.

    The command line prints both and exits with code 1.
    """

    def __init__(self, message: str, result: object):
        super().__init__(message)
        self.result = result


class MerlinError(Exception):
    """Bad input: one sentence that says what is wrong, where, and what to do.

    The command line prints it and exits with code 2. Any other exception is a bug.
    """


def printable(text: str) -> str:
    """Text with its control characters escaped, so that they cannot affect a terminal."""
    return "".join(sign if sign.isprintable() else " " for sign in text)


def in_words(error: OSError) -> str:
    """An operating system error as a sentence: a full disk, a long file name, no permission."""
    where = f"{error.filename}: " if error.filename is not None else ""
    return f"{where}{error.strerror or error}; no partial files are left, fix this and try again."
