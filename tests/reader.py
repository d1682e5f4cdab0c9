"""A second reader and executor of `.bin`, in Python and NumPy, written from runtime_c/FORMAT.md alone.

It imports nothing of LiteNet: where it and the C runtime agree on a file, the page has been understood twice.

    model = reader.read(data)              # reader.RefusedError with a sentence, if the page says so
    y, each = reader.run(model, x)         # outputs one after another, and what each operator gave
    reader.selftest(model)                 # the golden section, by its own rule
"""

from __future__ import annotations

import json
import math
import struct
import zlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import reader_int8 as int8
from reader_floats import compute, look

# The tables of section 4: number -> name, inputs, takes an activation, weights, inputs that y may lie over, attributes
KERNEL, STRIDE = ("kernel_size", "2B", 1, 255), ("stride", "2B", 1, 255)
PADDING, DILATION = ("padding", "4B", 0, 255), ("dilation", "2B", 1, 255)
MOST = (1 << 30) - 1
EMBED_DIM, ALPHA = ("embed_dim", "I", 1, 1 << 20), ("alpha", "f", 0.0, 1.0)
OPS = {
    1: ("linear", 1, True, "panels", (), (ALPHA,)),
    2: ("conv2d", 1, True, "panels", (), (KERNEL, STRIDE, PADDING, DILATION, ("groups", "H", 1, 65535), ALPHA)),
    3: ("depthwise_conv2d", 1, True, "depthwise", (), (KERNEL, STRIDE, PADDING, DILATION, ALPHA)),
    4: ("maxpool2d", 1, False, None, (), (KERNEL, STRIDE, PADDING)),
    5: ("avgpool2d", 1, False, None, (), (KERNEL, STRIDE, PADDING, ("count_include_pad", "B", 0, 1))),
    6: ("global_avg_pool", 1, False, None, (), ()),
    7: ("flatten", 1, False, None, (0,), ()),
    8: ("add", 2, True, None, (0, 1), (ALPHA,)),
    9: ("batchnorm", 1, True, "vectors", (0,), (ALPHA,)),
    10: ("layernorm", 1, False, "vectors", (0,), (("eps", "f", np.float32(1e-12), 1.0),)),
    12: ("softmax", 1, False, None, (0,), ()),
    13: ("embed_projection", 1, True, "panels", (), (EMBED_DIM, ("keep_channels", "B", 0, 1), ALPHA)),
    14: ("activation", 1, True, None, (0,), (ALPHA,)),
    15: ("prelu", 1, False, "vectors", (0,), ()),
    16: ("mul", 2, False, None, (0, 1), ()),
    17: ("concat", 2, False, None, (), (("axis", "B", 0, 3),)),
    18: ("resize", 1, False, None, (), (("size", "2I", 1, MOST), ("mode", "B", 0, 1), ("coordinates", "B", 0, 2),
                                        ("rounding", "B", 0, 3))),
    19: ("pad", 1, False, None, (), (("before", "4H", 0, 65535), ("after", "4H", 0, 65535),
                                     ("value", "f", -float(np.finfo("f").max), float(np.finfo("f").max)))),
    20: ("slice", 1, False, None, (), (("axis", "B", 0, 3), ("begin", "I", 0, MOST), ("size", "I", 1, MOST),
                                       ("step", "I", 1, MOST))),
    21: ("transpose", 1, False, None, (), (("axes", "4B", 0, 3),)),
    23: ("unary", 1, False, None, (0,), (("function", "B", 0, 2),)),
    22: ("reshape", 1, False, None, (0,), (("shape", "4I", 0, MOST),)),
    24: ("quantize", 1, False, None, (), ()),
    25: ("dequantize", 1, False, None, (), ()),
}  # fmt: skip


class RefusedError(Exception):
    """The page says that this file must not be run."""


def refuse_unless(holds: bool, why: str) -> None:
    if not holds:
        raise RefusedError(why)


