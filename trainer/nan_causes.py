"""Why a number is no number: what is known about the first bad value of a step, and the rules that name its cause.

Plain facts in, sentences out; debug_nan.py gathers the facts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np

HALF_MAX = 65504.0
LARGE = 1e9  # from here on sums and products of a few such values may overflow float32
NORMS = ("batchnorm", "batchnorm_add", "layernorm")
DIRECTIONS = {"again": "forward, computed again", "sum": "backward"}
AXES = {3: ("row", "column", "channel"), 2: ("position", "channel"), 1: ("value",)}  # of a sample, by its rank
WEIGHT_AXES = {
    4: ("output channel", "kernel row", "kernel column", "input channel"),
    2: ("output", "input"),
    1: ("channel",),
}
ROLES = {
    "load": {"x": "the input", "target": "the answer"},
    "forward": {
        "y": "the output", "mean": "the batch's mean", "inv_std": "1 / standard deviation",
        "running_mean": "the running mean", "running_var": "the running variance",
    },
    "loss": {"loss": "the loss", "dz": "the gradient of the scores"},
    "sum": {"y": "the sum of the gradients"},
    "backward": {"x": "the gradient of the input", "x2": "the gradient of the second input"},
}  # fmt: skip


@dataclass(frozen=True)
class Facts:
    """An array in numbers. largest, norm: of the finite values, the first as magnitude."""

    name: str
    shape: tuple[int, ...]
    largest: float
    norm: float
    nan: int
    infinite: int


@dataclass(frozen=True)
class Bad:
    """The first value that is not finite, and the launch that wrote it; kind "start": it was there before the step.

    number: of the sample in the data, if the value is a sample's. expected: what the operator's definition gives there
    in float32 for the same inputs, None if that is not known or not finite either.
    """

    kind: str
    layer: str
    op: str
    role: str
    index: tuple[int, ...]
    value: float
    facts: Facts
    batched: bool
    number: int | None = None
    expected: float | None = None


@dataclass(frozen=True)
class Case:
    """All that the rules look at. inputs: what the launch read, by role. raw: whether the sample is finite as it is
    stored. usual: what the samples reach, as the median over the data; odd: number and largest magnitude of those that
    reach far more. recent: figures of the steps before, oldest first."""

    bad: Bad
    inputs: dict[str, Facts]
    raw: bool
    usual: float
    odd: tuple[tuple[int, float], ...]
    updates: int
    weights_start: float
    weights_now: float
    rate: float
    settings: Any
    optimizer: str
    default_rate: float
    storage: str
    device: str
    recent: tuple[dict[str, float], ...]

    @property
    def largest(self) -> float:
        """Magnitude of what the launch read."""
        return max((facts.largest for facts in self.inputs.values()), default=0.0)


@dataclass(frozen=True)
class Cause:
    """rule: which of the rules it was, for programs."""

    rule: str
    text: str
    remedy: str


def facts_of(name: str, array: np.ndarray) -> Facts:
    good = np.isfinite(array)
    bad = array.size - int(good.sum())
    finite = array if bad == 0 else array[good]
    largest = float(np.abs(finite).max(initial=0.0))
    nan = int(np.isnan(array).sum()) if bad else 0
    return Facts(name, array.shape, largest, norm_of(finite), nan, bad - nan)


def norm_of(array: np.ndarray) -> float:
    flat = array.ravel().astype(np.float64)
    return float(np.sqrt(flat @ flat))


# ---- where


def subject(bad: Bad) -> str:
    """What is bad, in words."""
    known = ROLES.get({"again": "forward"}.get(bad.kind, bad.kind), {})
    if bad.kind == "load":
        return known[bad.role]
    if bad.kind == "loss":
        return f"{known[bad.role]} ({bad.op})"
    if bad.kind == "start":
        return f"{bad.facts.name}, before the step,"
    if bad.kind == "update":
        return f"{bad.facts.name} of {bad.layer} after the update"
    gradient = f"the gradient of {bad.role}" if bad.kind == "backward" else bad.role
    return f"{known.get(bad.role, gradient)} of {bad.layer} ({bad.op}, {DIRECTIONS.get(bad.kind, bad.kind)})"


def place(bad: Bad) -> str:
    """Where in the array, in words."""
    if bad.facts.shape in ((), (1,)) and not bad.batched:
        return ""
    index, words = list(bad.index), []
    if bad.batched:
        number = "" if bad.number is None else f" (number {bad.number} of the data, from 0)"
        words.append(f"sample {index.pop(0)}{number}")
    names = (AXES if bad.batched else WEIGHT_AXES).get(len(index))
    words += [f"{n} {i}" for n, i in zip(names, index, strict=True)] if names else [str(index)] if index else []
    return " at " + ", ".join(words)


# ---- why: the first rule that speaks


def _data(c: Case) -> Cause | None:
    if c.bad.kind != "load":
        return None
    if not c.raw:
        others = f"; {len(c.odd) - 1:,} other samples are as odd" if len(c.odd) > 1 else ""
        remedy = "Repair that sample or leave it out, then start a new run."
        return Cause("data", f"the data themselves hold it{others}", remedy)
    if c.storage == "f16":
        text = f"the data pass {HALF_MAX:,.0f}, where half precision ends"
        return Cause("half", text, "Scale the data to about -1 to 1, or train without --fp16.")
    text = "the sample is finite as it is stored, so normalising it made this: a std of 0, or huge values"
    return Cause("normalisation", text, 'Check "preprocessing" in the blueprint.')


def _start(c: Case) -> Cause | None:
    if c.bad.kind != "start":
        return None
    text = "the weights or the optimizer's state were bad when the run was taken up"
    return Cause("checkpoint", text, "Resume from an older checkpoint such as best.npz, or start a new run.")


def _stray(c: Case) -> Cause | None:
    if c.bad.kind != "update" or "gradient" in c.inputs:
        return None
    text = f"a kernel on {c.device} that wrote outside of its own arrays: this one had no update in this step"
    return Cause("kernel", text, "Run edge-check, train with --device cpu, and report this with the file below.")


def _half(c: Case) -> Cause | None:
    expected = c.bad.expected
    if c.storage != "f16" or expected is None or abs(expected) <= HALF_MAX:
        return None
    text = f"the value is {expected:.4g}, and half precision ends at {HALF_MAX:,.0f}"
    return Cause("half", text, "Train without --fp16, or put a batchnorm before this layer.")


def _kernel(c: Case) -> Cause | None:
    expected = c.bad.expected
    if expected is None or c.largest > LARGE or abs(expected) > LARGE:
        return None
    text = f"the kernel on {c.device}: from the same inputs the operator's definition gives {expected:.4g}"
    return Cause("kernel", text, "Run edge-check, train with --device cpu, and report this with the file below.")


def _odd_sample(c: Case) -> Cause | None:
    if not c.odd or c.largest <= LARGE:
        return None
    number, most = next((odd for odd in c.odd if odd[0] == c.bad.number), c.odd[0])
    others = f", one of {len(c.odd)} such" if len(c.odd) > 1 else ""
    text = f"a bad sample: number {number} of the data (from 0) reaches {most:.3g}, usual are {c.usual:.3g}{others}"
    return Cause("data", text, "Repair it or leave it out, then start a new run.")


def _large_input(c: Case) -> Cause | None:
    if c.usual < 1e4 or (c.updates and c.weights_now > 10 * c.weights_start):
        return None
    text = f"the data are not scaled: samples reach {c.usual:.3g}"
    return Cause("scale", text, "Scale the data to about -1 to 1, then start a new run.")


def _rate(c: Case) -> Cause | None:
    if not c.updates or c.weights_now <= 10 * c.weights_start:
        return None
    text = (
        f"the learning rate is too high: {c.updates:,} update{'s' * (c.updates > 1)} took the norm of all weights "
        f"from {c.weights_start:.3g} to {c.weights_now:.3g}"
    )
    return Cause("learning rate", text, _slower(c))


def _squares(c: Case) -> Cause | None:
    """The optimizer's mean of squares, from gradients that are finite."""
    if c.bad.kind != "update" or not c.bad.facts.name.startswith("v:"):
        return None
    text = f"gradients reach {c.inputs['gradient'].largest:.3g}, whose squares {c.optimizer} keeps: they overflow"
    return Cause("optimizer", text, _slower(c))


