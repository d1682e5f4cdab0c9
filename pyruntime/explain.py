"""Which places of a picture spoke for an answer (edge-infer --explain): a class-activation map, with no gradient.

A net that ends in its last feature map F (h,w,C), perhaps averaged over the picture, and linear layers is traced once;
then a class's score is followed back through the weights alone:

    g = row of the class in W;  a relu that gave 0 stops its part of g;  g <- W' g  through each linear layer before
    map[i,j] = max(0, sum_c a_c F[i,j,c]),   a_c = mean over i,j of g at F[i,j,c]

With one linear layer on a global average that is the map of Zhou et al. (CVPR 2016); in general it is Grad-CAM
(Selvaraju et al., ICCV 2017), since g is the gradient. Nets that end otherwise raise UnexplainedError.
"""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

import numpy as np

from ._litenet import ffi, lib
from .engine import InferenceEngine
from .errors import ModelError
from .preprocess import Preprocessing

CONVOLUTIONS = ("conv2d", "depthwise_conv2d")
PASSES = ("linear", "flatten", "reshape", "global_avg_pool", "activation")
SQUEEZES = ("softmax", "sigmoid")  # at the end: they change the size of a score, not what speaks for it
SLOPES = ("none", "relu", "relu6", "leaky_relu")  # activations whose slope their output tells
PANEL, QUAD = 16, 4  # of the weights' layout: FORMAT.md, "Weights"
STRENGTH = 0.65  # how far the map's colour covers the picture where the map is 1
SMALLEST, LARGEST = 256, 1024  # pixels of an overlay's longer side


class UnexplainedError(ModelError):
    """A net whose answers cannot be followed back to places without a gradient."""


class Step(NamedTuple):
    """One operator between the feature map and the score. place: of the operator in the program."""

    place: int
    op: str
    activation: str
    alpha: float
    record: Any


class ClassMap:
    """ClassMap(engine).of(x, k) is the map of class k. Raises UnexplainedError at once where there can be none."""

    def __init__(self, engine: InferenceEngine):
        self.engine = engine
        if len(engine.outputs) > 1 or len(engine.output_shape) != 1:
            raise UnexplainedError(f"{engine.name}: --explain needs one row of scores for an output.")
        if not any(layer.op in (*CONVOLUTIONS, "embed_projection") for layer in engine.layers):
            raise UnexplainedError(f"{engine.name} has no convolution, so its answers come from no place of a picture.")
        records = [_record(engine, i) for i in range(len(engine.layers))]
        made = {record.output: i for i, record in enumerate(records)}
        self.steps: list[Step] = []
        at = len(records) - 1
        while not _is_map(engine.layers[at].shape):
            self.steps.append(self._step(at, records[at]))
            at = made[records[at].inputs[0]]  # the input itself comes before a convolution, which is no step
        self.at, self.layer = at, engine.layers[at].name

    def _step(self, at: int, record: Any) -> Step:
        """The operator as a step on the way back, or UnexplainedError."""
        layer, last = self.engine.layers[at], all(step.op in ("softmax", "activation") for step in self.steps)
        activation = "none" if last and layer.activation in SQUEEZES else layer.activation
        passes = layer.op in PASSES or (last and layer.op == "softmax")
        if passes and activation in SLOPES and len(layer.shape) != 2:
            return Step(at, layer.op, activation, _alpha(layer.op, record), record)
        what = layer.op if activation in SLOPES else activation
        raise UnexplainedError(
            f"{self.engine.name}: {layer.name} ({what}) lies between the last feature map and the answer, and can be "
            "followed back only with a gradient; the report of edge-train has it."
        )

    def of(self, x: np.ndarray, k: int) -> np.ndarray:
        """x: one prepared input. float32 (h,w), scaled to 0..1; all 0 where nothing spoke for the class."""
        traced = self.engine.trace(x)
        features, scores = traced[self.at].array, traced[-1].array.size
        g = np.zeros(scores, np.float32)
        if scores == 1:  # one yes-or-no output: class 1 is its growing, class 0 its shrinking
            g[0] = 1 if k == 1 else -1
        else:
            g[k] = 1
        for step in self.steps:
            g = g * _slope(step, traced[step.place].array.reshape(-1))
            if step.op == "linear":
                g = _through(self.engine, step.record, g)
        # a global average gives each place the same share of g, which the scaling below takes out again
        weights = g if g.size == features.shape[2] else g.reshape(features.shape).mean((0, 1))
        found = np.maximum(features @ weights, 0)
        most = found.max()
        return (found / most if most > 0 else found).astype(np.float32)


def _is_map(shape: tuple[int, ...]) -> bool:
    return len(shape) == 3 and prod(shape[:2]) > 1


def _record(engine: InferenceEngine, index: int) -> Any:
    record = ffi.new("ln_op *")
    engine._call(lib.ln_get_op, index, record)
    return record


def _alpha(op: str, record: Any) -> float:
    """The slope of leaky_relu below 0: the last attribute of an operator that takes an activation, and for these two
    the only one."""
    return float(np.frombuffer(ffi.buffer(record.attrs, 4), "<f4")[0]) if op in ("linear", "activation") else 0.0


def _slope(step: Step, y: np.ndarray) -> np.ndarray | float:
    if step.activation == "relu":
        return (y > 0).astype(np.float32)
    if step.activation == "relu6":
        return ((y > 0) & (y < 6)).astype(np.float32)
    if step.activation == "leaky_relu":
        return np.where(y > 0, np.float32(1), np.float32(step.alpha))
    return 1.0


def _through(engine: InferenceEngine, record: Any, g: np.ndarray) -> np.ndarray:
    """W' g of a linear layer, panel by panel as the file holds W."""
    size = record.weights_bytes
    data = engine._call(lambda model: ffi.buffer(model.bin + record.weights_at, size)[:])
    block = np.frombuffer(data, "<f2" if record.weight_dtype == 1 else "<f4").astype(np.float32)
    panels = [(start, min(PANEL, g.size - start)) for start in range(0, g.size, PANEL)]
    lines = block.size // sum(-(-have // QUAD) * QUAD for _, have in panels)  # the biases, then one for each input
    out, at = np.zeros(lines - 1, np.float32), 0
    for start, have in panels:
        width = -(-have // QUAD) * QUAD
        panel = block[at : at + width * lines].reshape(lines, width)
        out += panel[1:, :have] @ g[start : start + have]
        at += width * lines
    return out


# ---- to be looked at


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
