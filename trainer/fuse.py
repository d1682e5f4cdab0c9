"""Passes over a graph: graph in, graph out."""

from __future__ import annotations

from dataclasses import replace

from .aids import as_at_inference
from .graph import Graph, Node
from .ops import OPS, Attrs, activations


def for_training(graph: Graph, loss: str) -> Graph:
    """Fuse what backward can undo from the output. A last softmax is left to the cross_entropy, and a last sigmoid to
    the bce, which include them."""
    last = graph.nodes[-1]
    included = {"cross_entropy": last.op == "softmax", "bce": last.attrs.activation == "sigmoid"}
    if included.get(loss) and last.op in ("softmax", "activation") and last.output in graph.outputs:
        graph = replace(graph, nodes=graph.nodes[:-1], outputs=(last.inputs[0],))
    return fuse_activations(graph, activations.FROM_OUTPUT)


def for_inference(graph: Graph) -> Graph:
    """Drop what exists only in training and fuse every activation that has an operator before it."""
    return fuse_activations(without_training_only(graph), frozenset(activations.IDS))


def without_training_only(graph: Graph) -> Graph:
    """The graph without dropout and its like: their readers read their input."""
    instead: dict[int, int] = {}
    nodes = []
    for n in graph.nodes:
        inputs = tuple(instead.get(t, t) for t in n.inputs)
        if OPS[n.op].OP.training_only:
            instead[n.output] = inputs[0]
        else:
            nodes.append(replace(n, inputs=inputs))
    return replace(
        graph,
        nodes=tuple(nodes),
        outputs=tuple(instead.get(t, t) for t in graph.outputs),
        layers={name: instead.get(t, t) for name, t in graph.layers.items()},
    )


def for_kernels(graph: Graph) -> Graph:
    """What device kernels do in one pass, joined; of a graph for training, whose parameters stay as they are."""
    return join_moments(fuse_residuals(fuse_pools(graph)))


def join_moments(graph: Graph) -> Graph:
    """Let each convolution before a batchnorm leave the moments of its output, which the batchnorm then need not find;
    but not where the batchnorm keeps the averages it has."""
    reached = graph.needs_gradient()
    norms = [n for n in graph.nodes if n.op in ("batchnorm", "batchnorm_add")]
    users = {n.inputs[0]: n for n in norms if not as_at_inference(graph, n, reached)}
    makers = {n.output for n in graph.nodes if n.op == "conv2d" and n.output in users}

    def joined(n: Node) -> Node:
        if n.op == "conv2d" and n.output in makers:
            return replace(n, moments="out")
        return replace(n, moments="in") if users.get(n.inputs[0]) is n and n.inputs[0] in makers else n

    return replace(graph, nodes=tuple(joined(n) for n in graph.nodes))


def fuse_activations(graph: Graph, allowed: frozenset[str]) -> Graph:
    """Join each activation with the operator before it, where that takes one and nobody else reads its sum."""
    nodes: list[Node] = []
    by_output: dict[int, int] = {}
    for n in graph.nodes:
        before = by_output.get(n.inputs[0]) if n.op == "activation" and n.attrs.activation in allowed else None
        if before is not None:
            p = nodes[before]
            alone = len(graph.consumers(p.output)) == 1 and p.output not in graph.outputs
            if alone and OPS[p.op].OP.activation and p.attrs.activation == "none":
                attrs = Attrs(**(vars(p.attrs) | {"activation": n.attrs.activation, "alpha": n.attrs.alpha}))
                nodes[before] = replace(p, attrs=attrs, output=n.output)
                by_output[n.output] = before
                continue
        by_output[n.output] = len(nodes)
        nodes.append(n)
    return replace(graph, nodes=tuple(nodes))


def fuse_residuals(graph: Graph) -> Graph:
    """Join each add with a batchnorm before it whose output it alone reads, so that a device never stores that. Of two
    such batchnorms the later one. The layer of the add stays, that of the batchnorm is gone."""
    nodes: list[Node | None] = []
    by_output: dict[int, int] = {}
    gone: set[int] = set()
    for n in graph.nodes:
        found = [by_output[t] for t in n.inputs if t in by_output] if n.op == "add" else []
        before = max((i for i in found if (p := nodes[i]) and _joins(graph, p, n)), default=None)
        if before is not None and (p := nodes[before]):
            attrs = Attrs(**(vars(p.attrs) | {"activation": n.attrs.activation, "alpha": n.attrs.alpha}))
            other = next(t for t in n.inputs if t != p.output)
            gone.add(p.output)
            nodes[before] = None
            n = replace(p, op="batchnorm_add", attrs=attrs, inputs=(p.inputs[0], other), output=n.output)
        by_output[n.output] = len(nodes)
        nodes.append(n)
    layers = {name: t for name, t in graph.layers.items() if t not in gone}
    return replace(graph, nodes=tuple(n for n in nodes if n), layers=layers)


def _joins(graph: Graph, norm: Node, add: Node) -> bool:
    if norm.op != "batchnorm" or graph.consumers(norm.output) != [add] or norm.output in graph.outputs:
        return False
    three = len({*add.inputs, *norm.inputs}) == 3  # else both gradients would go to one tensor
    return three and norm.attrs.activation == "none" and add.attrs.activation in activations.FROM_OUTPUT


def fuse_pools(graph: Graph) -> Graph:
    """Join each convolution with the 2 x 2 maxpool2d that alone reads it, so that a device never stores what lies
    between: where the whole image falls into windows, and the gradient of the input is not asked for or there is a fast
    way to it. The parameters and the layer of the pool stay, that of the convolution is gone.
    """
    wanted = graph.needs_gradient()
    nodes: list[Node] = []
    by_output: dict[int, int] = {}
    gone: set[int] = set()
    for n in graph.nodes:
        before = by_output.get(n.inputs[0]) if n.op == "maxpool2d" else None
        if before is not None and _pooled(graph, nodes[before], n, wanted):
            gone.add(n.inputs[0])
            nodes[before] = replace(nodes[before], op="conv2d_pool", output=n.output)
            by_output[n.output] = before
            continue
        by_output[n.output] = len(nodes)
        nodes.append(n)
    layers = {name: t for name, t in graph.layers.items() if t not in gone}
    return replace(graph, nodes=tuple(nodes), layers=layers)


def _pooled(graph: Graph, conv: Node, pool: Node, wanted: set[int]) -> bool:
    if conv.op != "conv2d" or graph.consumers(conv.output) != [pool] or conv.output in graph.outputs:
        return False
    a, p, (Ho, Wo, _) = conv.attrs, pool.attrs, graph.tensors[conv.output].shape
    fast = a.kernel_size == (3, 3) and (a.padding == (1, 1, 1, 1) or Wo <= 128)
    return (
        (p.kernel_size, p.stride, p.padding) == ((2, 2), (2, 2), (0, 0, 0, 0))
        and (a.stride, a.dilation, a.groups) == ((1, 1), (1, 1), 1)
        and a.activation in activations.FROM_OUTPUT  # none of these ever decreases
        and Ho % 2 == Wo % 2 == 0
        and (fast or conv.inputs[0] not in wanted)
    )