@dataclass
class Tensor:
    at: int
    flags: int
    shape: tuple[int, ...]
    first: int
    last: int
    i8: bool = False
    zero: int = 0
    scale: float = 1.0

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        return self.size if self.i8 else 4 * self.size

    @property
    def type(self) -> str:
        return "<i1" if self.i8 else "<f4"


@dataclass
class Operator:
    name: str
    activation: int
    inputs: list[int]
    output: int
    weights: bytes
    half: bool
    scratch: tuple[int, int]
    attrs: dict[str, Any]
    may_cover: tuple[int, ...]
    i8: bool  # of the output
    numbers: int8.Numbers
    algorithm: int


@dataclass
class File:
    tensors: list[Tensor] = field(default_factory=list)
    ops: list[Operator] = field(default_factory=list)
    arena_bytes: int = 0
    codes: tuple[int, ...] = ()  # resize, fit, colour, inversion
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    pad: int = 0
    metadata_text: bytes = b""
    crcs: tuple[int, ...] = ()
    multipliers: np.ndarray = field(default_factory=lambda: np.zeros((2, 3), int))  # P and Q
    golden: list[tuple[np.ndarray, list[np.ndarray], list[Any]]] = field(default_factory=list)  # input, outputs, sums

    @property
    def metadata(self) -> dict[str, Any]:
        return json.loads(self.metadata_text.decode()) if self.metadata_text else {}


