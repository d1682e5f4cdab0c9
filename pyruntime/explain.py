"""Which places of a picture spoke for an answer (edge-infer --explain): a class-activation map, with no gradient.

A net that ends in its last feature map F (h,w,C), perhaps averaged over the picture, and linear layers is traced once;
then a class's score is followed back through the weights alone:

    g = row of the class in W;  a relu that gave 0 stops its part of g;  g <- W' g  through each linear layer before
    map[i,j] = max(0, sum_c a_c F[i,j,c]),   a_c = mean over i,j of g at F[i,j,c]

With one linear layer on a global average that is the map of Zhou et al. (CVPR 2016); in general it is Grad-CAM
(Selvaraju et al., ICCV 2017), since g is the gradient.

A net that begins with an embed_projection, h_e = sum_p sum_c x[p,c] W[p,e], may end as it likes: how the score s
follows each h_e is measured, by two runs with pictures that move h_e alone, and falls apart by pixel:

    map[p] = max(0, sum_c x[p,c] sum_e (ds/dh_e) W[p,e])

Other nets raise UnexplainedError.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from math import prod
from typing import Any, NamedTuple

import numpy as np

from ._litenet import ffi, lib
from .engine import InferenceEngine
from .errors import ModelError

CONVOLUTIONS = ("conv2d", "depthwise_conv2d")
PASSES = ("linear", "flatten", "reshape", "global_avg_pool", "activation", "quantize", "dequantize")
SQUEEZES = ("softmax", "sigmoid")  # at the end: they change the size of a score, not what speaks for it
SLOPES = ("none", "relu", "relu6", "leaky_relu")  # activations whose slope their output tells
PANEL, QUAD = 16, 4  # of the weights' layout: FORMAT.md, "Weights"


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
    """The map of a net that ends in linear layers on its last feature map. Raises UnexplainedError for others."""

    def __init__(self, engine: InferenceEngine):
        self.engine = engine
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
        # a global average gives each place the same share of g, which the scaling takes out again
        weights = g if g.size == features.shape[2] else g.reshape(features.shape).mean((0, 1))
        return _scaled(features @ weights)


class EmbeddingMap:
    """The map of a net whose first operator is an embed_projection of the picture."""

    STEP = 0.02  # by how much of its usual size an h_e is moved

    def __init__(self, engine: InferenceEngine):
        self.engine, self.layer = engine, engine.layers[0].name
        record = _record(engine, 0)
        if engine.layers[0].dtype == "int8":
            raise UnexplainedError(
                f"{engine.name}: --explain measures what small changes of {self.layer} do, and int8 rounds them away; "
                "ask the float model."
            )
        self.channels = engine.input_shape[2]
        E, keeps = struct.unpack("<IB", ffi.buffer(record.attrs, 5)[:])  # embed_dim, keep_channels
        self.each = self.channels if keeps else 1  # projections: of each channel, or of their sum
        self.weights = np.concatenate(list(_panels(engine, record, E))).T  # (H*W, E)
        self.moves = np.linalg.pinv(self.weights.astype(np.float64)).astype(np.float32)  # (E, H*W): moves W' = 1

    def of(self, x: np.ndarray, k: int) -> np.ndarray:
        """As ClassMap.of."""
        pixels = x.reshape(-1, self.channels)
        seen = pixels if self.each > 1 else pixels.sum(1, keepdims=True)
        h = self.weights.T @ seen  # (E, 1 or C)
        step = self.STEP * float(np.sqrt(np.mean(h * h))) or self.STEP
        slopes = np.empty_like(h)
        for e, c in np.ndindex(*h.shape):
            move = np.zeros_like(pixels)
            move[:, c if self.each > 1 else slice(None)] = (
                self.moves[e] if self.each > 1 else self.moves[e, :, None] / self.channels
            )
            ends = [self._score(pixels + sign * step * move, k) for sign in (1, -1)]
            slopes[e, c] = (ends[0] - ends[1]) / (2 * step)
        return _scaled((seen * (self.weights @ slopes)).sum(1).reshape(self.engine.input_shape[:2]))

    def _score(self, pixels: np.ndarray, k: int) -> float:
        """The score of a class before what squeezes it: of probabilities, log-odds."""
        x, last = pixels.reshape(self.engine.input_shape), self.engine.layers[-1]
        if last.op == "softmax":
            return float(self.engine.trace(x)[-2].array.reshape(-1)[k])
        y = self.engine.predict(x).reshape(-1).astype(np.float64)
        if last.activation == "sigmoid":
            y = np.log(np.maximum(y, 1e-30)) - np.log(np.maximum(1 - y, 1e-30))
        return float(y[k]) if y.size > 1 else float(y[0] if k == 1 else -y[0])


def explainer(engine: InferenceEngine) -> ClassMap | EmbeddingMap:
    """explainer(engine).of(x, k) is the map of class k, .layer whose output it is of. Raises UnexplainedError, with one
    sentence, where there can be none."""
    if len(engine.outputs) > 1 or len(engine.output_shape) != 1:
        raise UnexplainedError(f"{engine.name}: --explain needs one row of scores for an output.")
    ops = [layer.op for layer in engine.layers]
    if ops[0] == "embed_projection":
        return EmbeddingMap(engine)
    if not any(op in CONVOLUTIONS for op in ops):
        raise UnexplainedError(f"{engine.name} has no convolution, so its answers come from no place of a picture.")
    return ClassMap(engine)


def _scaled(raw: np.ndarray) -> np.ndarray:
    found = np.maximum(raw, 0)
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
    """W' g of a linear layer."""
    panels = list(_panels(engine, record, g.size))
    out, at = np.zeros(panels[0].shape[1], np.float32), 0
    for panel in panels:
        out += g[at : at + len(panel)] @ panel
        at += len(panel)
    return out


