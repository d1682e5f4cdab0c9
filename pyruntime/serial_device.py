"""A board with LiteNet's firmware, as an object: what it is, what it answers, what it holds."""

from __future__ import annotations

import contextlib
import struct
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from .serial_link import Answer, Link, RefusedError, Request, SerialError

RETRIES = 5  # of a whole input that arrived otherwise than it was sent
PATIENCE = 10.0  # seconds that a first run may take; then three times what a run took
BATCH = 2.0  # seconds of runs that bench asks for at once: a lost answer costs them, and a board's clock may wrap


@dataclass(frozen=True)
class Info:
    """What a board says of itself. status: of the runtime, 0: the model is open. identity: CRC-32 of its weights and
    program. slot: 0 the built-in model, 1 or 2 a loaded one. room: bytes of a model that it can take."""

    status: int
    identity: int
    model_bytes: int
    input_bytes: int
    output_bytes: int
    operators: int
    arena_bytes: int
    hertz: int
    room: int
    slot: int
    runtime: str
    board: str


@dataclass(frozen=True)
class Ran:
    """One run: the output's bytes, and how long the board took, in seconds of its own clock."""

    output: bytes
    seconds: float
    ticks: int


@dataclass(frozen=True)
class Operator:
    """Of what one operator gave: CRC-32, mean of |y|, mean of y under signs that depend on the place."""

    crc: int
    size: float
    sign: float


