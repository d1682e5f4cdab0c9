"""The proof of a quantised import, operator by operator: each gets the whole numbers that the source's own runtime has
at its inputs, so that no difference is handed on, and must give the source's output within one step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from litenet.trainer.int8 import net as nets
from litenet.trainer.int8.net import Net

from .importers.foreign import Foreign

MOST = 1  # step
NEAR = 1e-3  # of outputs in floats: share of the largest, and absolute


@dataclass(frozen=True)
class Layers:
    """checked: outputs that the source has too, of `operators` on whole numbers; the others are parts of those. steps:
    the largest difference, at `worst`; values, and how many of them are not equal. floats: of outputs that are none of
    these, the largest difference as a share of what is allowed, from the nearest numbers of the source before them."""

    checked: int
    operators: int
    steps: int
    worst: str
    values: int
    unequal: int
    by: str
    floats: float

    @property
    def proved(self) -> bool:
        return self.steps <= MOST and self.floats <= 1

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
    """q: inputs as the net takes them. None where the source's runtime does not show what is inside."""
    given = foreign.given
    if given is None or given.inside is None:
        return None
    found = given.inside(foreign.input.to_source(nets.real(net, net.graph.input, q)).astype(np.float32))
    if found is None:
        return None
    theirs, want, by = found
    known = {net.graph.input: q}
    for t, port in given.sources.items():
        shape = net.graph.tensors[t].shape
        if port.name in theirs and t in net.quants and t not in known and port.order[:1] == (0,):
            known[t] = port.to_ours(theirs[port.name], shape).reshape(len(q), *shape)
    values = dict(known)
    checked, count, unequal, steps, worst, floats = 0, 0, 0, 0, "", 0.0
    for n in net.graph.nodes:
        y = nets.step(net, n, [values[t] for t in n.inputs])
        if n.output not in known:
            values[n.output] = y
            continue
        apart = np.abs(y.astype(np.int32) - known[n.output])
        checked, count, unequal = checked + 1, count + apart.size, unequal + int((apart > 0).sum())
        if not int(apart.max()) <= steps:
            steps, worst = int(apart.max()), n.name
    for port, t, w in zip(foreign.outputs, net.graph.outputs, want, strict=True):
        if t not in known:
            gap = np.abs(port.to_source(nets.real(net, t, values[t])).reshape(-1).astype(np.float64) - w.reshape(-1))
            most = net.quants[t].scale * 1.001 if t in net.quants else NEAR * float(np.abs(w).max()) + NEAR
            floats = max(floats, float(gap.max()) / most) if np.isfinite(gap).all() else float("nan")
    operators = sum(n.output in net.quants for n in net.graph.nodes)
    return Layers(checked, operators, steps, worst, count, unequal, by, floats) if checked else None
