"""The only writer of `.bin`, format 1. What each byte means: runtime_c/FORMAT.md.

    model = Model(
        tensors=[TensorRec((4,), input=True), TensorRec((3,), output=True)],
        ops=[OpRec("linear", inputs=(0,), output=1, attrs=attrs, weights=pack(...), activation="relu")],
        metadata={"name": "tiny"},
    )
    Path("tiny.bin").write_bytes(write(model))

The same model gives the same bytes. What a reader would refuse is refused here with a ValueError; the shape
rules of the operators are left to ln_open, which the exporter runs on every file it writes.
"""

from __future__ import annotations

import json
import math
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from litenet.trainer.int8.scheme import SMALLEST, Numbers, Quant, picture
from litenet.trainer.ops import OPS, Attrs, Shape, activations
from litenet.trainer.ops.spec import SIZES

from . import format_int8, pack_int8

MAJOR = 1
HEADER_BYTES, TENSOR_BYTES, OP_BYTES, ATTR_BYTES = 128, 32, 64, 32
BLOCK = 64  # sections and weights start at multiples of it
LINE = 16  # tensors in the arena start at multiples of it
NO_TENSOR = 0xFFFF
MAX_OPS, MAX_ELEMENTS, MAX_SIDE = 4096, (1 << 30) - 1, 65535
FEATURE_F16, FEATURE_I8 = 1, 2

DTYPES = {"f32": 0, "i8": 2}
WEIGHT_DTYPES = {"f32": 0, "f16": 1, "i8": 2}
RESIZE = {"nearest": 0, "bilinear": 1, "area": 2}
FIT = {"stretch": 0, "crop": 1, "letterbox": 2}
COLOR = {"none": 0, "gray": 1, "rgb": 2, "bgr": 3}
INVERT = {"never": 0, "always": 1, "auto": 2}
KINDS = {"f32": 0, "i8": 0, "frame": 1, "made": 2}
QUANT_AT = 20  # of the attribute bytes: where the numbers of an int8 operator begin


@dataclass(frozen=True)
class TensorRec:
    """One tensor. `offset` is its place in the arena; input and outputs live at the caller's and have none.

    `first` and `last`, the operators that write it and read it last, are worked out where they are not given. An i8
    tensor has a `quant`.
    """

    shape: Shape
    dtype: str = "f32"
    offset: int = 0
    input: bool = False
    output: bool = False
    first: int | None = None
    last: int | None = None
    quant: Quant | None = None

    @property
    def bytes(self) -> int:
        return math.prod(self.shape) * (1 if self.dtype == "i8" else 4)


@dataclass(frozen=True)
class OpRec:
    """One operator. `weights` is its block from pack.py, or of type "i8" from pack_int8.py, and with `algorithm` 1 or 2
    what winograd.py puts behind it; `scratch` (arena offset, bytes); `numbers`, where its output is i8, how that is
    rescaled."""

    op: str
    inputs: Sequence[int]
    output: int
    attrs: Attrs = field(default_factory=Attrs)
    weights: bytes = b""
    weight_dtype: str = "f32"
    activation: str | None = None  # None: the attributes say it
    algorithm: int = 0
    scratch: tuple[int, int] = (0, 0)
    numbers: Numbers | None = None


@dataclass(frozen=True)
class Preprocessing:
    """How a picture becomes the input; mean and std in pixel units, one a channel of the frame (of three for a
    grey one, the first counts). Default: no picture."""

    resize: str = "nearest"
    fit: str = "stretch"
    color: str = "none"
    invert: str = "never"
    mean: Sequence[float] = ()
    std: Sequence[float] = ()
    pad: int = 0


Checksum = tuple[float, float] | int  # op_checksum, or a CRC-32 where every machine gives the same bytes


@dataclass(frozen=True)
class Golden:
    """Inputs with what this model makes of them, for the self-test.

    `kind` "f32" or "i8", the input's type: inputs are tensors; "frame": uint8 frames (H,W,C), before normalisation;
    "made", of an i8 input: seeds, which pyruntime.chip_file.made makes the frame or the tensor of.
    `outputs`: for each input all outputs, float32 one after another, or a tuple of them, each of its type. `checksums`:
    for each input what checksums() makes of what the operators give.
    """

    kind: str
    inputs: Sequence[np.ndarray | int]
    outputs: Sequence[np.ndarray | tuple[np.ndarray, ...]]
    checksums: Sequence[Sequence[Checksum]]


