"""Checkpoints: one .npz with every array of the training state and one JSON text with all the rest.

    weights/NAME           parameters and running statistics
    optimizer/STATE/NAME   the optimiser's arrays
    average/NAME           where an average of the weights is kept: what is evaluated and exported in their stead
    meta                   UTF-8 JSON: version, blueprint, settings, data, progress

Written beside and renamed, so that a crash leaves the old file or the new one, never half of one.
"""

from __future__ import annotations

import json
import os
import time
import zipfile
from contextlib import suppress
from dataclasses import dataclass
from glob import escape
from pathlib import Path
from typing import Any

import numpy as np

from . import blueprint as blueprints
from . import leftovers
from .errors import UserError

STALE = 60.0  # seconds after which a temporary file is nobody's: writing takes less
VERSION = 1


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint in memory. meta has blueprint, settings, data and progress; see loop.py for the last."""

    arrays: dict[str, np.ndarray]
    meta: dict[str, Any]
    where: str

    @property
    def blueprint(self) -> blueprints.Blueprint:
        return blueprints.parse(json.dumps(self.meta["blueprint"]), self.where)

    @property
    def weights(self) -> dict[str, np.ndarray]:
        """By name, the weights and statistics that count: averages where they are kept."""
        found = {name[8:]: array for name, array in self.arrays.items() if name.startswith("weights/")}
        return found | {name[8:]: array for name, array in self.arrays.items() if name.startswith("average/")}


def save(path: Path, arrays: dict[str, np.ndarray], meta: dict[str, Any]) -> None:
    """Write a checkpoint. Raises UserError where the folder cannot be written."""
    text = json.dumps({"checkpoint": VERSION, **meta}, ensure_ascii=False)

    def write(file: Any) -> None:
        members: dict[str, Any] = {"meta": np.frombuffer(text.encode(), np.uint8), **arrays}
        np.savez(file, **members)

    write_atomically(path, write)


def write_atomically(path: Path, write: Any) -> None:
    """Call write(file) on a temporary file beside `path`, flush it to the disk, and rename it. What a killed process
    left of an earlier try is deleted."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with suppress(OSError):
        for left in path.parent.glob(f".{escape(path.name)}.*.tmp"):
            if time.time() - left.stat().st_mtime > STALE:
                left.unlink()
    try:
        with temporary.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        leftovers.clear(path.parent, f".{path.name}.", ".tmp")
    except OSError as error:
        raise unwritten(path, error) from None
    finally:
        with suppress(OSError):
            temporary.unlink()


def unwritten(path: Path, error: OSError) -> UserError:
    return UserError(
        f"{path} could not be written: {error.strerror}.\n  Free some space or choose another folder with --out."
    )


def load(path: str | Path) -> Checkpoint:
    """Read a checkpoint, or any .npz whose arrays bear parameter names (meta is then empty)."""
    path = Path(path)
    if path.is_dir():
        path = run_checkpoint(path)
    try:
        with path.open("rb") as opened:
            if not zipfile.is_zipfile(opened):
                raise ValueError("it is no archive of arrays")
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files if name != "meta"}
            meta = json.loads(file["meta"].tobytes().decode()) if "meta" in file.files else {}
        if not isinstance(meta, dict) or not isinstance(meta.get("checkpoint", VERSION), int):
            raise ValueError("its meta is no checkpoint's")
    except FileNotFoundError:
        raise UserError(
            f"{path}: there is no such file.\n  Give a run folder or a checkpoint such as best.npz."
        ) from None
    except Exception as error:  # whatever a damaged archive makes NumPy stumble over
        raise UserError(
            f"{path} is not a checkpoint: {error}.\n  Give the .npz that edge-train wrote, such as runs/NAME/best.npz."
        ) from None
    if meta.get("checkpoint", VERSION) > VERSION:
        raise UserError(
            f"{path} was written by a newer LiteNet (checkpoint version {meta['checkpoint']}, this one reads "
            f"{VERSION}).\n  Update LiteNet."
        )
    if not any("/" in name for name in arrays):
        arrays = {f"weights/{name}": array for name, array in arrays.items()}
    return Checkpoint(arrays, meta, str(path))


def run_checkpoint(folder: Path) -> Path:
    """The checkpoint to export from a run folder: the best, or the last."""
    for name in ("best.npz", "last.npz"):
        if (folder / name).exists():
            return folder / name
    raise UserError(
        f"{folder} holds no checkpoint (best.npz or last.npz).\n  Give the run folder that edge-train printed."
    )
