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
from fractions import Fraction
from typing import Any

import numpy as np

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

    @property
    def size(self) -> int:
        return math.prod(self.shape)


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
    golden: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = field(default_factory=list)  # input, outputs, sums

    @property
    def metadata(self) -> dict[str, Any]:
        return json.loads(self.metadata_text.decode()) if self.metadata_text else {}


def read(data: bytes) -> File:
    """Sections 1 to 7, with all that section 9 asks for."""
    refuse_unless(data[:4] == b"LNET" and len(data) >= 128, "no header")
    header_crc = zlib.crc32(data[:12] + bytes(4) + data[16:128])
    refuse_unless(header_crc == u32(data, 12), "header checksum")
    refuse_unless(struct.unpack_from("<H", data, 4)[0] == 1, "major")
    refuse_unless(u32(data, 20) in (0, 1), "unknown feature")
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
    f.tensors = [read_tensor(program[32 * i : 32 * i + 32], i) for i in range(T)]
    _check_header_shapes(data, f)
    _read_preprocessing(data, f)
    features = u32(data, 20)
    f.ops = [read_op(program[32 * T + 64 * i :][:64], data, features, T) for i in range(N)]
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


def read_tensor(r: bytes, i: int) -> Tensor:
    at, dtype, rank, flags, zero = struct.unpack_from("<IBBBb", r)
    dims = struct.unpack_from("<4I", r, 8)
    first, last = struct.unpack_from("<HH", r, 28)
    refuse_unless(dtype == 0 and zero == 0 and r[24:28] == struct.pack("<f", 1.0), "element type, zero point, scale")
    refuse_unless(1 <= rank <= 4 and all((d > 0) == (k < rank) for k, d in enumerate(dims)), "rank and dims")
    refuse_unless(math.prod(dims[:rank]) < 1 << 30, "too many elements")
    refuse_unless(flags == 1 if i == 0 else flags in (0, 2), "flags")
    refuse_unless(at % 16 == 0 and (at == 0 or flags == 0), "arena offset")
    return Tensor(at, flags, dims[:rank], first, last)


def _check_header_shapes(data: bytes, f: File) -> None:
    outputs = [t for t in f.tensors if t.flags == 2]
    refuse_unless(bool(outputs), "no output")
    refuse_unless(sum(t.size for t in outputs) < 1 << 30, "outputs too large")
    for t, code, at in ((f.tensors[0], 24, 28), (outputs[0], 25, 44)):
        want = list(t.shape) + [0] * (4 - len(t.shape))
        refuse_unless(data[code] == 0 and data[code + 2] == len(t.shape), "type or rank in the header")
        refuse_unless(list(struct.unpack_from("<4I", data, at)) == want, "dims in the header")


def _read_preprocessing(data: bytes, f: File) -> None:
    f.codes, f.pad = tuple(data[96:100]), data[124]
    f.mean, f.std = struct.unpack_from("<3f", data, 100), struct.unpack_from("<3f", data, 112)
    refuse_unless(all(c <= top for c, top in zip(f.codes, (2, 2, 3, 2), strict=True)), "preprocessing codes")
    refuse_unless(all(map(math.isfinite, f.mean + f.std)) and min(f.std) > 0, "means and deviations")
    if f.codes[2] == 0:
        neutral = f.mean == (0, 0, 0) and f.std == (1, 1, 1)
        refuse_unless(neutral and not any(f.codes) and f.pad == 0, "preprocessing without a picture")
        return
    x = f.tensors[0].shape
    refuse_unless(len(x) == 3 and max(x[:2]) <= 65535 and x[2] == (1 if f.codes[2] == 1 else 3), "frame")


