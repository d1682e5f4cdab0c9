"""Making a .bin of somebody else's model: read, tidy, plan, prove beside the source, and only then write."""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from litenet.trainer.checkpoint import write_atomically
from litenet.trainer.errors import UserError
from litenet.trainer.graph import Graph
from litenet.trainer.memory import bytes_text

from . import device, format, winograd
from .binary import golden, version_text
from .importers import READERS, check, names
from .importers.foreign import Foreign, shape_text
from .importers.tidy import tidy
from .stored import Stored

SAMPLES = 8  # random inputs the import is proved on


@dataclass(frozen=True)
class Options:
    """What a model file does not say. mean and std: those of its training, where pixels 0..255 became input_range."""

    half: bool = False
    golden: bool = True
    input_shape: tuple[int, ...] | None = None
    check: Path | None = None
    labels: Path | None = None
    color: str | None = None
    mean: Sequence[float] | None = None
    std: Sequence[float] | None = None
    input_range: tuple[float, float] | None = None
    resize: str | None = None
    fit: str | None = None
    store_winograd: float | None = None  # the most megabytes of weights transformed for Winograd's algorithm


@dataclass(frozen=True)
class Imported:
    """A model that has been read and proved. stored: what its .bin will hold."""

    foreign: Foreign
    stored: Stored
    prepared: device.Device
    checks: tuple[check.Checked, ...]
    x: np.ndarray
    frames: np.ndarray | None

    def model(self, half: bool, answers: format.Golden | None = None) -> format.Model:
        return device.model(self.prepared, self.stored.frame, half, self.stored.metadata, answers)

    @property
    def proofs(self) -> Iterator[str]:
        for one in self.checks:
            worst = max(one.difference.values())
            yield f"  proved on {one.what}: outputs within {worst:.2g} of their largest value of {one.by}"


def read(path: Path, options: Options, foreign: Foreign | None = None) -> Imported:
    """Read, tidy, plan; run the C runtime beside the source, and refuse where they disagree. foreign: read before."""
    foreign = foreign or READERS[path.suffix.lower()](path, options.input_shape)
    frame = preprocessing(foreign, options)
    labels = read_labels(options.labels) if options.labels else None
    if foreign.given is not None:
        raise UserError(
            f"{path} is a quantised (int8) model already: it becomes an int8 .bin as it is.\n"
            "  Leave out --int8 and --fp16; to calibrate anew, or for ONNX, give the float model that it comes from."
        )
    graph, weights = tidy(foreign.graph, foreign.weights)
    if not graph.nodes:
        raise UserError(f"{path} calculates nothing: its output is its input.")
    graph, _ = names.shortened(graph)
    prepared = device.planned(graph, weights)
    x, frames = check.samples(foreign, frame, SAMPLES)
    inputs = [(x, f"{SAMPLES} random inputs")]
    if options.check:
        given = check.given(foreign, options.check)
        inputs.append((given, f"{len(given)} inputs of {options.check}"))
    metadata = describing(path, foreign, prepared.graph, labels)
    found = Imported(foreign, Stored(graph, weights, frame, metadata), prepared, (), x, frames)
    with refusing(path):
        binary = format.write(found.model(options.half))
    checks = tuple(check.compare(binary, foreign, values, what) for values, what in inputs)
    for one in checks:
        check.refuse_mismatch(one, foreign, options.half)
    metadata["parity"] = checks[-1].as_dict()
    return replace(found, checks=checks)


@contextlib.contextmanager
def refusing(path: Path) -> Iterator[None]:
    """What the format cannot hold is said of this file."""
    try:
        yield
    except ValueError as error:
        raise UserError(f"{path}: {error}.") from None


