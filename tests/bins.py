"""Small .bin models with random weights, for tests of what reads them. `Bin.definition` is the NumPy answer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from litenet.exporter import format as writer
from litenet.exporter.pack import pack, packed_type
from litenet.trainer.ops import OPS, make_attrs

GRAY = writer.Preprocessing("area", "stretch", "gray", "never", mean=(33.0,), std=(78.0,))
RGB = writer.Preprocessing("bilinear", "crop", "rgb", "never", mean=(120.0, 115.0, 100.0), std=(60.0, 58.0, 62.0))


@dataclass
class Bin:
    """A chain of operators: add them, then take bytes()."""

    shape: tuple[int, ...]
    preprocessing: writer.Preprocessing = writer.Preprocessing()
    metadata: dict[str, Any] = field(default_factory=dict)
    half: bool = False
    seed: int = 0
    turns: bool = False  # tensors take turns in two places, so that memory is used again as soon as it may be

    def __post_init__(self):
        self.rng = np.random.default_rng(self.seed)
        self.steps: list[tuple[str, Any, dict[str, np.ndarray]]] = []
        self.shapes = [self.shape]

    def add(self, op: str, **given: Any) -> Bin:
        spec = OPS[op].OP
        attrs, x = make_attrs(spec, given), self.shapes[-1]
        weights = {}
        for w in spec.weights:
            if w.needs is None or getattr(attrs, w.needs):
                shape = w.shape(attrs, x)
                fan_in = w.fans(attrs, x)[0] if w.fans else 4
                values = self.rng.standard_normal(shape) / np.sqrt(fan_in)
                weights[w.name] = np.abs(values) + 0.5 if w.name == "running_var" else values.astype(np.float32)
        self.steps.append((op, attrs, weights))
        self.shapes.append(tuple(OPS[op].out_shape(attrs, x)))
        return self

    def bytes(self, golden: int = 2) -> bytes:
        """The file; golden: how many inputs its self-test has."""
        return writer.write(self.model(golden))

    def model(self, golden: int = 2) -> writer.Model:
        """What the file holds."""
        tensors, at = [writer.TensorRec(self.shape, input=True)], 0
        for i, shape in enumerate(self.shapes[1:]):
            last = i + 1 == len(self.steps)
            tensors.append(writer.TensorRec(shape, offset=0 if last else at, output=last))
            if self.turns:
                at = 0 if at else max(-(-4 * int(np.prod(s)) // 16) * 16 for s in self.shapes[1:])
            elif not last:
                at += -(-4 * int(np.prod(shape)) // 16) * 16
        ops = []
        for i, (op, attrs, weights) in enumerate(self.steps):
            kind = packed_type(OPS[op].OP, "f16" if self.half else "f32")
            ops.append(writer.OpRec(op, (i,), i + 1, attrs, pack(op, attrs, weights, kind), kind))
        meta = {"layers": [f"{op}{i}" for i, (op, _, _) in enumerate(self.steps)], **self.metadata}
        return writer.Model(tensors, ops, self.preprocessing, meta, self._golden(golden))

    def _golden(self, count: int) -> writer.Golden | None:
        if not count:
            return None
        inputs = [self.rng.standard_normal(self.shape).astype(np.float32) for _ in range(count)]
        values = [self.values(x) for x in inputs]
        sums = [[writer.op_checksum(v) for v in each] for each in values]
        return writer.Golden("f32", inputs, [each[-1] for each in values], sums)

    def values(self, x: np.ndarray) -> list[np.ndarray]:
        """What each operator gives for one input, by its definition, in float64."""
        out, h = [], x[None].astype(np.float64)
        for op, attrs, weights in self.steps:
            present = [weights.get(w.name) for w in OPS[op].OP.weights]
            if self.half and OPS[op].OP.layout in ("panels", "depthwise"):
                present = [None if w is None else w.astype(np.float16) for w in present]
            h = OPS[op].forward(attrs, h, *[None if w is None else w.astype(np.float64) for w in present])
            out.append(h[0])
        return out

    def definition(self, x: np.ndarray) -> np.ndarray:
        return self.values(x)[-1]


def mlp(**more) -> Bin:
    """The smallest useful net: 4 values in, 3 scores out."""
    return Bin((4,), **more).add("linear", out_features=5, activation="relu").add("linear", out_features=3)


def digits(labels=tuple("0123456789"), **more) -> Bin:
    """A small picture net: 28 x 28 grey, ten classes."""
    meta = {"name": "digits", "labels": list(labels), "loss": "cross_entropy", **more.pop("metadata", {})}
    net = Bin((28, 28, 1), GRAY, metadata=meta, **more)
    net.add("conv2d", out_channels=4, kernel_size=3, padding=1, activation="relu")
    net.add("maxpool2d", kernel_size=2, stride=2).add("flatten")
    return net.add("linear", out_features=len(labels))


def colors(**more) -> Bin:
    """A colour net without labels: 16 x 16 RGB, four classes, softmax at the end."""
    net = Bin((16, 16, 3), RGB, metadata={"loss": "cross_entropy", **more.pop("metadata", {})}, **more)
    net.add("conv2d", out_channels=5, kernel_size=3, stride=2, activation="relu").add("global_avg_pool")
    return net.add("linear", out_features=4).add("softmax")