def _update(c: Case) -> Cause | None:
    if c.bad.kind != "update":
        return None
    most = c.inputs["gradient"].largest
    return Cause("learning rate", f"learning rate {c.rate:g} times a gradient of {most:.3g} overflows", _slower(c))


def _norm_layer(c: Case) -> Cause | None:
    if c.bad.op not in NORMS:
        return None
    spread = c.inputs.get("inv_std")
    if c.bad.kind == "backward" and spread is not None and spread.largest > 1e3:
        text = f"a channel or row hardly varies: 1 / standard deviation reaches {spread.largest:.3g}"
        return Cause("variance", text, 'Give the layer a larger "eps", such as 0.001, or clip with --clip-norm 1.')
    if c.bad.kind in ("forward", "again") and c.largest > 1e18:
        return Cause("variance", f"its input reaches {c.largest:.3g}: the variance overflows", _slower(c))
    return None


def _overflow(c: Case) -> Cause | None:
    if c.largest <= LARGE:
        return None
    what = "gradients grow from layer to layer" if c.bad.kind in ("backward", "sum") else "sums and products overflow"
    text = f"{what}: what it read reaches {c.largest:.3g}"
    if c.updates:
        return Cause("overflow", text, _slower(c))
    remedy = 'Look at "weight_init" in the blueprint and at the scale of the data: no update has been made yet.'
    return Cause("overflow", text, remedy)


