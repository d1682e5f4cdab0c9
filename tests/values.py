"""Random numbers for the tests of importers."""

import numpy as np


def floats(*shape: int, seed: int = 0, scale: float | None = None) -> np.ndarray:
    """As weights are: of a size that keeps what goes through them about as large."""
    values = np.random.default_rng(seed + sum(shape)).standard_normal(shape)
    fan = int(np.prod(shape[1:])) if len(shape) > 1 else 1
    return (values * (1 / np.sqrt(fan) if scale is None else scale)).astype(np.float32)
