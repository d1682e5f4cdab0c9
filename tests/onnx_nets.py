"""Small ONNX models for the tests of the importer: nodes written as (operator, inputs, attributes)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from values import floats

onnx = pytest.importorskip("onnx", reason="the package onnx is not installed (extra: import)")
__all__ = ["floats", "ints", "model"]


def model(
    nodes: list[tuple[Any, ...]],
    x: tuple[Any, ...],
    constants: dict[str, Any] | None = None,
    outputs: tuple[str, ...] | None = None,
    opset: int = 17,
    kind: int = 1,
) -> Any:
    """A model of nodes (op, inputs, {attributes}); node i puts out n<i>, or n<i>, n<i>_1, ... where an entry
    "outputs" says how many. Inputs are "x", names of constants and of nodes, separated by blanks. The last node puts
    out what the model does."""
    made = []
    for i, (op, inputs, *given) in enumerate(nodes):
        attrs = dict(given[0]) if given else {}
        count, domain = attrs.pop("outputs", 1), attrs.pop("domain", "")
        names = [f"n{i}"] + [f"n{i}_{k}" for k in range(1, count)]
        ins = ["" if name == "-" else name for name in inputs.split()]
        made.append(onnx.helper.make_node(op, ins, names, name=f"node{i}", domain=domain, **attrs))
    info = onnx.helper.make_tensor_value_info
    outs = [info(name, 1, None) for name in outputs or [f"n{len(nodes) - 1}"]]
    arrays = [onnx.numpy_helper.from_array(np.asarray(a), name) for name, a in (constants or {}).items()]
    graph = onnx.helper.make_graph(made, "net", [info("x", kind, x)], outs, arrays)
    found = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)])
    found.ir_version = 8
    return found


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)
