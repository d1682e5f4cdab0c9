"""The built-in set: 1,797 handwritten digits, 8 x 8 grey. digits.txt tells source, licence and changes."""

from pathlib import Path

import numpy as np

from .dataset import Splits
from .npz import read_npz

FILE = Path(__file__).with_name("digits.npz")


def read_digits(labels: tuple[str, ...] | None = None) -> Splits:
    """The last fifth of each class, in the order of the file, is the test set."""
    whole = read_npz(FILE, name="digits", labels=labels).train
    test = np.zeros(whole.count, bool)
    for k in range(whole.classes):
        members = np.flatnonzero(whole.y == k)
        test[members[len(members) - len(members) // 5 :]] = True
    return Splits(whole.take(np.flatnonzero(~test)), whole.take(np.flatnonzero(test)))
