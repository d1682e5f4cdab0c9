"""What older exports write out as a handful of nodes. Activations (GELU, SiLU, hard swish) are recognised by what they
compute: the nodes between two values are run on a grid of numbers and compared with our activations. A layer
normalisation is recognised by its nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from litenet.trainer.ops import activations

ELEMENTWISE = {
    "Add", "Sub", "Mul", "Div", "Pow", "Erf", "Tanh", "Sigmoid", "HardSigmoid", "Clip", "Relu", "Min", "Max", "Exp",
    "Neg", "Reciprocal", "Sqrt", "HardSwish", "Identity", "Softplus",
}  # fmt: skip
LAST = {"Mul", "Div", "Add", "HardSwish", "Identity"}  # what such a row ends with
NAMES = ("gelu", "gelu_tanh", "silu", "hard_swish", "sigmoid", "tanh")
MOST_NODES = 10
GRID = np.concatenate([np.linspace(-9, 9, 61), [0.0, 1e-3, -1e-3]]).astype(np.float32)


def small_constants(
    nodes: Sequence[Any], constants: Mapping[str, Any], opsets: dict[str, int]
) -> dict[str, np.ndarray]:
    """All that are one number, those of Constant nodes included."""
    from .onnx import evaluate

    known = {n: v for n, v in constants.items() if isinstance(v, np.ndarray) and v.size == 1}
    for n in nodes:
        if n.op_type == "Constant":
            (value,) = evaluate(n, [], opsets)
            if np.size(value) == 1:
                known[n.output[0]] = np.asarray(value)
    return known


def layernorms_of(nodes: Sequence[Any], known: Mapping[str, np.ndarray]) -> dict[str, tuple[str, float]]:
    """Output of (x - mean) / sqrt(mean((x - mean)^2) + eps) over the last axis -> (x, eps)."""
    made = {name: n for n in nodes for name in n.output}

    def node(name: str, op: str) -> Any:
        n = made.get(name)
        return n if n is not None and n.op_type == op else None

    def last_axis(n: Any) -> bool:
        given = {a.name: a for a in n.attribute}
        axes = list(given["axes"].ints) if "axes" in given else [known[k] for k in n.input[1:] if k in known]
        keeps = "keepdims" not in given or given["keepdims"].i == 1
        return keeps and [int(np.asarray(a).item()) for a in axes] == [-1]

    found = {}
    for n in nodes:
        root = node(n.input[1], "Sqrt") if n.op_type == "Div" else None
        add = node(root.input[0], "Add") if root is not None else None
        away = node(n.input[0], "Sub") if add is not None else None
        if add is None or away is None:
            continue
        x, mean = away.input[0], node(away.input[1], "ReduceMean")
        eps = next((k for k in add.input if k in known), None)
        variance = node(next((k for k in add.input if k not in known), ""), "ReduceMean")
        if mean is None or variance is None or eps is None or mean.input[0] != x:
            continue
        square = made.get(variance.input[0])
        twice = square is not None and (
            (square.op_type == "Pow" and square.input[1] in known and known[square.input[1]].item() == 2)
            or (square.op_type == "Mul" and square.input[0] == square.input[1])
        )
        if (
            twice
            and square is not None
            and square.input[0] == away.output[0]
            and last_axis(mean)
            and last_axis(variance)
        ):
            found[n.output[0]] = (x, float(known[eps].item()))
    return found


def activations_of(
    nodes: Sequence[Any], known: Mapping[str, np.ndarray], opsets: dict[str, int]
) -> dict[str, tuple[str, str]]:
    """Output of the last node of a written-out activation -> (its input, its name)."""
    producer = {name: i for i, n in enumerate(nodes) for name in n.output}
    return {
        n.output[0]: found
        for n in nodes
        if n.op_type in LAST and (found := _match(n.output[0], nodes, producer, known, opsets)) is not None
    }


def _match(
    y: str, nodes: Sequence[Any], producer: dict[str, int], known: Mapping[str, np.ndarray], opsets: dict[str, int]
) -> tuple[str, str] | None:
    """Walk back from y, always from the value made last, until one value is left that all hangs on."""
    inside: list[int] = []
    open_values = {y}
    while len(inside) < MOST_NODES:
        last = max(open_values, key=lambda name: producer.get(name, -1))
        i = producer.get(last, -1)
        if i < 0 or nodes[i].op_type not in ELEMENTWISE:
            return None
        inside.append(i)
        open_values = (open_values - {last}) | {n for n in nodes[i].input if n and n not in known}
        if len(open_values) == 1 and len(inside) > 1:
            (x,) = open_values
            name = _same_as(x, y, [nodes[i] for i in sorted(inside)], known, opsets)
            if name is not None:
                return x, name
        if not open_values:
            return None
    return None


def _same_as(x: str, y: str, row: Sequence[Any], known: Mapping[str, np.ndarray], opsets: dict[str, int]) -> str | None:
    from .onnx import evaluate

    values: dict[str, Any] = {x: GRID, "": None}
    try:
        with np.errstate(all="ignore"):
            for n in row:
                inputs = [values[name] if name in values else known[name] for name in n.input]
                values[n.output[0]] = evaluate(n, inputs, opsets)[0]
    except Exception:  # a node that takes no such numbers is no activation
        return None
    got = np.asarray(values[y], np.float64)
    if got.shape != GRID.shape:
        return None
    for name in NAMES:
        if np.abs(got - activations.apply(name, GRID.astype(np.float64))).max() <= 2e-6:
            return name
    return None
