"""One function for each operator of TFLite that is taken: (builder, node) -> what it puts out.

The first line of a function's text stands in docs/import.md.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from litenet.trainer.ops import unary
from litenet.trainer.ops.windows import same_padding

from . import layers
from .builder import Builder, Value
from .tflite_node import TfliteNode, strided

# ---- convolution and matrix product


def _fused(b: Builder, n: TfliteNode, v: Value, field: int) -> Value:
    """The activation that an operator carries along."""
    kind = n.options.whole(field, "b")
    if kind == 2:
        return layers.clip(b, v, -1, 1)
    names = {0: None, 1: "relu", 3: "relu6", 4: "tanh"}
    if kind not in names:
        n.place.refuse(f"it carries the activation {kind}, which is not known here")
    name = names[kind]
    return v if name is None else layers.activation(b, v, name)


def _pads(n: TfliteNode, size: tuple[int, ...], kernel: Any, stride: Any, dilation: Any = (1, 1)) -> layers.Pads:
    if n.options.whole(0, "b") == 1:  # VALID
        return (0, 0, 0, 0)
    (top, bottom), (left, right) = (same_padding(size[k], kernel[k], stride[k], dilation[k]) for k in (0, 1))
    return (top, left, bottom, right)


def conv(b: Builder, n: TfliteNode) -> Value:
    """groups, dilation, SAME and VALID; constant weights"""
    x, w, bias = b.image(n.value(), False), n.constant(1, "weights"), n.optional(2, "bias")
    depthwise, o = n.op == "DEPTHWISE_CONV_2D", n.options
    stride = (o.whole(2), o.whole(1))
    at = 5 if depthwise else 4  # the field of dilation_w_factor
    dilation = (o.whole(at + 1, default=1), o.whole(at, default=1))
    pads = _pads(n, b.shape(x), w.shape[1:3], stride, dilation)
    C = b.shape(x)[2]
    groups = C if depthwise else C // w.shape[3]
    w = w[0].transpose(2, 0, 1)[..., None] if depthwise else w
    y = layers.conv(b, x, w, bias, stride, pads, dilation, groups)
    return _fused(b, n, b.of_image(y, False), 4 if depthwise else 3)


def fully_connected(b: Builder, n: TfliteNode) -> Value:
    """constant weights"""
    v, w, bias = n.value(), n.constant(1, "weights"), n.optional(2, "bias")
    if n.options.whole(1, "b"):
        n.place.refuse("its weights are shuffled for a certain chip")
    if not n.options.whole(2, "b") or v.shape[-1] != w.shape[1]:
        v = b.reshaped(v, (prod(v.shape) // w.shape[1], w.shape[1]))
    return _fused(b, n, layers.linear(b, v, w, bias), 0)


def batch_matmul(b: Builder, n: TfliteNode) -> Value:
    """by a constant matrix from the right"""
    w = n.constant(1, "matrix")
    if n.options.whole(0, "b") or prod(w.shape[:-2]) != 1:
        n.place.refuse("it turns its value or has a stack of matrices", "One constant matrix is known.")
    w = w.reshape(w.shape[-2:])
    return layers.linear(b, n.value(), w if n.options.whole(1, "b") else w.T, None)


# ---- pools and means


def pool(b: Builder, n: TfliteNode) -> Value:
    """SAME and VALID"""
    x, o = b.image(n.value(), False), n.options
    stride, kernel = (o.whole(2), o.whole(1)), (o.whole(4), o.whole(3))
    pads = _pads(n, b.shape(x), kernel, stride)
    if n.op == "MAX_POOL_2D":
        y = layers.maxpool(b, x, kernel, stride, pads)
    else:
        y = layers.avgpool(b, x, kernel, stride, pads, (0, 0), False)
    return _fused(b, n, b.of_image(y, False), 5)


def reduce(b: Builder, n: TfliteNode) -> Value:
    """over any axes, constant"""
    how = {"MEAN": "mean", "SUM": "sum", "REDUCE_MAX": "max"}[n.op]
    return layers.reduce(b, n.value(), n.ints(1, "axes"), bool(n.options.whole(0, "b")), how)


# ---- element by element


def simple(b: Builder, n: TfliteNode) -> Value:
    """our activation of that name"""
    names = {"RELU": "relu", "RELU6": "relu6", "TANH": "tanh", "LOGISTIC": "sigmoid", "HARD_SWISH": "hard_swish"}
    return layers.activation(b, n.value(), names[n.op])


def relu_n1(b: Builder, n: TfliteNode) -> Value:
    """as affine steps and a relu6"""
    return layers.clip(b, n.value(), -1, 1)


def gelu(b: Builder, n: TfliteNode) -> Value:
    """exact or by tanh"""
    return layers.activation(b, n.value(), "gelu_tanh" if n.options.whole(0, "b") else "gelu")


def leaky_relu(b: Builder, n: TfliteNode) -> Value:
    """any slope"""
    return layers.prelu(b, n.value(), np.array([n.options.scalar(0, "f")], np.float32))


def prelu(b: Builder, n: TfliteNode) -> Value:
    """constant slopes, one or one a channel"""
    return layers.prelu(b, n.value(), n.constant(1, "slopes"))


def _pair(n: TfliteNode) -> tuple[Any, Any]:
    return n.inputs[0], n.inputs[1]


def add(b: Builder, n: TfliteNode) -> Value:
    """a constant, or a value of the same shape"""
    v, w = _pair(n)
    if isinstance(v, Value) and isinstance(w, Value):
        y = layers.add(b, v, w)
    else:
        y = layers.affine(b, v, 1, w) if isinstance(v, Value) else layers.affine(b, w, 1, v)
    return _fused(b, n, y, 0)


def sub(b: Builder, n: TfliteNode) -> Value:
    """as ADD"""
    v, w = _pair(n)
    if isinstance(v, Value) and isinstance(w, Value):
        y = layers.subtract(b, v, w)
    else:
        y = layers.affine(b, v, 1, -w) if isinstance(v, Value) else layers.affine(b, w, -1, v)
    return _fused(b, n, y, 0)


def mul(b: Builder, n: TfliteNode) -> Value:
    """a constant, a value of the same shape, or a factor for each channel"""
    v, w = _pair(n)
    if isinstance(v, Value) and isinstance(w, Value):
        y = layers.multiply(b, v, w)
    else:
        y = layers.affine(b, v, w, 0) if isinstance(v, Value) else layers.affine(b, w, v, 0)
    return _fused(b, n, y, 0)


def div(b: Builder, n: TfliteNode) -> Value:
    """by a constant, or by a value as MUL"""
    v, w = _pair(n)
    if isinstance(w, Value):
        one = layers.unary(b, w, unary.RECIPROCAL)
        return _fused(b, n, layers.multiply(b, v, one) if isinstance(v, Value) else layers.affine(b, one, v, 0), 0)
    with np.errstate(divide="ignore"):
        return _fused(b, n, layers.affine(b, v, 1 / w.astype(np.float64), 0), 0)


def function(b: Builder, n: TfliteNode) -> Value:
    """of each value"""
    v = n.value()
    if n.op == "RSQRT":
        return layers.unary(b, layers.unary(b, v, unary.SQRT), unary.RECIPROCAL)
    if n.op == "SQUARE":
        return layers.multiply(b, v, v)
    if n.op == "NEG":
        return layers.affine(b, v, -1, 0)
    return layers.unary(b, v, {"EXP": unary.EXP, "SQRT": unary.SQRT}[n.op])


def extreme(b: Builder, n: TfliteNode) -> Value:
    """of a value and one constant number"""
    v, w = _pair(n)
    v, w = (v, w) if isinstance(v, Value) else (w, v)
    if isinstance(w, Value) or w.size != 1:
        n.place.refuse("it compares values; one value with one constant number is expected")
    bound = float(w.reshape(-1)[0])
    return layers.clip(b, v, bound, np.inf) if n.op == "MAXIMUM" else layers.clip(b, v, -np.inf, bound)


def same(b: Builder, n: TfliteNode) -> Value:
    """left out"""
    return n.value()


def whole(b: Builder, n: TfliteNode) -> Value:
    """at most another scale; in quantised models"""
    return n.value()


# ---- rows and shapes


def softmax(b: Builder, n: TfliteNode) -> Value:
    """along the last axis"""
    v, beta = n.value(), n.options.scalar(0, "f")
    v = layers.affine(b, v, beta, 0) if beta not in (0, 1) else v
    return layers.softmax(b, v, len(v.shape) - 1)


def reshape(b: Builder, n: TfliteNode) -> Value:
    """moves nothing"""
    v = n.value()
    shape = n.ints(1, "shape") if len(n.inputs) > 1 and n.inputs[1] is not None else n.options.ints(0)
    if -1 in shape:
        k = shape.index(-1)
        shape[k] = prod(v.shape) // max(1, prod(shape[:k] + shape[k + 1 :]))
    return b.reshaped(v, shape or (1,))


def squeeze(b: Builder, n: TfliteNode) -> Value:
    """as RESHAPE"""
    v, axes = n.value(), n.options.ints(0)
    gone = [k % len(v.shape) for k in axes] or [k for k, size in enumerate(v.shape) if size == 1]
    return b.reshaped(v, tuple(size for k, size in enumerate(v.shape) if k not in gone) or (1,))


def expand_dims(b: Builder, n: TfliteNode) -> Value:
    """as RESHAPE"""
    v, axis = n.value(), n.axis(1)
    shape = list(v.shape)
    shape.insert(axis % (len(shape) + 1), 1)
    return b.reshaped(v, shape)


def transpose(b: Builder, n: TfliteNode) -> Value:
    """left out where nothing needs it"""
    return b.transposed(n.value(), n.ints(1, "axes"))


def concat(b: Builder, n: TfliteNode) -> Value:
    """of values, along any axis but the batch"""
    if not all(isinstance(v, Value) for v in n.inputs):
        n.place.refuse("it joins values with constants")
    if n.options.whole(1, "b"):
        n.place.refuse("it carries an activation, which TFLite runtimes do not agree on")
    return layers.concat(b, n.inputs, n.options.whole(0))


def split(b: Builder, n: TfliteNode) -> list[Value]:
    """as slices"""
    if n.op == "SPLIT":
        v, axis = n.value(1), n.axis(0)
        sizes = [v.shape[axis % len(v.shape)] // n.outputs] * n.outputs
    else:
        v, axis, sizes = n.value(), n.axis(2), n.ints(1, "sizes")
    axis %= len(v.shape)
    if -1 in sizes:
        sizes[sizes.index(-1)] = v.shape[axis] - sum(s for s in sizes if s != -1)
    starts = np.cumsum([0, *sizes])
    return [layers.cut(b, v, axis, int(p), int(q), 1) for p, q in zip(starts, starts[1:], strict=False)]


def slice_(b: Builder, n: TfliteNode) -> Value:
    """constant bounds"""
    v = n.value()
    for k, (p, size) in enumerate(zip(n.ints(1, "begin"), n.ints(2, "size"), strict=True)):
        v = layers.cut(b, v, k, p, v.shape[k] if size < 0 else p + size, 1)
    return v


def strided_slice(b: Builder, n: TfliteNode) -> Value:
    """constant bounds, positive steps"""
    v = n.value()
    gone = []
    for k, part in enumerate(strided(v.shape, n)):
        if isinstance(part, slice):
            begin, end, step = part.indices(v.shape[k])
            if step < 1:
                n.place.refuse(f"it goes backwards, by {step}", "Steps of 1 and more are known.")
        else:
            begin, step = part % v.shape[k], 1
            end = begin + 1
            gone.append(k)
        v = layers.cut(b, v, k, begin, end, step)
    return b.reshaped(v, tuple(size for k, size in enumerate(v.shape) if k not in gone) or (1,)) if gone else v


def pad(b: Builder, n: TfliteNode) -> Value:
    """with a constant; part of the convolution behind it where it can be"""
    pads = n.constant(1, "paddings")
    value = float(n.constant(2, "value").reshape(-1)[0]) if n.op == "PADV2" else 0.0
    return layers.pad_value(b, n.value(), pads[:, 0].tolist(), pads[:, 1].tolist(), value)


def resize(b: Builder, n: TfliteNode) -> Value:
    """align_corners, half_pixel_centers, or neither"""
    x, size, linear = b.image(n.value(), False), n.ints(1, "size"), n.op == "RESIZE_BILINEAR"
    first = 2 if linear else 0
    corners, half = bool(n.options.whole(first, "b")), bool(n.options.whole(first + 1, "b"))
    coordinates = 2 if corners else 0 if half else 1
    rounding = 2 if corners or half else 0
    return b.of_image(layers.resize(b, x, size, int(linear), coordinates, rounding), False)


HANDLERS: dict[str, Callable[[Builder, TfliteNode], Any]] = {
    "CONV_2D": conv, "DEPTHWISE_CONV_2D": conv, "FULLY_CONNECTED": fully_connected, "BATCH_MATMUL": batch_matmul,
    "MAX_POOL_2D": pool, "AVERAGE_POOL_2D": pool, "MEAN": reduce, "SUM": reduce, "REDUCE_MAX": reduce,
    "RELU": simple, "RELU6": simple, "RELU_N1_TO_1": relu_n1, "TANH": simple, "LOGISTIC": simple,
    "HARD_SWISH": simple, "GELU": gelu, "LEAKY_RELU": leaky_relu, "PRELU": prelu,
    "ADD": add, "SUB": sub, "MUL": mul, "DIV": div, "NEG": function, "EXP": function, "SQRT": function,
    "RSQRT": function, "SQUARE": function, "MAXIMUM": extreme, "MINIMUM": extreme, "CAST": same,
    "QUANTIZE": whole, "DEQUANTIZE": whole, "SOFTMAX": softmax,
    "RESHAPE": reshape, "SQUEEZE": squeeze, "EXPAND_DIMS": expand_dims, "TRANSPOSE": transpose,
    "CONCATENATION": concat, "SPLIT": split, "SPLIT_V": split, "SLICE": slice_, "STRIDED_SLICE": strided_slice,
    "PAD": pad, "PADV2": pad, "RESIZE_BILINEAR": resize, "RESIZE_NEAREST_NEIGHBOR": resize,
}  # fmt: skip

INSTEAD = {  # what would replace an operator that is not taken
    "LOG_SOFTMAX": "A SOFTMAX ranks the classes alike; or end the model before it.",
    "ARG_MAX": "End the model before it: edge-infer finds the largest itself.",
    "TOPK_V2": "End the model before it: edge-infer --top finds the largest itself.",
    "TFLite_Detection_PostProcess": "End the model before it, and choose boxes in the program that uses them.",
    "TRANSPOSE_CONV": "A RESIZE_BILINEAR and a CONV_2D do the same task.",
    "DEPTH_TO_SPACE": "A RESIZE_BILINEAR and a CONV_2D do the same task.",
    "SPACE_TO_BATCH_ND": "Convert the model with dilated convolutions fused.",
    "ELU": "Use RELU, LEAKY_RELU, GELU or HARD_SWISH.",
    "L2_NORMALIZATION": "End the model before it, and normalise afterwards.",
    "IF": "Convert the model for inference, with its choices made.",
    "WHILE": "Convert the model for inference, with its loops unrolled.",
    "UNIDIRECTIONAL_SEQUENCE_LSTM": "Recurrent nets are not known; use convolutions over time.",
}
