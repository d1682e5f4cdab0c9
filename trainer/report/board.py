"""Event files for TensorBoard, one scalar a figure and epoch, through tensorboardX (no TensorFlow)."""

from __future__ import annotations

from math import isfinite
from pathlib import Path
from typing import Any

from ..errors import UserError

FOLDER = "tensorboard"
NAMES = {
    "train_loss": "loss/training", "validation_loss": "loss/validation", "train_accuracy": "accuracy/training",
    "validation_accuracy": "accuracy/validation", "learning_rate": "learning_rate",
    "grad_norm_mean": "gradient_norm/mean", "grad_norm_max": "gradient_norm/largest", "seconds": "seconds",
}  # fmt: skip


class Board:
    """Writes into tensorboard/ in a run's folder. epochs: how many the run has behind it; later ones that an earlier
    part of the run has written are taken back."""

    def __init__(self, folder: Path, epochs: int = 0):
        try:
            from tensorboardX import SummaryWriter
        except ImportError:
            raise UserError(
                "--tensorboard needs the package tensorboardX, which is not installed.\n"
                '  Run: pip install "litenet[tensorboard]", or leave it away; report.html has the same curves.'
            ) from None
        # the suffix: two starts within a second would else write the same file
        self.writer = SummaryWriter(
            str(folder / FOLDER), purge_step=epochs + 1 if epochs else None, filename_suffix=f".{epochs}"
        )

    def epoch(self, row: dict[str, Any]) -> None:
        """row: the metrics of an epoch (loop.py); its "layers", where there are some, a scalar for each figure."""
        at = row["epoch"]
        for key, name in NAMES.items():
            self._add(name, row.get(key), at)
        for layer in row.get("layers") or []:
            for key, value in layer.items():
                if key != "name":
                    self._add(f"layers/{key}/{layer['name']}", value, at)
        self.writer.flush()

    def _add(self, name: str, value: Any, at: int) -> None:
        if isinstance(value, (int, float)) and isfinite(value):
            self.writer.add_scalar(name, value, at)

    def close(self) -> None:
        self.writer.close()


def check() -> None:
    """Raise UserError where event files cannot be written: before anything else is done."""
    import importlib.util

    if importlib.util.find_spec("tensorboardX") is None:
        Board(Path())
