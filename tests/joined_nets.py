"""Random nets with what the fast runtime does as one step: convolutions of all kinds, and behind them prelu, sums with
an earlier tensor, activations, pools. Tensors lie as close in the arena as the format lets them, over dead ones, and
over an input where an operator may write in place: what is joined must not read what it has already written over."""

from __future__ import annotations

from typing import Any

import numpy as np
from c_jobs import Job, attrs_of, forward, weights_of

from litenet.exporter.format import Model, OpRec, TensorRec
from litenet.exporter.pack import pack
from litenet.trainer.ops import OPS

BLOCKS = {  # name: operators of a net, drawn one after another
    "convolutions": ("conv", "conv", "depthwise", "point"),
    "depthwise": ("depthwise", "point", "depthwise", "point"),
}


class Net:
    """Operators that read any earlier tensors; tensor 0 is the input, the last one the output."""

    def __init__(self, shape: tuple[int, ...], seed: int):
        self.rng = np.random.default_rng(seed)
        self.shapes = [shape]
        self.steps: list[tuple[str, dict[str, Any], tuple[int, ...]]] = []

    def add(self, op: str, *inputs: int, **given: Any) -> int:
        inputs = inputs or (len(self.shapes) - 1,)
        shape = OPS[op].out_shape(attrs_of(op, given), *[self.shapes[i] for i in inputs])
        self.steps.append((op, given, inputs))
        self.shapes.append(tuple(shape))
        return len(self.shapes) - 1

    def pick(self, values: Any) -> Any:
        return values[int(self.rng.integers(len(values)))]

    def job(self, what: str, x: np.ndarray | None = None, places: list[int] | None = None) -> Job:
        """x None: random numbers; places None: as close as can be."""
        if x is None:
            x = self.rng.standard_normal(self.shapes[0]).astype(np.float32)
        values, ops = [x[None].astype(np.float64)], []
        for i, (op, given, inputs) in enumerate(self.steps):
            a = attrs_of(op, given)
            w = weights_of(op, a, self.shapes[inputs[0]], "f32", self.rng)
            if op == "prelu":
                w["slope"] = np.where(w["slope"] < 0, 0.25, w["slope"]).astype(np.float32).astype(np.float64)
            names = OPS[op].OP.inputs
            with np.errstate(all="ignore"):
                values.append(forward(op, a, {**w, **dict(zip(names, (values[t] for t in inputs), strict=True))}))
            ops.append(OpRec(op, inputs, i + 1, a, pack(op, a, w, "f32")))
        places, last = places or self._places(), len(self.shapes) - 1
        tensors = [TensorRec(s, offset=places[t], input=t == 0, output=t == last) for t, s in enumerate(self.shapes)]
        return Job(what, "", Model(tensors, ops), x, values[-1][0], 0, 0)

    def _places(self) -> list[int]:
        """Offsets: the lowest place that nothing alive has, or half of the time the input's, where that is allowed."""
        dies = [max((i for i, (_, _, inputs) in enumerate(self.steps) if t in inputs), default=len(self.steps))
                for t in range(len(self.shapes))]  # fmt: skip
        sizes = [-(-4 * int(np.prod(s)) // 16) * 16 for s in self.shapes]
        places = [0] * len(self.shapes)
        for i, (op, _, inputs) in enumerate(self.steps[:-1]):
            t, names = i + 1, OPS[op].OP
            over = [k for k, name in zip(inputs, names.inputs, strict=True)
                    if k and dies[k] == i and name in names.inplace and sizes[k] == sizes[t]]  # fmt: skip
            alive = [k for k in range(1, t) if dies[k] >= i]
            if over and self.rng.random() < 0.5:
                places[t] = places[self.pick(over)]
                continue
            for at in sorted({0, *(places[k] + sizes[k] for k in alive)}):
                if all(at + sizes[t] <= places[k] or places[k] + sizes[k] <= at for k in alive):
                    places[t] = at
                    break
        return places


def joined(seed: int, kind: str) -> Net:
    """A net for one drawn size and number of channels."""
    rng = np.random.default_rng(seed)
    shape = (int(rng.integers(3, 20)), int(rng.integers(3, 20)), int(rng.choice([3, 8, 16, 32])))
    net = Net(shape, seed)
    clamps = ("none", "relu", "relu6")
    conv(net)
    for block in BLOCKS[kind]:
        earlier = [t for t, s in enumerate(net.shapes) if t]
        if block == "depthwise":
            size, room = net.pick((1, 2, 3, 5)), min(net.shapes[-1][:2])
            pads = [int(v) for v in net.rng.integers(0, size, 4)] if size <= room else [size] * 4
            net.add("depthwise_conv2d", kernel_size=size, stride=net.pick((1, 1, 2, 3)), padding=pads,
                    activation=net.pick((*clamps, "silu")))  # fmt: skip
        elif block == "point":
            net.add("conv2d", out_channels=net.pick((5, 16, 32)), kernel_size=1, activation=net.pick(clamps))
        else:
            conv(net)
        follow(net, [t for t in earlier if net.shapes[t] == net.shapes[-1]])
    net.add("flatten")
    if net.rng.random() < 0.5:
        net.add("linear", out_features=net.pick((7, 16, 40)))
        net.add("prelu")
    net.add("linear", out_features=3)
    return net


def conv(net: Net) -> None:
    size = net.pick((1, 3, 3))
    net.add("conv2d", out_channels=net.pick((5, 16, 32, 48)), kernel_size=size, stride=net.pick((1, 1, 2)),
            padding=size // 2, activation=net.pick(("none", "none", "relu", "tanh")))  # fmt: skip


def follow(net: Net, same: list[int]) -> None:
    """What may follow; same: earlier tensors that can be added."""
    if net.rng.random() < 0.6:
        net.add("prelu")
    elif net.rng.random() < 0.4:
        net.add("activation", activation=net.pick(("relu", "relu6", "leaky_relu", "sigmoid")))
    if net.rng.random() < 0.3 and min(net.shapes[-1][:2]) >= 2:
        net.add("maxpool2d", kernel_size=2, stride=2)
        return
    same = [t for t in same if net.shapes[t] == net.shapes[-1] and t != len(net.shapes) - 1]
    if net.rng.random() < 0.5 and not same:
        shape = net.shapes[-1]
        same = [net.add("batchnorm", len(net.shapes) - 1)]
        assert net.shapes[-1] == shape
        net.add("conv2d", len(net.shapes) - 2, out_channels=shape[2], kernel_size=3, padding=1)
    if same:
        pair = [len(net.shapes) - 1, net.pick(same)]
        net.rng.shuffle(pair)
        net.add("add", *map(int, pair), activation=net.pick(("none", "relu", "relu6", "tanh")))
        if net.rng.random() < 0.4:
            net.add("activation", activation=net.pick(("relu", "sigmoid")))
