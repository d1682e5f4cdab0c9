"""What a person sees while a net trains: one line that moves, and one line that stays for each epoch."""

from __future__ import annotations

import sys
import time
from typing import Any, TextIO

from .loop import Progress, alarm_text


def duration(seconds: float) -> str:
    """75.3 -> "1:15"; 4000 -> "1:06:40"."""
    whole = int(seconds)
    hours, minutes = divmod(whole // 60, 60)
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"


class Display:
    """Call step and epoch as the loop's events. On a terminal the bar moves; elsewhere only epochs are printed."""

    def __init__(
        self,
        epochs: int,
        batches: int,
        out: TextIO | None = None,
        quiet: bool = False,
        limit: float | None = None,
        clipped: bool = False,
    ):
        """limit: seconds the run may take, whatever the epochs. clipped: whether gradients are, by their norm."""
        self.clipped = clipped
        self.limit, self.of, self.alarmed = limit, "" if limit else f"/{epochs}", False
        self.epochs, self.batches, self.out, self.quiet = epochs, batches, out or sys.stderr, quiet
        self.live = not quiet and self.out.isatty()
        self.bar: Any = None
        self.started = self.ended = time.perf_counter()
        self.samples = self.done_before = 0
        self.first = True

    def step(self, progress: Progress, metrics: dict[str, float]) -> None:
        done = progress.epoch * self.batches + progress.batch
        if self.first:
            self.first, self.done_before = False, done - 1
        self.samples += progress.seen // max(progress.batch, 1)
        if not self.live:
            return
        where, status = f"epoch {progress.epoch + 1}{self.of}", self.status(progress, done)
        text = f"{where} {{percentage:3.0f}}%|{{bar:20}}| {status}"
        if self.bar is None:
            try:
                from tqdm import tqdm
            except ImportError:  # an installation without the extra "train": the epochs' lines are enough
                self.live = False
                return
            self.bar = tqdm(
                total=self.batches, initial=progress.batch - 1, leave=False, file=self.out, mininterval=0.2,
                bar_format=text,
            )  # fmt: skip
        self.bar.bar_format = text
        self.bar.update()

    def status(self, progress: Progress, done: int) -> str:
        """loss, accuracy, images a second, time to go for the whole run."""
        seconds = time.perf_counter() - self.started
        rate = (done - self.done_before) / max(seconds, 1e-9)
        text = f"loss {progress.loss_sum / progress.seen:.4f}"
        if progress.correct:
            text += f"  acc {100 * progress.correct / progress.seen:.2f} %"
        left = (self.epochs * self.batches - done) / max(rate, 1e-9)
        if self.limit:
            left = max(self.limit - progress.spent - (time.perf_counter() - self.ended), 0.0)
        return f"{text}  {self.samples / max(seconds, 1e-9):.0f} img/s  ETA {duration(left)}"

    def epoch(self, progress: Progress, row: dict[str, Any]) -> None:
        self.close()
        self.ended = time.perf_counter()
        if self.quiet:
            return
        line = f"epoch {row['epoch']}{self.of}  train loss {row['train_loss']:.4f}"
        if row["train_accuracy"] is not None:
            line += f" acc {100 * row['train_accuracy']:.2f} %"
        if row["validation_loss"] is not None:
            line += f"  validation loss {row['validation_loss']:.4f}"
        if row["validation_accuracy"] is not None:
            line += f" acc {100 * row['validation_accuracy']:.2f} %"
        rate = self.samples / max(time.perf_counter() - self.started, 1e-9)
        line += f"  grad norm {row['grad_norm_mean']:.3g}  {rate:.0f} img/s  {duration(row['seconds'])}"
        print(line + ("  *" if progress.best_epoch == row["epoch"] - 1 else ""), file=self.out, flush=True)
        if row.get("alarms") and not self.alarmed:
            self.alarmed = True  # once is enough; the log has every epoch's
            print(alarm_text(row, self.clipped), file=self.out, flush=True)

    def close(self) -> None:
        if self.bar is not None:
            self.bar.close()
            self.bar = None
