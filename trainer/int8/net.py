"""A graph in which some tensors are int8, and how it runs in NumPy: the definition of what a device gives."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from litenet.trainer.graph import Graph, Node
from litenet.trainer.ops import OPS, parameters

from . import ops
from .scheme import Numbers, Quant


@dataclass(frozen=True)
class Net:
    """quants: by tensor, of those that are int8; all others are float32. numbers: by name, of the nodes whose output is
    int8. weights: by the graph's names, float32 for float nodes; for int8 ones what ops.py asks for: weight int8, bias
    and multiplier int32, table. picture: (P, Q) where the input is int8 and a picture. half: names of float nodes whose
    weights a file holds in binary16, which they are rounded to."""

    graph: Graph
    quants: dict[int, Quant]
    numbers: dict[str, Numbers]
    weights: dict[str, np.ndarray]
    picture: tuple[list[int], list[int]] | None = None
    half: frozenset[str] = frozenset()

    def is_int8(self, node: Node) -> bool:
        """Whether it calculates with whole numbers: all but float operators and the ones between both worlds."""
        return node.output in self.quants and node.op != "quantize"


def step(net: Net, node: Node, inputs: list[np.ndarray]) -> np.ndarray:
    """The output of one node for a batch."""
    roles = {role: net.weights[name] for role, name in node.params.items()}
    if node.op == "linear":
        shape = net.graph.tensors[node.output].shape
        inputs = [inputs[0].reshape(len(inputs[0]), *shape[:-1], -1)]
    if node.op in ("quantize", "dequantize") or net.is_int8(node):
        quants = [net.quants.get(t) for t in node.inputs]
        numbers = net.numbers.get(node.name, Numbers())
        return ops.forward(node.op, node.attrs, numbers, inputs, quants, net.quants.get(node.output), roles)
    module = OPS[node.op]
    env = dict(zip(module.OP.inputs, inputs, strict=True)) | roles
    return module.forward(node.attrs, *(env.get(p) for p in parameters(module.forward)))


def run(net: Net, x: np.ndarray) -> dict[int, np.ndarray]:
    """Every tensor for a batch x, in its own type: int8 or float32."""
    tensors = {net.graph.input: x}
    for node in net.graph.nodes:
        tensors[node.output] = step(net, node, [tensors[t] for t in node.inputs])
    return tensors


def enter(net: Net, x: np.ndarray) -> np.ndarray:
    """A float32 batch as the net takes it: quantised if its input is int8."""
    q = net.quants.get(net.graph.input)
    return x if q is None else ops.quantize(Numbers(), x, q)


def real(net: Net, tensor: int, value: np.ndarray) -> np.ndarray:
    """What a tensor's content stands for, float32."""
    q = net.quants.get(tensor)
    return value if q is None else ops.dequantize(value, q)
