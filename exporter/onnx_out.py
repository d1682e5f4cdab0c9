"""Our graph as ONNX (opset 17), so that any viewer and runtime can take it: images are N x C x H x W there.

A tensor (H,W,C) of ours is one (N,C,H,W) there; rows keep their order. A linear layer that reads an image has its
weights turned instead of the image.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from litenet.trainer.checkpoint import write_atomically
from litenet.trainer.errors import UserError
from litenet.trainer.graph import Graph, Node
from litenet.trainer.ops import unary

from . import fold
from .importers.onnx import answers, library
from .stored import Stored

OPSET, IR_VERSION = 17, 8
NHWC, NCHW = [0, 2, 3, 1], [0, 3, 1, 2]
SAMPLES = 3
ALLOWED = 1e-4  # difference, as a share of an output's largest value


class Page:
    """The ONNX graph in the making. Names are those of our tensors; what stands between has the node's name."""

    def __init__(self, graph: Graph, weights: dict[str, np.ndarray], outputs: Sequence[str]):
        onnx = library()
        self.onnx, self.graph, self.weights = onnx, graph, weights
        self.nodes: list[Any] = []
        self.constants: dict[str, np.ndarray] = {}
        self.taken = {"input", *outputs}
        ends = {graph.input: "input", **dict(zip(graph.outputs, outputs, strict=True))}
        self.name = {t: ends.get(t) or self.unique(tensor.name) for t, tensor in enumerate(graph.tensors)}

    def shape(self, tensor: int) -> tuple[int, ...]:
        return self.graph.tensors[tensor].shape

    def unique(self, name: str) -> str:
        """This name, or one like it that nothing has."""
        found, n = name, 1
        while found in self.taken:
            n += 1
            found = f"{name}.{n}"
        self.taken.add(found)
        return found

    def constant(self, value: Any, dtype: Any = np.float32) -> str:
        array = np.ascontiguousarray(value, dtype)
        name = self.unique(f"constant{len(self.constants)}")
        self.constants[name] = array
        return name

    def add(self, op: str, inputs: Sequence[str], output: str | None = None, **attrs: Any) -> str:
        if output is None:
            output = self.unique(f"between{len(self.nodes)}")
        attrs = {k: list(v) if isinstance(v, tuple) else v for k, v in attrs.items()}
        self.nodes.append(self.onnx.helper.make_node(op, list(inputs), [output], name=f"{op}_{output}", **attrs))
        return output

    def by_channel(self, rank: int, values: np.ndarray) -> str:
        return self.constant(values.reshape(-1, 1, 1) if rank == 3 else values)

    def flat(self, tensor: int, output: str | None = None) -> str:
        """(N, values in our memory's order)."""
        x, shape = self.name[tensor], self.shape(tensor)
        if len(shape) == 3 and shape[2] > 1 and shape[0] * shape[1] > 1:
            x = self.add("Transpose", [x], perm=NHWC)
        return self.add("Flatten", [x], output, axis=1)

    def dims(self, shape: Sequence[int]) -> list[int]:
        return [shape[2], shape[0], shape[1]] if len(shape) == 3 else list(shape)


def _activate(p: Page, h: str, name: str, alpha: float, out: str) -> None:
    if name == "none":
        p.add("Identity", [h], out)
    elif name == "relu6":
        p.add("Clip", [h, p.constant(0), p.constant(6)], out)
    elif name == "leaky_relu":
        p.add("LeakyRelu", [h], out, alpha=float(alpha))
    elif name == "silu":
        p.add("Mul", [h, p.add("Sigmoid", [h])], out)
    elif name == "gelu":
        e = p.add("Erf", [p.add("Mul", [h, p.constant(0.5**0.5)])])
        half = p.add("Mul", [p.add("Add", [e, p.constant(1)]), p.constant(0.5)])
        p.add("Mul", [h, half], out)
    elif name == "gelu_tanh":
        cube = p.add("Mul", [p.add("Mul", [h, h]), h])
        inner = p.add("Add", [h, p.add("Mul", [cube, p.constant(0.044715)])])
        t = p.add("Tanh", [p.add("Mul", [inner, p.constant(0.7978845608028654)])])
        half = p.add("Mul", [p.add("Add", [t, p.constant(1)]), p.constant(0.5)])
        p.add("Mul", [h, half], out)
    else:
        onnx_name = {"relu": "Relu", "sigmoid": "Sigmoid", "tanh": "Tanh", "hard_swish": "HardSwish"}[name]
        p.add(onnx_name, [h], out)


