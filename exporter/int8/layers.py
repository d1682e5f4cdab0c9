"""What each layer costs: its own noise, and that of all before it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from litenet.trainer.int8 import net as nets
from litenet.trainer.int8 import ops
from litenet.trainer.int8.scheme import Numbers

from ..fold import run
from .search import Choice, Trials, decibels


@dataclass(frozen=True)
class Layer:
    """alone: decibels of its output over its own noise, with inputs that are as good as int8 can hold; so_far: in the
    whole net. None where it is float or nothing is lost by itself."""

    name: str
    op: str
    whole: bool
    method: str
    step: float | None
    alone: float | None
    so_far: float


def layers(trials: Trials) -> list[Layer]:
    """One for each node of the net that the trials found best, but quantize and dequantize."""
    choice, net, of = trials.choice, trials.net, trials.of
    assert choice is not None and net is not None
    held = run(of.graph, choice.weights, of.x)
    found = []
    for n in net.graph.nodes:
        if n.op in ("quantize", "dequantize"):
            held[n.output] = held[n.inputs[0]]
            continue
        want = held[n.output]
        whole = net.is_int8(n)
        got = nets.real(net, n.output, trials.tensors[n.output])
        own = None
        if whole:
            inputs = [ops.quantize(Numbers(), held[t], net.quants[t]) for t in n.inputs]
            own = decibels(want, nets.real(net, n.output, nets.step(net, n, inputs)))
        step = net.quants[n.output].scale if whole else None
        found.append(Layer(n.name, n.op, whole, _method(choice, n.output, whole), step, own, decibels(want, got)))
    return found


def noisiest(found: list[Layer]) -> list[str]:
    """Names of the int8 layers, from the one with most noise of its own on."""
    return [x.name for x in sorted(found, key=lambda x: np.inf if x.alone is None else x.alone) if x.whole]


def _method(choice: Choice, tensor: int, whole: bool) -> str:
    return choice.methods.get(tensor, "") if whole else ""
