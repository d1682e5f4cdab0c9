"""What stays float has weights of half precision where the scores do not feel it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from litenet.trainer.int8.net import Net
from litenet.trainer.ops import OPS

from ..pack import packed_type
from .search import Trials

COST = 0.1  # decibels that half precision may take from the scores


def halved(net: Net, trials: Trials) -> Net:
    """The same net with the weights of its float layers rounded to binary16, all that it can hold; net itself where the
    scores on the trials' samples come off worse."""
    names, weights = [], dict(net.weights)
    for n in net.graph.nodes:
        if n.output in net.quants or n.op == "dequantize" or packed_type(OPS[n.op].OP, "f16") != "f16":
            continue
        with np.errstate(over="ignore"):
            rounded = {name: net.weights[name].astype(np.float16).astype(np.float32) for name in n.params.values()}
        if all(np.isfinite(a).all() for a in rounded.values()):
            weights |= rounded
            names.append(n.name)
    made = replace(net, weights=weights, half=frozenset(names))
    return made if names and trials.rate(made)[0] >= trials.score - COST else net
