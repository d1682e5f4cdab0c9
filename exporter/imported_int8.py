"""Making an int8 .bin of somebody else's quantised model: its own whole numbers, proved beside its runtime."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from litenet.pyruntime import InferenceEngine
from litenet.trainer.checkpoint import write_atomically
from litenet.trainer.errors import UserError
from litenet.trainer.int8 import net as nets
from litenet.trainer.int8 import ops
from litenet.trainer.int8.net import Net
from litenet.trainer.int8.scheme import PROBABILITIES
from litenet.trainer.memory import bytes_text

from . import format, imported, imported_layers
from .importers import check, names
from .importers.foreign import MALFORMED, Foreign, shape_text
from .importers.given import Given
from .int8 import given as lowering
from .int8 import write

SAMPLES = 32  # random inputs, of all int8 alike
LAYER_SAMPLES = 8  # of them, those that go operator by operator
NEAR = 1e-3  # of outputs in floats: share of the largest, and absolute
STEP = 1.001  # what counts as one step of the output: scales are float32


@dataclass(frozen=True)
class Steps:
    """How far apart outputs were, in steps of int8. same: share of equal values. own: how far the source's runtime was
    from itself, with its other kernels; None where that was not asked or cannot be known. scores: how many steps of a
    softmax one step of its input can be."""

    samples: int
    what: str
    by: str
    steps: float
    same: float
    own: float | None = None
    scores: float = 0.0

    @property
    def allowed(self) -> float:
        return STEP * max(1.0, self.own or 0.0, self.scores + 1 if self.scores > 1 else 0.0)

    def __str__(self) -> str:
        steps = f"{self.steps:.0f} step" + "s" * (round(self.steps) != 1)
        text = f"  on {self.what}: outputs within {steps} of {self.by}, {100 * self.same:.2f} % equal"
        why = [] if self.own is None else [f"its own other kernels: within {self.own:.0f}"]
        if self.steps > STEP and self.scores > 1:
            why.append(f"one step before the softmax is up to {self.scores:.0f}")
        return f"{text} ({'; '.join(why)})" if why else text

    def as_dict(self) -> dict[str, Any]:
        found = {"samples": self.samples, "of": self.what, "against": self.by, "steps": self.steps, "equal": self.same}
        return found if self.own is None else found | {"own_steps": self.own}


def convert(path: Path, foreign: Foreign, given: Given, out: Path, options: imported.Options) -> Iterator[str]:
    """Write `out`; yields the lines of the report. Nothing is written before the proof."""
    frame = imported.preprocessing(foreign, options)
    labels = imported.read_labels(options.labels) if options.labels else None
    net = lowering.net(foreign, given, frame)
    graph, short = names.shortened(net.graph)
    net = replace(net, graph=graph, numbers={short[name]: n for name, n in net.numbers.items()})
    metadata = imported.describing(path, foreign, net.graph, labels)
    plan = write.plan(net)
    x, frames = samples(net, foreign, frame)
    with imported.refusing(path):
        binary = format.write(write.model(net, plan, frame, metadata))
    inputs = [(x, f"{SAMPLES} random inputs")]
    if options.check:
        values = check.given(foreign, options.check)
        inputs.append((nets.enter(net, values.astype(np.float32)), f"{len(values)} inputs of {options.check}"))
    exact = all(n.output in net.quants for n in net.graph.nodes)
    found, layers = [], None
    for q, what in inputs:
        tensors = nets.run(net, q)
        prove(binary, net, q, tensors, foreign, exact)
        found.append(compare(net, foreign, q, tensors, what))
        layers = imported_layers.layers(net, foreign, q[:LAYER_SAMPLES])
        refuse_layer(layers, found[-1], foreign)
    if layers is None:
        refuse_mismatch(found[-1], foreign)  # of given inputs and noise the given ones decide
    metadata["parity"] = found[-1].as_dict() | ({} if layers is None else {"layers": layers.as_dict()})
    with imported.refusing(path):
        bare = write.model(net, plan, frame, metadata)
        golden = write.golden(net, bare, x[:1], None if frames is None else frames[:1]) if options.golden else None
        model = write.model(net, plan, frame, metadata, golden)
        binary = format.write(model)
    write_atomically(out, lambda file: file.write(binary))
    macs, stored = sum(net.graph.macs(n) for n in net.graph.nodes), sum(len(op.weights) for op in model.ops)
    yield f"{out}: {len(binary):,} bytes ({bytes_text(len(binary))}), int8 as in the source"
    left = sum(n.output not in net.quants and n.op != "dequantize" for n in net.graph.nodes)
    if left:
        yield (
            f"  in float32: {left} operator" + "s" * (left > 1) + ", float in the source or with weights whose zero "
            "point leaves more than int8"
        )
    yield f"  weights {stored:,} bytes, arena {plan.arena_bytes:,} bytes of RAM, {macs:,} MACs an inference"
    yield (
        f"  {len(foreign.graph.nodes)} operators became {len(net.graph.nodes)}; input "
        f"{shape_text(net.graph.input_shape)}" + imported.preprocessing_text(frame)
    )
    yield from map(str, found)
    if layers is not None:
        yield str(layers)


def samples(net: Net, foreign: Foreign, frame: format.Preprocessing) -> tuple[np.ndarray, np.ndarray | None]:
    """(random inputs as the net takes them, the uint8 frames they come from where the input is a picture)."""
    if net.picture is not None:
        _, frames = check.samples(foreign, frame, SAMPLES)
        assert frames is not None
        return ops.frame(frames, *net.picture), frames
    if net.graph.input not in net.quants:
        return check.samples(foreign, frame, SAMPLES)
    rng = np.random.default_rng(20)
    return rng.integers(-128, 128, (SAMPLES, *net.graph.input_shape)).astype(np.int8), None


def prove(
    binary: bytes, net: Net, x: np.ndarray, tensors: dict[int, np.ndarray], foreign: Foreign, exact: bool
) -> None:
    """The C runtime gives the definition's bytes; behind float layers, what is near them."""
    with InferenceEngine(binary) as engine:
        got = engine.predict(x, raw=True)
    got = got if isinstance(got, tuple) else (got,)
    for y, t in zip(got, net.graph.outputs, strict=True):
        gap = np.abs(y.astype(np.float64) - tensors[t])
        most = 0.0 if exact else 1.0 if t in net.quants else NEAR * float(np.abs(tensors[t]).max()) + NEAR
        if not (gap <= most).all():
            raise UserError(
                f"{foreign.where}: the C runtime differs from the definition of int8 by up to {float(gap.max()):.3g} "
                f"(allowed {most:.3g}); nothing was written.\n"
                "  This is a fault of LiteNet: please report it with the model."
            )


