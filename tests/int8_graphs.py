"""Float graphs for tests of what turns them into whole numbers: every operator that has an int8 form."""

from __future__ import annotations

from typing import Any

import numpy as np

from litenet.exporter.fold import run
from litenet.exporter.format import Preprocessing
from litenet.exporter.int8 import graphs
from litenet.exporter.int8.search import Subject
from litenet.trainer.graph import Graph, Node, Param, Tensor
from litenet.trainer.ops import OPS, make_attrs

GRAY = Preprocessing("nearest", "stretch", "gray", "never", (33.0,), (78.0,))


class Maker:
    """Adds operators by name; tensors are numbers, 0 is the input."""

    def __init__(self, shape: tuple[int, ...], seed: int = 0):
        self.rng = np.random.default_rng(seed)
        self.tensors = [Tensor("input", shape)]
        self.nodes: list[Node] = []
        self.params: dict[str, Param] = {}
        self.weights: dict[str, np.ndarray] = {}

    def add(self, op: str, *inputs: int, **given: Any) -> int:
        spread = given.pop("spread", 1.0)
        inputs = inputs or (len(self.tensors) - 1,)
        spec, x = OPS[op].OP, self.tensors[inputs[0]].shape
        a = make_attrs(spec, given)
        name, roles = f"{op}{len(self.nodes)}", {}
        for w in spec.weights:
            if w.needs and not getattr(a, w.needs):
                continue
            shape = tuple(w.shape(a, x))
            fan = w.fans(a, x)[0] if w.fans else 4
            values = self.rng.standard_normal(shape) * spread / np.sqrt(max(fan, 1))
            if w.name in ("running_var", "gamma"):
                values = 0.5 + np.abs(values)
            key = roles[w.name] = f"{name}.{w.name}"
            self.weights[key] = values.astype(np.float32)
            self.params[key] = Param(key, shape, "zeros", (1, 1), True, False, name)
        y = OPS[op].out_shape(a, *(self.tensors[t].shape for t in inputs))
        self.tensors.append(Tensor(name, tuple(y)))
        self.nodes.append(Node(name, op, a, inputs, len(self.tensors) - 1, roles, name))
        return len(self.tensors) - 1

    def graph(self, *outputs: int) -> Graph:
        last = outputs or (len(self.tensors) - 1,)
        return Graph("net", tuple(self.tensors), tuple(self.nodes), self.params, 0, last, {})

    def subject(self, count: int = 48, frame: Preprocessing | None = None, *outputs: int) -> Subject:
        """With random samples: pictures where there is a frame."""
        shape, frames = self.tensors[0].shape, None
        if frame is None:
            x = self.rng.standard_normal((count, *shape)).astype(np.float32)
        else:
            frames = self.rng.integers(0, 256, (count, *shape), np.uint8)
            x = ((frames - np.float32(frame.mean)) / np.float32(frame.std)).astype(np.float32)
        return Subject(graphs.separated(self.graph(*outputs)), self.weights, frame or Preprocessing(), x, frames)


def chain(**more: Any) -> Maker:
    """A small net of convolutions for 8 x 8 grey pictures, ten classes."""
    m = Maker((8, 8, 1), **more)
    m.add("conv2d", out_channels=6, kernel_size=3, padding=1, activation="relu")
    m.add("maxpool2d", kernel_size=2, stride=2)
    m.add("depthwise_conv2d", kernel_size=3, padding=1, activation="relu6")
    m.add("conv2d", out_channels=8, kernel_size=1, activation="relu")
    m.add("global_avg_pool")
    m.add("linear", out_features=10)
    m.add("softmax")
    return m


def everything(seed: int = 0) -> Maker:
    """Every operator with an int8 form, with branches."""
    m = Maker((8, 8, 4), seed)
    a = m.add("conv2d", 0, out_channels=8, kernel_size=3, padding=1, activation="gelu")
    b = m.add("batchnorm", a, activation="relu")
    c = m.add("conv2d", b, out_channels=8, kernel_size=3, padding=1, groups=2, activation="leaky_relu")
    d = m.add("add", a, c, activation="relu")
    e = m.add("prelu", d)
    f = m.add("depthwise_conv2d", e, kernel_size=3, padding=1, activation="hard_swish")
    g = m.add("concat", e, f, axis=2)
    h = m.add("avgpool2d", g, kernel_size=3, stride=2, padding=1, count_include_pad=0)
    i = m.add("pad", h, before=[1, 0, 0, 0], after=[0, 1, 0, 0], value=0.5)
    j = m.add("resize", i, size=[7, 6], mode=1)
    k = m.add("slice", j, axis=0, begin=1, size=3, step=2)
    n = m.add("transpose", k, axes=[1, 0, 2, 3])
    o = m.add("conv2d", n, out_channels=8, kernel_size=1, activation="sigmoid")
    p = m.add("global_avg_pool", o)
    q = m.add("mul", m.add("conv2d", n, out_channels=8, kernel_size=1), p)
    r = m.add("reshape", q, shape=[12, 12, 0, 0])
    s = m.add("flatten", r)
    t = m.add("linear", s, out_features=9, activation="tanh")
    u = m.add("activation", t, activation="silu")
    v = m.add("unary", u, function=0)
    m.add("softmax", v)
    return m


def floats(subject: Subject) -> dict[int, np.ndarray]:
    return run(subject.graph, subject.weights, subject.x)
