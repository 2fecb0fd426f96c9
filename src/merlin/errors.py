"""The exceptions that are meant for the person at the keyboard."""


class Incomplete(Exception):
    """Work that is done in part: a sentence on what is missing, and the result so far.

    The command line prints both and exits with code 1.
    """

    def __init__(self, message: str, result: object):
        super().__init__(message)
        self.result = result


class MerlinError(Exception):
    """Bad input: one sentence that says what is wrong, where, and what to do.

    The command line prints it and exits with code 2; everything else that is raised is a bug.
    """


def in_words(error: OSError) -> str:
    """What the system refused: a full disk, a name that is too long, no permission."""
    where = f"{error.filename}: " if error.filename is not None else ""
    return f"{where}{error.strerror or error}; nothing half-written is left, mend it and repeat."
