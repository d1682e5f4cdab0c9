"""A board with LiteNet's firmware, as an object: what it is, what it answers, what it holds."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from .serial_link import Answer, Link, RefusedError, Request, SerialError

RETRIES = 5  # of a whole input that arrived otherwise than it was sent


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

    def run(self, x: bytes, patience: float = 10.0, seed: int | None = None) -> Ran:
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
                self.link.ask(Request.FILL, struct.pack("<I", seed), patience)
            try:
                told = self.link.ask(Request.RUN, struct.pack("<I", zlib.crc32(x)), patience)
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

    def operators(self, patience: float = 10.0) -> list[Operator]:
        """What each operator gives for the input that is on the board: that of the last run."""
        found: list[Operator] = []
        while len(found) < self.info.operators:
            data = self.link.ask(Request.OPERATORS, struct.pack("<H", len(found)), patience)
            rows = [Operator(*row) for row in struct.iter_unpack("<Iff", data)] if len(data) % 12 == 0 else []
            if not rows:
                raise SerialError(f"{self.link.name}: the board says nothing of operator {len(found)}; build it anew.")
            found += rows
        return found

    def memory(self, patience: float = 20.0) -> tuple[int, int, int]:
        """(bytes of arena that a run touches, bytes of stack used so far, bytes of stack); 0, 0 where not known."""
        touched, used, size = struct.unpack("<III", self.link.ask(Request.MEMORY, b"", patience))
        return touched, used, size

    def bench(self, runs: int, patience: float = 60.0) -> float:
        """Seconds a run, by the board's clock."""
        ticks = struct.unpack("<I", self.link.ask(Request.BENCH, struct.pack("<H", runs), patience))[0]
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
            self.link.ask(Request.PART, struct.pack("<I", at) + part, patience=0.5)
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

    def keep(self, stay: bool = True) -> None:
        """Use the loaded model from now on, also after a reset; or go back to the one before."""
        self.link.ask(Request.KEEP, bytes([stay]), patience=5.0)
        self.refresh()


def random_input(seed: int, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """What Request.FILL makes on the board: xorshift32 from seed (not 0) on; float32 in -2 <= x < 2, or bytes."""
    r, words = seed, np.empty(int(np.prod(shape)), np.uint32)
    for i in range(words.size):
        r ^= r << 13 & 0xFFFFFFFF
        r ^= r >> 17
        r ^= r << 5 & 0xFFFFFFFF
        words[i] = r
    if dtype == np.float32:
        whole = (words >> np.uint32(8)).astype(np.int32) - 0x800000
        return (whole.astype(np.float32) * np.float32(2.0**-22)).reshape(shape)
    return (words >> np.uint32(24)).astype(np.uint8).view(dtype).reshape(shape)


def _parts(data: bytes, size: int) -> Iterator[tuple[int, bytes]]:
    for at in range(0, len(data), size):
        yield at, data[at : at + size]
