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
    color = data[98]
    at, size = struct.unpack_from("<II", data, 80)
    if not size:
        return [], False
    _, count, ops, kind = struct.unpack_from("<IIIB", data, at)
    first, frames = at + 16 + 4 * ops, kind != 0 and color != 0
    each = (size - 16 - 4 * ops) // count
    if kind == 2:
        values = [made(struct.unpack_from("<I", data, first + each * i)[0], elements) for i in range(count)]
        return [v if frames else less_128(v) for v in values], frames
    kinds = np.dtype(np.uint8 if frames else dtype)
    return [np.frombuffer(data, kinds, elements, first + each * i) for i in range(count)], frames


def made(seed: int, n: int) -> np.ndarray:
    """(n) uint8: the golden input of kind 2 that this seed stands for, two waves along the memory and noise."""

    def mixed(k: np.ndarray) -> np.ndarray:
        k = (k ^ k >> 16) * np.uint64(0x7FEB352D) & np.uint64(0xFFFFFFFF)
        k = (k ^ k >> 15) * np.uint64(0x846CA68B) & np.uint64(0xFFFFFFFF)
        return k ^ k >> 16

    def wave(phase: np.ndarray) -> np.ndarray:
        phase = phase & np.uint64(0xFFFFFFFF)
        return np.where(phase < 1 << 31, phase, 0xFFFFFFFF - phase) >> 23

    i = np.arange(n, dtype=np.uint64)
    a, b = mixed(np.array([seed, seed + 1], np.uint64) & np.uint64(0xFFFFFFFF))
    noise = mixed((i + np.uint64(seed + 2)) & np.uint64(0xFFFFFFFF)) >> 24
    return ((2 * wave(i * (a >> 4)) + wave(i * b) + noise) // 4).astype(np.uint8)


def less_128(values: np.ndarray) -> np.ndarray:
    """uint8 as the int8 128 below."""
    return (values ^ np.uint8(128)).view(np.int8)
