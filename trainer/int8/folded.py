"""The net that trains in whole numbers, whatever runs it: batchnorms folded, and what its checkpoint holds.

A checkpoint holds the weights as the blueprint names them, batchnorms unfolded, so that it is a checkpoint like any
other; beside them, under qat/, exactly what was trained, and in its meta the scales, from which edge-export --int8
makes the same integers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import checkpoint
from ..base import BaseTrainer, check_array
from ..errors import UserError
from ..fuse import for_training, without_training_only
from .scheme import Quant

SAMPLES = 512  # of the training set, from which the scales of activations are taken
FOLDED = "qat/"  # before a weight's name in a checkpoint


@dataclass(frozen=True)
class Start:
    """What a run begins with: a float run's checkpoint; or its own, with the scales it had."""

    saved: checkpoint.Checkpoint
    quants: dict[str, Any] | None = None


class Folded(BaseTrainer):
    """What the trainers of all backends share; they call `begin` before anything else, and say what the scales are."""

    def begin(self, start: Start, samples: np.ndarray) -> None:
        """samples: of the training set, uint8 pictures or float32, from which the scales are taken where `start` has
        none."""
        self._origin, self._kept_quants = start.saved, start.quants
        self._samples = samples[np.linspace(0, len(samples) - 1, min(SAMPLES, len(samples))).astype(int)]

    def set_up(self, blueprint: Any, seed: int, classes: bool | None, aids: Any = None) -> None:
        from litenet.exporter import fold
        from litenet.exporter.int8 import graphs

        super().set_up(blueprint, seed, classes, aids)
        found, where = self._origin.weights, self._origin.where
        whole = {n: check_array(found, n, p.shape, where).astype(np.float32) for n, p in self.full.params.items()}
        self._whole = whole
        graph = graphs.separated(for_training(without_training_only(self.full), self.loss.name))
        graph, self._start = fold.fold_batchnorm(graph, whole)
        left = [n for n in graph.nodes if n.op == "batchnorm"]
        if left:
            raise UserError(
                f"{self.blueprint.where}: --qat cannot train {left[0].name} (batchnorm): it follows no layer it could "
                "be folded into.\n  Put it right behind a convolution or a linear layer."
            )
        self.graph = self.plain = graph
        self._without = frozenset(n.name for n in graphs.without_form(self.graph))

    def first_quants(self, mean: tuple[float, ...] | None, std: tuple[float, ...] | None) -> dict[int, Quant]:
        """The scales: those kept, else from the samples."""
        from litenet.exporter.int8 import search

        if self._kept_quants is not None:
            return self._by_tensor(self._kept_quants)
        x = np.empty((len(self._samples), *self.graph.input_shape), np.float32)
        channels = self._samples.shape[-1]
        _into(x, self._samples, mean or (0.0,) * channels, std or (255.0,) * channels)
        return search.quants_of(self.graph, self._start, x, self._without)

    def _by_tensor(self, named: Mapping[str, Any]) -> dict[int, Quant]:
        used = {self.graph.tensors[t].name: t for t in (self.graph.input, *(n.output for n in self.graph.nodes))}
        return {used[name]: Quant(float(scale), int(zero)) for name, (scale, zero) in named.items() if name in used}

    @property
    def int8(self) -> dict[str, Any]:
        """For a checkpoint's meta: scale and zero point of every tensor by name, and the layers that are float."""
        tensors, found = self.graph.tensors, self.quants()
        used = [self.graph.input, *(n.output for n in self.graph.nodes)]
        quants = {tensors[t].name: [found[t].scale, found[t].zero] for t in used}
        return {"quants": quants, "float": sorted(self._without), "from": self._origin.where}

    def quants(self) -> dict[int, Quant]:
        """The scale of every tensor as it is now."""
        raise NotImplementedError

    # ---- what a checkpoint holds

    def state_arrays(self) -> dict[str, np.ndarray]:
        arrays = super().state_arrays()
        trained = {key.split("/", 1)[1]: a for key, a in arrays.items() if key.startswith("weights/")}
        if self.aids.ema:
            trained |= {key.split("/", 1)[1]: a for key, a in arrays.items() if key.startswith("average/")}
        kept = {key: a for key, a in arrays.items() if not key.startswith(("weights/", "average/"))}
        return kept | {f"weights/{n}": a for n, a in self._unfolded(trained).items()} | {
            FOLDED + key.replace("/", ":"): a for key, a in arrays.items() if key.startswith(("weights/", "average/"))
        }  # fmt: skip

    def load_arrays(self, arrays: dict[str, np.ndarray], where: str, optimizer: bool = True) -> None:
        own = {key.removeprefix(FOLDED).replace(":", "/"): a for key, a in arrays.items() if key.startswith(FOLDED)}
        rest = {key: a for key, a in arrays.items() if not key.startswith(("weights/", FOLDED))}
        super().load_arrays(rest | own, where, optimizer)

    def _unfolded(self, trained: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The trained weights as the blueprint's: a folded layer's scale divided out again, its bias in the batchnorm's
        shift."""
        from litenet.exporter.fold import batchnorm_affine

        out = dict(self._whole)
        made = {n.output: n for n in self.full.nodes}
        here = {n.params["weight"]: n for n in self.graph.nodes if "weight" in n.params}
        for n in self.full.nodes:
            if n.op == "batchnorm":
                before = made[n.inputs[0]]
                scale, _ = batchnorm_affine(n, self._whole)
                name, folded = before.params["weight"], here[before.params["weight"]]
                w = trained[name].astype(np.float64)
                safe = np.where(scale == 0, 1.0, scale)
                last = before.op == "depthwise_conv2d"
                out[name] = (w / (safe if last else safe.reshape(-1, *[1] * (w.ndim - 1)))).astype(np.float32)
                old = self._whole[before.params["bias"]].astype(np.float64) if "bias" in before.params else 0.0
                mean = self._whole[n.params["running_mean"]].astype(np.float64)
                shift = trained[folded.params["bias"]].astype(np.float64) - (old - mean) * scale
                out[n.params["beta"]] = shift.astype(np.float32)
        done = {made[n.inputs[0]].name for n in self.full.nodes if n.op == "batchnorm"}
        for n in self.graph.nodes:
            if n.name not in done:
                out |= {name: trained[name] for name in n.params.values()}
        return out


def _into(out: np.ndarray, samples: np.ndarray, mean: Any, std: Any) -> None:
    from ..data.batches import to_input

    if samples.dtype == np.uint8:
        pictures = samples if samples.ndim == 4 else samples[..., None]
        to_input(pictures, mean, std, out=out.reshape(pictures.shape))
    else:
        np.copyto(out, samples.reshape(out.shape))
