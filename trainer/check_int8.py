"""The self-test's part for kernels of training in int8: their integers are those of the definitions, to the bit."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np

from .check_kernels import ROWS, Test
from .graph import Graph, Node, Tensor
from .int8 import ops
from .int8.scheme import HI, LO, Numbers, Quant
from .kernels import calls_int8
from .kernels.call import Call, Ref, Shapes
from .ops import OPS, make_attrs, parameters

CASES: list[tuple[str, dict[str, Any]]] = [
    ("linear", {"x": (70,), "out_features": 66, "activation": "relu"}),
    ("conv2d", {"x": (9, 8, 36), "out_channels": 70, "kernel_size": 3, "padding": 1, "activation": "relu6"}),
    ("conv2d", {"x": (9, 8, 6), "out_channels": 4, "kernel_size": [2, 3], "stride": 2, "groups": 2, "padding": 2}),
    ("depthwise_conv2d", {"x": (7, 9, 5), "kernel_size": 3, "padding": 1, "activation": "relu"}),
    ("add", {"x": (5, 6, 7), "activation": "relu"}),
    ("activation", {"x": (999,), "activation": "silu"}),
    ("avgpool2d", {"x": (7, 8, 5), "kernel_size": 3, "stride": 2, "padding": 1, "count_include_pad": 0}),
    ("global_avg_pool", {"x": (5, 7, 33)}),
]
QUANTS = (Quant(float(np.float32(0.031)), -20), Quant(float(np.float32(0.027)), 15))


def tests(sms: int) -> Iterator[Test]:
    """Forward passes of single operators, and backward what they give the float kernels to read."""
    for op, case in CASES:
        yield _forward(op, case, sms)
        yield _before(op, case, sms)
    x, q = _values((3, 333)), QUANTS[0]
    want = ops.dequantize(ops.quantize(Numbers(), x, q), q)
    calls = tuple(calls_int8.round_calls(x.size, 0, sms))
    yield Test("int8", "rounding of 999", calls, {"x": x.copy(), "scales": _table(q)}, {"x": want})


def _forward(op: str, case: dict[str, Any], sms: int) -> Test:
    s, env, quants, y, _ = _example(op, case, sms)
    calls, size = calls_int8.forward(op, s)
    shape = " x ".join(map(str, s.x))
    want = {"y": y, "scales": _table(*quants)}
    return Test("int8", f"{op} of {shape}", tuple(calls), env | {"y": _unwritten(y)} | _memory(size, quants), want)


def _before(op: str, case: dict[str, Any], sms: int) -> Test:
    """The gradient where nothing was held at an end of int8, 0 elsewhere; and the weights that the int8 stand for."""
    s, env, quants, y, whole = _example(op, case, sms)
    s = Shapes(s.a, s.N, s.x, s.y, want=frozenset({"x"}), sms=sms, scales=s.scales)
    calls, size, instead = calls_int8.before(op, s)
    q, dy = ops.quantize(Numbers(), y, quants[-1]), _values(y.shape)
    want = {"dh": np.where((q > LO) & (q < HI), dy, 0)}
    places = {instead["dy"]: Ref("dh")}
    if "weight" in whole:
        scale = whole["multiplier"] * (quants[-1].scale / quants[0].scale / (1 << 31))
        last = op == "depthwise_conv2d"
        per = scale if last else scale.reshape(-1, *[1] * (whole["weight"].ndim - 1))
        want["rounded"] = whole["weight"].astype(np.float32) * per.astype(np.float32)
        places[instead["weight"]] = Ref("rounded")
    moved = tuple(_over(call, places) for call in calls)
    arrays = env | {"y": y, "dy": dy} | {role: _unwritten(v) for role, v in want.items()}
    return Test("int8", f"{op}, backward", moved, arrays | _memory(size, quants), want)


def _example(
    op: str, case: dict[str, Any], sms: int
) -> tuple[Shapes, dict[str, np.ndarray], tuple[Quant, ...], np.ndarray, dict[str, np.ndarray]]:
    """(shapes, arrays by role, the scales of inputs and output, what comes out, the whole numbers of the weights)."""
    from litenet.exporter.int8.lower import Lowering

    module, x = OPS[op], tuple(case["x"])
    a = make_attrs(module.OP, {k: v for k, v in case.items() if k != "x"})
    count = len(module.OP.inputs)
    y = tuple(module.out_shape(a, *[x] * count))
    qx = QUANTS[:count]
    inputs = {role: _values((ROWS, *x), k) for k, role in enumerate(module.OP.inputs)}
    rounded = [ops.dequantize(ops.quantize(Numbers(), v, q), q) for v, q in zip(inputs.values(), qx, strict=True)]
    weights = {w.name: _values(w.shape(a, x), 5) / 4 for w in module.OP.weights}
    env = dict(zip(module.OP.inputs, rounded, strict=True)) | weights
    spread = module.forward(a, *(env.get(p) for p in parameters(module.forward)))
    qy = qx[0] if op == "avgpool2d" else Quant(float(np.float32(np.abs(spread).max() / 100)), 7)
    tensors = (*(Tensor(role, x) for role in inputs), Tensor("y", y))
    node = Node("n", op, a, tuple(range(count)), count, {name: name for name in weights}, "n")
    graph = Graph("n", tensors, (node,), {}, 0, (count,), {})
    quants = dict(enumerate((*qx, qy)))
    arrays, numbers = Lowering(graph, weights, quants, (), {}).whole(node)
    q = [ops.quantize(Numbers(), v, k) for v, k in zip(inputs.values(), qx, strict=True)]
    out = ops.dequantize(ops.forward(op, a, numbers, q, list(qx), qy, arrays), qy)
    places = (0, 0) if op == "avgpool2d" else tuple(range(count + 1))
    kept = qx if op == "avgpool2d" else (*qx, qy)
    return Shapes(a, ROWS, x, y, sms=sms, scales=places), inputs | weights, kept, out, arrays


def _over(call: Call, places: dict[Ref, Ref]) -> Call:
    args = tuple(places.get(arg, arg) if isinstance(arg, Ref) else arg for arg in call.args)
    return Call(call.kernel, call.grid, call.block, args)


def _values(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def _table(*quants: Quant) -> np.ndarray:
    """As the arena has them: a float32 and an int32 each."""
    table = np.array([(q.scale, q.zero) for q in quants], [("scale", np.float32), ("zero", np.int32)])
    return table.view(np.int32)


def _memory(scratch: int, quants: tuple[Quant, ...]) -> dict[str, np.ndarray]:
    return {"scratch": np.full(max(scratch, 4), 0xFF, np.uint8), "scales": _table(*quants)}


def _unwritten(array: np.ndarray) -> np.ndarray:
    return np.full(4 * prod(array.shape), 0xFF, np.uint8).view(np.float32).reshape(array.shape)