@dataclass(frozen=True)
class Model:
    tensors: Sequence[TensorRec]
    ops: Sequence[OpRec]
    preprocessing: Preprocessing = Preprocessing()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    golden: Golden | None = None
    arena_bytes: int | None = None  # None: the smallest that holds all tensors


def op_checksum(y: np.ndarray) -> tuple[float, float]:
    """The mean of |y|, and the mean of y under signs that depend on the position: what the self-test compares."""
    values = np.asarray(y, np.float64).reshape(-1)
    position = np.arange(values.size, dtype=np.uint64)
    plus = (position * 2654435761 & 0xFFFFFFFF) < 1 << 31
    return float(np.abs(values).mean()), float(np.where(plus, values, -values).mean())


def exact(model: Model) -> list[bool]:
    """Whether an operator gives the same bytes everywhere: int8, and no floats before it."""
    floats, found = False, []
    for op in model.ops:
        floats |= model.tensors[op.output].dtype != "i8"
        found.append(not floats)
    return found


def checksums(model: Model, values: Sequence[np.ndarray]) -> list[Checksum]:
    """Of what each operator gives for one input, in the type of its output: op_checksum, of int8 in steps from the zero
    point; a CRC-32 where it is exact."""
    out: list[Checksum] = []
    for op, y, same in zip(model.ops, values, exact(model), strict=True):
        t = model.tensors[op.output]
        if same:
            out.append(zlib.crc32(np.ascontiguousarray(y, np.int8).tobytes()))
        else:
            out.append(op_checksum(y if t.quant is None else y.astype(np.int32) - t.quant.zero))
    return out


