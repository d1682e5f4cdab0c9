"""Making an int8 .bin: calibrate, search, judge beside float, prove, and only then write."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from litenet.trainer.checkpoint import write_atomically
from litenet.trainer.errors import UserError
from litenet.trainer.int8 import net as nets
from litenet.trainer.int8.net import Net
from litenet.trainer.int8.scheme import Quant
from litenet.trainer.memory import bytes_text

from .. import binary, device, format
from ..source import Source
from ..stored import Stored
from . import calibration, graphs, halves, judge, layers, search, write
from .calibration import Data, Samples

GOLDEN_INPUTS = (1, 2)  # of a file of whole numbers, where one wrong bit shows; and of a mixed one
PROOF = 32  # test samples on which the runtime must give the definition's bytes
TEST_WORK, TESTS = 3e12, (256, 10_000)  # multiplications that the judgement may take; fewest and most samples
NEAR = (1e-3, 1e-6)  # of mixed files, behind float layers: share of the largest |output|, and absolute


@dataclass(frozen=True)
class Options:
    """every: all layers, --int8 all. data: calibrate with, None: the run's own. max_loss: points of accuracy."""

    every: bool = False
    data: str | None = None
    data_dir: str | None = None
    samples: int = 512
    seed: int = 0
    max_loss: float = 1.0
    force: bool = False
    golden: bool = True


def convert(net: Stored, source: Source | None, where: str, out: Path, options: Options) -> Iterator[str]:
    """Write `out`; yields the lines of the report as they become true. net: the float net, ready for a device. source:
    the checkpoint it comes from, if it does."""
    graph = graphs.separated(net.graph)
    floats = _without_form(graph, where, options.every)
    data = calibration.load(net, source, options.data, options.samples, options.seed, _tests(net), options.data_dir)
    classes = _classes(net, source)
    prepared = device.planned(net.graph, net.weights)
    float_file = _float_file(prepared, net, data.test, options.golden)
    doubts = _doubts(net, source, data, classes, float_file, options.force)
    yield from (f"  {line}" for line in doubts)

    subject = search.Subject(graph, net.weights, net.frame, data.calibration.x, data.calibration.frames)
    own = None if source is None else source.int8
    if own is not None:
        weights, meta = own
        used = {graph.tensors[t].name: t for t in (graph.input, *(n.output for n in graph.nodes))}
        fixed = {used[k]: Quant(float(s), int(z)) for k, (s, z) in meta["quants"].items() if k in used}
        subject = replace(subject, weights=net.weights | weights, fixed=fixed)
        yield f"scales as trained; {data.calibration.what} ..."
        found = search.given(subject, sorted({*floats, *meta["float"]}))
    else:
        yield f"calibrating with {data.calibration.what} ..."
        found = search.search(subject, floats)
    table = layers.layers(found.trials)
    if not options.every and own is None:
        lost = _lost(found.trials, data.calibration, classes)
        if search.free(found.trials, lost, options.max_loss / 2, layers.noisiest(table)):
            table = layers.layers(found.trials)
    choice = found.trials.choice
    assert choice is not None
    whole = halves.halved(choice.net(subject), found.trials)
    try:
        done = _Made(whole, net, data.test, options)
    except ValueError as error:
        raise UserError(f"{where}: {error}.") from None
    done.prove(where)
    want = judge.answers(float_file, data.test.x)
    got = judge.answers(done.file(), done.entering(data.test))
    judged = judge.judged(data.test, want, got, classes)
    yield from _table(table, whole.half)
    yield from _tried(found, choice)
    yield judged.text
    if not judged.lost <= options.max_loss and not options.force:
        raise UserError(_refusal(judged, options))
    done.note(data, judged, choice, table)
    content = done.file()
    write_atomically(out, lambda file: file.write(content))
    yield from _sizes(out, content, float_file, done, net)
    yield _times(float_file, content, data.test.x[0], done.entering(data.test)[0])


