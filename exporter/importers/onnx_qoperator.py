"""ONNX models in QOperator form: QLinearConv and its kin take and give whole numbers, and say their scales themselves.
Each becomes the float operator that it is about, with its scales marked: (builder, node, given) -> value.

The first line of a function's text stands in docs/import.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from litenet.trainer.int8.scheme import Quant

from . import layers, onnx_nodes
from .builder import Builder, Value
from .given import AGAIN, Given, Scaled, quant
from .onnx_node import OnnxNode
from .onnx_qdq import real

DOMAINS = ("", "ai.onnx", "com.microsoft")
KINDS = {np.dtype(np.int8): False, np.dtype(np.uint8): True}

# What gives back the whole numbers that it takes: all else that stands between them would calculate with the numbers
# and not with what they stand for.
MOVES = (
    "MaxPool", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Split", "Slice", "Gather", "Identity",
    "Expand", "Tile", "Concat", "Dropout",
)  # fmt: skip


def quant_at(n: OnnxNode, i: int) -> Quant:
    """The scale at input i, the zero point behind it."""
    scale, zero = n.constant(i, "scale"), n.optional(i + 1, "zero point")
    zero = np.zeros((), np.uint8) if zero is None else zero
    if scale.size != 1 or zero.size != 1 or zero.dtype not in KINDS:
        n.place.refuse(f"it has {zero.dtype} with {scale.size} scales", "int8 or uint8 with one scale are expected.")
    return quant(n.place, float(scale.item()), int(zero.item()), KINDS[zero.dtype])


def value(n: OnnxNode, i: int, given: Given) -> Value:
    """Input i, whose scale stands behind it."""
    v = n.value(i)
    if given.quants.get(v.tensor) != quant_at(n, i + 1):
        n.place.refuse(f"it reads input {i} with another scale or zero point than it was made with", AGAIN)
    return v


def whole(n: OnnxNode, i: int, axis: int) -> Scaled:
    """The constant at input i with the scales and zero points behind it, one for all or several along an axis."""
    steps, scale, zero = n.constant(i), n.constant(i + 1, "scale"), n.optional(i + 2, "zero point")
    zero = np.zeros(1, steps.dtype) if zero is None else zero
    if steps.dtype not in KINDS or zero.size not in (1, scale.size):
        n.place.refuse(f"its constant is of {steps.dtype} with {zero.size} zero points", AGAIN)
    return Scaled(steps, scale.reshape(-1), zero.reshape(-1), axis % max(steps.ndim, 1))


def _pair(n: OnnxNode, given: Given) -> list[Value | np.ndarray]:
    """Two values, or one and a constant, as numbers they stand for."""
    return [value(n, i, given) if isinstance(n.inputs[i], Value) else real(whole(n, i, -1)) for i in (0, 3)]


def _layer(b: Builder, n: OnnxNode, given: Given, op: str, axis: int, out: int, bias_at: int | None) -> Value:
    """A layer with weights at input 3, several scales along axis; its own scale at input `out`, if it has one."""
    v, w = value(n, 0, given), whole(n, 3, axis)
    steps = None if bias_at is None else n.optional(bias_at, "bias")
    bias, shift = None, None
    if steps is not None:
        scale = given.quants[v.tensor].scale * w.scale.astype(np.float64)
        bias = Scaled(steps, scale, np.zeros(1, np.int64))
        shift = (steps.reshape(-1) * scale).astype(np.float32)
    first = len(b.nodes)
    y = onnx_nodes.HANDLERS[op](b, replace(n, op=op, domain="", inputs=[v, real(w), shift]))
    symmetric = w.symmetric()
    if symmetric is not None:  # else it calculates in floats
        given.layer(n.place, b.nodes[first:], symmetric, bias)
    return y if len(n.inputs) <= out else given.mark(b, y, quant_at(n, out))


def conv(b: Builder, n: OnnxNode, given: Given) -> Value:
    """as Conv; weights whose zero point leaves more than -127 to 127 make it float"""
    return _layer(b, n, given, "Conv", 0, 6, 8)


def matmul(b: Builder, n: OnnxNode, given: Given) -> Value:
    """as MatMul, weights as for QLinearConv"""
    return _layer(b, n, given, "MatMul", -1, 6, None)


def gemm(b: Builder, n: OnnxNode, given: Given) -> Value:
    """as Gemm, weights as for QLinearConv; alpha is 1"""
    if n.attrs.get("alpha", 1.0) != 1 or n.attrs.get("transA", 0):
        n.place.refuse("it has an alpha other than 1, or a first factor that is turned", AGAIN)
    return _layer(b, n, given, "Gemm", 0 if n.attrs.get("transB", 0) else -1, 7, 6)


def add(b: Builder, n: OnnxNode, given: Given) -> Value:
    """as Add"""
    y = onnx_nodes.HANDLERS["Add"](b, replace(n, inputs=_pair(n, given)))
    return given.mark(b, y, quant_at(n, 6))


def mul(b: Builder, n: OnnxNode, given: Given) -> Value:
    """as Mul"""
    y = onnx_nodes.HANDLERS["Mul"](b, replace(n, inputs=_pair(n, given)))
    return given.mark(b, y, quant_at(n, 6))


def pool(b: Builder, n: OnnxNode, given: Given) -> Value:
    """as AveragePool and GlobalAveragePool; channels first"""
    if n.attrs.get("channels_last", 0):
        n.place.refuse("its channels are the last axis", "Quantise the model without optimising it first.")
    name = n.op.removeprefix("QLinear")
    y = onnx_nodes.HANDLERS[name](b, replace(n, op=name, inputs=[value(n, 0, given)]))
    return given.mark(b, y, quant_at(n, 3))


def function(b: Builder, n: OnnxNode, given: Given) -> Value:
    """as the operator of that name"""
    name = n.op.removeprefix("QLinear")
    opset = int(n.attrs.get("opset", n.opset)) if name == "Softmax" else n.opset
    y = onnx_nodes.HANDLERS[name](b, replace(n, op=name, opset=opset, inputs=[value(n, 0, given)]))
    return given.mark(b, y, quant_at(n, 3))


def concat(b: Builder, n: OnnxNode, given: Given) -> Value:
    """as Concat"""
    values = [value(n, i, given) for i in range(2, len(n.inputs), 3)]
    return given.mark(b, layers.concat(b, values, int(n.attrs.get("axis", 1))), quant_at(n, 0))


HANDLERS: dict[str, Callable[[Builder, OnnxNode, Given], Value]] = {
    "QLinearConv": conv, "QLinearMatMul": matmul, "QGemm": gemm, "QLinearAdd": add, "QLinearMul": mul,
    "QLinearGlobalAveragePool": pool, "QLinearAveragePool": pool, "QLinearConcat": concat,
    "QLinearSigmoid": function, "QLinearLeakyRelu": function, "QLinearSoftmax": function,
}  # fmt: skip

_DYNAMIC = "Quantise it with fixed scales: onnxruntime's quantize_static with a calibration reader."
INSTEAD = {
    "DynamicQuantizeLinear": _DYNAMIC,
    "ConvInteger": _DYNAMIC,
    "MatMulInteger": _DYNAMIC,
    "DynamicQuantizeMatMul": _DYNAMIC,
    "MatMulIntegerToFloat": _DYNAMIC,
}


def moved(b: Builder, n: OnnxNode, given: Given, found: list[Value]) -> list[Value]:
    """What an operator gives that only moves whole numbers, marked with their scale."""
    quants = {given.quants[v.tensor] for v in n.inputs if isinstance(v, Value)}
    if n.op not in MOVES or len(quants) != 1:
        why = "it calculates with whole numbers as if they were what they stand for"
        n.place.refuse(why if n.op not in MOVES else "it joins values of different scales", AGAIN)
    q = quants.pop()
    return [given.mark(b, v, q) for v in found]