def _panels(engine: InferenceEngine, record: Any, outputs: int) -> Iterator[np.ndarray]:
    """The rows of W (outputs, inputs), panel by panel as the file holds them."""
    size = record.weights_bytes
    data = engine._call(lambda model: ffi.buffer(model.bin + record.weights_at, size)[:])
    if record.weight_dtype == lib.LN_I8:
        yield from _panels_int8(engine, record, data, outputs)
        return
    block = np.frombuffer(data, "<f2" if record.weight_dtype == 1 else "<f4").astype(np.float32)
    lines, at = block.size // _width(outputs), 0  # the biases, then a line for each input
    for start in range(0, outputs, PANEL):
        have = min(PANEL, outputs - start)
        width = _width(have)
        yield block[at : at + width * lines].reshape(lines, width)[1:, :have].T
        at += width * lines


def _panels_int8(engine: InferenceEngine, record: Any, data: bytes, outputs: int) -> Iterator[np.ndarray]:
    """The same of int8 weights: w stands for w M sy / (sx 2^31), M being the multiplier of its output."""
    x, y = engine._tensor(record.inputs[0]), engine._tensor(record.output)
    padded, at = len(data) // _width(outputs) - 8, 0  # inputs, rounded up to a multiple of 4
    for start in range(0, outputs, PANEL):
        have = min(PANEL, outputs - start)
        width = _width(have)
        M = np.frombuffer(data, "<i4", width, at + 4 * width).astype(np.float64)
        w = np.frombuffer(data, np.int8, width * padded, at + 8 * width).reshape(-1, width, QUAD)
        rows = w.transpose(1, 0, 2).reshape(width, padded)[:have, : x.elements]
        yield (rows * (M[:have, None] * (y.scale / x.scale / 2**31))).astype(np.float32)
        at += width * (8 + padded)


def _width(outputs: int) -> int:
    """How many columns so many outputs take."""
    return -(-outputs // QUAD) * QUAD
