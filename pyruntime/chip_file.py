"""What a chip holds of a .bin: weights and program. runtime_c/FORMAT.md has the offsets."""

from __future__ import annotations

import struct
import zlib

import numpy as np


def stripped(data: bytes, golden: bool = False) -> bytes:
    """The same model without metadata, and without golden section unless asked for: what a chip needs. Weights and
    program stay where they are."""
    at, size = struct.unpack_from("<II", data, 64)
    body = data[128 : at + size]
    header = bytearray(data[:128])
    struct.pack_into("<IIII", header, 72, 0, 0, 0, 0)
    if golden:
        golden_at, golden_bytes = struct.unpack_from("<II", data, 80)
        if golden_bytes:
            body += bytes(-len(body) % 64)
            struct.pack_into("<II", header, 80, 128 + len(body), golden_bytes)
            body += data[golden_at : golden_at + golden_bytes]
    struct.pack_into("<I", header, 8, 128 + len(body))
    struct.pack_into("<I", header, 16, zlib.crc32(body))
    struct.pack_into("<I", header, 12, 0)
    struct.pack_into("<I", header, 12, zlib.crc32(bytes(header)))
    return bytes(header) + body


def identity(data: bytes) -> int:
    """CRC-32 of weights and program: the same for a model with and without metadata and golden inputs."""
    at, size = struct.unpack_from("<II", data, 64)
    return zlib.crc32(data[128 : at + size])


def golden_inputs(data: bytes, elements: int, dtype: str) -> tuple[list[np.ndarray], bool]:
    """The golden inputs of a file that ln_open accepts, flat, and whether they are uint8 frames rather than values of
    the input's type."""
    at, size = struct.unpack_from("<II", data, 80)
    if not size:
        return [], False
    _, count, ops, kind = struct.unpack_from("<IIIB", data, at)
    first, frames = at + 16 + 4 * ops, kind == 1
    each = (size - 16 - 4 * ops) // count
    kinds = np.dtype(np.uint8 if frames else dtype)
    return [np.frombuffer(data, kinds, elements, first + each * i) for i in range(count)], frames
