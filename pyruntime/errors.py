"""What can go wrong, as the caller sees it. A text is one sentence: where, found, expected, what to do."""

from __future__ import annotations


class ModelError(Exception):
    """A model, or a call of it, that cannot work. `status` is the LN_* number when the C runtime refused."""

    def __init__(self, text: str, status: int | None = None):
        super().__init__(text)
        self.status = status


class ImageError(Exception):
    """A picture that cannot be read."""
