"""Opens the pickles of CIFAR-10 without running anything that is written in them.

A pickle names functions and has them called: an unknown one is a program. Here every name becomes a stand-in
of this file that only records its arguments, any other name is refused, and the arrays are built afterwards
from the recorded bytes, by us.
"""

from __future__ import annotations

import io
import pickle
import re
import struct
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from ..errors import UserError

TYPE = re.compile(r"[<>|=]?[iu][1248]")


class _Type:
    """Stands in for numpy.dtype: its code, such as "u1", and its byte order."""

    def __init__(self, code: Any, *_: Any) -> None:
        self.code = code.decode("latin1") if isinstance(code, bytes) else str(code)

    def __setstate__(self, state: Any) -> None:
        order = state[1]
        self.code = (order.decode("latin1") if isinstance(order, bytes) else str(order)) + self.code

    def real(self) -> np.dtype:
        if not TYPE.fullmatch(self.code):
            raise ValueError(f"an array of type {self.code[:20]!r}; whole numbers are expected")
        return np.dtype(self.code)


class _Array:
    """Stands in for numpy.ndarray: shape, type and bytes."""

    def __setstate__(self, state: Any) -> None:
        _, self.shape, self.type, self.fortran, self.data = state

    def real(self) -> np.ndarray:
        if not isinstance(self.type, _Type) or not isinstance(self.data, (bytes, bytearray)):
            raise ValueError("an array without its type or its bytes")
        flat = np.frombuffer(self.data, self.type.real())
        return flat.reshape(tuple(int(n) for n in self.shape), order="F" if self.fortran else "C")


def _reconstruct(*_: Any) -> _Array:
    return _Array()


def _from_buffer(data: Any, kind: Any, shape: Any, order: Any) -> _Array:
    array = _Array()
    array.__setstate__((1, shape, kind, order == "F", data))
    return array


def _encode(text: Any, *_: Any) -> bytes:
    """Python 3 writes bytes this way into pickles that Python 2 can read: as text, one character a byte."""
    return str(text).encode("latin1")


STAND_INS: dict[tuple[str, str], Callable[..., Any]] = {
    ("numpy", "dtype"): _Type,
    ("numpy", "ndarray"): _reconstruct,
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy.core.numeric", "_frombuffer"): _from_buffer,
    ("numpy._core.numeric", "_frombuffer"): _from_buffer,
    ("_codecs", "encode"): _encode,
}


class _Unpickler(pickle._Unpickler):
    """The unpickler in Python: the one in C lets a few bytes ask for gigabytes of memo."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in STAND_INS:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, and only number arrays are let in")
        stand_in = STAND_INS[module, name]
        return lambda *arguments: stand_in(*arguments)  # a throw-away, so that no pickle can alter the table

    def _bytearray(self: Any) -> None:
        """Reads first: Python's own makes room for as many bytes as it is told before it reads any."""
        (size,) = struct.unpack("<Q", self.read(8))
        data = self.read(size)
        if len(data) != size:
            raise pickle.UnpicklingError(f"it ends after {len(data)} of {size} bytes")
        self.append(bytearray(data))

    dispatch: ClassVar[dict[int, Any]] = {**pickle._Unpickler.dispatch, pickle.BYTEARRAY8[0]: _bytearray}


def read_batch(where: str, data: bytes) -> tuple[np.ndarray, np.ndarray]:
    """(pixels uint8 (N, 3072), labels int64 (N,)) of one CIFAR-10 batch: a dict with `data` and `labels`."""
    try:
        batch = _Unpickler(io.BytesIO(data), encoding="bytes").load()
        fields = {k.decode("latin1") if isinstance(k, bytes) else k: v for k, v in batch.items()}
        pixels, labels = fields["data"].real(), fields["labels"]
        labels = labels.real() if isinstance(labels, _Array) else np.array([int(k) for k in labels], np.int64)
        if pixels.dtype != np.uint8:
            raise ValueError(f"pixels of type {pixels.dtype}; uint8 is expected")
        return pixels, labels.astype(np.int64).reshape(-1)
    except Exception as fault:  # whatever a damaged pickle makes the unpickler stumble over
        raise UserError(
            f"{where}: not a CIFAR-10 batch that can be read safely ({type(fault).__name__}: {fault}); "
            "expected the pickles of cifar-10-python.tar.gz"
        ) from fault