class _Made:
    """The int8 net on its way into a file."""

    def __init__(self, whole: Net, net: Stored, test: Samples, options: Options):
        self.whole, self.net, self.test, self.options = whole, net, test, options
        self.plan = write.plan(whole)
        self.metadata = dict(net.metadata)
        self.golden: format.Golden | None = None
        if options.golden:
            x = self.entering(test)[: GOLDEN_INPUTS[not self.exact]]
            frames = None if test.frames is None else test.frames[: len(x)].reshape(x.shape)
            self.golden = write.golden(whole, self.model(), x, frames)

    @property
    def exact(self) -> bool:
        """Whether every operator calculates in whole numbers."""
        return all(n.output in self.whole.quants for n in self.whole.graph.nodes)

    def model(self) -> format.Model:
        return write.model(self.whole, self.plan, self.net.frame, self.metadata, self.golden)

    def file(self) -> bytes:
        return format.write(self.model())

    def entering(self, samples: Samples) -> np.ndarray:
        of = search.Subject(self.whole.graph, {}, self.net.frame, samples.x, samples.frames)
        return search.entering(self.whole, of)

    def prove(self, where: str) -> None:
        """The C runtime gives the definition's bytes; behind float layers, what is near them."""
        some = self.entering(self.test)[:PROOF]
        tensors = nets.run(self.whole, some)
        want = np.concatenate(
            [nets.real(self.whole, t, tensors[t]).reshape(len(some), -1) for t in self.whole.graph.outputs], 1
        )
        got = judge.answers(self.file(), some)
        same = np.abs(got - want)
        allowed = 0.0 if self.exact else NEAR[0] * float(np.abs(want).max()) + NEAR[1]
        if not self.exact:  # a value on the edge between two steps may fall either way
            allowed += max((self.whole.quants[t].scale for t in self.whole.graph.outputs if t in self.whole.quants),
                           default=0.0)  # fmt: skip
        if not (same <= allowed).all():
            raise UserError(
                f"{where}: the C runtime differs from the definition of int8 by up to {float(same.max()):.3g} (allowed "
                f"{allowed:.3g}); nothing was written.\n  This is a fault of LiteNet: please report it with the model."
            )
        self.metadata["parity"] = {
            "samples": len(some), "of": self.test.what, "max_difference": float(same.max()), "same_bytes": self.exact,
        }  # fmt: skip

    def note(self, data: Data, judged: judge.Judged, choice: search.Choice, table: Sequence[layers.Layer]) -> None:
        """What a reader of the file may want to know of how it was made."""
        found: dict[str, Any] = {"calibration": data.calibration.what, "test": judged.what}
        found["decibels"] = round(judged.decibels, 2)
        if judged.right is not None:
            found["accuracy"] = [round(r / judged.samples, 5) for r in judged.right]
        if judged.same is not None:
            found["same_class"] = round(judged.same / judged.samples, 5)
        kept = [layer.name for layer in table if not layer.whole]
        self.metadata["int8"] = found | ({"float": kept} if kept else {})


def _without_form(graph: Any, where: str, every: bool) -> list[str]:
    left = graphs.without_form(graph)
    if left and every:
        names = ", ".join(f"{n.name} ({n.op})" for n in left[:3])
        raise UserError(f"{where}: {names} has no form in whole numbers.\n  --int8 without `all` leaves it in float.")
    if len(left) == len(graph.nodes):
        raise UserError(f"{where}: none of its operators has a form in whole numbers.")
    return [n.name for n in left]


def _tests(net: Stored) -> int:
    macs = max(sum(net.graph.macs(n) for n in net.graph.nodes), 1)
    return int(min(max(TEST_WORK / macs, TESTS[0]), TESTS[1]))


def _classes(net: Stored, source: Source | None) -> int:
    """How many classes the net tells apart; 0 where it gives values."""
    shape = net.graph.output_shape
    if len(net.graph.outputs) != 1 or int(np.prod(shape)) != shape[-1] or shape[-1] < 2:
        return 0
    values = net.metadata.get("answer") in ("values", "embedding") or net.metadata.get("loss") in ("mse", "bce")
    return 0 if values and not net.metadata.get("labels") else shape[-1]


def _float_file(prepared: device.Device, net: Stored, test: Samples, golden: bool) -> bytes:
    """What the same net takes as float32."""
    x = test.x[: binary.GOLDEN_INPUTS]
    frames = None if test.frames is None else test.frames[: len(x)]
    answers = binary.golden(prepared, False, x, frames) if golden else None
    return format.write(device.model(prepared, net.frame, False, net.metadata, answers))