def read_op(r: bytes, data: bytes, features: int, T: int) -> Operator:
    number, activation, algorithm, *inputs, output, count, dtype = struct.unpack_from("<HBB4HHBB", r)
    at, size, scratch_at, scratch = struct.unpack_from("<4I", r, 16)
    refuse_unless(number in OPS and algorithm == 0, "operator or algorithm")
    name, n_inputs, activates, layout, may_cover, attrs = OPS[number]
    refuse_unless(activation <= (9 if activates else 0), "activation")
    refuse_unless(count == n_inputs and all(i == 0xFFFF for i in inputs[count:]), "number of inputs")
    refuse_unless(max(inputs[:count]) < T and output < T, "tensor numbers")
    if layout is None:
        refuse_unless(at == size == dtype == 0, "weights of an operator without any")
    else:
        inside = at % 64 == 0 and at >= 128 and size > 0 and at + size <= 128 + u32(data, 60)
        refuse_unless(inside, "place of the weights")
        refuse_unless(dtype == 0 or (dtype == 1 and layout != "vectors" and features & 1), "type of the weights")
    refuse_unless(scratch_at == scratch == 0, "scratch memory")
    given, p = {}, 32
    for attr, code, lo, hi in attrs:
        values = struct.unpack_from("<" + code, r, p)
        p += struct.calcsize("<" + code)
        refuse_unless(all(lo <= v <= hi for v in values), f"{attr} out of range")
        given[attr] = values if len(values) > 1 else values[0]
    refuse_unless(not any(r[p:]), "bytes behind the attributes")
    weights = data[at : at + size]
    return Operator(
        name, activation, inputs[:count], output, weights, dtype == 1, (scratch_at, scratch), given, may_cover
    )


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
    spans = {k: (t.at, t.at + 4 * t.size) for k, t in enumerate(f.tensors) if t.flags == 0}
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
    values = 0
    if op.name == "linear":
        refuse_unless(len(y) == 1 or (len(y) == 2 and len(x) == 2 and x[0] == y[0]), "linear")
        values = panel_values(y[-1], math.prod(x) if len(y) == 1 else x[-1])
    elif op.name == "embed_projection":
        refuse_unless(len(x) == 3, "embed_projection")
        want = (a["embed_dim"] * (x[2] if a["keep_channels"] else 1),)
        values = panel_values(a["embed_dim"], x[0] * x[1])
    elif "kernel_size" in a:
        refuse_unless(len(x) == len(y) == 3, op.name)
        (kh, kw), pads = a["kernel_size"], a["padding"]
        want = (*window(op, x), x[2])
        if op.name == "conv2d":
            G = a["groups"]
            refuse_unless(x[2] % G == 0 and y[2] % G == 0, "groups")
            want = (*want[:2], y[2])
            values = G * panel_values(y[2] // G, kh * kw * (x[2] // G))
        elif op.name == "depthwise_conv2d":
            values = panel_values(x[2], kh * kw)
        else:
            refuse_unless(max(pads[0::2]) < kh and max(pads[1::2]) < kw, "padding of a pool")
            refuse_unless(op.name != "maxpool2d" or kh * kw <= 256, "taps of a pool")
    elif op.name == "global_avg_pool":
        refuse_unless(len(x) == 3, "global_avg_pool")
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
        values = {"batchnorm": 2, "layernorm": 2, "prelu": 1}.get(op.name, 0) * x[-1]
        refuse_unless(all(f.tensors[k].shape == x for k in op.inputs), op.name)
    refuse_unless(op.name == "linear" or y == want, f"{op.name} gives {y}")
    refuse_unless(
        len(op.weights) == values * (2 if op.half else 4), f"{op.name} has {len(op.weights)} bytes of weights"
    )


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
    refuse_unless(kind == 0 or (kind == 1 and f.codes[2] != 0), "kind of golden inputs")
    n_in, n_out = f.tensors[0].size, sum(t.size for t in f.tensors if t.flags == 2)
    in_bytes = 4 * n_in if kind == 0 else (n_in + 3) // 4 * 4
    refuse_unless(len(g) == 16 + 4 * N + G * (in_bytes + 4 * n_out + 8 * N), "golden size")
    f.crcs = struct.unpack_from(f"<{N}I", g, 16)
    at = 16 + 4 * N
    for _ in range(G):
        raw = np.frombuffer(g, "<f4" if kind == 0 else np.uint8, n_in, at)
        refuse_unless(kind == 0 or not any(g[at + n_in : at + in_bytes]), "fill behind a frame")
        at += in_bytes
        values = np.frombuffer(g, "<f4", n_out + 2 * N, at)
        at += 4 * (n_out + 2 * N)
        refuse_unless(np.isfinite(values).all() and np.isfinite(raw).all(), "golden value not finite")
        f.golden.append((raw, values[:n_out], values[n_out:].reshape(N, 2)))


# ---------------------------------------------------------------- running


def run(f: File, x: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
    """All outputs one after another, and the result of each operator."""
    values = {0: np.asarray(x, np.float32).reshape(f.tensors[0].shape)}
    each = []
    for op in f.ops:
        y = compute(op, [values[k] for k in op.inputs], f.tensors[op.output].shape)
        values[op.output] = y = np.ascontiguousarray(y, np.float32)
        each.append(y)
    return np.concatenate([values[k].reshape(-1) for k, t in enumerate(f.tensors) if t.flags == 2]), each


def unpack(op: Operator, channels: int, K: int, groups: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """bias (channels) and weights (K, channels) of panels."""
    flat = np.frombuffer(op.weights, "<f2" if op.half else "<f4").astype(np.float32)
    out, at, each = [], 0, channels // groups
    for _ in range(groups):
        for start in range(0, each, 16):
            have = min(16, each - start)
            width = (have + 3) // 4 * 4
            out.append(flat[at : at + width * (1 + K)].reshape(1 + K, width)[:, :have])
            at += width * (1 + K)
    table = np.concatenate(out, axis=1)
    return table[0], table[1:]


def compute(op: Operator, inputs: list[np.ndarray], y: tuple[int, ...]) -> np.ndarray:
    x, a = inputs[0], op.attrs
    if op.name == "linear":
        rows = x.reshape(1, -1) if len(y) == 1 else x
        b, w = unpack(op, y[-1], rows.shape[1])
        h = (rows @ w + b).reshape(y)
    elif op.name == "conv2d":
        G, C, O = a["groups"], x.shape[2] // a["groups"], y[2] // a["groups"]
        taps = a["kernel_size"][0] * a["kernel_size"][1]
        b, w = unpack(op, y[2], taps * C, G)
        seen = np.stack(list(look(op, x, y)))  # (taps, Ho, Wo, channels)
        h = np.concatenate(
            [
                np.tensordot(
                    seen[..., g * C : (g + 1) * C], w[:, g * O : (g + 1) * O].reshape(taps, C, O), ([0, 3], [0, 1])
                )
                for g in range(G)
            ],
            axis=2,
        )
        h = h + b
    elif op.name == "depthwise_conv2d":
        b, w = unpack(op, y[2], a["kernel_size"][0] * a["kernel_size"][1])
        h = b + sum(seen * wk for seen, wk in zip(look(op, x, y), w, strict=True))
    elif op.name == "maxpool2d":
        h = np.max(np.stack(list(look(op, x, y, -np.inf))), axis=0)
    elif op.name == "avgpool2d":
        counts = sum(look(op, np.ones_like(x), y, float(a["count_include_pad"])))
        h = sum(look(op, x, y)) / counts
    elif op.name == "global_avg_pool":
        h = x.mean((0, 1))
    elif op.name in ("flatten", "reshape"):
        h = x.reshape(y)
    elif op.name == "concat":
        h = np.concatenate(inputs, a["axis"])
    elif op.name == "resize":
        h = resize(x, a)
    elif op.name == "pad":
        h = np.full(y, a["value"], np.float32)
        h[tuple(slice(p, p + n) for p, n in zip(a["before"], x.shape, strict=False))] = x
    elif op.name == "slice":
        h = np.take(x, a["begin"] + a["step"] * np.arange(a["size"]), a["axis"])
    elif op.name == "transpose":
        h = x.transpose(a["axes"][: x.ndim])
    elif op.name == "unary":
        h = (np.exp(x), np.sqrt(np.maximum(x, 0)), 1 / x)[a["function"]]
    elif op.name == "prelu":
        h = np.where(x > 0, x, x * np.frombuffer(op.weights, "<f4"))
    elif op.name == "mul":
        h = x * inputs[1]
    elif op.name == "add":
        h = x + inputs[1]
    elif op.name in ("batchnorm", "layernorm"):
        first, second = np.frombuffer(op.weights, "<f4").reshape(2, -1)
        if op.name == "layernorm":
            d = x - x.mean(-1, keepdims=True)
            x = d / np.sqrt((d * d).mean(-1, keepdims=True) + np.float32(a["eps"]))
        h = x * first + second
    elif op.name == "softmax":
        e = np.exp(x - x.max(-1, keepdims=True))
        h = e / e.sum(-1, keepdims=True)
    elif op.name == "embed_projection":
        pixels = x.reshape(-1, x.shape[2]).T  # (C, P)
        rows = pixels if a["keep_channels"] else pixels.sum(0, keepdims=True)
        h = (rows @ unpack(op, a["embed_dim"], rows.shape[1])[1]).reshape(-1)
    else:
        h = x
    return activate(op.activation, h, np.float32(a.get("alpha", 0)))


def look(op: Operator, x: np.ndarray, y: tuple[int, ...], outside: float = 0.0):
    """For each tap, row by row, what all windows see through it: (Ho, Wo, C)."""
    (kh, kw), (sh, sw), (top, left, bottom, right) = (op.attrs[n] for n in ("kernel_size", "stride", "padding"))
    dh, dw = op.attrs.get("dilation", (1, 1))
    padded = np.pad(x, ((top, bottom), (left, right), (0, 0)), constant_values=outside)
    for u in range(kh):
        for v in range(kw):
            yield padded[u * dh :: sh, v * dw :: sw][: y[0], : y[1]]


def resize(x: np.ndarray, a: dict[str, Any]) -> np.ndarray:
    """Each axis alone, as "Resize" has it; exact fractions."""
    for axis, m in enumerate(a["size"]):
        n, rows = x.shape[axis], []
        for i in range(m):
            p = (
                Fraction((2 * i + 1) * n - m, 2 * m),
                Fraction(i * n, m),
                Fraction(i * (n - 1), max(m - 1, 1)),
            )[a["coordinates"]]
            half = Fraction(1, 2)
            j = (math.floor(p), math.ceil(p - half), math.floor(p + half), math.ceil(p))[a["rounding"]]
            if a["mode"] == 0:
                rows.append(np.take(x, min(max(j, 0), n - 1), axis))
                continue
            p = min(max(p, Fraction(0)), Fraction(n - 1))
            j, f = math.floor(p), float(p - math.floor(p))
            rows.append(np.take(x, j, axis) * (1 - f) + np.take(x, min(j + 1, n - 1), axis) * f)
        x = np.stack(rows, axis)
    return x


def activate(number: int, h: np.ndarray, alpha: np.float32) -> np.ndarray:
    if number == 1:
        return np.maximum(h, 0)
    if number == 2:
        return np.minimum(np.maximum(h, 0), 6)
    if number == 3:
        return np.where(h > 0, h, alpha * h)
    if number == 4:
        return h * (1 + np.array([math.erf(v) for v in (h / math.sqrt(2)).reshape(-1)]).reshape(h.shape)) / 2
    if number == 5:
        return 1 / (1 + np.exp(-h))
    if number == 6:
        return np.tanh(h)
    if number == 7:
        return h / (1 + np.exp(-h))
    if number == 8:
        return h * np.minimum(np.maximum(h + 3, 0), 6) / 6
    if number == 9:
        return h * (1 + np.tanh(0.7978845608 * (h + 0.044715 * h**3))) / 2
    return h


def selftest(f: File) -> None:
    """Section 7. Raises AssertionError that names the operator."""
    for i, op in enumerate(f.ops):
        assert zlib.crc32(op.weights) == f.crcs[i], f"weights of operator {i}"
    assert f.golden, "no golden inputs"
    for x, y, sums in f.golden:
        if x.dtype == np.uint8:
            c = f.tensors[0].shape[2]
            frame = x.reshape(f.tensors[0].shape).astype(np.float32)
            x = (frame - np.array(f.mean[:c], np.float32)) / np.array(f.std[:c], np.float32)
        got, each = run(f, x)
        for i, (values, stored) in enumerate(zip(each, sums, strict=True)):
            flat = values.reshape(-1).astype(np.float64)
            plus = (np.arange(flat.size, dtype=np.uint64) * 2654435761 % 2**32) < 2**31
            found = np.array([np.abs(flat).mean(), np.where(plus, flat, -flat).mean()])
            assert (np.abs(found - stored) <= 1e-3 * stored[0] + 1e-6).all(), f"operator {i}: {found} for {stored}"
        assert (np.abs(got - y) <= 1e-3 * np.abs(y).max() + 1e-6).all(), "outputs"
