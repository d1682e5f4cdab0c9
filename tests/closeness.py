"""How tests compare numbers."""

import numpy as np


def assert_close(got, want, abs_tol, rel_tol):
    """Written as "within", so a NaN fails; "not beyond" would let it pass."""
    got, want = np.asarray(got), np.asarray(want)
    assert got.shape == want.shape
    error = np.abs(got - want)
    allowed = abs_tol + rel_tol * np.abs(want)
    assert (error <= allowed).all(), f"worst element is off by {np.max(error):.3g}, allowed {np.min(allowed):.3g}"
