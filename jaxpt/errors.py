"""The one exception a user should ever see: a single line and exit code 2."""


class UserError(Exception):
    """Bad input, said in one line: the setting or file, its value, what is allowed.

    The command line prints the message after `jaxpt: error:` and exits with 2. Raise it
    where the fault is found; never for a bug of our own.
    """

    def __init__(self, message: str):
        super().__init__(" ".join(message.split()))


class DivergedError(UserError):
    """The loss is not finite; the run stops and keeps its last good checkpoint."""
