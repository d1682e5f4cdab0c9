"""Nets of the kinds people export from PyTorch, as its exporter writes them, with random weights."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx_nets import floats, ints, model


class Net:
    """Adds nodes one by one, as a module's forward does."""

    def __init__(self, x: tuple[int, ...]):
        self.x, self.nodes, self.constants, self.seed = x, [], {}, 0

    def constant(self, value: Any) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = value
        return name

    def weights(self, *shape: int, scale: float | None = None) -> str:
        self.seed += 1
        return self.constant(floats(*shape, seed=self.seed, scale=scale))

    def add(self, op: str, inputs: str, **attrs: Any) -> str:
        self.nodes.append((op, inputs, attrs))
        return f"n{len(self.nodes) - 1}"

    def conv(self, x: str, i: int, o: int, k: Any = 3, s: int = 1, p: int | None = None, g: int = 1) -> str:
        kh, kw = k if isinstance(k, tuple) else (k, k)
        pads = [kh // 2, kw // 2] * 2 if p is None else [p] * 4
        w, b = self.weights(o, i // g, kh, kw), self.weights(o, scale=0.1)
        return self.add("Conv", f"{x} {w} {b}", strides=[s, s], pads=pads, group=g, kernel_shape=[kh, kw])

    def linear(self, x: str, i: int, o: int) -> str:
        """As on a row; on several rows it is MatMul and Add."""
        return self.add("Gemm", f"{x} {self.weights(o, i)} {self.weights(o, scale=0.1)}", transB=1)

    def rows(self, x: str, i: int, o: int) -> str:
        product = self.add("MatMul", f"{x} {self.weights(i, o, scale=i**-0.5)}")
        return self.add("Add", f"{self.weights(o, scale=0.1)} {product}")

    def relu6(self, x: str) -> str:
        return self.add("Clip", f"{x} {self.constant(np.float32(0))} {self.constant(np.float32(6))}")

    def prelu(self, x: str, c: int) -> str:
        return self.add("PRelu", f"{x} {self.weights(c, 1, 1, scale=0.3)}")

    def gelu(self, x: str) -> str:
        a, k, one, half = (self.constant(np.float32(v)) for v in (0.044715, 0.7978845608, 1, 0.5))
        square = self.add("Mul", f"{x} {x}")
        cube = self.add("Mul", f"{x} {square}")
        small = self.add("Mul", f"{cube} {a}")
        inner = self.add("Add", f"{x} {small}")
        scaled = self.add("Mul", f"{inner} {k}")
        t = self.add("Tanh", scaled)
        up = self.add("Add", f"{t} {one}")
        h = self.add("Mul", f"{x} {half}")
        return self.add("Mul", f"{h} {up}")

    def model(self) -> Any:
        return model(self.nodes, self.x, self.constants)


def litenet_cifar(side: int = 32, d: int = 64) -> Any:
    """An embedding of each channel's pixels, summed; four dual-path blocks; ten classes."""
    n = Net((1, 3, side, side))
    x = n.add("Reshape", f"x {n.constant(ints(1, 3, side * side))}")
    x = n.add("ReduceSum", f"{n.rows(x, side * side, d)} {n.constant(ints(1))}", keepdims=0)
    for _ in range(4):
        down = n.linear(n.gelu(n.linear(x, d, 4 * d)), 4 * d, d)
        both = n.add("Add", f"{down} {n.linear(x, d, d)}")
        x = n.add("LayerNormalization", f"{both} {n.weights(d, scale=1.0)} {n.weights(d, scale=0.1)}", axis=-1)
    n.linear(x, d, 10)
    return n.model()


def mobilenet_v2(side: int = 224, blocks: Any = None, classes: int = 1000) -> Any:
    """Inverted residuals with relu6."""
    blocks = blocks or (
        (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1),
    )  # fmt: skip
    n = Net((1, 3, side, side))
    x, i = n.relu6(n.conv("x", 3, 32, 3, 2)), 32
    x, i = _inverted(n, x, i, blocks, lambda h, c: n.relu6(h))
    x = n.relu6(n.conv(x, i, 4 * i, 1))
    n.linear(n.add("Flatten", n.add("GlobalAveragePool", x), axis=1), 4 * i, classes)
    return n.model()


def facenet(side: int = 112, width: int = 64, blocks: Any = None) -> Any:
    """A MobileFaceNet: prelu everywhere, one depthwise convolution over the whole image at the end."""
    blocks = blocks or ((2, 64, 5, 2), (4, 128, 1, 2), (2, 128, 6, 1), (4, 128, 1, 2), (2, 128, 2, 1))
    n = Net((1, 3, side, side))
    x = n.prelu(n.conv("x", 3, width, 3, 2), width)
    x = n.prelu(n.conv(x, width, width, 3, 1, 1, width), width)
    x, i = _inverted(n, x, width, blocks, n.prelu)
    x = n.prelu(n.conv(x, i, 4 * i, 1), 4 * i)
    last = side // 16
    x = n.conv(x, 4 * i, 4 * i, last, 1, 0, 4 * i)
    n.add("Flatten", n.conv(x, 4 * i, i, 1), axis=1)
    return n.model()


def _inverted(n: Net, x: str, i: int, blocks: Any, act: Any) -> tuple[str, int]:
    for t, c, count, stride in blocks:
        for k in range(count):
            s, h = (stride if k == 0 else 1), i * t
            y = x if t == 1 else act(n.conv(x, i, h, 1), h)
            y = n.conv(act(n.conv(y, h, h, 3, s, 1, h), h), h, c, 1)
            x, i = (n.add("Add", f"{x} {y}") if s == 1 and i == c else y), c
    return x, i


def resnet(side: int, widths: tuple[int, ...], classes: int, stem: int = 3, depth: int = 2) -> Any:
    """Basic blocks; a stem of 7 has a pool behind it."""
    n = Net((1, 3, side, side))
    i = widths[0]
    x = n.add("Relu", n.conv("x", 3, i, stem, 2 if stem == 7 else 1))
    if stem == 7:
        x = n.add("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    for stage, o in enumerate(widths):
        for k in range(depth):
            s = 2 if stage and k == 0 else 1
            y = n.conv(n.add("Relu", n.conv(x, i, o, 3, s)), o, o)
            y, i = n.add("Add", f"{y} {x if s == 1 and i == o else n.conv(x, i, o, 1, s, 0)}"), o
            x = n.add("Relu", y)
    n.linear(n.add("Flatten", n.add("GlobalAveragePool", x), axis=1), i, classes)
    return n.model()
