"""Grad-CAM: which places of a picture spoke for a class (Selvaraju et al., ICCV 2017).

With F (h,w,C) the last feature map that is still a picture and s the score of the class, before any softmax:

    a_c = mean over i,j of ds/dF[i,j,c]          map[i,j] = max(0, sum_c a_c F[i,j,c])

Where the net goes on with a global average and one linear layer of weights w, ds/dF[i,j,c] = w[s,c] / (h w): the map is
the class-activation map of Zhou et al. (CVPR 2016), which a device has without any gradient (pyruntime/explain.py).

A net that starts with embed_projection has no feature map, but h_e = sum_p sum_c x[p,c] W[p,e] is a sum over pixels, so
the gradient of its embedding falls apart by pixel, exactly:

    sum_e (ds/dh_e) h_e = sum_p map[p],          map[p] = sum_c x[p,c] sum_e (ds/dh_e) W[p,e]

Both are the net as it is at inference (no dropout, running statistics), by the operators' NumPy definitions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..fuse import without_training_only
from ..graph import Graph, Node
from ..ops import OPS, parameters

CONVOLUTIONS = ("conv2d", "depthwise_conv2d")
NOTHING = (
    "a map of what it looked at needs a convolution, or an embed_projection at the start, and this net has neither"
)


@dataclass(frozen=True)
class Explainer:
    """A net whose answers can be traced to places. layer: whose output is looked at. weights: by the graph's names."""

    graph: Graph
    weights: dict[str, np.ndarray]
    tensor: int
    layer: str
    embedding: Node | None

    def maps(self, x: np.ndarray, classes: np.ndarray) -> np.ndarray:
        """x: (N, *input_shape), normalised float32; classes (N,). float32 (N,h,w), each scaled to 0..1 (all 0 where
        nothing spoke for the class)."""
        raw = self.raw(x, classes)
        positive = np.maximum(raw, 0)
        most = positive.max((1, 2), keepdims=True)
        return positive / np.where(most > 0, most, 1)

    def raw(self, x: np.ndarray, classes: np.ndarray) -> np.ndarray:
        """The maps before the maximum with 0 is taken and before they are scaled."""
        tensors, aux = _forward(self.graph, self.weights, x)
        scores = tensors[self.graph.outputs[0]]
        ds, rows = np.zeros_like(scores), np.arange(len(x))
        if scores.shape[-1] == 1:  # one yes-or-no output: class 1 is its growing, class 0 its shrinking
            ds[:, 0] = np.where(classes == 1, 1, -1)
        else:
            ds[rows, classes] = 1
        g = _gradient(self.graph, self.weights, tensors, aux, ds, self.tensor)
        if self.embedding is None:
            return np.einsum("nijc,nc->nij", tensors[self.tensor], g.mean((1, 2)))
        W = self.weights[self.embedding.params["weight"]]
        H, Wd, C = self.graph.input_shape
        pixels = x.reshape(len(x), H * Wd, C)
        if self.embedding.attrs.keep_channels:
            by_pixel = (pixels * (g.reshape(len(x), C, -1) @ W.T).transpose(0, 2, 1)).sum(-1)
        else:
            by_pixel = pixels.sum(-1) * (g @ W.T)
        return by_pixel.reshape(len(x), H, Wd)


def explainer(full: Graph, weights: dict[str, np.ndarray]) -> Explainer | None:
    """full: the graph of a blueprint, nothing fused. None where nothing ties an answer to places (NOTHING says so)."""
    graph = _before_softmax(without_training_only(full))
    pictures, last = set[int](), None
    for n in graph.nodes:
        if n.op in CONVOLUTIONS or any(t in pictures for t in n.inputs):
            pictures.add(n.output)
            shape = graph.tensors[n.output].shape
            if len(shape) == 3 and shape[0] * shape[1] > 1:
                last = n
    if last is not None:
        return Explainer(graph, weights, last.output, last.layer, None)
    first = graph.nodes[0]
    if first.op == "embed_projection" and first.inputs == (graph.input,):
        return Explainer(graph, weights, first.output, first.layer, first)
    return None


def _before_softmax(graph: Graph) -> Graph:
    """Scores instead of probabilities: what squeezes them would squeeze the gradient as well."""
    last = graph.nodes[-1]
    squeezes = last.op == "softmax" or (last.op == "activation" and last.attrs.activation == "sigmoid")
    return replace(graph, nodes=graph.nodes[:-1], outputs=(last.inputs[0],)) if squeezes else graph


def _forward(
    graph: Graph, weights: dict[str, np.ndarray], x: np.ndarray
) -> tuple[dict[int, np.ndarray], dict[str, dict[str, Any]]]:
    """Every tensor, and what backward needs of each node besides."""
    tensors, aux = {graph.input: x}, dict[str, dict[str, Any]]()
    for node in graph.nodes:
        module, env = OPS[node.op], _environment(node, weights, tensors)
        if hasattr(module, "forward_train") and node.op != "batchnorm":  # whose training form takes the batch's mean
            call = module.forward_train
            tensors[node.output], aux[node.name] = call(node.attrs, *(env.get(p) for p in parameters(call)))
        else:
            tensors[node.output] = module.forward(node.attrs, *(env.get(p) for p in parameters(module.forward)))
    return tensors, aux


def _environment(node: Node, weights: dict[str, np.ndarray], tensors: dict[int, np.ndarray]) -> dict[str, Any]:
    env = dict(zip(OPS[node.op].OP.inputs, (tensors[t] for t in node.inputs), strict=True))
    return env | {role: weights[name] for role, name in node.params.items()}


def _gradient(
    graph: Graph,
    weights: dict[str, np.ndarray],
    tensors: dict[int, np.ndarray],
    aux: dict[str, dict[str, Any]],
    ds: np.ndarray,
    tensor: int,
) -> np.ndarray:
    """ds/d(tensor), from ds = d(score)/d(output)."""
    after = {tensor}  # what depends on it: nothing else needs a gradient
    for n in graph.nodes:
        if any(t in after for t in n.inputs):
            after.add(n.output)
    grads = {graph.outputs[0]: ds}
    for n in reversed(graph.nodes):
        if n.output == tensor or n.output not in after or n.output not in grads:
            continue
        module, env = OPS[n.op], _environment(n, weights, tensors) | aux.get(n.name, {})
        wanted = {role: t for role, t in zip(module.OP.inputs, n.inputs, strict=True) if t in after}
        if n.op == "batchnorm":  # with running statistics it is a factor a channel
            found = {"x": grads[n.output] * (env["gamma"] / np.sqrt(env["running_var"] + n.attrs.eps))}
        else:
            x = tensors[n.inputs[0]]
            env |= {"dy": grads[n.output], "y": tensors[n.output], "x_shape": x.shape, "want": frozenset(wanted)}
            found = module.backward(n.attrs, *(env.get(p) for p in parameters(module.backward)))
        for role, t in wanted.items():
            grads[t] = grads[t] + found[role] if t in grads else found[role]
    return grads[tensor]