def step(net: Net, t: int, values: np.ndarray) -> float:
    """The step of an output; of one in floats the 256th part of its largest value."""
    return net.quants[t].scale if t in net.quants else max(float(np.abs(values).max()) / 256, 1e-30)


def compare(net: Net, foreign: Foreign, q: np.ndarray, tensors: dict[int, np.ndarray], what: str) -> Steps:
    """Our int8 beside what the source's runtime gives for the same inputs."""
    theirs = foreign.input.to_source(nets.real(net, net.graph.input, q)).astype(np.float32)
    try:
        answer = foreign.run(theirs)
    except MALFORMED:  # its runtime does not take the model
        answer = None
    if answer is None:
        raise UserError(
            f"{foreign.where}: nothing here runs a quantised {foreign.kind} model, so that it cannot be proved.\n"
            "  Install ai-edge-litert (pip install ai-edge-litert) for TFLite, onnxruntime for ONNX."
        )
    want, by = answer
    worst, equal, total = 0.0, 0, 0
    for port, t, w in zip(foreign.outputs, net.graph.outputs, want, strict=True):
        gap = apart(port.to_source(nets.real(net, t, tensors[t])), w, step(net, t, w))
        worst, total = max(worst, float(gap.max())) if np.isfinite(gap).all() else float("nan"), total + gap.size
        equal += int((gap < 0.5).sum())
    own = None
    if not worst <= STEP and foreign.given is not None and foreign.given.other is not None:
        other = foreign.given.other(theirs)
        if other is not None:
            steps = [step(net, t, w) for t, w in zip(net.graph.outputs, want, strict=True)]
            own = max(float(apart(a, b, s).max()) for a, b, s in zip(want, other, steps, strict=True))
    return Steps(len(q), what, by, worst, equal / total, own, scores(net))


def scores(net: Net) -> float:
    """How many steps one step of the scores makes behind a softmax: its slope is at most a quarter."""
    ends = [n for n in net.graph.nodes if n.op == "softmax" and n.output in net.graph.outputs]
    quants = [net.quants[n.inputs[0]] for n in ends if n.inputs[0] in net.quants]
    return max((q.scale / 4 / PROBABILITIES.scale for q in quants), default=0.0)


def apart(a: np.ndarray, b: np.ndarray, scale: float) -> np.ndarray:
    """|a - b| in steps, each sample a row."""
    return np.abs(a.reshape(len(a), -1).astype(np.float64) - b.reshape(len(b), -1)) / scale


def refuse_layer(layers: imported_layers.Layers | None, found: Steps, foreign: Foreign) -> None:
    """Raise UserError where an operator gives something else for the same whole numbers."""
    if layers is None or layers.proved:
        return
    what = f"the output of {layers.worst!r}", f"{layers.steps} steps of int8 (allowed {imported_layers.MOST})"
    if layers.steps <= imported_layers.MOST:
        what = "an output in floats", f"{layers.floats:.3g} times as much as is allowed"
    raise UserError(
        f"{foreign.where}: on {found.what}, {what[0]} differs from that of {layers.by} by {what[1]}; nothing was "
        "written.\n  This is a fault of LiteNet: please report it with the model."
    )


def refuse_mismatch(found: Steps, foreign: Foreign) -> None:
    """Raise UserError unless every output is within one step, or within what explains more: a step of the scores before
    a softmax, and how far the source's own kernels are apart on these inputs."""
    if found.steps <= found.allowed:
        return
    raise UserError(
        f"{foreign.where}: on {found.what}, an output differs from that of {found.by} by {found.steps:.3g} steps of "
        f"int8 (allowed {found.allowed / STEP:.3g}); nothing was written.\n  "
        + ("Noise is the hardest input, and differences grow from layer to layer: give real inputs by --check FILE.npz."
           if "random" in found.what else "This is a fault of LiteNet: please report it with the model.")
    )  # fmt: skip
