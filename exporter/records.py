"""The program of a .bin, record by record, as runtime_c/FORMAT.md has it: what a chip's memory is planned with."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from math import prod

from litenet.trainer.ops import OPS, activations

from .format import OP_BYTES, TENSOR_BYTES

ELEMENT_BYTES = {0: 4, 1: 2, 2: 1, 3: 1, 4: 4}  # by the number of the element type
TYPE_NAMES = {0: "F32", 1: "F16", 2: "I8", 3: "U8", 4: "I32"}
OP_NAMES = {m.OP.id: name for name, m in OPS.items()}
ACT_NAMES = {number: name for name, number in activations.IDS.items()}


@dataclass(frozen=True)
class TensorOf:
    """One tensor. at: its place in the arena, where it has one; first and last: the operators it lives through."""

    at: int
    dtype: int
    shape: tuple[int, ...]
    in_arena: bool
    is_output: bool
    first: int
    last: int

    @property
    def bytes(self) -> int:
        return prod(self.shape) * ELEMENT_BYTES[self.dtype]


@dataclass(frozen=True)
class OpOf:
    """One operator. scratch: (place in the arena, bytes)."""

    op: str
    activation: str
    inputs: tuple[int, ...]
    output: int
    weight_dtype: int
    weights_bytes: int
    scratch: tuple[int, int]


@dataclass(frozen=True)
class Program:
    tensors: list[TensorOf]
    ops: list[OpOf]
    arena_bytes: int

    @property
    def input_bytes(self) -> int:
        return self.tensors[0].bytes

    @property
    def output_bytes(self) -> int:
        return sum(t.bytes for t in self.tensors if t.is_output)

    def alive(self, op: int) -> int:
        """Bytes of the arena that are in use while operator `op` runs."""
        held = sum(t.bytes for t in self.tensors if t.in_arena and t.first <= op <= t.last)
        return held + self.ops[op].scratch[1]

    def touched(self) -> int:
        """Where the last byte of the arena ends that a run writes."""
        ends = [t.at + t.bytes for t in self.tensors if t.in_arena]
        return max(ends + [sum(op.scratch) for op in self.ops], default=0)

    def needs(self) -> list[str]:
        """What a runtime must have, as runtime_c/src/ln_with.h names it, without LN_WITH_."""
        found = {op.op.upper() for op in self.ops}
        found |= {f"ACT_{op.activation.upper()}" for op in self.ops if op.activation != "none"}
        found |= {TYPE_NAMES[t.dtype] for t in self.tensors}
        found |= {TYPE_NAMES[op.weight_dtype] for op in self.ops if op.weights_bytes}
        return sorted(found)


def read(data: bytes) -> Program:
    """The program of a file that ln_open accepts."""
    at = struct.unpack_from("<I", data, 64)[0]
    N, T = struct.unpack_from("<HH", data, 88)
    tensors = [_tensor(data[at + TENSOR_BYTES * i :][:TENSOR_BYTES]) for i in range(T)]
    at += TENSOR_BYTES * T
    ops = [_op(data[at + OP_BYTES * i :][:OP_BYTES]) for i in range(N)]
    return Program(tensors, ops, struct.unpack_from("<I", data, 92)[0])


def _tensor(r: bytes) -> TensorOf:
    place, dtype, rank, flags = struct.unpack_from("<IBBB", r)
    shape = struct.unpack_from(f"<{rank}I", r, 8)
    return TensorOf(place, dtype, shape, flags == 0, flags == 2, *struct.unpack_from("<HH", r, 28))


def _op(r: bytes) -> OpOf:
    number, act, _, *inputs, output, count, dtype = struct.unpack_from("<HBB4HHBB", r)
    _, size, scratch_at, scratch = struct.unpack_from("<IIII", r, 16)
    return OpOf(
        OP_NAMES[number], ACT_NAMES[act], tuple(inputs[:count]), output, dtype, size, (scratch_at, scratch)
    )


def stripped(data: bytes, golden: bool = False) -> bytes:
    """The same model without metadata, and without golden section unless asked for: what a chip needs. Weights and
    program stay where they are."""
    import zlib

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
    import zlib

    at, size = struct.unpack_from("<II", data, 64)
    return zlib.crc32(data[128 : at + size])
