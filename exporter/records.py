"""The program of a .bin, record by record, as runtime_c/FORMAT.md has it: what a chip's memory is planned with."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from math import prod

from litenet.pyruntime.chip_file import identity, stripped
from litenet.trainer.ops import OPS, activations

from .format import OP_BYTES, TENSOR_BYTES

__all__ = ["OpOf", "Program", "TensorOf", "identity", "read", "stripped"]

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
    """One operator. scratch: (place in the arena, bytes). algorithm: not 0 where there are transformed weights."""

    op: str
    activation: str
    inputs: tuple[int, ...]
    output: int
    weight_dtype: int
    weights_bytes: int
    scratch: tuple[int, int]
    algorithm: int = 0


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
        return sum(-(-t.bytes // 4) * 4 for t in self.tensors if t.is_output)  # each begins at a multiple of 4

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
    number, act, algorithm, *inputs, output, count, dtype = struct.unpack_from("<HBB4HHBB", r)
    _, size, scratch_at, scratch = struct.unpack_from("<IIII", r, 16)
    return OpOf(
        OP_NAMES[number], ACT_NAMES[act], tuple(inputs[:count]), output, dtype, size, (scratch_at, scratch), algorithm
    )
