"""Training in whole numbers on a device: the folded net by kernels, with the integers of ops.py and scheme.py.

Every tensor keeps the float32 that its int8 stand for, as in qat.py, so that pools, moves, the loss and the float
operators' backward kernels run as they are. What is int8 is made on the way (trainer/kernels/int8_*.cu): each layer's
integers from the weights of this step, its sums of products, and the scales, which lie in the arena and grow where the
weights have outgrown them. No step of it asks the host.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..backends.device import Device
from ..blueprint import Blueprint
from ..device_trainer import DeviceTrainer
from ..errors import UserError
from ..graph import Graph
from ..kernels.calls_int8 import WHOLE
from ..ops import OPS
from .folded import Folded, Start
from .qat import EXACT
from .scheme import Quant


class DeviceQatTrainer(Folded, DeviceTrainer):
    """DeviceTrainer of the folded net."""

    def __init__(
        self, device: Device, blueprint: Blueprint, start: Start, samples: np.ndarray,
        mean: tuple[float, ...] | None = None, std: tuple[float, ...] | None = None, **common: Any,
    ):  # fmt: skip
        self.begin(start, samples)
        super().__init__(device, blueprint, mean=mean, std=std, fused=False, **common)
        self.backend.entering = self._places[self.graph.input]
        for name, w in self._start.items():
            self.write(self.plan, name, w)
        self._write_quants(self.first_quants(mean, std))
        self.start_average()

    def set_up(self, blueprint: Any, seed: int, classes: bool | None, aids: Any = None) -> None:
        from litenet.exporter.int8.graphs import tied

        super().set_up(blueprint, seed, classes, aids)
        for n in self.graph.nodes:
            if n.op not in (*WHOLE, *EXACT) and not OPS[n.op].OP.view:
                raise UserError(
                    f"{self.blueprint.where}: {n.name} ({n.op}) does not train in int8 on a card.\n"
                    "  Train this net with --device cpu."
                )
        roots = tied(self.graph, self._without)
        order = list(dict.fromkeys(roots[t] for t in (self.graph.input, *(n.output for n in self.graph.nodes))))
        self._places = {t: order.index(r) for t, r in roots.items() if r in order}
        self.scales = len(order)
        self.graph = self.plain = _placed(self.graph, self._places)

    def _write_quants(self, quants: dict[int, Quant]) -> None:
        table = np.zeros(self.scales, [("scale", np.float32), ("zero", np.int32)])
        for t, place in self._places.items():
            if t in quants:
                table[place] = quants[t].scale, quants[t].zero
        self.write(self.plan, "scales", table.view(np.int32))

    def quants(self) -> dict[int, Quant]:
        table = self.read(self.plan, "scales").view([("scale", np.float32), ("zero", np.int32)])
        found = [Quant(float(scale), int(zero)) for scale, zero in table]
        return {t: found[place] for t, place in self._places.items()}


def _placed(graph: Graph, places: dict[int, int]) -> Graph:
    """Nodes that calculate with whole numbers know where the scales of their inputs and their output are."""

    def of(tensors: Sequence[int]) -> tuple[int, ...]:
        return tuple(places[t] for t in tensors)

    nodes = (replace(n, scales=of((*n.inputs, n.output))) if n.op in WHOLE else n for n in graph.nodes)
    return replace(graph, nodes=tuple(nodes))