def convert(path: Path, out: Path, options: Options) -> Iterator[str]:
    """Write `out`; yields the lines of the report. Nothing is written before the proof."""
    from . import imported_int8

    foreign = READERS[path.suffix.lower()](path, options.input_shape)
    if foreign.given is not None and options.store_winograd is not None:
        raise UserError(f"{path} is quantised: --store-winograd is for weights of single precision.")
    if foreign.given is not None and not options.half:
        yield from imported_int8.convert(path, foreign, foreign.given, out, options)
        return
    found = read(path, options, foreign)
    graph, half = found.prepared.graph, options.half
    with refusing(path):
        answers = golden(found.prepared, half, found.x[:1], found.frames) if options.golden else None
        model = found.model(half, answers)
        stored = sum(len(op.weights) for op in model.ops)
        most = options.store_winograd
        model, told = (model, []) if most is None else winograd.store(model, most)
        binary = format.write(model)
    write_atomically(out, lambda file: file.write(binary))
    macs = sum(graph.macs(n) for n in graph.nodes)
    nodes = f"{len(found.foreign.graph.nodes)} operators became {len(graph.nodes)}"
    yield f"{out}: {len(binary):,} bytes ({bytes_text(len(binary))}), {'half' if half else 'single'} precision"
    arena = found.prepared.plan.arena_bytes
    yield f"  weights {stored:,} bytes, arena {arena:,} bytes of RAM, {macs:,} MACs an inference"
    yield from told
    yield f"  {nodes}; input {shape_text(graph.input_shape)}" + preprocessing_text(found.stored.frame)
    yield from found.proofs


def preprocessing(foreign: Foreign, options: Options) -> format.Preprocessing:
    """How a picture becomes the input, or none where no option speaks of pictures."""
    asked = (options.color, options.mean, options.std, options.input_range, options.resize, options.fit)
    if all(a is None for a in asked):
        return format.Preprocessing()
    shape = foreign.graph.input_shape
    if len(shape) != 3 or shape[2] not in (1, 3):
        raise UserError(
            f"{foreign.where}: its input is {shape_text(shape)}, no picture; --color, --mean, --std, --input-range, "
            "--resize and --fit do not apply."
        )
    color = options.color or ("gray" if shape[2] == 1 else "rgb")
    if (color == "gray") != (shape[2] == 1):
        raise UserError(f"{foreign.where}: --color {color} does not go with an input of {shape[2]} channels.")
    lo, hi = options.input_range or (0.0, 255.0)
    if not lo < hi:
        raise UserError(f"--input-range {lo:g},{hi:g}: the first must be below the second.")
    scale = 255 / (hi - lo)

    def each(name: str, values: Sequence[float] | None, default: float) -> list[float]:
        found = list(values) if values is not None else [default]
        if len(found) not in (1, shape[2]):
            raise UserError(f"--{name} has {len(found)} values; 1 or {shape[2]} are expected.")
        return found * (shape[2] // len(found))

    mean = [(m - lo) * scale for m in each("mean", options.mean, 0.0)]
    std = [s * scale for s in each("std", options.std, 1.0)]
    if min(std) <= 0:
        raise UserError("--std must be above 0.")
    return format.Preprocessing(options.resize or "bilinear", options.fit or "stretch", color, "never", mean, std)


def read_labels(path: Path) -> list[str]:
    """One class a line; empty lines at the end do not count."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError):
        raise UserError(f"--labels {path} cannot be read.\n  Give a text file with one class a line.") from None
    found = [line.strip() for line in text.rstrip().splitlines()]
    if not found:
        raise UserError(f"--labels {path} is empty.\n  Give a text file with one class a line.")
    return found


def describing(path: Path, foreign: Foreign, graph: Graph, labels: list[str] | None) -> dict[str, Any]:
    """The metadata of what has been read. graph: as it will be written."""
    shape = graph.output_shape
    if labels is not None and (len(graph.outputs) > 1 or len(labels) != shape[-1] or int(np.prod(shape)) != shape[-1]):
        raise UserError(
            f"--labels has {len(labels)} classes, but the model puts out "
            + " and ".join(shape_text(graph.tensors[t].shape) for t in graph.outputs) + "."
        )  # fmt: skip
    classes = labels is not None or (len(graph.outputs) == 1 and graph.nodes[-1].op == "softmax")
    found = {
        "name": path.stem,
        "labels": labels,
        "layers": [n.name for n in graph.nodes],
        "outputs": [port.name for port in foreign.outputs],
        "answer": "classes" if classes else "values",
        "created": time.strftime("%Y-%m-%d", time.gmtime()),
        "litenet": version_text(),
        "source": {"format": foreign.kind, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()},
    }
    return {k: v for k, v in found.items() if v is not None}


def preprocessing_text(frame: format.Preprocessing) -> str:
    if frame.color == "none":
        return ""
    return f", a {frame.color} picture, mean {_numbers(frame.mean)}, std {_numbers(frame.std)}"


def _numbers(values: Sequence[float]) -> str:
    return ", ".join(f"{v:.4g}" for v in values)
