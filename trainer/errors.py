"""One exception for every mistake a user can make: where, what was found, what was expected, what to do."""


class UserError(Exception):
    """A mistake in what the user gave us. The text is complete: commands print it and exit with 1."""


class LaunchError(UserError):
    """A kernel failed on the card, which does not go on after that."""
