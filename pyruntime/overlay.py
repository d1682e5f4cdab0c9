"""A map of what spoke for an answer, laid over the picture it is about."""

from __future__ import annotations

import numpy as np

from .engine import InferenceEngine
from .preprocess import Preprocessing

STRENGTH = 0.65  # how far the map's colour covers the picture where the map is 1
SMALLEST, LARGEST = 256, 1024  # pixels of an overlay's longer side


def colours(heat: np.ndarray) -> np.ndarray:
    """A map (h,w) of 0..1 as colours that lie over a picture: uint8 (h,w,4), RGBA, clear where the map is 0."""
    import cv2

    level = np.clip(heat * 255 + 0.5, 0, 255).astype(np.uint8)
    bgr = cv2.applyColorMap(level.reshape(-1, 1), cv2.COLORMAP_TURBO).reshape(*heat.shape, 3)
    alpha = (STRENGTH * level + 0.5).astype(np.uint8)
    return np.dstack([bgr[..., ::-1], alpha])


def overlay(engine: InferenceEngine, pixels: np.ndarray, layout: str, heat: np.ndarray) -> bytes:
    """The picture with the map over it, as a PNG file. Parts that the net did not see (cut off by "crop") stay grey."""
    import cv2

    rules = engine.preprocessing
    assert rules is not None
    rgb = Preprocessing(resize="area", color="rgb").frame(pixels, *_drawn(*pixels.shape[:2]), layout)
    over = spread(heat, rules.fit, pixels.shape[:2], engine.input_shape[:2], rgb.shape[:2])
    painted = colours(np.clip(over, 0, 1))
    share = np.where(over[..., None] >= 0, painted[..., 3:] / np.float32(255), 0)
    base = np.where(over[..., None] >= 0, rgb, rgb.mean(2, keepdims=True) * 0.5)
    out = (base * (1 - share) + painted[..., :3] * share + 0.5).astype(np.uint8)
    return cv2.imencode(".png", np.ascontiguousarray(out[..., ::-1]))[1].tobytes()


def spread(
    heat: np.ndarray, fit: str, picture: tuple[int, ...], frame: tuple[int, ...], size: tuple[int, ...]
) -> np.ndarray:
    """A map over the net's frame as one over the picture it was made from: float32 of `size` (rows, columns), -1 where
    the frame has nothing of the picture. picture, frame: their rows and columns; the rules: FORMAT.md,
    "Preprocessing"."""
    import cv2

    (h, w), (H, W), (rows, columns) = picture, frame, size
    out = np.full((rows, columns), -1, np.float32)
    if fit == "crop":
        ch, cw = h, w
        if w * H > h * W:
            cw = max(1, (h * W + H // 2) // H)
        else:
            ch = max(1, (w * H + W // 2) // W)
        y0, x0 = (h - ch) // 2, (w - cw) // 2
        top, bottom = round(y0 * rows / h), max(round((y0 + ch) * rows / h), round(y0 * rows / h) + 1)
        left, right = round(x0 * columns / w), max(round((x0 + cw) * columns / w), round(x0 * columns / w) + 1)
        part = out[top:bottom, left:right]
        part[...] = cv2.resize(heat, (part.shape[1], part.shape[0]), interpolation=cv2.INTER_LINEAR)
        return out
    if fit == "letterbox":
        dh, dw = H, W
        if w * H > h * W:
            dh = max(1, (h * W + w // 2) // w)
        else:
            dw = max(1, (w * H + h // 2) // h)
        y0, x0 = (H - dh) // 2, (W - dw) // 2
        heat = cv2.resize(heat, (W, H), interpolation=cv2.INTER_LINEAR)[y0 : y0 + dh, x0 : x0 + dw]
    out[...] = cv2.resize(heat, (columns, rows), interpolation=cv2.INTER_LINEAR)
    return np.clip(out, 0, 1)


def _drawn(height: int, width: int) -> tuple[int, int]:
    """The size an overlay is drawn in: the picture's, unless that is very small or large."""
    longer = max(height, width)
    scale = min(max(longer, SMALLEST), LARGEST) / longer
    return max(1, round(height * scale)), max(1, round(width * scale))
