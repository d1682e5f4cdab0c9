"""Examples of the operators in trainer/kernels/calls_other.py: arrays for a kernel, and its definition in float64."""

from math import prod

import cushim
import numpy as np
import pytest

from litenet.trainer import rng
from litenet.trainer.kernels import calls_other as other
from litenet.trainer.kernels import calls_step as steps
from litenet.trainer.kernels.call import Shapes
from litenet.trainer.ops import OPS, activations, make_attrs, parameters

EXTRA = {  # sizes at and around the widths of warps, tiles and vectors, and the ways that CASES do not take
    "activation": [{"x": (n,), "activation": "relu"} for n in (1, 31, 32, 33, 6001)],
    "add": [{"x": (n,), "activation": "relu"} for n in (3, 32, 33)],
    "batchnorm_add": [{"x": (20, 18, 5), "activation": "relu"}, {"x": (20, 18, 36)}],
    "batchnorm": [
        {"x": (20, 18, 5), "activation": "relu"},
        {"x": (20, 18, 36), "activation": "relu"},
        {"x": (2, 33), "activation": "relu"},
    ],
    "layernorm": [
        *({"x": (n, C)} for n, C in ((2, 33), (90, 3), (1, 1028), (1, 1025), (150, 64), (9, 520), (3, 513))),
        {"x": (700, 4)},
    ],
    "softmax": [{"x": (n, C)} for n, C in ((2, 33), (5, 10), (1, 1028), (1, 1025), (70, 4), (3, 68), (2, 520))],
    "maxpool2d": [
        {"kernel_size": 9, "stride": 7, "padding": 4, "x": (16, 9, 2)},
        {"kernel_size": 2, "stride": 2, "x": (5, 7, 32)},
        {"kernel_size": 1, "stride": 3, "x": (5, 5, 3)},
    ],
    "avgpool2d": [{"kernel_size": 9, "stride": 7, "padding": 4, "count_include_pad": 0, "x": (16, 9, 2)}],
    "global_avg_pool": [{"x": (5, 7, 33)}, {"x": (3, 3, 36)}],
    "depthwise_conv2d": [
        {"kernel_size": 3, "padding": 1, "x": (9, 9, 36)},
        {"kernel_size": 5, "padding": 2, "stride": 2, "x": (9, 8, 10), "activation": "relu"},
        {"kernel_size": 7, "padding": 3, "x": (9, 8, 8), "activation": "relu"},
        {"kernel_size": 3, "stride": [1, 3], "dilation": [4, 1], "padding": [4, 0, 3, 1], "x": (9, 8, 3)},
        {"kernel_size": 2, "stride": [1, 2], "dilation": [2, 1], "padding": [1, 0, 0, 2], "x": (6, 7, 3)},
    ],
}
MATRIX = [
    pytest.param(name, case, id=f"{name}-{i}")
    for name in sorted(other.CALLS)
    for i, case in enumerate([*OPS[name].CASES, *EXTRA.get(name, [])])
]
TRAINED = [
    p for p in MATRIX if p.values[0] == "activation" or p.values[1].get("activation", "none") in activations.FROM_OUTPUT
]
NODE, NODES, SEED, MICRO = 3, 7, 0x123456789ABCDEF0, (1 << 33) + 5


class Draw:
    """The numbers of that node in that micro-step, as trainer/backends/numpy.py draws them."""

    @staticmethod
    def uniform(shape):
        return rng.uniform(SEED, rng.DROPOUT, MICRO * NODES + NODE, shape)


def step(cursor=0, t=1, lr=0.1, grad_scale=1.0):
    s = np.zeros(1, steps.STEP)
    s["seed"], s["micro"] = (SEED & 0xFFFFFFFF, SEED >> 32), (MICRO & 0xFFFFFFFF, MICRO >> 32)
    s["cursor"], s["t"], s["lr"], s["grad_scale"] = cursor, t, lr, grad_scale
    return s


def nan(shape, dtype=np.float32):
    """An array that nothing has written yet."""
    return np.full(prod(shape) * np.dtype(dtype).itemsize, 0xFF, np.uint8).view(dtype).reshape(shape)


class Example:
    """One case: arrays for the kernel, as they are stored, and the same values in float64 for the definition."""

    def __init__(self, name, case, N=3, half=False):
        self.module, draw = OPS[name], np.random.default_rng(0)
        self.name, x = name, tuple(case["x"])
        self.a = make_attrs(self.module.OP, {k: v for k, v in case.items() if k != "x"})
        self.y_shape = tuple(self.module.out_shape(self.a, *[x] * len(self.module.OP.inputs)))
        self.s = Shapes(self.a, N, x, self.y_shape, half=half, node=NODE, nodes=NODES)
        self.real = np.float16 if half else np.float32  # of activations and their gradients
        self.env = {role: draw.standard_normal((N, *x), np.float32).astype(self.real) for role in self.module.OP.inputs}
        for w in self.module.OP.weights:
            if not (w.needs and not getattr(self.a, w.needs)):
                value = draw.standard_normal(w.shape(self.a, x), np.float32) / 2
                self.env[w.name] = abs(value) + 0.5 if w.name == "running_var" else value
        self.dy = draw.standard_normal((N, *self.y_shape), np.float32).astype(self.real)
        self.draw = draw

    def wide(self, **more):
        known = {k: v.astype(np.float64) if v.dtype.kind == "f" else v for k, v in (self.env | more).items()}
        return known | {"rng": Draw, "x_shape": (self.s.N, *self.s.x), "want": frozenset({"x", "x2"})}

    def define(self, train):
        """(y, auxiliaries) in float64."""
        f = getattr(self.module, "forward_train", self.module.forward) if train else self.module.forward
        known = self.wide()
        result = f(self.a, *(known.get(p) for p in parameters(f)))
        return result if isinstance(result, tuple) else (result, {})

    def empty(self, aux):
        """Arrays for y and what training keeps besides, unwritten."""
        kept = {k: nan(v.shape, v.dtype if v.dtype == np.uint8 else np.float32) for k, v in aux.items()}
        return {"y": nan(self.dy.shape, self.real)} | {k: v for k, v in kept.items() if k not in self.env}

    def launch(self, direction, s, arrays):
        """Run twice, the second time with the threads in the opposite order: equal bits."""
        scratch = other.SCRATCH.get(self.name, lambda *_: 0)(direction, s)
        before, found = {k: v.copy() for k, v in arrays.items()}, []
        for backwards in (False, True):
            for k, v in before.items():
                arrays[k][...] = v
            memory = {"scratch": nan((scratch // 4,))} if scratch else {}
            cushim.run_all(other.CALLS[self.name](direction, s), arrays | memory | {"step": step()}, backwards)
            found.append({k: v.tobytes() for k, v in arrays.items()})
        for k, v in found[0].items():
            assert v == found[1][k], f"{k} depends on the order of the threads"


def tolerance(example):
    if example.s.half:
        return 2e-3, 2e-3
    absolute, relative = example.module.OP.tolerance
    return (absolute * 2, relative * 2)
