"""The proof of a quantised import, operator by operator: each gets the whole numbers that the source's own runtime has
at its inputs, so that no difference is handed on, and must give the source's output within one step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from litenet.trainer.graph import Node
from litenet.trainer.int8 import net as nets
from litenet.trainer.int8.net import Net

from .importers.foreign import Foreign

MOST = 1  # step


@dataclass(frozen=True)
class Layers:
    """checked: outputs that the source has too, of `operators` on whole numbers; the others are parts of those. steps:
    the largest difference, at `worst`; values, and how many of them are not equal."""

    checked: int
    operators: int
    steps: int
    worst: str
    values: int
    unequal: int
    by: str

    def __str__(self) -> str:
        share = 100 * (1 - self.unequal / max(self.values, 1))
        return (
            f"  operator by operator, from {self.by}'s own numbers: {self.checked} outputs of {self.operators} "
            f"operators, within {self.steps} step{'s' * (self.steps != 1)}, {share:.4f} % of {self.values:,} values "
            "equal"
        )

    def as_dict(self) -> dict[str, Any]:
        return {"outputs": self.checked, "steps": self.steps, "values": self.values, "unequal": self.unequal}


def layers(net: Net, foreign: Foreign, q: np.ndarray) -> Layers | None:
    """q: int8 inputs of the net. None where the source's runtime does not show what is inside."""
    given = foreign.given
    if given is None or given.inside is None or net.graph.input not in net.quants:
        return None
    found = given.inside(foreign.input.to_source(nets.real(net, net.graph.input, q)).astype(np.float32))
    if found is None:
        return None
    theirs, by = found
    known = {net.graph.input: q}
    for t, port in given.sources.items():
        shape = net.graph.tensors[t].shape
        if port.name in theirs and t in net.quants and t not in known and port.order[:1] == (0,):
            known[t] = port.to_ours(theirs[port.name], shape).reshape(len(q), *shape)
    made = {n.output: n for n in net.graph.nodes}
    whole = [n for n in net.graph.nodes if net.is_int8(n)]
    checked, values, unequal, steps, worst = 0, 0, 0, 0, ""
    for n in whole:
        if n.output not in known or not _reaches(net, n, made, known):
            continue
        apart = np.abs(_given(net, n, made, known).astype(np.int32) - known[n.output])
        checked, values, unequal = checked + 1, values + apart.size, unequal + int((apart > 0).sum())
        if not int(apart.max()) <= steps:
            steps, worst = int(apart.max()), n.name
    return Layers(checked, len(whole), steps, worst, values, unequal, by) if checked else None


def _reaches(net: Net, n: Node, made: dict[int, Node], known: dict[int, np.ndarray]) -> bool:
    """Whether what it reads follows from the source's numbers by whole numbers alone."""
    return net.is_int8(n) and all(t in known or (t in made and _reaches(net, made[t], made, known)) for t in n.inputs)


def _given(net: Net, n: Node, made: dict[int, Node], known: dict[int, np.ndarray]) -> np.ndarray:
    """What it makes of the nearest numbers of the source before it."""
    return nets.step(net, n, [known[t] if t in known else _given(net, made[t], made, known) for t in n.inputs])