# ---- one function for each operator of ours: (page, node, weights by role, output name)


def _linear(p: Page, n: Node, w: dict[str, np.ndarray], out: str) -> str:
    x, y = p.shape(n.inputs[0]), p.shape(n.output)
    weight, bias = w["weight"], w.get("bias")
    bias = np.zeros(len(weight)) if bias is None else bias
    if len(y) == 2:
        h = p.add("MatMul", [p.name[n.inputs[0]], p.constant(weight.T)])
        return p.add("Add", [h, p.constant(bias)], out)
    if len(x) == 3:
        weight = weight.reshape(-1, *x).transpose(0, 3, 1, 2).reshape(len(weight), -1)
    row = p.name[n.inputs[0]] if len(x) == 1 else p.add("Flatten", [p.name[n.inputs[0]]], axis=1)
    return p.add("Gemm", [row, p.constant(weight), p.constant(bias)], out, transB=1)


def _conv(p: Page, n: Node, w: dict[str, np.ndarray], out: str) -> str:
    a, weight = n.attrs, w["weight"]
    if n.op == "depthwise_conv2d":
        weight, groups = weight.transpose(2, 0, 1)[:, None], weight.shape[2]
    else:
        weight, groups = weight.transpose(0, 3, 1, 2), a.groups
    inputs = [p.name[n.inputs[0]], p.constant(weight)] + ([p.constant(w["bias"])] if "bias" in w else [])
    return p.add(
        "Conv", inputs, out, kernel_shape=a.kernel_size, strides=a.stride, pads=a.padding, dilations=a.dilation,
        group=int(groups),
    )  # fmt: skip


def _pool(p: Page, n: Node, w: dict[str, np.ndarray], out: str) -> str:
    a = n.attrs
    given = {"kernel_shape": a.kernel_size, "strides": a.stride, "pads": a.padding}
    if n.op == "maxpool2d":
        return p.add("MaxPool", [p.name[n.inputs[0]]], out, **given)
    return p.add("AveragePool", [p.name[n.inputs[0]]], out, count_include_pad=int(a.count_include_pad), **given)


def _global_avg_pool(p: Page, n: Node, w: dict[str, np.ndarray], out: str) -> str:
    return p.add("Flatten", [p.add("GlobalAveragePool", [p.name[n.inputs[0]]])], out, axis=1)


def _reshape(p: Page, n: Node, w: dict[str, np.ndarray], out: str) -> str:
    y = p.shape(n.output)
    if len(y) == 1:
        return p.flat(n.inputs[0], out)
    row = p.flat(n.inputs[0])
    shape = p.constant([-1, *y], np.int64)
    if len(y) != 3:
        return p.add("Reshape", [row, shape], out)
    return p.add("Transpose", [p.add("Reshape", [row, shape])], out, perm=NCHW)


def _add(p: Page, n: Node, w: dict[str, np.ndarray], out: str) -> str:
    return p.add("Add", [p.name[t] for t in n.inputs], out)


def _mul(p: Page, n: Node, w: dict[str, np.ndarray], out: str) -> str:
    x, x2 = (p.shape(t) for t in n.inputs)
    second = p.name[n.inputs[1]]
    if x != x2:
        axes = [2, 3] if len(x) == 3 else list(range(1, len(x)))
        second = p.add("Unsqueeze", [second, p.constant(axes, np.int64)])
    return p.add("Mul", [p.name[n.inputs[0]], second], out)


def _batchnorm(p: Page, n: Node, w: dict[str, np.ndarray], out: str) -> str:
    scale, shift = fold.batchnorm_affine(n, p.weights)
    rank = len(p.shape(n.output))
    h = p.add("Mul", [p.name[n.inputs[0]], p.by_channel(rank, scale)])
    return p.add("Add", [h, p.by_channel(rank, shift)], out)


def _layernorm(p: Page, n: Node, w: dict[str, np.ndarray], out: str) -> str:
    weights = [p.constant(w["gamma"]), p.constant(w["beta"])]
    given: dict[str, Any] = {"axis": -1, "epsilon": float(n.attrs.eps)}
    if len(p.shape(n.output)) != 3:
        return p.add("LayerNormalization", [p.name[n.inputs[0]], *weights], out, **given)
    h = p.add("LayerNormalization", [p.add("Transpose", [p.name[n.inputs[0]]], perm=NHWC), *weights], **given)
    return p.add("Transpose", [h], out, perm=NCHW)


