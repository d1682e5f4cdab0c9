"""Random ONNX graphs of image, row and shape operators, for the importer: whatever their order, the numbers stay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from onnx_nets import model

X = (1, 4, 6, 6)
Shape = tuple[int, ...]


class Draw:
    """Adds random nodes one by one."""

    def __init__(self, seed: int):
        self.rng = np.random.default_rng(seed)
        self.nodes: list[tuple[str, str, dict[str, Any]]] = []
        self.constants: dict[str, np.ndarray] = {}
        self.values: list[tuple[str, Shape]] = [("x", X)]

    def number(self, lo: int, hi: int) -> int:
        return int(self.rng.integers(lo, hi))

    def constant(self, value: Any) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(value)
        return name

    def floats(self, *shape: int) -> str:
        return self.constant(self.rng.standard_normal(shape).astype(np.float32) / max(1, np.prod(shape[1:])) ** 0.5)

    def add(self, op: str, inputs: str, shape: Any, **attrs: Any) -> None:
        self.nodes.append((op, inputs, attrs))
        self.values.append((f"n{len(self.nodes) - 1}", tuple(int(n) for n in shape)))

    def partner(self, fits: Callable[[Shape], bool]) -> tuple[str, Shape]:
        found = [v for v in self.values if fits(v[1])]
        return found[self.number(0, len(found))]

    def axis(self, s: Shape) -> int | None:
        """One of the axes, but never a batch of 1 in front."""
        first = int(s[0] == 1)
        return self.number(first, len(s)) if len(s) > first else None

    # one function for each kind of node: v is the value it reads, s its shape

    def function(self, v: str, s: Shape) -> None:
        self.add(str(self.rng.choice(["Relu", "Sigmoid", "Tanh", "HardSwish"])), v, s)

    def pair(self, v: str, s: Shape) -> None:
        self.add(str(self.rng.choice(["Add", "Mul", "Sub"])), f"{v} {self.partner(lambda t: t == s)[0]}", s)

    def conv(self, v: str, s: Shape) -> None:
        k, p, O = self.number(1, 4), self.number(0, 2), self.number(1, 6)
        if len(s) == 4 and s[0] == 1 and min(s[2:]) >= k:
            size = [n + 2 * p - k + 1 for n in s[2:]]
            self.add("Conv", f"{v} {self.floats(O, s[1], k, k)}", (1, O, *size), pads=[p] * 4)

    def pool(self, v: str, s: Shape) -> None:
        if len(s) == 4 and s[0] == 1 and min(s[2:]) >= 2:
            shape = (*s[:2], s[2] // 2, s[3] // 2)
            self.add("MaxPool", v, shape, kernel_shape=[2, 2], strides=[2, 2])

    def resize(self, v: str, s: Shape) -> None:
        if len(s) == 4 and s[0] == 1 and max(s[2:]) < 20:
            scales = self.constant(np.float32([1, 1, 2, 2]))
            mode = str(self.rng.choice(["nearest", "linear"]))
            self.add("Resize", f"{v} - {scales}", (*s[:2], 2 * s[2], 2 * s[3]), mode=mode)

    def transpose(self, v: str, s: Shape) -> None:
        order = [0, *(1 + self.rng.permutation(len(s) - 1))] if self.number(0, 4) else self.rng.permutation(len(s))
        if order[0] == 0 or s[0] != 1 or s[order[0]] == 1:
            self.add("Transpose", v, [s[k] for k in order], perm=[int(k) for k in order])

    def reshape(self, v: str, s: Shape) -> None:
        left, factors = int(np.prod(s)), [1] * (self.number(0, 4) > 0)
        for d in (2, 3, 2, 3, 5, 7):
            if left % d == 0 and len(factors) < 3 and self.number(0, 2):
                factors.append(d)
                left //= d
        shape = [*factors, left]
        self.add("Reshape", f"{v} {self.constant(np.array(shape, np.int64))}", shape)

    def concat(self, v: str, s: Shape) -> None:
        k = self.axis(s)
        if k is not None:
            w, t = self.partner(lambda t: len(t) == len(s) and t[:k] + t[k + 1 :] == s[:k] + s[k + 1 :])
            self.add("Concat", f"{v} {w}", (*s[:k], s[k] + t[k], *s[k + 1 :]), axis=k)

    def cut(self, v: str, s: Shape) -> None:
        k = self.axis(s)
        if k is not None and s[k] > 1:
            p, step = self.number(0, s[k] - 1), self.number(1, 3)
            q = self.number(p + 1, s[k] + 1)
            bounds = " ".join(self.constant(np.array([n], np.int64)) for n in (p, q, k, step))
            self.add("Slice", f"{v} {bounds}", (*s[:k], -(-(q - p) // step), *s[k + 1 :]))

    def pad(self, v: str, s: Shape) -> None:
        k = self.axis(s)
        if k is not None:
            pads = np.zeros((2, len(s)), np.int64)
            pads[:, k] = self.rng.integers(0, 3, 2)
            self.add("Pad", f"{v} {self.constant(pads.reshape(-1))}", np.array(s) + pads.sum(0))

    def reduce(self, v: str, s: Shape) -> None:
        axes = sorted({k for k in (self.axis(s), self.axis(s)) if k is not None})
        if axes and len(axes) < len(s):
            keep = self.number(0, 2)
            shape = [1 if k in axes else n for k, n in enumerate(s) if keep or k not in axes]
            self.add(str(self.rng.choice(["ReduceMean", "ReduceMax"])), v, shape, axes=axes, keepdims=keep)

    def softmax(self, v: str, s: Shape) -> None:
        if (k := self.axis(s)) is not None:
            self.add("Softmax", v, s, axis=k)

    def affine(self, v: str, s: Shape) -> None:
        shape = [n if self.number(0, 2) else 1 for n in s][self.number(0, len(s)) :]
        values = self.constant(self.rng.standard_normal(shape).astype(np.float32))
        self.add(str(self.rng.choice(["Add", "Mul"])), f"{v} {values}", s)

    def matmul(self, v: str, s: Shape) -> None:
        O = self.number(1, 6)
        w = self.rng.standard_normal((s[-1], O)).astype(np.float32) / np.float32(s[-1] ** 0.5)
        if len(s) > 1:
            self.add("MatMul", f"{v} {self.constant(w)}", (*s[:-1], O))

    def prelu(self, v: str, s: Shape) -> None:
        if len(s) > 1:
            slopes = self.rng.random([s[1]] + [1] * (len(s) - 2)).astype(np.float32)
            self.add("PRelu", f"{v} {self.constant(slopes)}", s)


KINDS = (
    Draw.function, Draw.pair, Draw.conv, Draw.conv, Draw.pool, Draw.resize, Draw.transpose, Draw.transpose,
    Draw.reshape, Draw.concat, Draw.cut, Draw.pad, Draw.reduce, Draw.softmax, Draw.affine, Draw.affine,
    Draw.matmul, Draw.prelu,
)  # fmt: skip


def random_model(seed: int) -> Any:
    """A graph of up to ten nodes with one output or two."""
    d = Draw(seed)
    wanted = d.number(2, 11)
    while len(d.nodes) < wanted:
        v, s = d.values[d.number(max(0, len(d.values) - 3), len(d.values))]
        KINDS[d.number(0, len(KINDS))](d, v, s)
    outputs = [f"n{wanted - 1}"]
    if d.number(0, 3) == 0:
        outputs.append(f"n{d.number(0, wanted - 1)}")
    return model(d.nodes, X, d.constants, tuple(outputs))
