"""ONNX models in QDQ form: QuantizeLinear and DequantizeLinear around float operators say what is whole numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from litenet.trainer.graph import Node

from .builder import Builder, Value
from .given import AGAIN, Given, Inside, Scaled, less_128, quant
from .onnx_node import OnnxNode

QUANTIZE, DEQUANTIZE = "QuantizeLinear", "DequantizeLinear"
LAYERS = ("Conv", "Gemm", "MatMul")
KINDS = ("int8", "uint8")


def read_as_they_are(graph: Any) -> set[str]:
    """Values that a QuantizeLinear rounds and somebody else reads unrounded, or rounded to another scale."""
    found, rounded = {out.name for out in graph.output}, dict[str, tuple[str, ...]]()
    for n in graph.node:
        if n.op_type == QUANTIZE and rounded.setdefault(n.input[0], tuple(n.input[1:])) == tuple(n.input[1:]):
            continue
        found.update(n.input if n.op_type not in ("Shape", "Size") else ())
    return found & rounded.keys()


def marked(b: Builder, n: OnnxNode, given: Given, apart: bool = False) -> Value:
    """What a QuantizeLinear or DequantizeLinear of a value puts out: the same value, with its scale; or, where it is
    also read as it is (apart), another one."""
    scale, zero = n.constant(1, "scale"), n.optional(2, "zero point")
    zero = np.zeros((), np.uint8) if zero is None else zero
    if scale.size != 1 or zero.size != 1 or zero.dtype.name not in KINDS:
        n.place.refuse(f"it makes {zero.dtype} with {scale.size} scales", "int8 or uint8 with one scale is expected.")
    v, q = n.value(), quant(n.place, float(scale.item()), int(zero.item()), zero.dtype == np.uint8)
    if n.op == DEQUANTIZE:
        if given.quants.get(v.tensor) != q:
            n.place.refuse("it has another scale or zero point than what it reads was made with", AGAIN)
        return v
    given.unsigned = zero.dtype == np.uint8
    if apart and v.tensor not in given.quants:
        v = replace(v, tensor=b.node("activation", [v.tensor], {"activation": "none"}))
    return given.mark(b, v, q)


def constant(n: OnnxNode) -> Scaled | None:
    """Of a DequantizeLinear of a constant: its whole numbers."""
    if n.op != DEQUANTIZE:
        return None
    steps, scale, zero = n.constant(0), n.constant(1, "scale"), n.optional(2, "zero point")
    zero = np.zeros(1, np.int64) if zero is None else zero.reshape(-1)
    return Scaled(steps, scale.reshape(-1), zero, int(n.attrs.get("axis", 1)))


def real(whole: Scaled) -> np.ndarray:
    """The numbers that a constant's whole numbers stand for."""
    scale, zero = whole.scale.astype(np.float64), whole.zero.astype(np.float64)
    if scale.size > 1:
        along = [1] * whole.steps.ndim
        along[whole.axis] = -1
        scale, zero = scale.reshape(along), zero.reshape(along if zero.size > 1 else [1] * len(along))
    return ((whole.steps - zero) * scale).astype(np.float32)


def remember(
    given: Given, n: OnnxNode, names: Sequence[str], made: Sequence[Node], constants: Mapping[str, Scaled]
) -> None:
    """The whole numbers of a layer. names: of its inputs; constants: by name."""
    given.where.update({x.name: n.place for x in made})
    if n.op not in LAYERS or not any(isinstance(v, Value) for v in n.inputs):
        return
    weight = constants[names[1]].symmetric() if names[1] in constants else None
    if weight is None:  # then it calculates in floats
        return
    bias = constants.get(names[2]) if len(names) > 2 else None
    given.layer(n.place, made, weight, bias)


def other(data: bytes, name: str, samples: np.ndarray) -> list[np.ndarray] | None:
    """The source's outputs by ONNX Runtime with each operator as it stands, in floats between the roundings."""
    try:
        import onnxruntime

        options: Any = onnxruntime.SessionOptions()
        options.log_severity_level, options.intra_op_num_threads = 4, 1
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        session = onnxruntime.InferenceSession(data, options, ["CPUExecutionProvider"])
        rows = [session.run(None, {name: x[None]}) for x in samples.astype(np.float32)]
    except Exception:  # as in onnx.answers
        return None
    return [np.concatenate([np.asarray(r[k], np.float32)[None] for r in rows]) for k in range(len(rows[0]))]


def inside(model: Any, name: str, steps: Sequence[str], samples: np.ndarray) -> Inside | None:
    """What ONNX Runtime has at these names for samples (N, ...); None where it is not installed."""
    from onnx import ModelProto, helper

    outputs = [out.name for out in model.graph.output]
    shown = ModelProto()
    shown.CopyFrom(model)
    shown.graph.output.extend(helper.make_empty_tensor_value_info(step) for step in steps)
    try:
        import onnxruntime

        options: Any = onnxruntime.SessionOptions()
        options.log_severity_level, options.intra_op_num_threads = 4, 1
        session = onnxruntime.InferenceSession(shown.SerializeToString(), options, ["CPUExecutionProvider"])
        rows = [session.run([*steps, *outputs], {name: x[None]}) for x in samples.astype(np.float32)]
    except Exception:  # as in onnx.answers
        return None
    found = {step: np.concatenate([less_128(np.asarray(r[k])) for r in rows]) for k, step in enumerate(steps)}
    ends = [np.stack([np.asarray(r[len(steps) + k], np.float32) for r in rows]) for k in range(len(outputs))]
    return found, ends, "ONNX Runtime"
