"""Training aids that decide what a step computes: layers that stand still or learn at a rate of their own, and an
average of the weights that is evaluated and exported in their stead.

A pattern is the name of a layer, with * and ? as in file names; one that begins with ! takes layers out again:
["*", "!head"] is every layer but head.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any

from .errors import UserError
from .graph import Graph, Node
from .ops import OPS

AVERAGE = "ema"  # the prefix of the averages' values in a plan


@dataclass(frozen=True)
class Aids:
    """ema: decay of the weights' average, None: none is kept. freeze: patterns of layers whose weights stay. rates:
    pattern of layers to what their learning rate is multiplied by; the last that fits counts. statistics: whether
    layers are measured at the end of each epoch. embedding: the layer whose length is one whatever is learned."""

    ema: float | None = None
    freeze: tuple[str, ...] = ()
    rates: Mapping[str, float] = field(default_factory=dict)
    statistics: bool = False
    embedding: str | None = None

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Aids:
        """Those of training settings (blueprint.train_settings has the keys)."""
        freeze, rates = tuple(settings["freeze"] or ()), dict(settings["rates"] or {})
        layer = settings["embedding"]["layer"] if settings["embedding"] else None
        return cls(settings["ema"], freeze, rates, settings["layer_statistics"], layer)


def decay_at(ema: float, t: int) -> float:
    """The decay of the average at update t, from 1: it rises to `ema`, so that the first weights are soon forgotten."""
    return min(ema, (1 + t) / (10 + t))


def apply(aids: Aids, graph: Graph, where: str) -> Graph:
    """The graph with its parameters marked. A batchnorm that stands still, with nothing to learn before it, uses the
    statistics it has; one that gradients pass through goes on measuring its batches."""
    layers = list(dict.fromkeys(p.layer for p in graph.params.values()))
    still = chosen(aids.freeze, layers, where, "freeze")
    still |= chosen([aids.embedding] if aids.embedding else [], layers, where, "embedding")
    rates = dict.fromkeys(layers, 1.0)
    for pattern, rate in aids.rates.items():
        rates |= dict.fromkeys(chosen([pattern], layers, where, "rates"), rate)
    params = {}
    for name, p in graph.params.items():
        still_here = p.trainable and p.layer in still
        params[name] = replace(p, trainable=p.trainable and not still_here, frozen=still_here, rate=rates[p.layer])
    if still and not any(p.trainable for p in params.values()):
        raise UserError(
            f"{where}: freeze leaves no layer to train.\n  Leave at least one out, such as \"!{layers[-1]}\"."
        )
    marked = replace(graph, params=params)
    reached = marked.needs_gradient()
    for node in marked.nodes:
        if node.output not in reached:
            for name in node.params.values():
                params[name] = replace(params[name], frozen=True)
    return replace(graph, params=params)


def chosen(patterns: Iterable[str], layers: Iterable[str], where: str, key: str) -> set[str]:
    """The layers that the patterns name. A pattern that fits none is a mistake."""
    found: set[str] = set()
    layers = list(layers)
    for pattern in patterns:
        fits = {name for name in layers if fnmatchcase(name, pattern.removeprefix("!"))}
        if not fits:
            raise UserError(
                f"{where}: {key} names {pattern!r}, but no layer with weights has such a name.\n"
                f"  These have weights: {', '.join(layers)}."
            )
        found = found - fits if pattern.startswith("!") else found | fits
    return found


def averaged(graph: Graph) -> Graph:
    """The graph that reads the averages instead of what is trained."""
    moving = {p.name for p in (*graph.trainable, *graph.statistics)}

    def of(node: Node) -> Node:
        names = {role: f"{AVERAGE}:{name}" if name in moving else name for role, name in node.params.items()}
        return replace(node, params=names)

    return replace(graph, nodes=tuple(of(node) for node in graph.nodes))


def as_at_inference(graph: Graph, node: Node, reached: set[int]) -> bool:
    """Whether a node of a net in training runs as at inference: no gradient passes it, and it draws no numbers."""
    return node.output not in reached and not OPS[node.op].OP.training_only
