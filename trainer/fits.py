"""What is fitted around a run: its learning rate before it, and after it when an answer is none, or what is the same.

What belongs to the net is kept in the best checkpoint, from which it comes into the .bin.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from . import checkpoint, embedding, rate, unknown
from .rate_page import page as rate_page
from .trainer import Trainer

if TYPE_CHECKING:
    from .device_trainer import DeviceTrainer
    from .session import Session


def find_rate(session: Session) -> None:
    """Look for the learning rate; the reasons go to learning_rate.html and learning_rate.json."""
    found = rate.find(session.trainer, session.train, session.settings)
    session.settings = replace(session.settings, learning_rate=found.rate)
    session.write_config()
    _write(session, "learning_rate.html", rate_page(found, session.blueprint.name))
    _write(session, "learning_rate.json", json.dumps(found.as_dict(), indent=2) + "\n")
    session.notes.append(
        f"learning rate {found.rate:g}: {found.why} ({found.base:g} for 256 samples an update; "
        f"{session.folder / 'learning_rate.html'})"
    )


def fit_unknown(session: Session) -> dict[str, Any] | None:
    """When the best checkpoint's answer is none (unknown.py): fitted on what was held out, kept in it for the .bin.
    None where the net does not choose among classes, too little was held out, or none is wanted."""
    held_out, wanted = session.validation, session.settings.unknown > 0 and session.trainer.loss.classification
    wanted = wanted and session.settings.embedding is None
    if held_out is None or not wanted or session.trainer.graph.output_shape[-1] < 2 or not session.trainer.classes:
        return None
    if len(held_out.x) < unknown.FEWEST:
        session.log(f"no threshold for unknown: {len(held_out.x)} samples held out, {unknown.FEWEST} are needed")
        return None
    best = checkpoint.load(session.folder)
    session.trainer.load_arrays(best.arrays, best.where)
    ends_in_softmax = session.trainer.full.nodes[-1].op == "softmax"  # its outputs have lost their energy
    measures = ("margin",) if ends_in_softmax else tuple(unknown.MEASURES)
    z = _outputs(session.trainer, held_out.x)
    if not (z.argmax(-1) == held_out.y).any():
        return None
    kinds = unknown.strangers(held_out.x[: unknown.MOST], session.settings.seed)
    strange = [_outputs(session.trainer, x) for x in kinds]
    found = unknown.fit(z, held_out.y, strange, session.settings.unknown, measures)
    if session.test is not None:
        found["test"] = unknown.trade(_outputs(session.trainer, session.test.x), session.test.y, found)
    checkpoint.save(Path(best.where), best.arrays, best.meta | {"unknown": found})
    session.log(unknown.text(found))
    return found


def fit_embedding(session: Session) -> dict[str, Any] | None:
    """Of an embedding: the threshold for the best checkpoint (embedding.py), kept in it for the .bin."""
    if session.unseen is None or session.settings.embedding is None:
        return None
    best = checkpoint.load(session.folder)
    session.trainer.load_arrays(best.arrays, best.where)
    found = embedding.fit(session.trainer, session.unseen, session.settings.embedding["layer"])
    checkpoint.save(Path(best.where), best.arrays, best.meta | {"embedding": found})
    _write(session, "embedding.json", json.dumps(found, indent=2) + "\n")
    session.log(embedding.text(found))
    return found


def _outputs(trainer: Trainer | DeviceTrainer, x: np.ndarray) -> np.ndarray:
    """What the net gives for each sample, as rows."""
    size = trainer.batch_size
    return np.concatenate([trainer.infer(x[at : at + size]) for at in range(0, len(x), size)])


def _write(session: Session, name: str, text: str) -> None:
    checkpoint.write_atomically(session.folder / name, lambda file: file.write(text.encode()))
