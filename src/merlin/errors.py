"""The one exception that is meant for the person at the keyboard."""


class MerlinError(Exception):
    """Bad input: one sentence that says what is wrong, where, and what to do.

    The command line prints it and exits with code 2; everything else that is raised is a bug.
    """
