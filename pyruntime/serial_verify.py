"""Does a board compute what this PC computes? Golden and random inputs through both, every output compared. Golden ones
are sent; random ones the board makes from a seed, and a checksum says that they are the same."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ._litenet import ffi, lib
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
    """The golden inputs, then random ones, in the input's type: (values of input_shape, None or the seed of
    random_input)."""
    shape, dtype = engine.input_shape, np.dtype(engine.input_dtype)
    stored, frames = golden_inputs(data, int(np.prod(shape)), engine.input_dtype)
    for given in stored[:samples]:
        x = np.ascontiguousarray(given.reshape(shape))
        if frames:
            frame, x = x, np.empty(shape, dtype)
            engine._call(lib.ln_frame_to_input, ffi.from_buffer("uint8_t[]", frame), ffi.from_buffer(x))
        yield x, None
    for i in range(samples - min(samples, len(stored))):
        one = (0x9E3779B9 * (seed * 65537 + i + 1)) % 0xFFFFFFFF + 1
        yield random_input(one, shape, dtype), one


def output_bytes(outputs: tuple[np.ndarray, ...]) -> bytes:
    """Outputs as ln_run writes them: one after another, each from a multiple of 4 on."""
    return b"".join(y.tobytes() + bytes(-y.nbytes % 4) for y in outputs)


def as_tuple(outputs: Any) -> tuple[np.ndarray, ...]:
    """What predict gives for one output or several."""
    return outputs if isinstance(outputs, tuple) else (outputs,)


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
            want = as_tuple(engine.predict(x, raw=True))
            found.seconds += (ran.seconds - found.seconds) / (found.samples + 1)
            found.samples += 1
            found.golden += golden
            if output_bytes(as_tuple(engine.outputs_of(ran.output, raw=True))) == output_bytes(want):
                found.identical += 1
            else:
                found.difference = _difference(device, engine, x, golden, ran.output, want, exact, found)
                if found.difference is not None:
                    break
            if progress is not None:
                progress(found.samples)
    return found


def _difference(device: Device, engine: InferenceEngine, x: np.ndarray, golden: bool, output: bytes,
                want: tuple[np.ndarray, ...], exact: bool, found: Verified) -> Difference | None:  # fmt: skip
    worst, allowed, within = 0.0, 0.0, True
    for got, y in zip(as_tuple(engine.outputs_of(output, raw=True)), want, strict=True):
        apart = np.abs(got.astype(np.float64) - y.astype(np.float64))
        most = float(np.max(np.where(np.isfinite(apart), apart, np.inf)))
        floats = np.issubdtype(y.dtype, np.floating) and not exact
        limit = RELATIVE * float(np.max(np.abs(y))) + ABSOLUTE if floats else 0.0
        within &= most <= limit and (limit > 0 or got.tobytes() == y.tobytes())
        worst, allowed = max(worst, most), max(allowed, limit)
    found.worst = max(found.worst, worst)
    if within:
        return None
    return Difference(found.samples, golden, worst, allowed, first_operator(device, engine, x, exact))


def _each_output(engine: InferenceEngine, x: np.ndarray) -> list[np.ndarray]:
    """What every operator gives, in its own type."""
    found: list[np.ndarray] = []

    def keep(index: int, data: object, microseconds: float) -> None:
        layer = engine.layers[index]
        array = np.empty(layer.shape, layer.dtype)
        ffi.memmove(ffi.from_buffer(array), data, array.nbytes)
        found.append(array)

    engine._run_each(x, keep)
    return found


def first_operator(device: Device, engine: InferenceEngine, x: np.ndarray, exact: bool = False) -> str:
    """The first operator whose values differ on the board for the input that is there: name and kind."""
    theirs = device.operators()
    ours = _each_output(engine, x)
    for index, (got, want, layer) in enumerate(zip(theirs, ours, engine.layers, strict=True)):
        if not _same(got, want, exact):
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