class Device:
    """device = Device(Link(open_port(name))). Every method may raise SerialError."""

    def __init__(self, link: Link):
        self.link = link
        self._run_seconds = PATIENCE / 3  # of a run, seen from here
        link.hello()
        self.info = self._info()

    def _info(self) -> Info:
        data = self.link.ask(Request.INFO, patience=1.0)
        try:
            fixed = struct.unpack_from("<BIIIIHIIIB", data)
            at, texts = struct.calcsize("<BIIIIHIIIB"), []
            for _ in range(2):
                size = data[at]
                texts.append(data[at + 1 : at + 1 + size].decode("ascii", "replace"))
                at += 1 + size
        except (struct.error, IndexError):
            raise SerialError(f"{self.link.name}: the board's description is cut off; build it anew.") from None
        return Info(*fixed, *texts)

    def refresh(self) -> Info:
        self.info = self._info()
        return self.info

    def _work(self, request: Request, payload: bytes = b"", runs: float = 1.0) -> bytes:
        """The answer to a request for which the board runs its model so often."""
        repeats, began = self.link.repeats, time.monotonic()
        found = self.link.ask(request, payload, 0.1 + 3 * self._run_seconds * runs)
        seconds = (time.monotonic() - began) / runs
        if self.link.repeats == repeats:
            self._run_seconds = seconds
        else:  # which of them was answered is not known
            self._run_seconds = max(self._run_seconds, seconds / 3)
        return found

    def run(self, x: bytes, seed: int | None = None) -> Ran:
        """Run one input: the bytes of its values. seed: they are random_input of it, so the board can make them."""
        if len(x) != self.info.input_bytes:
            raise SerialError(
                f"{self.link.name}: the board's model takes {self.info.input_bytes} bytes, this input has {len(x)}; "
                "is it the same model?"
            )
        for _ in range(RETRIES):
            if seed is None:
                for at, part in _parts(x, self.link.payload - 4):
                    self.link.ask(Request.WRITE, struct.pack("<I", at) + part)
            else:
                self.link.ask(Request.FILL, struct.pack("<I", seed))
            try:
                told = self._work(Request.RUN, struct.pack("<I", zlib.crc32(x)))
                ticks, crc = struct.unpack("<II", told)
            except RefusedError as refused:
                if refused.code == Answer.INPUT:  # damaged in a way that its checksum did not see
                    continue
                raise
            output = self._read()
            if zlib.crc32(output) == crc:
                return Ran(output, ticks / self.info.hertz, ticks)
        raise SerialError(f"{self.link.name}: what is sent arrives damaged again and again; check cable and baud rate.")

    def _read(self) -> bytes:
        out, most = b"", self.link.payload - 1
        while len(out) < self.info.output_bytes:
            count = min(most, self.info.output_bytes - len(out))
            found = self.link.ask(Request.READ, struct.pack("<IH", len(out), count))
            if len(found) != count:
                raise SerialError(f"{self.link.name}: the board gave {len(found)} bytes of {count}; build it anew.")
            out += found
        return out

    def operators(self) -> list[Operator]:
        """What each operator gives for the input that is on the board: that of the last run."""
        found: list[Operator] = []
        while len(found) < self.info.operators:
            data = self._work(Request.OPERATORS, struct.pack("<H", len(found)))
            rows = [Operator(*row) for row in struct.iter_unpack("<Iff", data)] if len(data) % 12 == 0 else []
            if not rows:
                raise SerialError(f"{self.link.name}: the board says nothing of operator {len(found)}; build it anew.")
            found += rows
        return found

    def memory(self) -> tuple[int, int, int]:
        """(bytes of arena that a run touches, bytes of stack used so far, bytes of stack); 0, 0 where not known."""
        touched, used, size = struct.unpack("<III", self._work(Request.MEMORY, runs=2))
        return touched, used, size

    def bench(self, runs: int) -> float:
        """Seconds a run, by the board's clock: the mean of so many."""
        ticks, done = 0, 0
        while done < runs:  # the first alone: it tells how many fit a request
            count = max(1, min(runs - done, 65535, int(BATCH / self._run_seconds))) if done else 1
            ticks += struct.unpack("<I", self._work(Request.BENCH, struct.pack("<H", count), count))[0]
            done += count
        return ticks / self.info.hertz / runs

    def load(self, model: bytes) -> Iterator[int]:
        """Put a model beside the one in use, and try it; yields the bytes sent so far. keep() makes it stay."""
        if len(model) > self.info.room:
            raise SerialError(
                f"{self.link.name}: the model has {len(model):,} bytes, the region for models {self.info.room:,}."
                if self.info.room
                else f"{self.link.name}: this board's firmware reserves no flash for another model."
            )
        self.link.ask(Request.LOAD, struct.pack("<II", len(model), zlib.crc32(model)), patience=10.0)
        for at, part in _parts(model, self.link.payload - 4):
            try:
                self.link.ask(Request.PART, struct.pack("<I", at) + part, patience=0.5)
            except RefusedError as refused:
                if refused.code == Answer.RANGE:
                    raise SerialError(
                        f"{self.link.name}: the board no longer knows what was loaded: it was reset. The old model "
                        "goes on; try again."
                    ) from None
                raise
            yield at + len(part)
        try:
            self.link.ask(Request.TRY, patience=5.0)
        except RefusedError as refused:
            if refused.code == Answer.TOO_LARGE and len(refused.detail) == 12:
                arena, x, y = struct.unpack("<III", refused.detail)
                raise SerialError(
                    f"{self.link.name}: the firmware lends less memory than the model needs ({arena:,} bytes of arena, "
                    f"{x:,} of input, {y:,} of output); build it with ROOM={max(arena, x, y)}. The old model goes on."
                ) from None
            if refused.code == Answer.RUNTIME:
                raise SerialError(
                    f"{refused} The firmware has the operators of the model it was built for: build it for this one. "
                    "The old model goes on."
                ) from None
            raise
        self.refresh()

    def keep(self) -> None:
        """Use the loaded model from now on, also after a reset."""
        self.link.ask(Request.KEEP, b"\1", patience=5.0)
        self.refresh()

    def back(self) -> None:
        """Use the model before the loaded one again. A board that does not answer does so at its next reset."""
        with contextlib.suppress(SerialError):
            self.link.ask(Request.KEEP, b"\0", patience=1.0, tries=2)


def random_input(seed: int, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """What Request.FILL makes on the board: xorshift32 from seed (not 0) on; float32 in -2 <= x < 2, or bytes."""
    r, words = seed, np.empty(int(np.prod(shape)), np.uint32)
    for i in range(words.size):
        r ^= r << 13 & 0xFFFFFFFF
        r ^= r >> 17
        r ^= r << 5 & 0xFFFFFFFF
        words[i] = r
    if dtype == np.float32:
        whole = (words >> np.uint32(8)).astype(np.int32) - 0x800000  # exact in float32
        return (whole.astype(np.float32) * np.float32(2.0**-22)).reshape(shape)
    return (words >> np.uint32(24)).astype(np.uint8).view(dtype).reshape(shape)


def _parts(data: bytes, size: int) -> Iterator[tuple[int, bytes]]:
    for at in range(0, len(data), size):
        yield at, data[at : at + size]
