"""Does a board compute what this PC computes? Golden and random inputs through both, every output compared. Golden ones
are sent; random ones the board makes from a seed, and a checksum says that they are the same."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .chip_file import golden_inputs, identity
from .engine import InferenceEngine
from .serial_device import Device, Operator, random_input
from .serial_link import SerialError

RELATIVE = 1e-5  # float32 outputs of a compiler that fuses multiply-adds stay within this of the largest output
ABSOLUTE = 1e-6


@dataclass(frozen=True)
class Difference:
    """What differs first: the sample, and the operator. worst: the largest distance of the outputs."""

    sample: int
    golden: bool
    worst: float
    allowed: float
    operator: str


@dataclass
class Verified:
    """samples: how many ran; golden: how many of them came from the file; identical: how many outputs were the same
    bits; worst: the largest distance of any; seconds: mean of a run by the board's clock."""

    samples: int = 0
    golden: int = 0
    identical: int = 0
    worst: float = 0.0
    seconds: float = 0.0
    difference: Difference | None = None


def reference(model: Path) -> tuple[InferenceEngine, bytes]:
    """The model as this PC runs it with the portable kernels, which are the board's; and the file."""
    return InferenceEngine(model, kernels="portable"), model.read_bytes()


def same_model(device: Device, data: bytes, name: str) -> None:
    """SerialError where the board runs another model than this file."""
    if device.info.status:
        from .serial_link import status_text

        raise SerialError(f"{device.link.name}: the board could not open its model: {status_text(device.info.status)}.")
    if device.info.identity != identity(data):
        raise SerialError(
            f"{device.link.name}: the board runs another model than {name} (checksum {device.info.identity:08X}, the "
            f"file's is {identity(data):08X}); give the .bin its firmware was built from, or load it with flash-model."
        )


def inputs(engine: InferenceEngine, data: bytes, samples: int, seed: int) -> Iterator[tuple[np.ndarray, int | None]]:
    """The golden inputs, then random ones: (values of input_shape, None or the seed of random_input)."""
    stored, frames = golden_inputs(data, int(np.prod(engine.input_shape)))
    preprocessing = engine.preprocessing
    for x in stored[:samples]:
        shaped = np.ascontiguousarray(x.reshape(engine.input_shape))
        yield preprocessing.normalize(shaped) if frames and preprocessing else shaped.astype(np.float32), None
    for i in range(samples - min(samples, len(stored))):
        one = (0x9E3779B9 * (seed * 65537 + i + 1)) % 0xFFFFFFFF + 1
        yield random_input(one, engine.input_shape, np.dtype(np.float32)), one


def verify(
    device: Device, model: Path, samples: int, *, exact: bool = False, seed: int = 0,
    progress: Callable[[int], None] | None = None,
) -> Verified:  # fmt: skip
    """Stops at the first sample that differs. exact: bit for bit; else float32 outputs may be RELATIVE of the largest
    apart, as where a compiler fuses multiply-adds. Integers are always compared bit for bit."""
    engine, data = reference(model)
    with engine:
        same_model(device, data, str(model))
        found = Verified()
        for x, one in inputs(engine, data, samples, seed):
            ran, golden = device.run(x.tobytes(), seed=one), one is None
            outputs = engine.predict(x)
            want = np.concatenate([np.ravel(y) for y in (outputs if isinstance(outputs, tuple) else (outputs,))])
            found.seconds += (ran.seconds - found.seconds) / (found.samples + 1)
            found.samples += 1
            found.golden += golden
            if ran.output == want.tobytes():
                found.identical += 1
            else:
                found.difference = _difference(device, engine, x, golden, ran.output, want, exact, found)
                if found.difference is not None:
                    break
            if progress is not None:
                progress(found.samples)
    return found


def _difference(device: Device, engine: InferenceEngine, x: np.ndarray, golden: bool, output: bytes, want: np.ndarray,
                exact: bool, found: Verified) -> Difference | None:  # fmt: skip
    if len(output) != want.nbytes:
        raise SerialError(f"{device.link.name}: the board gives {len(output)} bytes, this PC {want.nbytes}.")
    got = np.frombuffer(output, want.dtype)
    floats = np.issubdtype(want.dtype, np.floating)
    apart = np.abs(got.astype(np.float64) - want.astype(np.float64))
    worst = float(np.max(np.where(np.isfinite(apart), apart, np.inf)))
    allowed = RELATIVE * float(np.max(np.abs(want))) + ABSOLUTE if floats and not exact else 0.0
    found.worst = max(found.worst, worst)
    if worst <= allowed and allowed > 0:
        return None
    return Difference(found.samples, golden, worst, allowed, first_operator(device, engine, x, exact))


def first_operator(device: Device, engine: InferenceEngine, x: np.ndarray, exact: bool = False) -> str:
    """The first operator whose values differ on the board for the input that is there: name and kind."""
    theirs = device.operators()
    ours = engine.trace(x)
    for index, (got, layer) in enumerate(zip(theirs, ours, strict=True)):
        if not _same(got, layer.array, exact):
            return f"{layer.name} ({layer.op}, operator {index})"
    return "none: every operator gives the same, the answer was changed after the last"


def _same(got: Operator, want: np.ndarray, exact: bool) -> bool:
    if got.crc == zlib.crc32(np.ascontiguousarray(want).tobytes()):
        return True
    if exact or not np.issubdtype(want.dtype, np.floating):
        return False
    values = want.reshape(-1).astype(np.float64)
    plus = (np.arange(values.size, dtype=np.uint64) * 2654435761 & 0xFFFFFFFF) < 1 << 31
    size, sign = np.abs(values).mean(), np.where(plus, values, -values).mean()
    allowed = 10 * RELATIVE * size + ABSOLUTE  # the board adds up in single precision
    return bool(abs(got.size - size) <= allowed and abs(got.sign - sign) <= allowed)
