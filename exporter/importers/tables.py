"""Reading a flatbuffer: tables by the number of a field, with every offset checked against the file.

    model = Table.root(data)
    for t in model.tables(2): t.string(4), t.ints(1)
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np


class TruncatedError(Exception):
    """An offset of the file leads outside it."""


def _unpack(code: str, data: bytes, at: int) -> int:
    size = struct.calcsize("<" + code)
    if at < 0 or at + size > len(data):
        raise TruncatedError
    return struct.unpack_from("<" + code, data, at)[0]


@dataclass(frozen=True)
class Table:
    """One table: `at` is where it stands."""

    data: bytes
    at: int

    @staticmethod
    def root(data: bytes) -> Table:
        return Table(data, _unpack("I", data, 0))

    def _field(self, number: int) -> int:
        """Where a field's value stands; 0 if the table leaves it out."""
        vtable = self.at - _unpack("i", self.data, self.at)
        slot = 4 + 2 * number
        if slot + 2 > _unpack("H", self.data, vtable):
            return 0
        offset = _unpack("H", self.data, vtable + slot)
        return self.at + offset if offset else 0

    def scalar(self, number: int, code: str = "i", default: float = 0) -> float:
        at = self._field(number)
        return _unpack(code, self.data, at) if at else default

    def whole(self, number: int, code: str = "i", default: int = 0) -> int:
        return int(self.scalar(number, code, default))

    def _vector(self, number: int) -> tuple[int, int]:
        """(place of the first element, count)."""
        at = self._field(number)
        if not at:
            return 0, 0
        at += _unpack("I", self.data, at)
        return at + 4, _unpack("I", self.data, at)

    def array(self, number: int, dtype: str) -> np.ndarray:
        at, count = self._vector(number)
        if at + count * np.dtype(dtype).itemsize > len(self.data):
            raise TruncatedError
        return np.frombuffer(self.data, dtype, count, at)

    def ints(self, number: int) -> list[int]:
        return [int(v) for v in self.array(number, "<i4")]

    def string(self, number: int) -> str:
        return self.array(number, "u1").tobytes().decode("utf-8", "replace")

    def table(self, number: int) -> Table | None:
        at = self._field(number)
        return Table(self.data, at + _unpack("I", self.data, at)) if at else None

    def tables(self, number: int) -> list[Table]:
        at, count = self._vector(number)
        if at + 4 * count > len(self.data):
            raise TruncatedError
        return [Table(self.data, p + _unpack("I", self.data, p)) for p in range(at, at + 4 * count, 4)]