def _softmax(p: Page, n: Node, w: dict[str, np.ndarray], out: str) -> str:
    return p.add("Softmax", [p.name[n.inputs[0]]], out, axis=1 if len(p.shape(n.output)) == 3 else -1)


def _embed(p: Page, n: Node, w: dict[str, np.ndarray], out: str) -> str:
    x, weight = p.name[n.inputs[0]], p.constant(w["weight"])
    if not n.attrs.keep_channels:
        x = p.add("ReduceSum", [x, p.constant([1], np.int64)], keepdims=0)
        return p.add("MatMul", [p.add("Flatten", [x], axis=1), weight], out)
    H, W, C = p.shape(n.inputs[0])
    rows = p.add("Reshape", [x, p.constant([-1, C, H * W], np.int64)])
    return p.add("Flatten", [p.add("MatMul", [rows, weight])], out, axis=1)


def _activation(p: Page, n: Node, w: dict[str, np.ndarray], out: str) -> str:
    return p.name[n.inputs[0]]


def _prelu(p: Page, n: Node, w: dict[str, np.ndarray], out: str) -> str:
    return p.add("PRelu", [p.name[n.inputs[0]], p.by_channel(len(p.shape(n.output)), w["slope"])], out)


def _axis(p: Page, tensor: int, axis: int) -> int:
    """One of our axes as ONNX counts them, the batch included."""
    return (2, 3, 1)[axis] if len(p.shape(tensor)) == 3 else axis + 1


def _concat(p: Page, n: Node, w: dict[str, np.ndarray], out: str) -> str:
    return p.add("Concat", [p.name[t] for t in n.inputs], out, axis=_axis(p, n.output, n.attrs.axis))


def _resize(p: Page, n: Node, w: dict[str, np.ndarray], out: str) -> str:
    a, x = n.attrs, p.name[n.inputs[0]]
    zero, two = p.constant([0], np.int64), p.constant([2], np.int64)
    front = p.add("Slice", [p.add("Shape", [x]), zero, two])
    sizes = p.add("Concat", [front, p.constant(a.size, np.int64)], axis=0)
    return p.add(
        "Resize", [x, "", "", sizes], out, mode=("nearest", "linear")[a.mode],
        coordinate_transformation_mode=("half_pixel", "asymmetric", "align_corners")[a.coordinates],
        nearest_mode=("floor", "round_prefer_floor", "round_prefer_ceil", "ceil")[a.rounding],
    )  # fmt: skip


def _pad(p: Page, n: Node, w: dict[str, np.ndarray], out: str) -> str:
    rank = len(p.shape(n.output))
    pads = [0] * (2 * (rank + 1))
    for k in range(rank):
        axis = _axis(p, n.output, k)
        pads[axis], pads[axis + rank + 1] = n.attrs.before[k], n.attrs.after[k]
    return p.add("Pad", [p.name[n.inputs[0]], p.constant(pads, np.int64), p.constant(n.attrs.value)], out)


def _slice(p: Page, n: Node, w: dict[str, np.ndarray], out: str) -> str:
    a = n.attrs
    bounds = (a.begin, a.begin + (a.size - 1) * a.step + 1, _axis(p, n.output, a.axis), a.step)
    return p.add("Slice", [p.name[n.inputs[0]], *(p.constant([v], np.int64) for v in bounds)], out)


def _transpose(p: Page, n: Node, w: dict[str, np.ndarray], out: str) -> str:
    rank = len(p.shape(n.output))
    perm = [0, *(k + 1 for k in n.attrs.axes[:rank])]
    if rank == 3:
        perm = [NHWC[perm[k]] for k in NCHW]
    return p.add("Transpose", [p.name[n.inputs[0]]], out, perm=perm)


def _unary(p: Page, n: Node, w: dict[str, np.ndarray], out: str) -> str:
    x = p.name[n.inputs[0]]
    if n.attrs.function == unary.SQRT:
        return p.add("Sqrt", [p.add("Relu", [x])], out)
    return p.add("Exp" if n.attrs.function == unary.EXP else "Reciprocal", [x], out)