def _unknown(c: Case) -> Cause:
    text = f"none that is known: what it read is ordinary, up to {c.largest:.3g}; look at what this operator computes"
    return Cause("unknown", text, "Report this with the file below, or use another layer in its place.")


RULES: tuple[Callable[[Case], Cause | None], ...] = (
    _data, _start, _stray, _half, _kernel, _odd_sample, _large_input, _rate, _squares, _update, _norm_layer, _overflow,
)  # fmt: skip


def cause(c: Case) -> Cause:
    """The likely cause, and what to do."""
    return next((found for rule in RULES if (found := rule(c)) is not None), None) or _unknown(c)


def _slower(c: Case) -> str:
    """A lower rate, and the clip or warm-up that is not used yet."""
    s = c.settings
    rate = f"--lr {min(s.learning_rate / 10, c.default_rate):.1g}"
    clip = "" if s.clip_norm else " --clip-norm 1"
    warm = "" if s.warmup else ", or with --warmup 1 as well"
    return f"Start a new run with {rate}{clip}{warm}."


# ---- in words


def sentences(c: Case, found: Cause) -> list[str]:
    """What was found: the bad value, what was read, the cause, the remedy."""
    bad, f = c.bad, c.bad.facts
    count = f.nan + f.infinite
    share = f"; {count:,} of {_size(f.shape):,} values {'are' if count > 1 else 'is'} bad" if _size(f.shape) > 1 else ""
    read = ", ".join(f"{role} up to {facts.largest:.3g}" for role, facts in c.inputs.items())
    recent = [step["grad_norm"] for step in c.recent if isfinite(step.get("grad_norm", np.nan))][-3:]
    norms = "; gradient norms before: " + ", ".join(f"{norm:.3g}" for norm in recent) if recent else ""
    return [
        f"First bad value: {subject(bad)} is {bad.value:g}{place(bad)}{share}.",
        f"It read {read}{norms}." if read else f"Nothing else was read{norms}.",
        f"Likely cause: {found.text}.",
        found.remedy,
    ]


def _size(shape: tuple[int, ...]) -> int:
    return int(np.prod(shape))
