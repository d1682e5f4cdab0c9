"""Float beside int8, both in the C runtime: answers, accuracy, and time on this machine."""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter

import numpy as np

from litenet.pyruntime import InferenceEngine

from .calibration import Samples
from .search import decibels

ROUNDS, ROUND_SECONDS = 7, 0.05  # of timing, each: the two in turn


@dataclass(frozen=True)
class Judged:
    """same: samples on which both give one class, None where outputs are values. right: how many of them the float and
    the int8 net have right, None without labels."""

    samples: int
    what: str
    decibels: float
    same: int | None
    right: tuple[int, int] | None

    @property
    def lost(self) -> float:
        """Points of accuracy; without labels per cent of the samples whose class differs; of values, per cent of the
        outputs' power that is noise."""
        if self.right is not None:
            return 100 * (self.right[0] - self.right[1]) / self.samples
        if self.same is not None:
            return 100 * (1 - self.same / self.samples)
        return 100 * 10 ** (-self.decibels / 10)

    @property
    def text(self) -> str:
        what = f"on {self.what}: "
        if self.right is not None:
            a, b = (100 * r / self.samples for r in self.right)
            what += f"float {a:.2f} % right, int8 {b:.2f} % ({b - a:+.2f}); "
        if self.same is not None:
            what += f"same class on {self.same:,}; "
        return what + f"{self.decibels:.1f} dB"


def judged(of: Samples, want: np.ndarray, got: np.ndarray, classes: int) -> Judged:
    """want, got (N, outputs): what float and int8 gave. classes: 0 where outputs are values."""
    noise = decibels(want, got)
    if not classes:
        return Judged(len(of), of.what, noise, None, None)
    a, b = want.argmax(1), got.argmax(1)
    same = int((a == b).sum())
    if of.y is None or int(of.y.max()) >= classes:
        return Judged(len(of), of.what, noise, same, None)
    return Judged(len(of), of.what, noise, same, (int((a == of.y).sum()), int((b == of.y).sum())))


def answers(binary: bytes, x: np.ndarray) -> np.ndarray:
    """(N, all outputs) float32 from the C runtime. x: in the type that the file takes."""
    with InferenceEngine(binary) as engine:
        return outputs_of(engine, x)


def outputs_of(engine: InferenceEngine, x: np.ndarray) -> np.ndarray:
    got = engine.predict(x.reshape(len(x), *engine.input_shape))
    parts = got if isinstance(got, tuple) else (got,)
    return np.concatenate([part.reshape(len(x), -1) for part in parts], 1)


def microseconds(a: tuple[bytes, np.ndarray], b: tuple[bytes, np.ndarray]) -> tuple[float, float]:
    """The least time of one call of each, one thread, the two in turn. Each is a file with an input for it."""
    with InferenceEngine(a[0], threads=1) as one, InferenceEngine(b[0], threads=1) as two:
        both = ((one, a[1].reshape(one.input_shape)), (two, b[1].reshape(two.input_shape)))
        least = [np.inf, np.inf]
        for _ in range(ROUNDS):
            for i, (engine, x) in enumerate(both):
                until = perf_counter() + ROUND_SECONDS
                while True:
                    began = perf_counter()
                    engine.predict(x)
                    ended = perf_counter()
                    least[i] = min(least[i], ended - began)
                    if ended > until:
                        break
    return least[0] * 1e6, least[1] * 1e6