def _doubts(net: Stored, source: Source | None, data: Data, classes: int, float_file: bytes, force: bool) -> list[str]:
    """What is wrong with the samples; raises UserError unless forced."""
    found = []
    for samples in (data.calibration,):
        right = None
        if samples.y is not None and classes and len(samples) and int(samples.y.max()) < classes:
            some = Samples(samples.x[:256], None, samples.y[:256], "")
            right = float((judge.answers(float_file, some.x).argmax(1) == some.y).mean())
        text = calibration.fault(samples, net, source, classes, right)
        if text is not None and not force:
            raise UserError(f"{text}.\n  Give other samples by --calibrate, or --force to go on with these.")
        if text is not None:
            found.append(f"{text}; forced")
    return found


def _lost(trials: search.Trials, samples: Samples, classes: int) -> Callable[[np.ndarray], float]:
    """Of scores on the trials' samples: what is lost for certain, as judge.Judged.lost, less one standard deviation of
    what as many answers that differ would give by chance."""
    N = len(trials.want)
    few = Samples(samples.x[:N], None, None if samples.y is None else samples.y[:N], "")

    def lost(got: np.ndarray) -> float:
        found = judge.judged(few, trials.want, got, classes)
        chance = 0.0 if found.same is None else 100 * float(np.sqrt(N - found.same)) / N
        return found.lost - chance

    return lost


def _refusal(judged: judge.Judged, options: Options) -> str:
    what = {True: "points of accuracy", False: "% of the answers"}[judged.right is not None]
    if judged.same is None:
        what = "% of the outputs' power"
    return (
        f"int8 loses {judged.lost:.2f} {what} (--max-loss {options.max_loss:g}); nothing was written.\n  "
        + ("Leave out `all`, so that layers that hurt stay float. " if options.every else "")
        + "Calibrate with more samples, train with --qat, or --force."
    )


def _table(table: Sequence[layers.Layer], half: frozenset[str]) -> Iterator[str]:
    """The signal-to-noise ratio of each layer."""
    wide = max(len("layer"), *(len(layer.name) for layer in table))
    kinds = max(len("operator"), *(len(layer.op) for layer in table))
    yield f"  {'layer':<{wide}}  {'operator':<{kinds}}  {'range':<11}  {'step':>9}  {'alone':>8}  {'so far':>8}"
    for x in table:
        step = f"{x.step:.3g}" if x.step is not None else ""
        alone = "" if x.alone is None else _decibels(x.alone)
        kind = x.method if x.whole else "float16" if x.name in half else "float32"
        row = f"  {x.name:<{wide}}  {x.op:<{kinds}}  {kind:<11}  {step:>9}  {alone:>8}  {_decibels(x.so_far):>8}"
        yield row.rstrip()


def _decibels(value: float) -> str:
    return "exact" if value >= 200 else f"{value:.1f} dB"


def _tried(found: search.Found, choice: search.Choice) -> Iterator[str]:
    tried = ", ".join(f"{name} {score:.1f}" for name, score in found.tries)
    yield f"  tried on {len(found.trials.want)} samples, dB of the scores: {tried}"
    kept = ["the best range of each tensor"]
    kept += ["channels equalised"] if choice.equalised else []
    kept += ["biases corrected"] if choice.corrections else []
    yield f"  taken: {', '.join(kept)}: {found.trials.score:.1f} dB after {found.trials.tried} trials"


def _sizes(out: Path, content: bytes, float_file: bytes, done: _Made, net: Stored) -> Iterator[str]:
    share = 100 * len(content) / len(float_file)
    macs = sum(net.graph.macs(n) for n in net.graph.nodes)
    weights = sum(len(op.weights) for op in done.model().ops)
    size = f"{len(content):,} bytes ({bytes_text(len(content))})"
    yield f"{out}: {size}, int8, {share:.1f} % of float32's {len(float_file):,}"
    yield f"  weights {weights:,} bytes, arena {done.plan.arena_bytes:,} bytes of RAM, {macs:,} MACs an inference"
    proof = done.metadata["parity"]
    how = "the bytes of the definition" if proof["same_bytes"] else "as near the definition as float layers allow"
    yield f"  proved on {proof['samples']} test samples: {how}"


def _times(float_file: bytes, content: bytes, x: np.ndarray, q: np.ndarray) -> str:
    a, b = judge.microseconds((float_file, x), (content, q))
    faster = f"int8 is {a / b:.2f} times as fast" if b < a else f"float32 is {b / a:.2f} times as fast"
    return f"  on this machine, one thread: float32 {a:,.0f} us, int8 {b:,.0f} us: {faster}"
