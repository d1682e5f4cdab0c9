"""--lr auto: a learning rate found by short tests from the same first weights, which are then put back.

1. A sweep: the rate grows from update to update until the loss leaves what it had reached (Smith, "Cyclical learning
   rates", WACV 2017). That is the highest rate worth trying.
2. Warm-ups at constant rates below it. Of each: the mean norm of all gradients in its second half, and the mean loss in
   its last quarter.
3. The rule of a small net trained by hand: the largest rate whose mean norm settles within 0.02 to 0.05. It is followed
   if that warm-up's loss is among the lowest; else the warm-up with the lowest loss decides. Norms depend on loss and
   net, so the rule often has nothing to say; rate_page.py shows why.

A rate belongs to a batch: for another, scale it by the samples of an update (Goyal et al., "Accurate, large minibatch
SGD", 2017). `base` is the rate for 256.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from math import isfinite, log10
from typing import TYPE_CHECKING, Any

import numpy as np

from .balance import balanced_order
from .data.batches import iterate
from .data.dataset import Dataset
from .errors import UserError
from .settings import Settings
from .trainer import Trainer

if TYPE_CHECKING:
    from .device_trainer import DeviceTrainer

NORMS = (0.02, 0.05)  # between which the mean norm should settle
SWEEP = 100  # updates
LOST = 4.0  # times the lowest smoothed loss: the sweep ends
STEPS_DOWN = (2.0, 6.0, 20.0, 60.0)  # the warm-ups' rates: that of the sweep's end divided by these
NEAR = 1.05  # times the lowest loss of a warm-up: as good
REFERENCE = 256  # samples of an update


@dataclass(frozen=True)
class WarmUp:
    """One constant rate. norm, loss: None where they did not stay finite."""

    rate: float
    norm: float | None
    loss: float | None


@dataclass(frozen=True)
class Found:
    """rate: for `samples` of an update. sweep: (rate, smoothed loss) of each update; limit: where it was lost."""

    rate: float
    why: str
    samples: int
    updates: int  # of a warm-up
    limit: float
    sweep: list[tuple[float, float]] = field(default_factory=list)
    warm_ups: list[WarmUp] = field(default_factory=list)

    @property
    def base(self) -> float:
        return rounded(self.rate * REFERENCE / self.samples)

    def as_dict(self) -> dict[str, Any]:
        return {"rate": self.rate, "base_for_256": self.base} | asdict(self)


def find(trainer: Trainer | DeviceTrainer, train: Dataset, settings: Settings) -> Found:
    """Search; the trainer ends as it began. Raises UserError where every rate fails."""
    arrays, micro, t, lr = trainer.state_arrays(), trainer.micro_step, trainer.optimizer.t, trainer.optimizer.lr

    def back() -> None:
        trainer.load_arrays(arrays, "the first weights")
        trainer.micro_step, trainer.optimizer.t, trainer.optimizer.lr = micro, t, lr

    an_epoch = len(train.x) // trainer.batch_size // settings.accumulation
    updates = int(np.clip(an_epoch // 2, 20, 100))
    try:
        sweep, limit = _sweep(trainer, train, settings)
        warm_ups = []
        for down in STEPS_DOWN:
            back()
            warm_ups.append(_warm_up(trainer, train, settings, rounded(limit / down), updates))
    finally:
        back()
    rate, why = choose(warm_ups)
    samples = trainer.batch_size * settings.accumulation
    return Found(rate, why, samples, updates, limit, sweep, warm_ups)


def choose(warm_ups: list[WarmUp]) -> tuple[float, str]:
    """The rate, and why that one."""
    fine = [w for w in warm_ups if w.loss is not None and w.norm is not None]
    if not fine:
        raise UserError(
            "--lr auto: the loss became infinite or no number at every rate that was tried.\n"
            "  Check the data, or give a small --lr, such as 1e-4, with --clip-norm 1."
        )
    low, high = NORMS
    best = min(fine, key=lambda w: w.loss)  # type: ignore[arg-type, return-value]
    within = [w for w in fine if low <= w.norm <= high]  # type: ignore[operator]
    good = [w for w in within if w.loss <= NEAR * best.loss + 1e-12]  # type: ignore[operator]
    if good:
        chosen = max(good, key=lambda w: w.rate)
        return chosen.rate, (
            f"the largest rate whose mean gradient norm ({chosen.norm:.3g}) lies within {low:g} to {high:g}, at a loss "
            f"of {chosen.loss:.4g}, as good as any"
        )
    norms = sorted(w.norm for w in fine)  # type: ignore[type-var]
    reason = (
        f"the rates whose mean gradient norm lies within {low:g} to {high:g} reach higher losses" if within else
        f"mean gradient norms are {norms[0]:.3g} to {norms[-1]:.3g}, at no rate within {low:g} to {high:g}"
    )  # fmt: skip
    return best.rate, f"the lowest loss after the warm-up ({best.loss:.4g}); {reason}"


def rounded(rate: float) -> float:
    """To two digits: more would say too much."""
    return float(f"{rate:.2g}")


def _sweep(trainer: Any, train: Dataset, settings: Settings) -> tuple[list[tuple[float, float]], float]:
    """((rate, smoothed loss) of each update, the rate at which the loss was lost)."""
    adaptive = trainer.rule.name in ("adam", "adamw")
    low, high = (1e-7, 1.0) if adaptive else (1e-5, 10.0)
    rates = [10 ** (log10(low) + (log10(high) - log10(low)) * k / (SWEEP - 1)) for k in range(SWEEP)]
    out, mean, least = list[tuple[float, float]](), 0.0, float("inf")
    for k, (rate, (loss, _)) in enumerate(zip(rates, _updates(trainer, train, settings, rates), strict=False)):
        if not isfinite(loss):
            return out, rate
        mean = 0.9 * mean + 0.1 * loss
        smooth = mean / (1 - 0.9 ** (k + 1))
        least = min(least, smooth)
        out.append((rate, smooth))
        if smooth > LOST * least and k > 10:
            return out, rate
    return out, high


def _warm_up(trainer: Any, train: Dataset, settings: Settings, rate: float, updates: int) -> WarmUp:
    losses, norms = [], []
    for loss, norm in _updates(trainer, train, settings, [rate] * updates):
        if not (isfinite(loss) and isfinite(norm)):
            return WarmUp(rate, None, None)
        losses.append(loss)
        norms.append(norm)
    return WarmUp(rate, float(np.mean(norms[updates // 2 :])), float(np.mean(losses[-(updates // 4) :])))


def _updates(trainer: Any, train: Dataset, settings: Settings, rates: list[float]) -> Iterator[tuple[float, float]]:
    """(loss, norm) of one update after another; each waited for."""
    batches, group = _batches(trainer, train, settings), settings.accumulation
    for rate in rates:
        trainer.optimizer.lr = rate
        for k in range(group):
            trainer.run_batch(train, next(batches), k == 0, group if k == group - 1 else 0, settings)
        found = trainer.collect(True)
        yield float(np.mean([f["loss"] for f in found])), found[-1].get("grad_norm", 0.0)


def _batches(trainer: Any, train: Dataset, settings: Settings) -> Iterator[np.ndarray]:
    """Epoch after epoch, as training will see them."""
    epoch = 0
    while True:
        order = balanced_order(train.y, settings.seed, epoch) if settings.sampling == "balanced" else None
        yield from iterate(train, trainer.batch_size, settings.seed, epoch, order=order)
        epoch += 1
