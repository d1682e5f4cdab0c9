"""Bias correction: rounded weights and inputs move a layer's mean; its bias can move it back.

The mean of what a layer gives before its activation is linear in the mean of what its weights see, so both are known
from one pass over the samples, float beside int8: delta[o] = w[o] . m + b[o] - s[o] (q[o] . k + B[o]), m the mean of
each float input of the sum, k that of each int8 one, s the unit of the sum. Layers are put right in order, each on what
the ones before it give by then.
"""

from __future__ import annotations

import numpy as np

from litenet.trainer.graph import Graph, Node
from litenet.trainer.int8 import net as nets
from litenet.trainer.int8.net import Net
from litenet.trainer.int8.scheme import SUM
from litenet.trainer.ops import conv2d, embed_projection
from litenet.trainer.ops.windows import out_hw, pad, taps

from .graphs import WEIGHTED
from .lower import Weights, rows_of, times


def corrected(graph: Graph, weights: Weights, whole: Net, held: dict[int, np.ndarray], x: np.ndarray
              ) -> dict[str, np.ndarray]:  # fmt: skip
    """What to add to the biases of the int8 layers, in real units, by name. held: every tensor of the float graph for
    the same samples that x is (int8 or float32, as the whole net takes it)."""
    floats = {n.name: n for n in graph.nodes}
    whole = Net(whole.graph, whole.quants, whole.numbers, dict(whole.weights), whole.picture)
    tensors, found = {whole.graph.input: x}, {}
    for n in whole.graph.nodes:
        inputs = [tensors[t] for t in n.inputs]
        if n.op in WEIGHTED and whole.is_int8(n):
            of = floats[n.name]
            unit = _unit(whole, n)
            rows = rows_of(of, weights[of.params["weight"]].astype(np.float64))
            bias = weights[of.params["bias"]].astype(np.float64) if "bias" in of.params else 0.0
            want = (_means(of, held[of.inputs[0]], 0.0, rows.shape[1]) * rows).sum(1) + bias
            B = whole.weights[n.params["bias"]].astype(np.float64)
            q = rows_of(n, whole.weights[n.params["weight"]].astype(np.float64))
            border = float(whole.quants[n.inputs[0]].zero)
            got = unit * ((_means(n, inputs[0], border, rows.shape[1]) * q).sum(1) + B)
            room = SUM - 1 - 128.0 * times(whole.graph, n) * np.abs(q).sum(1)
            moved = np.clip(B + np.rint((want - got) / unit), -room, room)
            found[n.name] = unit * (moved - B)
            whole.weights[n.params["bias"]] = moved.astype(np.int32)
        tensors[n.output] = nets.step(whole, n, inputs)
    return found


def _unit(whole: Net, n: Node) -> np.ndarray:
    """(O) what one step of the layer's sum is worth: M / 2^31 of a step of its output."""
    return whole.quants[n.output].scale * whole.weights[n.params["multiplier"]].astype(np.float64) / (1 << 31)


def _means(n: Node, x: np.ndarray, border: float, inputs: int) -> np.ndarray:
    """(K), or (C,K) where each channel sees its own: the mean of each input of the sum over samples and positions.
    border: what x is outside the image. inputs: K of a linear layer."""
    a = n.attrs
    if n.op == "linear":
        return x.reshape(-1, inputs).mean(0, dtype=np.float64)
    if n.op == "embed_projection":
        rows = embed_projection.pixel_rows(a, x.astype(np.float64))
        return rows.reshape(-1, rows.shape[-1]).mean(0)
    Ho, Wo = out_hw(a, x.shape[1], x.shape[2], a.dilation)
    summed = pad(x.sum(0, dtype=np.float64, keepdims=True) / len(x), a.padding, border)
    if n.op == "depthwise_conv2d":
        seen = [tap.mean((0, 1, 2)) for _, _, tap in taps(a, summed, Ho, Wo, a.dilation)]
        return np.stack(seen, 1)  # (C, kh*kw)
    columns = conv2d.columns(a, summed, Ho, Wo).mean(1)  # (groups, K)
    return np.repeat(columns, a.out_channels // a.groups, 0)  # (O, K)
