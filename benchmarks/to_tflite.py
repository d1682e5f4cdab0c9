"""A net of convolutions as a TFLite file, for the comparison with LiteRT.

Written with the one-page flatbuffer writer of the tests. Padding that is not TFLite's own becomes an operator PAD,
which LiteRT's kernels take into the convolution behind it.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
from tflite_nets import INT8, model

from litenet.exporter import device
from litenet.exporter.source import Source
from litenet.trainer.int8.net import Net

SAME, VALID, ONE = np.int8(0), np.int8(1), np.int32(1)
ACTIVATIONS = {"none": np.int8(0), "relu": np.int8(1), "relu6": np.int8(3)}


def to_tflite(source: Source | Net) -> bytes:
    """The net, of conv2d, depthwise_conv2d, maxpool2d without padding, prelu, add, global_avg_pool and linear;
    SystemExit names another operator. A Net that is int8 throughout gives an int8 model of the same numbers."""
    made = source if isinstance(source, Net) else device.prepare(source)
    graph, weights = made.graph, made.weights
    steps = made.quants if isinstance(made, Net) else {}
    quants: dict[str, tuple[Any, int] | None] = {}
    nodes: list[tuple[Any, ...]] = []
    constants: dict[str, np.ndarray] = {}
    name = {graph.input: "x"}

    def constant(value: np.ndarray) -> str:
        constants[f"c{len(constants)}"] = np.ascontiguousarray(value)
        return f"c{len(constants) - 1}"

    def node(op: str, inputs: list[str], options: dict[Any, Any], shape: tuple[int, ...]) -> str:
        nodes.append((op, " ".join(inputs), {**options, "shape": (1, *shape)}))
        return f"n{len(nodes) - 1}"

    def whole(w: np.ndarray, b: np.ndarray, m: np.ndarray, t: int, y: int, last: bool) -> list[str]:
        """An int8 layer's weights and bias, as LiteRT has them: the zero point of x is not in the bias."""
        sums = w.astype(np.int64).sum(tuple(range(w.ndim - 1)) if last else tuple(range(1, w.ndim)))
        names = constant(w[None] if last else w), constant((b + steps[t].zero * sums).astype(np.int32))
        scales = m / 2**31 * steps[y].scale / steps[t].scale
        quants[names[0]], quants[names[1]] = (scales, 0), (scales * steps[t].scale, 0)
        return list(names)

    for n in graph.nodes:
        a, x = n.attrs, [name[t] for t in n.inputs]
        act = ACTIVATIONS[getattr(a, "activation", "none")]
        shape, out = graph.tensors[n.inputs[0]].shape, graph.tensors[n.output].shape
        given = [weights[n.params[p]] for p in ("weight", "bias") if p in n.params]
        if len(given) == 1:
            given.append(np.zeros(out[-1], np.float32))
        deep = n.op == "depthwise_conv2d"
        held: list[str] = []
        if given and steps:
            held = whole(*given, weights[n.params["multiplier"]], n.inputs[0], n.output, deep)
        elif given:
            held = [constant(np.float32(w[None] if deep and w.ndim > 1 else w)) for w in given]
        if n.op in ("conv2d", "depthwise_conv2d"):
            same = tuple(a.stride) == (1, 1) and all(2 * a.padding[k] + 1 == a.kernel_size[k % 2] for k in range(4))
            if any(a.padding) and not same:
                top, left, bottom, right = a.padding
                pads = constant(np.array([[0, 0], [top, bottom], [left, right], [0, 0]], np.int32))
                padded = (shape[0] + top + bottom, shape[1] + left + right, shape[2])
                x = [node("PAD", [*x, pads], {}, padded)]
                if steps:
                    quants[x[0]] = (steps[n.inputs[0]].scale, steps[n.inputs[0]].zero)
            window = {0: SAME if same else VALID, 1: np.int32(a.stride[1]), 2: np.int32(a.stride[0])}
            more = {3: ONE, 4: act} if deep else {3: act}
            name[n.output] = node(f"{n.op[:-6].upper()}CONV_2D", [*x, *held], {**window, **more}, out)
        elif n.op == "maxpool2d" and not any(a.padding):
            size = {1: np.int32(a.stride[1]), 2: np.int32(a.stride[0])}
            size |= {3: np.int32(a.kernel_size[1]), 4: np.int32(a.kernel_size[0])}
            name[n.output] = node("MAX_POOL_2D", x, {0: VALID, **size}, out)
        elif n.op == "prelu":
            slopes = constant(weights[n.params["slope"]].reshape(1, 1, -1))
            name[n.output] = node("PRELU", [*x, slopes], {}, out)
        elif n.op == "add":
            name[n.output] = node("ADD", x, {0: act}, out)
        elif n.op == "global_avg_pool":
            name[n.output] = node("MEAN", [*x, constant(np.array([1, 2], np.int32))], {0: np.uint8(0)}, out)
        elif n.op == "linear":
            name[n.output] = node("FULLY_CONNECTED", [*x, *held], {0: act}, out)
        else:
            raise SystemExit(f"{n.name}: {n.op} is not written as TFLite here")
    shape, outputs = (1, *graph.input_shape), (name[graph.outputs[0]],)
    if not steps:
        return model(nodes, shape, constants, outputs)
    quants |= {name[t]: (q.scale, q.zero) for t, q in steps.items() if t in name}
    return model(nodes, shape, constants, outputs, INT8, quants)
