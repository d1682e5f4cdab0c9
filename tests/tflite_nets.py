"""Small TFLite models for the tests of the importer, written byte by byte: a flatbuffer writer of one page.

A table is a dict from field number to value: numpy scalars (their type counts), text, bytes, lists of numbers (int32)
or of tables, and tables. Everything a table points to stands behind it, so offsets can be filled in as it is written.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from litenet.exporter.importers.tflite_node import BUILTIN

CODES = {name: number for number, name in BUILTIN.items()}
FLOAT32, INT32, UINT8, INT8 = (np.int8(k) for k in (0, 2, 3, 9))


class Raw:
    """A list of numbers of the array's type."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array


class Writer:
    def __init__(self) -> None:
        self.data = bytearray()

    def align(self, size: int, ahead: int = 0) -> None:
        self.data += bytes(-(len(self.data) + ahead) % size)

    def point(self, slot: int) -> None:
        struct.pack_into("<I", self.data, slot, len(self.data) - slot)

    def table(self, fields: dict[int, Any], slot: int) -> None:
        """A table, to which the offset at `slot` is made to lead: its vtable, its fields of 4 bytes each, what they
        lead to."""
        fields = {k: v for k, v in fields.items() if v is not None}
        self.align(4)
        vtable, count = len(self.data), max(fields, default=-1) + 1
        order = sorted(fields)
        self.data += struct.pack("<HH", 4 + 2 * count, 4 + 4 * len(order))
        self.data += struct.pack(f"<{count}H", *(4 + 4 * order.index(k) if k in fields else 0 for k in range(count)))
        self.align(4)
        self.point(slot)
        start = len(self.data)
        self.data += struct.pack("<i", start - vtable) + bytes(4 * len(order))
        for i, k in enumerate(order):
            self.value(fields[k], start + 4 + 4 * i)

    def value(self, value: Any, slot: int) -> None:
        if isinstance(value, np.generic):
            raw = value.tobytes()
            self.data[slot : slot + len(raw)] = raw
        elif isinstance(value, dict):
            self.table(value, slot)
        elif isinstance(value, Raw):
            self.align(8, 4)
            self.point(slot)
            self.data += struct.pack("<I", value.array.size) + value.array.tobytes()
        elif isinstance(value, (str, bytes)):
            raw = value.encode() if isinstance(value, str) else value
            self.align(16, 4)
            self.point(slot)
            self.data += struct.pack("<I", len(raw)) + raw + bytes(isinstance(value, str))
        elif value and isinstance(value[0], dict):
            self.align(4)
            self.point(slot)
            first = len(self.data) + 4
            self.data += struct.pack("<I", len(value)) + bytes(4 * len(value))
            for i, table in enumerate(value):
                self.table(table, first + 4 * i)
        else:
            self.align(4)
            self.point(slot)
            self.data += struct.pack(f"<I{len(value)}i", len(value), *value)


OPTIONS = {  # the number of an operator's options in the union BuiltinOptions
    "CONV_2D": 1, "DEPTHWISE_CONV_2D": 2, "AVERAGE_POOL_2D": 5, "MAX_POOL_2D": 5, "FULLY_CONNECTED": 8, "SOFTMAX": 9,
    "CONCATENATION": 10, "ADD": 11, "RESIZE_BILINEAR": 15, "RESHAPE": 17, "MUL": 21, "PAD": 22, "PADV2": 42,
    "TRANSPOSE": 26, "MEAN": 27, "SUM": 27, "REDUCE_MAX": 27, "SUB": 28, "DIV": 29, "SQUEEZE": 30, "STRIDED_SLICE": 32,
    "EXP": 33, "SPLIT": 35, "CAST": 37, "MAXIMUM": 39, "MINIMUM": 39, "NEG": 41, "SLICE": 45, "EXPAND_DIMS": 52,
    "SHAPE": 55, "PACK": 59, "LEAKY_RELU": 75, "SPLIT_V": 79, "SQUARE": 66, "HARD_SWISH": 91, "BATCH_MATMUL": 101,
    "RESIZE_NEAREST_NEIGHBOR": 74, "GELU": 120, "ARG_MAX": 40,
}  # fmt: skip


def model(
    nodes: list[tuple[Any, ...]], x: tuple[int, ...], constants: dict[str, Any] | None = None,
    outputs: tuple[str, ...] | None = None, kind: np.int8 = FLOAT32,
    quants: dict[str, tuple[Any, int] | None] | None = None, kinds: dict[str, np.int8] | None = None,
) -> bytes:  # fmt: skip
    """nodes: (operator, inputs, {field of its options: value}); node i puts out n<i>, or n<i>, n<i>_1 where "outputs"
    says so; "shape" is that of its outputs where the interpreter does not work it out, "whole" says they are int32.
    Inputs are "x", names of constants and nodes, separated by blanks. quants: (scale, or scales by output channel; zero
    point) by name, of an int8 model; kinds: types that are others than that."""
    names, tensors, buffers = ["x"], [{0: list(x), 1: kind, 2: np.uint32(0), 3: "x"}], [{}]
    types = {np.dtype("f4"): FLOAT32, np.dtype("i4"): INT32, np.dtype("i1"): INT8, np.dtype("f2"): np.int8(1)}
    for name, value in (constants or {}).items():
        array = np.asarray(value)
        buffers.append({0: array.tobytes()})
        names.append(name)
        tensors.append({0: list(array.shape), 1: types[array.dtype], 2: np.uint32(len(buffers) - 1), 3: name})
    operators, codes = [], []
    for i, (op, inputs, *given) in enumerate(nodes):
        options = dict(given[0]) if given else {}
        count, made = options.pop("outputs", 1), []
        shape, whole = options.pop("shape", None), options.pop("whole", False)
        for k in range(count):
            made.append(f"n{i}" + (f"_{k}" if k else ""))
            names.append(made[-1])
            kind_out = INT32 if whole or op in ("SHAPE", "PACK") else INT8 if quants else FLOAT32
            tensors.append({0: list(shape or (1,) * len(x)), 1: kind_out, 2: np.uint32(0), 3: made[-1]})
        if op not in codes:
            codes.append(op)
        ins = [-1 if name == "-" else names.index(name) for name in inputs.split()]
        operators.append({0: np.uint32(codes.index(op)), 1: ins, 2: [names.index(m) for m in made],
                          3: np.uint8(OPTIONS[op]) if op in OPTIONS else None,
                          4: options if op in OPTIONS else None})  # fmt: skip
    for name, other in (kinds or {}).items():
        tensors[names.index(name)][1] = other
    for name, pair in (quants or {}).items():
        if pair is not None:
            scale = np.atleast_1d(np.asarray(pair[0], np.float32))
            zero = np.full(scale.size, pair[1], np.int64)
            table = tensors[names.index(name)]
            last = scale.size > 1 and table[0][0] == 1  # weights of a depthwise convolution
            table[4] = {2: Raw(scale), 3: Raw(zero), 6: np.int32(len(table[0]) - 1 if last else 0)}
    ends = [names.index(name) for name in outputs or (names[-1],)]
    graph = {0: tensors, 1: [0], 2: ends, 3: operators, 4: "main"}
    known = [{0: np.int8(min(CODES[c], 127)), 2: np.int32(1), 3: np.int32(CODES[c])} for c in codes]
    w = Writer()
    w.data += bytes(4) + b"TFL3"
    w.table({0: np.uint32(3), 1: known, 2: [graph], 3: "test", 4: buffers}, 0)
    return bytes(w.data)