WRITERS: dict[str, Callable[[Page, Node, dict[str, np.ndarray], str], str]] = {
    "linear": _linear, "conv2d": _conv, "depthwise_conv2d": _conv, "maxpool2d": _pool, "avgpool2d": _pool,
    "global_avg_pool": _global_avg_pool, "flatten": _reshape, "reshape": _reshape, "add": _add, "mul": _mul,
    "batchnorm": _batchnorm, "layernorm": _layernorm, "softmax": _softmax, "embed_projection": _embed,
    "activation": _activation, "prelu": _prelu, "concat": _concat, "resize": _resize, "pad": _pad, "slice": _slice,
    "transpose": _transpose, "unary": _unary,
}  # fmt: skip


def model(stored: Stored) -> Any:
    """The ONNX model. Its metadata_props hold the preprocessing and ours."""
    graph = stored.graph
    given = stored.metadata.get("outputs") or []
    outputs = given if len(given) == len(graph.outputs) else [f"output{i}" for i in range(len(graph.outputs))]
    p = Page(graph, stored.weights, outputs if len(graph.outputs) > 1 or given else ["output"])
    for n in graph.nodes:
        activation = getattr(n.attrs, "activation", "none")
        last = p.name[n.output]
        weights = {role: stored.weights[name] for role, name in n.params.items()}
        if activation == "none" and n.op != "activation":
            WRITERS[n.op](p, n, weights, last)
        else:
            h = WRITERS[n.op](p, n, weights, p.unique(f"{last}.sum"))
            _activate(p, h, activation, n.attrs.alpha, last)
    helper = p.onnx.helper
    kind = p.onnx.TensorProto.FLOAT
    ends = (graph.input, *graph.outputs)
    ports = [helper.make_tensor_value_info(p.name[t], kind, ["N", *p.dims(p.shape(t))]) for t in ends]
    constants = [p.onnx.numpy_helper.from_array(a, name) for name, a in p.constants.items()]
    page = helper.make_graph(p.nodes, graph.name, ports[:1], ports[1:], constants)
    made = helper.make_model(page, opset_imports=[helper.make_opsetid("", OPSET)], producer_name="LiteNet")
    made.ir_version = IR_VERSION
    more = {"labels": stored.metadata.get("labels"), "preprocessing": None}
    if stored.frame.color != "none":
        more["preprocessing"] = asdict(stored.frame)
    helper.set_model_props(made, {k: json.dumps(v, ensure_ascii=False) for k, v in more.items() if v is not None})
    p.onnx.checker.check_model(made)
    return made


def write(stored: Stored, out: Path) -> Iterator[str]:
    """Write `out`, after its outputs have been compared with ours; yields the lines of the report."""
    made = model(stored)
    data = made.SerializeToString()
    difference, by = compare(stored, made, data)
    if not difference <= ALLOWED:
        raise UserError(
            f"{out}: by {by} the ONNX model differs by {difference:.3g} of its largest value (allowed {ALLOWED:g}); "
            "nothing was written.\n  This is a fault of LiteNet: please report it with the model."
        )
    write_atomically(out, lambda file: file.write(data))
    sizes = [" x ".join(map(str, d)) for d in (["N", *_nchw(stored.graph.input_shape)],)]
    yield f"{out}: {len(data):,} bytes, ONNX opset {OPSET}, {len(made.graph.node)} nodes, input {sizes[0]}"
    yield f"  outputs within {difference:.2g} of their largest value of {by}, on {SAMPLES} random inputs"


def _nchw(shape: Sequence[int]) -> list[int]:
    return [shape[2], shape[0], shape[1]] if len(shape) == 3 else list(shape)


def compare(stored: Stored, made: Any, data: bytes) -> tuple[float, str]:
    """(largest difference as a share of the output's largest value, who ran the ONNX model)."""
    graph = stored.graph
    x = np.random.default_rng(5).standard_normal((SAMPLES, *graph.input_shape)).astype(np.float32)
    tensors = fold.run(graph, stored.weights, x)
    feed = {"input": x.transpose(0, 3, 1, 2) if x.ndim == 4 else x}
    (got,), by = answers(made, data, [feed])
    worst = 0.0
    for t, y in zip(graph.outputs, got, strict=True):
        want = tensors[t]
        y = np.asarray(y)
        y = y.transpose(0, 2, 3, 1) if want.ndim == 4 else y
        gap = np.abs(y.reshape(want.shape) - want)
        worst = max(worst, float(gap.max() / max(np.abs(want).max(), 1e-30))) if np.isfinite(gap).all() else np.inf
    return worst, by