def write(model: Model) -> bytes:
    """The file. Raises ValueError with one sentence for what the format cannot hold."""
    _check_counts(model)
    lives = _lifetimes(model)
    weights, places = _weights(model)
    program = b"".join(_tensor(model, i, lives[i]) for i in range(len(model.tensors)))
    program += b"".join(_op(model, i, places[i]) for i in range(len(model.ops)))
    metadata = json.dumps(dict(model.metadata), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    sections = [weights, program, metadata.encode() if model.metadata else b"", _golden(model)]

    body, fields = b"", []
    for section in sections:
        body += bytes(-(HEADER_BYTES + len(body)) % BLOCK if section else 0)
        fields.append((HEADER_BYTES + len(body) if section else 0, len(section)))
        body += section
    length = HEADER_BYTES + len(body)
    if length > 0xFFFFFFFF:
        raise ValueError(f"the model has {length} bytes; a .bin ends at 4 GB")
    return _header(model, length, zlib.crc32(body), fields) + body


# ---------------------------------------------------------------- header


def _header(model: Model, length: int, body_crc: int, sections: list[tuple[int, int]]) -> bytes:
    features = FEATURE_F16 if any(op.weight_dtype == "f16" for op in model.ops) else 0
    features |= FEATURE_I8 if any(t.dtype == "i8" for t in model.tensors) else 0
    x = model.tensors[0]
    y = next(t for t in model.tensors if t.output)
    p = model.preprocessing
    mean, std = _normalisation(p, x.shape)
    rest = struct.pack("<II", body_crc, features)
    rest += struct.pack("<4B", DTYPES[x.dtype], DTYPES[y.dtype], len(x.shape), len(y.shape))
    rest += struct.pack("<4I4I", *_dims(x.shape), *_dims(y.shape))
    rest += struct.pack("<I", sections[0][1])
    rest += b"".join(struct.pack("<II", at, size) for at, size in sections[1:])
    rest += struct.pack("<HHI", len(model.ops), len(model.tensors), _arena_bytes(model))
    codes = (RESIZE[p.resize], FIT[p.fit], COLOR[p.color], INVERT[p.invert])
    if x.quant is not None and p.color != "none":
        channels = 1 if p.color == "gray" else 3
        P, Q = picture(mean[:channels], std[:channels], x.quant)
        fill = [0] * (3 - channels)
        rest += struct.pack("<4B3i3iB3x", *codes, *P, *fill, *Q, *fill, p.pad)
    else:
        rest += struct.pack("<4B3f3fB3x", *codes, *mean, *std, p.pad)
    front = struct.pack("<4sHHI", b"LNET", MAJOR, _minor(model), length)
    crc = zlib.crc32(front + bytes(4) + rest)
    return front + struct.pack("<I", crc) + rest


def _minor(model: Model) -> int:
    """The lowest version that has all that the file uses."""
    if any(op.numbers is not None and op.numbers.shift and "fine" in (OPS[op.op].OP.int8 or ()) for op in model.ops):
        return 3
    if any(op.algorithm for op in model.ops):
        return 2
    made = model.golden is not None and model.golden.kind == "made"
    return int(made or any(pack_int8.is_short(op.op, op.weights) for op in model.ops if op.weight_dtype == "i8"))


def _normalisation(p: Preprocessing, x: Shape) -> tuple[list[float], list[float]]:
    """Three means and three deviations; what the frame does not have is 0 and 1."""
    for name, value, table in (
        ("resize", p.resize, RESIZE),
        ("fit", p.fit, FIT),
        ("color", p.color, COLOR),
        ("invert", p.invert, INVERT),
    ):
        if value not in table:
            raise ValueError(f"preprocessing: {name} is {value!r}; it can be {', '.join(table)}")
    channels = {"none": 0, "gray": 1}.get(p.color, 3)
    if channels == 0:
        if p != Preprocessing():
            raise ValueError("preprocessing: color is 'none', so nothing else may be set")
    elif len(x) != 3 or x[2] != channels or max(x[:2]) > MAX_SIDE:
        raise ValueError(
            f"preprocessing: a {p.color} frame is (height, width, {channels}), but the input is {tuple(x)}"
        )
    mean = [*p.mean] or [0.0] * channels
    std = [*p.std] or [1.0] * channels
    if len(mean) not in (channels, 3) or len(std) not in (channels, 3):
        raise ValueError(f"preprocessing: mean has {len(mean)}, std {len(std)} values; {channels} are expected")
    mean, std = mean[:channels], std[:channels]
    stored = np.array([*mean, *std], np.float32)
    if not np.isfinite(stored).all() or not (stored[channels:] >= SMALLEST).all():
        raise ValueError("preprocessing: means must be finite, deviations finite and above 0, in float32 too")
    if not 0 <= p.pad <= 255:
        raise ValueError(f"preprocessing: pad is {p.pad}; a grey value from 0 to 255 is expected")
    return mean + [0.0] * (3 - channels), std + [1.0] * (3 - channels)


def _dims(shape: Shape) -> list[int]:
    return [*shape] + [0] * (4 - len(shape))


def _arena_bytes(model: Model) -> int:
    ends = [t.offset + t.bytes for t in model.tensors if not (t.input or t.output)]
    ends += [at + size for at, size in (op.scratch for op in model.ops)]
    least = -(-max(ends, default=0) // LINE) * LINE
    given = least if model.arena_bytes is None else model.arena_bytes
    if not max(ends, default=0) <= given <= 0xFFFFFFFF:
        raise ValueError(f"the arena has {given} bytes; tensors and scratch memory end at {least}")
    return given


# ---------------------------------------------------------------- program


def _check_counts(model: Model) -> None:
    T, N = len(model.tensors), len(model.ops)
    if not 1 <= N <= MAX_OPS:
        raise ValueError(f"the model has {N} operators; a .bin holds 1 to {MAX_OPS}")
    if T != N + 1:
        raise ValueError(f"the model has {T} tensors; the input and one for each of {N} operators are expected")
    if [i for i, t in enumerate(model.tensors) if t.input] != [0]:
        raise ValueError("tensor 0, and no other, must be the input")
    if not any(t.output for t in model.tensors):
        raise ValueError("no tensor is an output")


def _lifetimes(model: Model) -> list[tuple[int, int]]:
    """(first, last) of every tensor: the operator that writes it, and the one that reads it last."""
    T, end = len(model.tensors), len(model.ops) - 1
    first: list[int | None] = [0, *[None] * (T - 1)]
    last: list[int | None] = [end if t.output else None for t in model.tensors]
    for i, op in enumerate(model.ops):
        for k in (*op.inputs, op.output):
            if not 0 <= k < T:
                raise ValueError(f"operator {i} ({op.op}) names tensor {k}; there are {T}")
        for k in op.inputs:
            if first[k] is None:
                raise ValueError(f"operator {i} ({op.op}) reads tensor {k} before it is written")
            last[k] = end if model.tensors[k].output else i
        if first[op.output] is not None:
            raise ValueError(f"operator {i} ({op.op}) writes tensor {op.output}, which is written already")
        first[op.output] = i
    lives = []
    for k, t in enumerate(model.tensors):
        a, b = first[k], last[k]
        if a is None or b is None:
            raise ValueError(f"tensor {k} is never {'written' if a is None else 'read'}")
        if (t.first, t.last) not in {(None, None), (a, b)}:
            raise ValueError(f"tensor {k} is said to live from {t.first} to {t.last}; it lives from {a} to {b}")
        lives.append((a, b))
    return lives


def _tensor(model: Model, i: int, life: tuple[int, int]) -> bytes:
    t = model.tensors[i]
    if t.dtype not in DTYPES:
        raise ValueError(f"tensor {i} has type {t.dtype!r}; format {MAJOR} knows {', '.join(DTYPES)}")
    if not 1 <= len(t.shape) <= 4 or min(t.shape) < 1 or math.prod(t.shape) > MAX_ELEMENTS:
        raise ValueError(f"tensor {i} has shape {tuple(t.shape)}; 1 to 4 dims, in all below 2^30, are expected")
    if t.offset % LINE or t.offset < 0 or ((t.input or t.output) and t.offset):
        raise ValueError(
            f"tensor {i} has arena offset {t.offset}; a multiple of {LINE}, for input and outputs 0, is expected"
        )
    flags = (1 if t.input else 0) | (2 if t.output else 0)
    zero_point, scale = format_int8.tensor_numbers(f"tensor {i}", t.dtype, t.quant)
    front = struct.pack("<IBBBb4I", t.offset, DTYPES[t.dtype], len(t.shape), flags, zero_point, *_dims(t.shape))
    return front + struct.pack("<fHH", scale, *life)


def _op(model: Model, i: int, place: tuple[int, int]) -> bytes:
    rec = model.ops[i]
    name = f"operator {i} ({rec.op})"
    if rec.op not in OPS or not OPS[rec.op].OP.in_files:
        raise ValueError(f"{name} cannot stand in a .bin")
    op = OPS[rec.op].OP
    activation = getattr(rec.attrs, "activation", "none") if rec.activation is None else rec.activation
    if activation not in activations.IDS or (activation != "none" and not op.activation):
        raise ValueError(f"{name} cannot have activation {activation!r}")
    if len(rec.inputs) != len(op.inputs):
        raise ValueError(f"{name} has {len(rec.inputs)} inputs; {len(op.inputs)} are expected")
    given, y = [model.tensors[k] for k in rec.inputs], model.tensors[rec.output]
    format_int8.check_types(name, op, [x.dtype for x in given], y.dtype)
    if y.dtype == "i8":
        layout = op.int8_layout.replace("-", "none")
        types: tuple[str, ...] = ("i8",) if layout != "none" else ("f32",)
        if activation not in ("none", "relu", "relu6") and rec.op != "activation":
            raise ValueError(f"{name} cannot have activation {activation!r} in int8: make it an operator of its own")
    else:
        layout, types = op.layout, ("f32", "f16") if op.layout in ("panels", "depthwise") else ("f32",)
    if rec.weight_dtype not in types:
        raise ValueError(f"{name} cannot have weights of type {rec.weight_dtype!r}")
    if bool(rec.weights) != (layout != "none"):
        raise ValueError(f"{name} has {len(rec.weights)} bytes of weights; its layout is {layout!r}")
    if rec.algorithm not in ((0, 1, 2) if rec.op == "conv2d" and rec.weight_dtype == "f32" else (0,)):
        raise ValueError(f"{name} cannot have algorithm {rec.algorithm}")
    at, size = rec.scratch
    if at % LINE or at < 0 or size < 0 or (at and not size):
        raise ValueError(f"{name} has scratch memory at {at}, {size} bytes; a multiple of {LINE} is expected")
    inputs = [*rec.inputs] + [NO_TENSOR] * (4 - len(rec.inputs))
    head = struct.pack("<HBB4HHBB", op.id, activations.IDS[activation], rec.algorithm, *inputs, rec.output,
                       len(rec.inputs), WEIGHT_DTYPES[rec.weight_dtype])  # fmt: skip
    attrs = b"".join(_attribute(name, attr, rec.attrs) for attr in op.record_attrs)
    numbers = format_int8.record_bytes(name, op, rec.numbers, given[0].quant, y.quant)
    return head + struct.pack("<IIII", *place, at, size) + attrs.ljust(QUANT_AT, b"\0") + numbers


def _attribute(name: str, attr: Any, given: Attrs) -> bytes:
    values = getattr(given, attr.name, attr.default)
    values = tuple(values) if isinstance(values, (tuple, list)) else (values,)
    if len(values) != attr.count or not all(v is not None and attr.lo <= v <= attr.hi for v in values):
        raise ValueError(
            f"{name}: {attr.name} is {values}; {attr.count} value(s) from {attr.lo} to {attr.hi} are expected"
        )
    code = {"u8": "B", "u16": "H", "u32": "I", "f32": "f"}[attr.type]
    packed = struct.pack(f"<{attr.count}{code}", *values)
    assert len(packed) == SIZES[attr.type] * attr.count
    return packed


def _weights(model: Model) -> tuple[bytes, list[tuple[int, int]]]:
    """The weights section, and (file offset, bytes) of each operator's block in it."""
    out, places = bytearray(), []
    for op in model.ops:
        if not op.weights:
            places.append((0, 0))
            continue
        out += bytes(-len(out) % BLOCK)
        places.append((HEADER_BYTES + len(out), len(op.weights)))
        out += op.weights
    return bytes(out), places


# ---------------------------------------------------------------- golden


def _golden(model: Model) -> bytes:
    g, N = model.golden, len(model.ops)
    if g is None:
        return b""
    G = len(g.inputs)
    if G < 1 or len(g.outputs) != G or len(g.checksums) != G:
        raise ValueError(f"golden: {G} inputs have {len(g.outputs)} outputs and {len(g.checksums)} checksums")
    if g.kind not in KINDS or (g.kind == "frame" and model.preprocessing.color == "none"):
        raise ValueError(f"golden: kind is {g.kind!r}; 'f32' is expected, or 'frame' if the input is a picture")
    x_type = model.tensors[0].dtype
    if g.kind not in ((x_type, "frame", "made") if x_type == "i8" else (x_type, "frame")):
        raise ValueError(f"golden: kind is {g.kind!r}, but the input is {x_type}")
    out = struct.pack("<IIIB3x", 1, G, N, KINDS[g.kind])
    out += b"".join(struct.pack("<I", zlib.crc32(op.weights)) for op in model.ops)
    n_in = math.prod(model.tensors[0].shape)
    outputs = [t for t in model.tensors if t.output]
    n_out = sum(math.prod(t.shape) for t in outputs)
    for x, y, sums in zip(g.inputs, g.outputs, g.checksums, strict=True):
        wanted = {"frame": np.uint8, "i8": np.int8}.get(g.kind)
        if (g.kind == "made") != isinstance(x, int):
            raise ValueError(f"golden: of kind {g.kind!r} an input is a {type(x).__name__}")
        if wanted is not None and not isinstance(x, int) and x.dtype != wanted:
            raise ValueError(f"golden: a{'n input' if g.kind == 'i8' else ' frame'} has type {x.dtype}; "
                             f"{np.dtype(wanted).name} is expected")  # fmt: skip
        values = _split(y, outputs)
        size_y = sum(np.size(part) for part in values)
        size_x = n_in if isinstance(x, int) else np.size(x)
        if size_x != n_in or size_y != n_out or len(values) != len(outputs) or len(sums) != N:
            raise ValueError(
                f"golden: {size_x} input and {size_y} output values and {len(sums)} checksums; "
                f"{n_in}, {n_out} and {N} are expected"
            )
        out += struct.pack("<I", x) if isinstance(x, int) else _padded(x, g.kind)
        out += b"".join(_padded(v, t.dtype) for v, t in zip(values, outputs, strict=True))
        out += b"".join(_checksum(s, same) for s, same in zip(sums, exact(model), strict=True))
    return out


def _split(y: np.ndarray | tuple[np.ndarray, ...], outputs: Sequence[TensorRec]) -> list[np.ndarray]:
    """The outputs one by one."""
    if isinstance(y, tuple):
        return [np.asarray(part).reshape(-1) for part in y]
    ends = np.cumsum([math.prod(t.shape) for t in outputs])
    return np.split(np.asarray(y).reshape(-1), ends[:-1])


def _padded(values: np.ndarray, dtype: str) -> bytes:
    """The values in their type, filled up to a multiple of 4 bytes."""
    if not np.isfinite(values).all():
        raise ValueError("golden: a value is not finite (NaN or infinity)")
    if dtype == "i8" and np.asarray(values).dtype != np.int8:
        raise ValueError(f"golden: an int8 output has type {np.asarray(values).dtype}; int8 is expected")
    data = np.asarray(values).astype({"f32": "<f4", "i8": "<i1", "frame": "<u1"}[dtype]).tobytes()
    return data.ljust(-(-len(data) // 4) * 4, b"\0")


def _checksum(given: Checksum, same: bool) -> bytes:
    if isinstance(given, int) != same:
        raise ValueError(f"golden: a checksum is {given}; {'a CRC-32' if same else 'two numbers'} is expected")
    if isinstance(given, int):
        return struct.pack("<II", given, 0)
    if not np.isfinite(given).all():
        raise ValueError("golden: a value is not finite (NaN or infinity)")
    return struct.pack("<ff", *given)
