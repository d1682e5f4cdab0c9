"""The preprocessing rules of FORMAT.md once more, as weight matrices over exact integers: slow and plain."""

from __future__ import annotations

import numpy as np

CHANNELS = {1: 1, 2: 2, 3: 3, 4: 4, 5: 3, 6: 4}  # of the layouts gray, gray_alpha, rgb, rgba, bgr, bgra
NEAREST, BILINEAR, AREA = 0, 1, 2
STRETCH, CROP, LETTERBOX = 0, 1, 2
GRAY, RGB, BGR = 1, 2, 3
NEVER, ALWAYS, AUTO = 0, 1, 2


def frame(rules, pixels, layout, H, W):
    """rules = (resize, fit, color, invert, pad); pixels uint8 (h, w, C) -> uint8 (H, W, 1 or 3)."""
    rule, fit, color, invert, pad = rules
    picture = channels(pixels.astype(np.int64), layout, color)
    h, w = picture.shape[:2]
    top, left, rows, columns = 0, 0, H, W
    if fit == CROP:
        if w * H > h * W:
            part = max(1, (h * W + H // 2) // H)
            picture = picture[:, (w - part) // 2 :][:, :part]
        else:
            part = max(1, (w * H + W // 2) // W)
            picture = picture[(h - part) // 2 :][:part]
    if fit == LETTERBOX:
        if w * H > h * W:
            rows = max(1, (h * W + w // 2) // w)
        else:
            columns = max(1, (w * H + h // 2) // h)
        top, left = (H - rows) // 2, (W - columns) // 2
    small = resize(picture, rows, columns, rule)
    if invert == ALWAYS or (invert == AUTO and border_is_bright(small)):
        small = 255 - small
    out = np.full((H, W, small.shape[2]), pad, np.int64)
    out[top : top + rows, left : left + columns] = small
    return out.astype(np.uint8)


def channels(p, layout, color):
    """(h, w, channels of the layout) -> (h, w, channels of the model)."""
    if layout in (2, 4, 6):
        alpha = p[..., -1:]
        p = (p[..., :-1] * alpha + 255 * (255 - alpha) + 127) // 255
    if layout in (5, 6):
        p = p[..., ::-1]
    if p.shape[2] == 1:
        return p if color == GRAY else np.repeat(p, 3, axis=2)
    if color == GRAY:
        return (p @ np.array([19595, 38470, 7471]) + 32768)[..., None] >> 16
    return p if color == RGB else p[..., ::-1]


def resize(picture, H, W, rule):
    (rows, dy), (columns, dx) = taps(picture.shape[0], H, rule), taps(picture.shape[1], W, rule)
    # |sums| stay below 255 * 2^34, so int64 is exact
    sums = np.einsum("ij,jkc->ikc", rows, picture)
    sums = np.einsum("lk,ikc->ilc", columns, sums)
    return (sums + dy * dx // 2) // (dy * dx)


def taps(n, m, rule):
    """(m, n) weights of one axis, and what each row of them sums to."""
    weights = np.zeros((m, n), np.int64)
    if rule == AREA and m < n:
        i, j = np.arange(m)[:, None], np.arange(n)
        return np.maximum(0, np.minimum((j + 1) * m, (i + 1) * n) - np.maximum(j * m, i * n)), n
    if rule == NEAREST:
        for i in range(m):
            weights[i, (2 * i + 1) * n // (2 * m)] = 1
        return weights, 1
    for i in range(m):
        p = min(max((2 * i + 1) * n - m, 0), (n - 1) * 2 * m)
        j, f = divmod(p, 2 * m)
        weights[i, j] += 2 * m - f
        if f:
            weights[i, j + 1] += f
    return weights, 2 * m


def border_is_bright(small):
    edge = np.zeros(small.shape[:2], bool)
    edge[0] = edge[-1] = edge[:, 0] = edge[:, -1] = True
    values = small[edge]
    return 2 * int(values.sum()) > 255 * values.size
