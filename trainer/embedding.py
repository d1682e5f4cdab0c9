"""Nets that say how like two pictures are: an encoder whose output has length one, and what counts as the same.

It is trained as a classifier of the people (or things) in the data; the layer named by "embedding", a layernorm without
weights of its own, is what the .bin puts out. Whole classes are set apart, chosen by the seed: pictures of some fix the
threshold, pictures of others tell how well it does on people the net has never seen.

    cosine    of two embeddings of length one, their dot product; distance = sqrt(2 - 2 cosine)
    protocol  every pair of pictures of a set once: genuine pairs show one class, impostor pairs two
    FRR, FAR  share of genuine pairs whose cosine is below the threshold, of impostor pairs whose is not
    EER       where both are equal, over all thresholds
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from . import rng
from .base import BaseTrainer
from .data.dataset import Dataset, Splits
from .errors import UserError


def set_apart(splits: Splits, shares: dict[str, Any], seed: int, where: str) -> tuple[Splits, dict[str, Dataset]]:
    """(what is trained on, with classes renumbered from 0; {"threshold": ..., "test": ...} of other classes)."""
    data = splits.train
    if not data.classes:
        raise UserError(f"{where}: embedding needs classes, such as people, but {data.name} has none.")
    present = np.unique(data.y)
    order = present[rng.permutation(seed, rng.PEOPLE, 0, len(present))]
    test = max(2, int(shares["test_classes"] * len(present) + 0.5))
    fixed = max(2, int(shares["threshold_classes"] * len(present) + 0.5))
    if len(present) < test + fixed + 2:
        raise UserError(
            f"{where}: {data.name} has {len(present)} classes; embedding sets {test} apart for the test and {fixed} "
            "for the threshold, and needs two more to train on.\n  Bring pictures of more classes."
        )

    def of(classes: np.ndarray) -> Dataset:
        classes = np.sort(classes)
        part = data.take(np.flatnonzero(np.isin(data.y, classes)))
        labels = tuple(data.labels[k] if data.labels else str(k) for k in classes)
        return replace(part, y=np.searchsorted(classes, part.y), labels=labels)

    train = of(order[test + fixed :])
    return Splits(train), {"threshold": of(order[test : test + fixed]), "test": of(order[:test])}


def check_layer(trainer: BaseTrainer, layer: str) -> None:
    """It must be a layernorm that puts out a row."""
    node = next((n for n in trainer.full.nodes if n.name == layer), None)
    if node is None or node.op != "layernorm" or len(trainer.full.tensors[node.output].shape) != 1:
        what = "there is no such layer" if node is None else f"it is a {node.op}"
        raise UserError(
            f"{trainer.blueprint.where}: embedding names the layer {layer!r}, but {what}.\n"
            f'  Put {{"type": "layernorm", "name": "{layer}", "eps": 1e-12}} after the linear layer that makes the row.'
        )


def embed(trainer: BaseTrainer, data: Dataset, layer: str) -> np.ndarray:
    """(N, C) of length one."""
    size = trainer.batch_size
    parts = [trainer.infer_layer(data.x[at : at + size], layer) for at in range(0, len(data.x), size)]
    rows = np.concatenate(parts).reshape(len(data.x), -1).astype(np.float64)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def pairs(rows: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(cosines of genuine pairs, of impostor pairs)."""
    i, j = np.triu_indices(len(y), 1)
    cosines, same = (rows @ rows.T)[i, j], y[i] == y[j]
    return cosines[same], cosines[~same]


def equal_error(genuine: np.ndarray, impostor: np.ndarray) -> tuple[float, float]:
    """(EER, the threshold it is at): among all cosines the one where FRR and FAR are nearest; EER is their mean."""
    at = np.unique(np.concatenate([genuine, impostor]))
    frr = np.searchsorted(np.sort(genuine), at) / len(genuine)
    far = 1 - np.searchsorted(np.sort(impostor), at) / len(impostor)
    k = int(np.abs(frr - far).argmin())
    return float((frr[k] + far[k]) / 2), float(at[k])


def fit(trainer: BaseTrainer, unseen: dict[str, Dataset], layer: str) -> dict[str, Any]:
    """What the .bin stores as "embedding": the threshold, and how it does on the test classes."""
    fixed, test = (pairs(embed(trainer, unseen[key], layer), unseen[key].y) for key in ("threshold", "test"))
    eer, threshold = equal_error(*fixed)
    rate, _ = equal_error(*test)
    return {
        "layer": layer,
        "threshold": float(np.float32(threshold)),
        "threshold_classes": list(unseen["threshold"].labels or ()),
        "threshold_eer": round(eer, 6),
        "test_classes": list(unseen["test"].labels or ()),
        "eer": round(rate, 6),
        "false_rejects": round(float((test[0] < threshold).mean()), 6),
        "false_accepts": round(float((test[1] >= threshold).mean()), 6),
        "genuine_pairs": len(test[0]),
        "impostor_pairs": len(test[1]),
    }


def text(found: dict[str, Any]) -> str:
    """What was measured, in a line."""
    return (
        f"embedding: equal-error rate {100 * found['eer']:.2f} % on {len(found['test_classes'])} classes never seen "
        f"({found['genuine_pairs']:,} genuine, {found['impostor_pairs']:,} impostor pairs); the threshold "
        f"{found['threshold']:.3f}, from {len(found['threshold_classes'])} other classes, rejects "
        f"{100 * found['false_rejects']:.2f} % of the genuine and accepts {100 * found['false_accepts']:.2f} % of the "
        "impostor pairs"
    )
