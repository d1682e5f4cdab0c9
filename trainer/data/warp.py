"""Rotation and zoom of a picture about its middle, in whole numbers, so that every machine gives the same bits.

An angle is in 2^-24 turns, a zoom in 2^-16. Sine and cosine are polynomials in numbers of 30 binary places; a place in
the picture has 17, of which 8 are used between two pixels. trainer/kernels/load.cu does the same.
"""

from __future__ import annotations

import numpy as np

TURN = 1 << 24  # the full turn
ONE = 1 << 16  # the zoom that changes nothing
RADIANS = 421657428  # 2 pi in numbers of 26 binary places
SINE = (1 << 30, -178956971, 8947849, -213044)  # 1, -1/6, 1/120, -1/5040 of x, x^3, x^5, x^7, 30 binary places
COSINE = (1 << 30, -(1 << 29), 44739243, -1491308, 26631)  # 1, -1/2, 1/24, -1/720, 1/40320 of 1, x^2, x^4, x^6, x^8


def matrix(angle: np.ndarray, zoom: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(cos / zoom, sin / zoom) in numbers of 16 binary places, int64: from output back to picture."""
    quarter = (angle + TURN // 8) >> 22
    x = (angle - (quarter << 22)) * RADIANS >> 20  # -pi/4 .. pi/4, 30 binary places
    square = x * x >> 30
    sin, cos = x * _polynomial(SINE, square) >> 30, _polynomial(COSINE, square)
    quarter &= 3
    cos, sin = (
        np.choose(quarter, (cos, -sin, -cos, sin)),
        np.choose(quarter, (sin, cos, -sin, -cos)),
    )
    inverse = (ONE * ONE + (zoom >> 1)) // zoom
    return cos * inverse >> 30, sin * inverse >> 30


def _polynomial(factors: tuple[int, ...], x: np.ndarray) -> np.ndarray:
    total = np.full_like(x, factors[-1])
    for factor in factors[-2::-1]:
        total = factor + (total * x >> 30)
    return total


def sample(
    picture: np.ndarray, cos: int, sin: int, dy: int, dx: int, reflect: bool, upside_down: bool, mirror: bool
) -> tuple[np.ndarray, np.ndarray]:
    """(values float32 (H,W,C), blank bool (H,W)): each output pixel from the four around its place in the picture.

    Output pixel (i, j) comes from the place (U, V) = middle + (cos di + sin dj, cos dj - sin di), where (di, dj) is how
    far (i - dy, j - dx) is from the middle, of the picture mirrored as said. Without `reflect`, places outside are
    blank, and the nearest pixel stands in for one beyond the edge.
    """
    H, W, C = picture.shape
    di = (2 * (np.arange(H, dtype=np.int64) - dy) - (H - 1))[:, None]  # in half pixels
    dj = (2 * (np.arange(W, dtype=np.int64) - dx) - (W - 1))[None]
    U = cos * di + sin * dj + ((H - 1) << 16)  # pixels, 17 binary places
    V = cos * dj - sin * di + ((W - 1) << 16)
    fu, fv = (((K >> 9) & 255).astype(np.float32) for K in (U, V))
    u, v = ((K >> 17).astype(np.int32) for K in (U, V))
    top, bottom = (_row(row, H, reflect, upside_down) * np.int32(W) for row in (u, u + 1))
    left, right = (_row(column, W, reflect, mirror) for column in (v, v + 1))
    flat, out = picture.reshape(H * W, C).astype(np.float32), np.zeros((H, W, C), np.float32)
    nu, nv = 256 - fu, 256 - fv
    for rows, columns, weight in (
        (top, left, nu * nv), (top, right, nu * fv), (bottom, left, fu * nv), (bottom, right, fu * fv)
    ):  # fmt: skip
        values = flat.take(rows + columns, axis=0)
        values *= weight[..., None] if C == 1 else weight.repeat(C).reshape(H, W, C)  # much the faster
        out += values
    out *= np.float32(2.0**-16)
    i, j = (U + ONE) >> 17, (V + ONE) >> 17
    blank = np.zeros((H, W), bool) if reflect else (i < 0) | (i >= H) | (j < 0) | (j >= W)
    return out, blank


def shift(
    picture: np.ndarray, dy: int, dx: int, reflect: bool, upside_down: bool, mirror: bool
) -> tuple[np.ndarray, np.ndarray]:
    """What sample gives without a turn or a zoom, quicker: whole pixels only."""
    H, W, _ = picture.shape
    i, j = np.arange(H, dtype=np.int32) - dy, np.arange(W, dtype=np.int32) - dx
    rows, columns = _row(i, H, reflect, upside_down), _row(j, W, reflect, mirror)
    blank = np.zeros((H, W), bool)
    if not reflect:
        blank |= ((i < 0) | (i >= H))[:, None] | (j < 0) | (j >= W)
    return picture.take(rows, axis=0).take(columns, axis=1).astype(np.float32), blank


def _row(u: np.ndarray, n: int, reflect: bool, backwards: bool) -> np.ndarray:
    """The row of the stored picture for row u of the picture as it is seen, which may be outside."""
    if reflect:
        if u.min() <= -n or u.max() >= 2 * n - 1:
            u = u % max(2 * (n - 1), 1)
        u = (n - 1) - np.abs((n - 1) - np.abs(u))
    else:
        u = np.clip(u, 0, n - 1)
    return n - 1 - u if backwards else u
