"""One function for each operator of ONNX that is taken: (builder, node) -> what it puts out.

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
from . import onnx_shapes as shapes
from .builder import Builder, Value
from .onnx_node import OnnxNode

# ---- convolution and matrix product


def _planes(b: Builder, n: OnnxNode) -> tuple[int, Callable[[int], Value], bool]:
    """(the image, what makes a value of an image again, whether it is one row of an image of height 1)."""
    v = n.value()
    if len(v.shape) == 3:
        wide = b.reshaped(v, (*v.shape[:2], 1, v.shape[2]))
        return b.image(wide, True), lambda t: _flat(b, b.of_image(t, True)), True
    return b.image(v, True), lambda t: b.of_image(t, True), False


def _flat(b: Builder, v: Value) -> Value:
    return b.reshaped(v, (v.shape[0], v.shape[1], v.shape[3]))


def _window(n: OnnxNode, size: tuple[int, int], kernel: list[int], row: bool) -> tuple[Any, Any, layers.Pads, Any, Any]:
    """(kernel, stride, pads, dilation, rows and columns that ceil_mode adds) of height and width."""
    rank = len(kernel)
    stride, dilation = n.ints("strides") or [1] * rank, n.ints("dilations") or [1] * rank
    pads = n.ints("pads") or [0] * 2 * rank
    if row:
        kernel, stride, dilation = [1, *kernel], [1, *stride], [1, *dilation]
        pads = [0, pads[0], 0, pads[1]]
    if len(kernel) != 2:
        n.place.refuse(f"it has a window of {rank} axes; images with height and width are expected")
    auto = n.attrs.get("auto_pad", "NOTSET")
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        both = [same_padding(size[k], kernel[k], stride[k], dilation[k]) for k in (0, 1)]
        if auto == "SAME_LOWER":
            both = [(q, p) for p, q in both]
        pads = [both[0][0], both[1][0], both[0][1], both[1][1]]
    elif auto == "VALID":
        pads = [0, 0, 0, 0]
    extra = [0, 0]
    if n.attrs.get("ceil_mode", 0):
        extra = [layers.ceil_extra(size[k], kernel[k], stride[k], pads[k], pads[k + 2], dilation[k]) for k in (0, 1)]
    return kernel, stride, (pads[0], pads[1], pads[2], pads[3]), dilation, (extra[0], extra[1])


def conv(b: Builder, n: OnnxNode) -> Value:
    """groups, dilation, any padding, auto_pad; one or two dimensions; constant weights"""
    w, bias = n.constant(1, "weights"), n.optional(2, "bias")
    if w.ndim not in (3, 4):
        n.place.refuse(f"its kernel has {w.ndim - 2} axes; one or two are expected")
    x, value, row = _planes(b, n)
    w = w.reshape(*w.shape[:2], 1, w.shape[2]) if row else w
    H, W, _ = b.shape(x)
    kernel, stride, pads, dilation, _ = _window(n, (H, W), list(w.shape[3:] if row else w.shape[2:]), row)
    return value(layers.conv(b, x, w.transpose(0, 2, 3, 1), bias, stride, pads, dilation, n.attrs.get("group", 1)))


def gemm(b: Builder, n: OnnxNode) -> Value:
    """A is the value, B and C are constants"""
    v, w, c = n.value(), n.constant(1, "B"), n.optional(2, "C")
    if n.attrs.get("transA", 0):
        v = b.transposed(v, (1, 0))
    w = (w if n.attrs.get("transB", 0) else w.T) * np.float32(n.attrs.get("alpha", 1.0))
    if c is None:
        return layers.linear(b, v, w, None)
    c = c * np.float32(n.attrs.get("beta", 1.0))
    if c.size in (1, len(w)):
        return layers.linear(b, v, w, np.broadcast_to(c.reshape(-1), len(w)))
    return layers.affine(b, layers.linear(b, v, w, None), 1, c)


def matmul(b: Builder, n: OnnxNode) -> Value:
    """by a constant matrix from the right"""
    v, w = n.inputs[0], n.inputs[1]
    if not isinstance(v, Value) or isinstance(w, Value):
        n.place.refuse(
            "it multiplies two values, or a constant from the left", "linear and conv2d multiply by constants only."
        )
    if w.ndim == 1:
        y = layers.linear(b, v, w[None], None)
        return b.reshaped(y, y.shape[:-1])
    if prod(w.shape[:-2]) != 1:
        n.place.refuse(f"its constant is a stack of matrices {w.shape}; one is expected")
    return layers.linear(b, v, w.reshape(w.shape[-2:]).T, None)


# ---- pools and means


def max_pool(b: Builder, n: OnnxNode) -> Value:
    """any padding, ceil_mode; no dilation, no indices"""
    x, value, row = _planes(b, n)
    H, W, _ = b.shape(x)
    kernel, stride, pads, dilation, extra = _window(n, (H, W), n.ints("kernel_shape") or [], row)
    if max(dilation) > 1:
        n.place.refuse(f"its window has dilation {dilation}", "A maxpool2d has none.")
    if n.outputs > 1:
        n.place.refuse("it also puts out the places of the largest values")
    return value(layers.maxpool(b, x, kernel, stride, (pads[0], pads[1], pads[2] + extra[0], pads[3] + extra[1])))


def average_pool(b: Builder, n: OnnxNode) -> Value:
    """any padding, ceil_mode, count_include_pad"""
    x, value, row = _planes(b, n)
    H, W, _ = b.shape(x)
    kernel, stride, pads, dilation, extra = _window(n, (H, W), n.ints("kernel_shape") or [], row)
    if max(dilation) > 1:
        n.place.refuse(f"its window has dilation {dilation}", "An avgpool2d has none.")
    return value(layers.avgpool(b, x, kernel, stride, pads, extra, bool(n.attrs.get("count_include_pad", 0))))


def global_pool(b: Builder, n: OnnxNode) -> Value:
    """over all positions"""
    v = n.value()
    how = "mean" if n.op == "GlobalAveragePool" else "max"
    return layers.reduce(b, v, range(2, len(v.shape)), True, how)


def reduce(b: Builder, n: OnnxNode) -> Value:
    """over any axes, constant"""
    v, axes = n.value(), n.ints("axes", 1)
    if not axes:
        if n.attrs.get("noop_with_empty_axes", 0):
            return v
        axes = list(range(len(v.shape)))
    how = {"ReduceMean": "mean", "ReduceSum": "sum", "ReduceMax": "max"}[n.op]
    return layers.reduce(b, v, axes, bool(n.attrs.get("keepdims", 1)), how)


# ---- element by element


def simple(b: Builder, n: OnnxNode) -> Value:
    """our activation of that name"""
    name = {"Relu": "relu", "Sigmoid": "sigmoid", "Tanh": "tanh", "HardSwish": "hard_swish"}[n.op]
    return layers.activation(b, n.value(), name)


def leaky_relu(b: Builder, n: OnnxNode) -> Value:
    """any slope"""
    return layers.prelu(b, n.value(), np.array([n.attrs.get("alpha", 0.01)], np.float32))


def gelu(b: Builder, n: OnnxNode) -> Value:
    """exact or by tanh; also written out as Erf or Tanh with products"""
    return layers.activation(b, n.value(), "gelu_tanh" if n.attrs.get("approximate") == "tanh" else "gelu")


def hard_sigmoid(b: Builder, n: OnnxNode) -> Value:
    """as an affine step and a relu6"""
    alpha, beta = n.attrs.get("alpha", 0.2), n.attrs.get("beta", 0.5)
    h = layers.activation(b, layers.affine(b, n.value(), 6 * alpha, 6 * beta), "relu6")
    return layers.affine(b, h, 1 / 6, 0)


def clip(b: Builder, n: OnnxNode) -> Value:
    """any constant bounds"""

    def bound(name: str, i: int, default: float) -> float:
        found = n.optional(i, name)
        value = float(n.attrs.get(name, default) if found is None else found.reshape(-1)[0])
        return default if abs(value) >= 3.4e38 else value

    return layers.clip(b, n.value(), bound("min", 1, -np.inf), bound("max", 2, np.inf))


def prelu(b: Builder, n: OnnxNode) -> Value:
    """constant slopes, one or one a channel"""
    v, slope = n.value(), n.constant(1, "slope")
    if slope.ndim == 1 and slope.size == v.shape[1] and len(v.shape) == 4 and v.shape[3] != slope.size:
        slope = slope.reshape(-1, 1, 1)
    return layers.prelu(b, v, slope)


def add(b: Builder, n: OnnxNode) -> Value:
    """a constant, or a value of the same shape"""
    v = n.inputs[0]
    for w in n.inputs[1:]:
        if isinstance(v, Value) and isinstance(w, Value):
            v = layers.add(b, v, w)
        elif isinstance(v, Value):
            v = layers.affine(b, v, 1, w)
        else:
            v = layers.affine(b, w, 1, v) if isinstance(w, Value) else v + w
    return v


def sub(b: Builder, n: OnnxNode) -> Value:
    """as Add"""
    v, w = n.inputs
    if isinstance(v, Value) and isinstance(w, Value):
        return layers.subtract(b, v, w)
    return layers.affine(b, v, 1, -w) if isinstance(v, Value) else layers.affine(b, w, -1, v)


def mul(b: Builder, n: OnnxNode) -> Value:
    """a constant, a value of the same shape, or a factor for each channel"""
    v, w = n.inputs
    if isinstance(v, Value) and isinstance(w, Value):
        return layers.multiply(b, v, w)
    return layers.affine(b, v, w, 0) if isinstance(v, Value) else layers.affine(b, w, v, 0)


def div(b: Builder, n: OnnxNode) -> Value:
    """by a constant, or by a value as Mul"""
    v, w = n.inputs
    if isinstance(w, Value):
        one = layers.unary(b, w, unary.RECIPROCAL)
        return layers.multiply(b, v, one) if isinstance(v, Value) else layers.affine(b, one, v, 0)
    with np.errstate(divide="ignore"):
        return layers.affine(b, v, 1 / w.astype(np.float64), 0)


def function(b: Builder, n: OnnxNode) -> Value:
    """of each value"""
    return layers.unary(b, n.value(), {"Exp": unary.EXP, "Sqrt": unary.SQRT, "Reciprocal": unary.RECIPROCAL}[n.op])


def power(b: Builder, n: OnnxNode) -> Value:
    """to the power of 1 or 2"""
    v, p = n.value(), n.constant(1, "exponent")
    if p.size != 1 or p.item() not in (1, 2):
        n.place.refuse(f"its exponent is {p.reshape(-1)[:3].tolist()}; 1 or 2 are known")
    return v if p.item() == 1 else layers.multiply(b, v, v)


def negative(b: Builder, n: OnnxNode) -> Value:
    """as a product with -1"""
    return layers.affine(b, n.value(), -1, 0)


def extreme(b: Builder, n: OnnxNode) -> Value:
    """of a value and one constant number"""
    v, w = n.inputs if len(n.inputs) == 2 else (None, None)
    v, w = (v, w) if isinstance(v, Value) else (w, v)
    if not isinstance(v, Value) or not isinstance(w, np.ndarray) or w.size != 1:
        n.place.refuse("it compares values; one value with one constant number is expected")
    bound = float(w.reshape(-1)[0])
    return layers.clip(b, v, bound, np.inf) if n.op == "Max" else layers.clip(b, v, -np.inf, bound)


def same(b: Builder, n: OnnxNode) -> Value:
    """left out"""
    return n.value()


def cast(b: Builder, n: OnnxNode) -> Value:
    """left out where it is to a float"""
    if n.attrs.get("to") not in (1, 10, 11):
        n.place.refuse("it turns floats into something else", "Export the model without it, and do it afterwards.")
    return n.value()


# ---- normalisation


def batch_norm(b: Builder, n: OnnxNode) -> Value:
    """folded into the layer before it, or else y = x scale + shift"""
    v = n.value()
    gamma, beta, mean, var = (n.constant(i, "statistics").astype(np.float32) for i in (1, 2, 3, 4))
    scale = gamma * (1 / np.sqrt(var + np.float32(n.attrs.get("epsilon", 1e-5))))  # so ONNX Runtime rounds
    shape = (-1, *[1] * (len(v.shape) - 2))
    return layers.affine(b, v, scale.reshape(shape), (beta - mean * scale).reshape(shape))


def layer_norm(b: Builder, n: OnnxNode) -> Value:
    """over the last axes"""
    gamma, beta = n.constant(1, "scale"), n.optional(2, "bias")
    beta = np.zeros_like(gamma) if beta is None else beta
    return layers.layernorm(b, n.value(), gamma, beta, n.attrs.get("epsilon", 1e-5), n.attrs.get("axis", -1))


def softmax(b: Builder, n: OnnxNode) -> Value:
    """along any axis"""
    old = n.opset < 13
    return layers.softmax(b, n.value(), n.attrs.get("axis", 1 if old else -1), together=old)


HANDLERS: dict[str, Callable[[Builder, OnnxNode], Any]] = {
    "Conv": conv, "Gemm": gemm, "MatMul": matmul,
    "MaxPool": max_pool, "AveragePool": average_pool, "GlobalAveragePool": global_pool, "GlobalMaxPool": global_pool,
    "ReduceMean": reduce, "ReduceSum": reduce, "ReduceMax": reduce,
    "Relu": simple, "Sigmoid": simple, "Tanh": simple, "HardSwish": simple, "LeakyRelu": leaky_relu, "PRelu": prelu,
    "Gelu": gelu, "HardSigmoid": hard_sigmoid, "Clip": clip, "Add": add, "Sum": add, "Sub": sub, "Mul": mul, "Div": div,
    "Exp": function, "Sqrt": function, "Reciprocal": function, "Pow": power, "Neg": negative,
    "Max": extreme, "Min": extreme,
    "BatchNormalization": batch_norm, "LayerNormalization": layer_norm, "Softmax": softmax,
    "Identity": same, "Dropout": same, "Cast": cast,
    "Reshape": shapes.reshape, "Flatten": shapes.flatten, "Squeeze": shapes.squeeze, "Unsqueeze": shapes.unsqueeze,
    "Transpose": shapes.transpose, "Concat": shapes.concat, "Split": shapes.split, "Slice": shapes.slice_,
    "Gather": shapes.gather, "Pad": shapes.pad, "Expand": shapes.expand, "Tile": shapes.expand,
    "Resize": shapes.resize, "Upsample": shapes.resize,
}  # fmt: skip

INSTEAD = {  # what would replace an operator that is not taken
    "LogSoftmax": "A Softmax ranks the classes alike; or end the model before it.",
    "ArgMax": "End the model before it: edge-infer finds the largest itself.",
    "TopK": "End the model before it: edge-infer --top finds the largest itself.",
    "NonMaxSuppression": "End the model before it, and choose boxes in the program that uses them.",
    "ConvTranspose": "A Resize and a Conv do the same task.",
    "DepthToSpace": "A Resize and a Conv do the same task.",
    "SpaceToDepth": "A Conv with stride does the same task.",
    "Elu": "Use Relu, LeakyRelu, Gelu, HardSwish or a Sigmoid times its input (SiLU).",
    "Selu": "Use Relu, LeakyRelu, Gelu, HardSwish or a Sigmoid times its input (SiLU).",
    "Mish": "Use HardSwish or a Sigmoid times its input (SiLU).",
    "Softplus": "Use Relu.",
    "InstanceNormalization": "Use BatchNormalization.",
    "GroupNormalization": "Use BatchNormalization or LayerNormalization.",
    "LRN": "Use BatchNormalization.",
    "LSTM": "Recurrent nets are not known; use convolutions over time.",
    "GRU": "Recurrent nets are not known; use convolutions over time.",
    "If": "Export the model for inference, with its choices made.",
    "Loop": "Export the model for inference, with its loops unrolled.",
}