def read(data: bytes) -> File:
    """Sections 1 to 7, with all that section 9 asks for."""
    refuse_unless(data[:4] == b"LNET" and len(data) >= 128, "no header")
    header_crc = zlib.crc32(data[:12] + bytes(4) + data[16:128])
    refuse_unless(header_crc == u32(data, 12), "header checksum")
    refuse_unless(struct.unpack_from("<H", data, 4)[0] == 1, "major")
    refuse_unless(u32(data, 20) <= 3, "unknown feature")
    refuse_unless(u32(data, 8) == len(data), "length")
    refuse_unless(zlib.crc32(data[128:]) == u32(data, 16), "body checksum")

    end, places = 128 + u32(data, 60), []
    refuse_unless(end <= len(data), "weights end outside")
    for field_at in (64, 72, 80):
        at, size = u32(data, field_at), u32(data, field_at + 4)
        refuse_unless(at == ((end + 63) // 64 * 64 if size else 0), "section offset")
        if size:
            refuse_unless(at + size <= len(data), "section ends outside")
            refuse_unless(not any(data[end:at]), "fill between sections")
            end = at + size
        places.append(data[at : at + size])
    refuse_unless(end == len(data), "bytes behind the last section")
    program, metadata, golden = places

    N, T = struct.unpack_from("<HH", data, 88)
    refuse_unless(1 <= N <= 4096 and T == N + 1 and len(program) == 32 * T + 64 * N, "counts")
    refuse_unless(not any(data[125:128]), "reserved header bytes")
    f = File(arena_bytes=u32(data, 92))
    f.tensors = [read_tensor(program[32 * i : 32 * i + 32], i, u32(data, 20)) for i in range(T)]
    _check_header_shapes(data, f)
    _read_preprocessing(data, f)
    features = u32(data, 20)
    f.ops = [read_op(program[32 * T + 64 * i :][:64], data, features, f.tensors) for i in range(N)]
    _check_order(f)
    _check_memory(f)
    for op in f.ops:
        check_shapes(f, op)
    if golden:
        _read_golden(golden, f)
    f.metadata_text = metadata
    return f


def u32(data: bytes, at: int) -> int:
    return struct.unpack_from("<I", data, at)[0]


def read_tensor(r: bytes, i: int, features: int) -> Tensor:
    at, dtype, rank, flags, zero = struct.unpack_from("<IBBBb", r)
    dims = struct.unpack_from("<4I", r, 8)
    first, last = struct.unpack_from("<HH", r, 28)
    (scale,) = struct.unpack_from("<f", r, 24)
    refuse_unless(dtype == 0 or (dtype == 2 and features & 2), "element type")
    refuse_unless(2**-126 <= scale < math.inf if dtype else zero == 0 and scale == 1, "zero point or scale")
    refuse_unless(1 <= rank <= 4 and all((d > 0) == (k < rank) for k, d in enumerate(dims)), "rank and dims")
    refuse_unless(math.prod(dims[:rank]) < 1 << 30, "too many elements")
    refuse_unless(flags == 1 if i == 0 else flags in (0, 2), "flags")
    refuse_unless(at % 16 == 0 and (at == 0 or flags == 0), "arena offset")
    return Tensor(at, flags, dims[:rank], first, last, dtype == 2, zero, scale)


def _check_header_shapes(data: bytes, f: File) -> None:
    outputs = [t for t in f.tensors if t.flags == 2]
    refuse_unless(bool(outputs), "no output")
    refuse_unless(sum(t.size for t in outputs) < 1 << 30, "outputs too large")
    for t, code, at in ((f.tensors[0], 24, 28), (outputs[0], 25, 44)):
        want = list(t.shape) + [0] * (4 - len(t.shape))
        refuse_unless(data[code] == 2 * t.i8 and data[code + 2] == len(t.shape), "type or rank in the header")
        refuse_unless(list(struct.unpack_from("<4I", data, at)) == want, "dims in the header")


def _read_preprocessing(data: bytes, f: File) -> None:
    f.codes, f.pad = tuple(data[96:100]), data[124]
    f.mean, f.std = struct.unpack_from("<3f", data, 100), struct.unpack_from("<3f", data, 112)
    refuse_unless(all(c <= top for c, top in zip(f.codes, (2, 2, 3, 2), strict=True)), "preprocessing codes")
    if f.codes[2] and f.tensors[0].i8:
        f.multipliers = np.frombuffer(data, "<i4", 6, 100).reshape(2, 3).astype(np.int64)
        P, Q = f.multipliers
        used = 1 if f.codes[2] == 1 else 3
        fits = all(0 < p < 1 << 22 for p in P[:used]) and all(abs(q) < 1 << 30 for q in Q[:used])
        refuse_unless(fits and not P[used:].any() and not Q[used:].any(), "multipliers and offsets")
    else:
        refuse_unless(all(map(math.isfinite, f.mean + f.std)) and min(f.std) >= 2**-126, "means and deviations")
    if f.codes[2] == 0:
        neutral = f.mean == (0, 0, 0) and f.std == (1, 1, 1)
        refuse_unless(neutral and not any(f.codes) and f.pad == 0, "preprocessing without a picture")
        return
    x = f.tensors[0].shape
    refuse_unless(len(x) == 3 and max(x[:2]) <= 65535 and x[2] == (1 if f.codes[2] == 1 else 3), "frame")


def check_types(name: str, inputs: list[Tensor], output: Tensor, activation: int) -> None:
    given = {t.i8 for t in inputs}
    if name in ("quantize", "dequantize"):
        refuse_unless(given == {name == "dequantize"} and output.i8 == (name == "quantize"), "types")
        return
    refuse_unless(given == {output.i8}, "types")
    refuse_unless(not output.i8 or name in int8.BOUNDS, "no form on i8")
    refuse_unless(not output.i8 or activation <= 2 or name == "activation", "activation on i8")


def check_numbers(name: str, n: int8.Numbers, x: Tensor, y: Tensor, weights: bytes) -> None:
    wrong = int8.holds(name, n)
    refuse_unless(not wrong, wrong)
    if int8.BOUNDS[name][5]:
        refuse_unless((x.scale, x.zero) == (y.scale, y.zero), "scale and zero point of y")
    if name == "softmax":
        refuse_unless((y.scale, y.zero) == (1 / 256, -128), "scale and zero point of softmax")
        refuse_unless(weights[:2] != b"\0\0", "T[0]")


def read_op(r: bytes, data: bytes, features: int, tensors: list[Tensor]) -> Operator:
    number, activation, algorithm, *inputs, output, count, dtype = struct.unpack_from("<HBB4HHBB", r)
    at, size, scratch_at, scratch = struct.unpack_from("<4I", r, 16)
    refuse_unless(number in OPS and algorithm <= (2 if number == 2 else 0), "operator or algorithm")
    name, n_inputs, activates, layout, may_cover, attrs = OPS[number]
    refuse_unless(activation <= (9 if activates else 0), "activation")
    refuse_unless(count == n_inputs and all(i == 0xFFFF for i in inputs[count:]), "number of inputs")
    refuse_unless(max(inputs[:count]) < len(tensors) and output < len(tensors), "tensor numbers")
    y = tensors[output]
    check_types(name, [tensors[k] for k in inputs[:count]], y, activation)
    if y.i8:
        layout = int8.BOUNDS[name][6]
    if layout is None:
        refuse_unless(at == size == dtype == 0, "weights of an operator without any")
    else:
        inside = at % 64 == 0 and at >= 128 and size > 0 and at + size <= 128 + u32(data, 60)
        refuse_unless(inside, "place of the weights")
        half = dtype == 1 and layout != "vectors" and features & 1
        refuse_unless(dtype == 2 if y.i8 else dtype == 0 or half, "type of the weights")
    refuse_unless(scratch_at == scratch == 0, "scratch memory")
    given, p = {}, 32
    for attr, code, lo, hi in attrs:
        values = struct.unpack_from("<" + code, r, p)
        p += struct.calcsize("<" + code)
        refuse_unless(all(lo <= v <= hi for v in values), f"{attr} out of range")
        given[attr] = values if len(values) > 1 else values[0]
    refuse_unless(not any(r[p : 52 if y.i8 else 64]), "bytes behind the attributes")
    weights, n = data[at : at + size], int8.numbers(r)
    if y.i8:
        check_numbers(name, n, tensors[inputs[0]], y, weights)
    place, half, x = (scratch_at, scratch), dtype == 1, inputs[:count]
    return Operator(name, activation, x, output, weights, half, place, given, may_cover, y.i8, n, algorithm)


def _check_order(f: File) -> None:
    """Written once and before it is read; first and last are true."""
    N, written = len(f.ops), {0: 0}
    last = {k: N - 1 for k, t in enumerate(f.tensors) if t.flags == 2}
    for i, op in enumerate(f.ops):
        for k in op.inputs:
            refuse_unless(k in written, "read before written")
            last[k] = last[k] if f.tensors[k].flags == 2 else i
        refuse_unless(op.output not in written, "written twice")
        written[op.output] = i
    for k, t in enumerate(f.tensors):
        refuse_unless(written.get(k) == t.first and last.get(k) == t.last, "lifetime")


def _check_memory(f: File) -> None:
    """Section 3, "Memory": what an operator writes belongs to nothing else that is alive."""
    spans = {k: (t.at, t.at + t.bytes) for k, t in enumerate(f.tensors) if t.flags == 0}
    refuse_unless(all(b <= f.arena_bytes for _, b in spans.values()), "tensor outside the arena")
    for i, op in enumerate(f.ops):
        y = spans.get(op.output)
        if y is None or (op.name in ("flatten", "reshape") and spans.get(op.inputs[0]) == y):
            continue
        for k, (a, b) in spans.items():
            alive = f.tensors[k].first <= i <= f.tensors[k].last
            if k == op.output or not alive or not (y[0] < b and a < y[1]):
                continue
            slots = [s for s, number in enumerate(op.inputs) if number == k]
            covers = bool(slots) and all(s in op.may_cover for s in slots)
            refuse_unless(covers and (a, b) == y and f.tensors[k].last == i, "two tensors in one place")


def window(op: Operator, x: tuple[int, ...]) -> tuple[int, int]:
    """Ho, Wo."""
    (kh, kw), (sh, sw), (top, left, bottom, right) = (op.attrs[n] for n in ("kernel_size", "stride", "padding"))
    dh, dw = op.attrs.get("dilation", (1, 1))
    room = x[0] + top + bottom - dh * (kh - 1) - 1, x[1] + left + right - dw * (kw - 1) - 1
    refuse_unless(min(room) >= 0, "no window fits")
    return room[0] // sh + 1, room[1] // sw + 1


def panel_values(channels: int, K: int) -> int:
    full, rest = divmod(channels, 16)
    return (16 * full + -(-rest // 4) * 4) * (1 + K)


def check_shapes(f: File, op: Operator) -> None:
    x, y, a = f.tensors[op.inputs[0]].shape, f.tensors[op.output].shape, op.attrs
    values, sizes = 0, (0, 0, 1)  # sizes: channels, K and groups of weights on i8
    if op.name == "linear":
        refuse_unless(len(y) == 1 or (len(y) == 2 and len(x) == 2 and x[0] == y[0]), "linear")
        sizes = (y[-1], math.prod(x) if len(y) == 1 else x[-1], 1)
        values = panel_values(*sizes[:2])
    elif op.name == "embed_projection":
        refuse_unless(len(x) == 3, "embed_projection")
        want = (a["embed_dim"] * (x[2] if a["keep_channels"] else 1),)
        sizes = (a["embed_dim"], x[0] * x[1], 1)
        values = panel_values(*sizes[:2])
    elif "kernel_size" in a:
        refuse_unless(len(x) == len(y) == 3, op.name)
        (kh, kw), pads = a["kernel_size"], a["padding"]
        want = (*window(op, x), x[2])
        if op.name == "conv2d":
            G = a["groups"]
            refuse_unless(x[2] % G == 0 and y[2] % G == 0, "groups")
            want = (*want[:2], y[2])
            sizes = (y[2], kh * kw * (x[2] // G), G)
            values = G * panel_values(y[2] // G, sizes[1])
            if op.algorithm:
                plain = a["stride"] == a["dilation"] == (1, 1) and G == 1 and not op.half and not op.i8
                refuse_unless((kh, kw) == (3, 3) and plain and x[2] % 16 == y[2] % 16 == 0, "transformed weights")
                values += {1: 36, 2: 16}[op.algorithm] * (x[2] * y[2] + 16)
        elif op.name == "depthwise_conv2d":
            sizes = (x[2], kh * kw, 1)
            values = panel_values(x[2], kh * kw)
        else:
            refuse_unless(max(pads[0::2]) < kh and max(pads[1::2]) < kw, "padding of a pool")
            refuse_unless(op.name != "maxpool2d" or kh * kw <= 256, "taps of a pool")
    elif op.name == "global_avg_pool":
        refuse_unless(len(x) == 3 and (not op.i8 or x[0] * x[1] <= 1 << 22), "global_avg_pool")
        want = (x[2],)
    elif op.name == "flatten":
        want = (math.prod(x),)
    elif op.name in MOVES:
        want = moved_shape(op, x, f.tensors[op.inputs[-1]].shape)
    elif op.name == "mul":
        want, x2 = x, f.tensors[op.inputs[1]].shape
        refuse_unless(x2 in (x, x[-1:]), "mul")
    else:
        want = x
        values, sizes = {"batchnorm": 2, "layernorm": 2, "prelu": 1}.get(op.name, 0) * x[-1], (x[-1], 0, 1)
        refuse_unless(not op.i8 or op.name != "softmax" or x[-1] < 1 << 15, "softmax")
        refuse_unless(all(f.tensors[k].shape == x for k in op.inputs), op.name)
    refuse_unless(op.name == "linear" or y == want, f"{op.name} gives {y}")
    size = int8.weights_bytes(op.name, *sizes, len(op.weights)) if op.i8 else values * (2 if op.half else 4)
    refuse_unless(len(op.weights) == size, f"{op.name} has {len(op.weights)} bytes of weights")


MOVES = ("concat", "resize", "pad", "slice", "transpose", "reshape")


def moved_shape(op: Operator, x: tuple[int, ...], x2: tuple[int, ...]) -> tuple[int, ...]:
    """Shape of y of the operators that compute nothing new."""
    a, rank = op.attrs, len(x)
    if op.name == "concat":
        k = a["axis"]
        refuse_unless(len(x2) == rank and k < rank and x[:k] + x[k + 1 :] == x2[:k] + x2[k + 1 :], "concat")
        return (*x[:k], x[k] + x2[k], *x[k + 1 :])
    if op.name == "resize":
        refuse_unless(rank == 3 and max(*x[:2], *a["size"]) <= 65535, "resize")
        return (*a["size"], x[2])
    if op.name == "pad":
        refuse_unless(not any(a["before"][rank:] + a["after"][rank:]), "pad")
        return tuple(n + p + q for n, p, q in zip(x, a["before"], a["after"], strict=False))
    if op.name == "slice":
        k = a["axis"]
        refuse_unless(k < rank and a["begin"] + (a["size"] - 1) * a["step"] < x[k], "slice")
        return (*x[:k], a["size"], *x[k + 1 :])
    if op.name == "transpose":
        axes = a["axes"]
        refuse_unless(sorted(axes) == [0, 1, 2, 3] and axes[rank:] == (0, 1, 2, 3)[rank:], "transpose")
        return tuple(x[k] for k in axes[:rank])
    shape = a["shape"][: (*a["shape"], 0).index(0)]
    refuse_unless(bool(shape) and not any(a["shape"][len(shape) :]) and math.prod(shape) == math.prod(x), "reshape")
    return shape


def _read_golden(g: bytes, f: File) -> None:
    N = len(f.ops)
    refuse_unless(len(g) >= 16 + 4 * N, "golden section too short")
    version, G, ops, kind = struct.unpack_from("<IIIB", g)
    refuse_unless(version == 1 and G >= 1 and ops == N and not any(g[13:16]), "golden header")
    known = kind == 0 or (kind == 1 and f.codes[2] != 0) or (kind == 2 and f.tensors[0].i8)
    refuse_unless(known, "kind of golden inputs")
    outputs = [(t.type, t.size) for t in f.tensors if t.flags == 2]
    x = [(f.tensors[0].type, f.tensors[0].size), ("u1", f.tensors[0].size), ("<u4", 1)][kind]
    each = sum(-(-n * np.dtype(code).itemsize // 4) * 4 for code, n in (x, *outputs))
    refuse_unless(len(g) == 16 + 4 * N + G * (each + 8 * N), "golden size")
    f.crcs = struct.unpack_from(f"<{N}I", g, 16)
    at = 16 + 4 * N
    for _ in range(G):
        values = []
        for code, n in (x, *outputs):
            end = at + n * np.dtype(code).itemsize
            values.append(np.frombuffer(g, code, n, at))
            at = -(-end // 4) * 4
            refuse_unless(np.isfinite(values[-1]).all(), "golden value not finite")
            refuse_unless(not any(g[end:at]), "fill behind golden bytes")
        sums: list[Any] = []
        for grade in grades(f):
            sums.append(u32(g, at) if grade == "exact" else np.frombuffer(g, "<f4", 2, at))
            refuse_unless(u32(g, at + 4) == 0 if grade == "exact" else np.isfinite(sums[-1]).all(), "golden sums")
            at += 8
        if kind == 2:
            v = np.array(int8.made(int(values[0][0]), f.tensors[0].size))
            values[0] = v.astype(np.uint8) if f.codes[2] else (v - 128).astype(np.int8)
        f.golden.append((values[0], values[1:], sums))


def grades(f: File) -> list[str]:
    """Section 7: exact, close or loose, of each operator."""
    found, floats, loose = [], False, False
    for op in f.ops:
        floats |= not op.i8
        loose |= floats and op.i8
        found.append("loose" if loose else "close" if floats else "exact")
    return found


# ---------------------------------------------------------------- running


def run(f: File, x: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
    """All outputs one after another, as real numbers, and the result of each operator."""
    each = run_each(f, x)
    outputs = [t for t in f.tensors if t.flags == 2]
    values = [real(t, each[t.first]).reshape(-1) for t in outputs]
    return np.concatenate(values), each


def real(t: Tensor, y: np.ndarray) -> np.ndarray:
    return np.float32(t.scale) * (y.astype(np.int32) - t.zero).astype(np.float32) if t.i8 else y


def run_each(f: File, x: np.ndarray) -> list[np.ndarray]:
    """What each operator gives, in its type; x in the input's."""
    values = {0: np.asarray(x, f.tensors[0].type).reshape(f.tensors[0].shape)}
    each = []
    for op in f.ops:
        given, out = [f.tensors[k] for k in op.inputs], f.tensors[op.output]
        inputs = [values[k] for k in op.inputs]
        if given[0].i8 or out.i8:
            zeros, scales = [t.zero for t in given], (given[0].scale, out.scale)
            y = int8.compute(op, inputs, zeros, out.zero, scales, out.shape, look)
        else:
            y = compute(op, inputs, out.shape)
        values[op.output] = y = np.ascontiguousarray(y, out.type)
        each.append(y)
    return each


def selftest(f: File) -> None:
    """Section 7. Raises AssertionError that names the operator."""
    for i, op in enumerate(f.ops):
        assert zlib.crc32(op.weights) == f.crcs[i], f"weights of operator {i}"
    assert f.golden, "no golden inputs"
    for x, stored_outputs, sums in f.golden:
        if x.dtype == np.uint8:
            c = f.tensors[0].shape[2]
            frame = x.reshape(f.tensors[0].shape)
            if f.tensors[0].i8:
                x = int8.frame(frame, *f.multipliers[:, :c])
            else:
                x = (frame.astype(np.float32) - np.array(f.mean[:c], np.float32)) / np.array(f.std[:c], np.float32)
        each = run_each(f, x)
        for i, (values, stored, grade) in enumerate(zip(each, sums, grades(f), strict=True)):
            if grade == "exact":
                assert zlib.crc32(values.tobytes()) == stored, f"operator {i}: other bytes"
                continue
            flat = values.reshape(-1).astype(np.float64) - f.tensors[f.ops[i].output].zero
            plus = (np.arange(flat.size, dtype=np.uint64) * 2654435761 % 2**32) < 2**31
            found = np.array([np.abs(flat).mean(), np.where(plus, flat, -flat).mean()])
            share, least = 1e-3 if grade == "close" else 2e-2, 2e-2 if f.ops[i].i8 else 1e-6
            assert (np.abs(found - stored) <= share * stored[0] + least).all(), f"operator {i}: {found} for {stored}"
        outputs = [t for t in f.tensors if t.flags == 2]
        m = max((np.abs(y).max() for t, y in zip(outputs, stored_outputs, strict=True) if not t.i8), default=0)
        for t, y in zip(outputs, stored_outputs, strict=True):
            apart, grade = np.abs(each[t.first].reshape(-1).astype(np.float64) - y), grades(f)[t.first]
            most = {"exact": 0.0, "close": 1e-3 * m + 1e-6, "loose": 5e-2 * m + 1e-6}[grade]
            if t.i8 and grade == "loose":
                most = np.abs(y.astype(int) - t.zero).max() // 20 + 2
            assert (apart <= most).all(), "outputs"
