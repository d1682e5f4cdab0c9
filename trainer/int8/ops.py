"""Every int8 operator, bit for bit: what all runtimes must give.

Parameter names are the protocol, as in trainer/ops: `a` the attributes, `n` the record's Numbers, `qx qx2 qy` the Quant
of inputs and output, and the arrays: `x x2` int8 with the batch in front, `weight` int8 in the shape of training,
`bias` and `multiplier` int32, `table`. `>>` is an arithmetic shift: it rounds down.

    requant(acc, M, S) = (acc M + 2^(30+S)) >> (31+S)   one rounding, halves up; 64-bit product. S is 0 where not given
    rescale(v, M, S) = (v M + 2^(S-1)) >> S             in int32
    clamp(v) holds v within lo..hi

Sums of a convolution are int32 and wrap modulo 2^32, which no file of ours makes happen (scheme.layer).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from litenet.trainer.ops import OPS, activations, avgpool2d, conv2d, embed_projection, resize
from litenet.trainer.ops.mul import over
from litenet.trainer.ops.unary import EXP, SQRT
from litenet.trainer.ops.windows import out_hw, pad, taps

from .scheme import LO, Numbers, Quant


def requant(acc: np.ndarray, M: Any, S: int = 0) -> np.ndarray:
    """int64: (acc M + 2^(30+S)) >> (31+S), acc int32."""
    return (acc.astype(np.int64) * np.asarray(M, np.int64) + (1 << 30 + S)) >> (31 + S)


def rescale(v: np.ndarray, M: Any, S: int) -> np.ndarray:
    """int32: (v M + 2^(S-1)) >> S."""
    return (v.astype(np.int32) * np.asarray(M, np.int32) + np.int32(1 << (S - 1))) >> np.int32(S)


def clamp(v: np.ndarray, n: Numbers) -> np.ndarray:
    return np.clip(v, n.lo, n.hi).astype(np.int8)


def centred(x: np.ndarray, q: Quant) -> np.ndarray:
    """x - zero, int32."""
    return x.astype(np.int32) - np.int32(q.zero)


def wrapped(acc: np.ndarray) -> np.ndarray:
    """Whole numbers of any size modulo 2^32, as int32."""
    return acc.astype(np.int64).astype(np.int32)


def product(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """x (..,M,K) @ w (..,K,O), whole numbers, in floating point where every partial sum is exact, so that their order
    does not matter: float64 below 2^53, and float32 where |x| <= 128 keeps them below 2^24."""
    small = x.dtype == np.int8 and 128 * int(np.abs(w.astype(np.int32)).sum(-2).max(initial=0)) < 1 << 24
    real = np.float32 if small else np.float64
    return x.astype(real) @ w.astype(real)


# ---------------------------------------------------------------- sums of products


def finish(acc: np.ndarray, bias: np.ndarray, multiplier: np.ndarray, qy: Quant, n: Numbers) -> np.ndarray:
    """y[..,o] = clamp(zy + requant(B[o] + acc[..,o], M[o], S))"""
    return clamp(qy.zero + requant(wrapped(acc.astype(np.int64) + bias), multiplier, n.shift), n)


def linear(n, x, weight, bias, multiplier, qy):  # x (N,..,I)  weight (O,I)  ->  (N,..,O)
    """y[o] = clamp(zy + requant(B[o] + sum_i x[i] w[o,i], M[o], S))"""
    return finish(product(x, weight.T), bias, multiplier, qy, n)


def conv2d_(a, n, x, weight, bias, multiplier, qx, qy):  # x (N,H,W,C)  weight (O,kh,kw,C/groups)  ->  (N,Ho,Wo,O)
    """y[i,j,o] = clamp(zy + requant(B[o] + sum_uvc x[i*s+u*d-top, j*s+v*d-left, c] w[o,u,v,c], M[o], S)); x is zx
    outside the image"""
    Ho, Wo, O = conv2d.out_shape(a, x.shape[1:])
    w = weight.reshape(a.groups, O // a.groups, -1).transpose(0, 2, 1)
    padded = pad(x, a.padding, qx.zero)
    y = np.empty((len(x), Ho, Wo, O), np.int8)
    for some in conv2d.blocks(a, len(x), Ho, Wo, x.shape[-1]):
        acc = product(conv2d.columns(a, padded[some], Ho, Wo), w)  # (groups, rows, O/groups)
        acc = acc.transpose(1, 0, 2).reshape(-1, O)
        y[some] = finish(acc, bias, multiplier, qy, n).reshape(-1, Ho, Wo, O)
    return y


def depthwise_conv2d(a, n, x, weight, bias, multiplier, qx, qy):  # x (N,H,W,C)  weight (kh,kw,C)  ->  (N,Ho,Wo,C)
    """y[i,j,c] = clamp(zy + requant(B[c] + sum_uv x[i*s+u*d-top, j*s+v*d-left, c] w[u,v,c], M[c], S)); x is zx
    outside the image"""
    Ho, Wo = out_hw(a, x.shape[1], x.shape[2], a.dilation)
    acc = np.zeros((len(x), Ho, Wo, x.shape[3]), np.float64)
    for u, v, seen in taps(a, pad(x, a.padding, qx.zero), Ho, Wo, a.dilation):
        acc += seen.astype(np.float64) * weight[u, v]
    return finish(acc, bias, multiplier, qy, n)


def embed_projection_(a, n, x, weight, bias, multiplier, qy):  # x (N,H,W,C)  weight (H*W,E)  ->  (N,E) or (N,C*E)
    """y[e] = clamp(zy + requant(B[e] + sum_p w[p,e] (sum_c x[p,c]), M[e], S)); with keep_channels each c alone"""
    rows = embed_projection.pixel_rows(a, x.astype(np.int32))
    return finish(product(rows, weight), bias, multiplier, qy, n).reshape(len(x), -1)


# ---------------------------------------------------------------- element by element


def add(n, x, x2, qx, qx2, qy):
    """y = clamp(zy + (((x-zx) M1 + (x2-zx2) M2 + 2^(S-1)) >> S))"""
    total = centred(x, qx) * np.int32(n.m1) + centred(x2, qx2) * np.int32(n.m2) + np.int32(1 << (n.shift - 1))
    return clamp(qy.zero + (total >> np.int32(n.shift)), n)


def mul(n, x, x2, qx, qx2, qy):
    """y = clamp(zy + requant((x-zx)(x2-zx2), M1))"""
    return clamp(qy.zero + requant(centred(x, qx) * over(x, centred(x2, qx2)), n.m1), n)


def concat(a, n, x, x2, qx, qx2, qy):
    """y = clamp(zy + rescale(x - zx, M1, S)), and behind it x2 with M2, along one axis"""
    parts = [rescale(centred(v, q), m, n.shift) for v, q, m in ((x, qx, n.m1), (x2, qx2, n.m2))]
    return clamp(qy.zero + np.concatenate(parts, a.axis + 1), n)


def batchnorm(n, x, multiplier, bias, qx, qy):
    """y[..,c] = clamp(zy + (((x-zx) M[c] + B[c] + 2^(S-1)) >> S))"""
    total = centred(x, qx) * multiplier.astype(np.int32) + bias.astype(np.int32) + np.int32(1 << (n.shift - 1))
    return clamp(qy.zero + (total >> np.int32(n.shift)), n)


def prelu(n, x, multiplier, qx, qy):
    """y[..,c] = clamp(zy + rescale(x-zx, x >= zx ? M1 : M[c], S))"""
    v = centred(x, qx)
    return clamp(qy.zero + rescale(v, np.where(v >= 0, np.int32(n.m1), multiplier.astype(np.int32)), n.shift), n)


def lookup(x, table):
    """y = T[x + 128]: activation and unary"""
    return table[x.astype(np.int32) + 128]


def softmax(x, table):
    """y[..,c] = min(127, -128 + (256 T[d] + sum/2) / sum), d = max_c x - x, sum = sum_c T[d]; `/` rounds down"""
    d = x.max(-1, keepdims=True).astype(np.int32) - x
    t = table[d].astype(np.uint32)
    total = t.sum(-1, keepdims=True, dtype=np.uint32)
    share = (256 * t.astype(np.uint32) + total // np.uint32(2)) // total
    return np.minimum(127, share.astype(np.int64) - 128).astype(np.int8)


# ---------------------------------------------------------------- pools and moves: y has x's scale and zero point


def maxpool2d(a, x):
    """y[i,j,c] = max_uv x[i*s+u-top, j*s+v-left, c] over the taps inside the image"""
    Ho, Wo = out_hw(a, *x.shape[1:3])
    y = np.full((len(x), Ho, Wo, x.shape[3]), LO, np.int8)
    for _u, _v, seen in taps(a, pad(x, a.padding, LO), Ho, Wo):
        np.maximum(y, seen, out=y)
    return y


def avgpool2d_(a, x, qx):
    """y = floor((2 sum + n) / (2 n)), n the taps that count; outside the image zx where all count, else nothing"""
    H, W = x.shape[1:3]
    Ho, Wo = out_hw(a, H, W)
    n = avgpool2d.counts(a, H, W, Ho, Wo, np.int32)
    border = qx.zero if a.count_include_pad else 0
    total = np.zeros((len(x), Ho, Wo, x.shape[3]), np.int32)
    for _u, _v, seen in taps(a, pad(x.astype(np.int32), a.padding, border), Ho, Wo):
        total += seen
    return ((2 * total + n) // (2 * n)).astype(np.int8)


def global_avg_pool(n, x, qx, qy):
    """y[c] = clamp(zy + requant(sum_ij x[i,j,c] - H W zx, M1))"""
    total = x.sum((1, 2), dtype=np.int32) - np.int32(x.shape[1] * x.shape[2] * qx.zero)
    return clamp(qy.zero + requant(total, n.m1), n)


def move(op, a, x):
    """flatten, reshape, transpose, slice: the float operator's own rule, which calculates nothing"""
    return OPS[op].forward(a, x)


def pad_(a, n, x):
    """y[i + before] = x[i], and the record's border everywhere else"""
    borders = [(0, 0), *zip(a.before, a.after, strict=True)][: x.ndim]
    return np.pad(x, borders, constant_values=np.int8(n.border))


def resize_(a, x):
    """nearest: as for floats. bilinear: y = floor((2 sum + D) / (2 D)), sum of x times the whole-number weights of its
    row and column, D the product of their denominators"""
    if a.mode == resize.NEAREST:
        return resize.forward(a, x)
    total, D = x.astype(np.int64), 1
    for axis, m in ((1, a.size[0]), (2, a.size[1])):
        n = x.shape[axis]
        p, d = resize.positions(a, n, m)
        p = np.clip(p, 0, (n - 1) * d)
        j, f = p // d, (p % d).reshape(-1, *[1] * (3 - axis))
        total = np.take(total, j, axis) * (d - f) + np.take(total, np.minimum(j + 1, n - 1), axis) * f
        D *= d
    return ((2 * total + D) // (2 * D)).astype(np.int8)


# ---------------------------------------------------------------- the two ends


def quantize(n, x, qy):
    """float32 to int8: t = x (1/s) in float32, held within +-512; y = clamp(zy + trunc(t +- 0.5)); NaN gives zy"""
    inverse = np.float32(1) / np.float32(qy.scale)
    with np.errstate(over="ignore", invalid="ignore"):
        t = np.asarray(x, np.float32) * inverse
    t = np.clip(np.where(np.isnan(t), np.float32(0), t), np.float32(-512), np.float32(512))
    half = np.where(t >= 0, np.float32(0.5), np.float32(-0.5))
    return clamp(qy.zero + (t + half).astype(np.int32), n)


def dequantize(x, qx):
    """y = s (x - zx) in float32"""
    return np.float32(qx.scale) * centred(x, qx).astype(np.float32)


def frame(v: np.ndarray, P: Any, Q: Any) -> np.ndarray:
    """uint8 pictures (N,H,W,C) to int8: q = (v P[c] + Q[c]) >> 16, held within int8; int32"""
    total = v.astype(np.int32) * np.asarray(P, np.int32) + np.asarray(Q, np.int32)
    return np.clip(total >> np.int32(16), -128, 127).astype(np.int8)


# ---------------------------------------------------------------- tables


def activation_table(activation: str, alpha: float, qx: Quant, qy: Quant) -> np.ndarray:
    """256 x int8, of an activation; entry x + 128 is the nearest to act(real value of x), in float64."""
    return _table(activations.apply(activation, _reals(qx), alpha), qy)


def unary_table(function: int, qx: Quant, qy: Quant) -> np.ndarray:
    """256 x int8 of unary; what is beyond all numbers, 1 / 0, is the largest."""
    v = _reals(qx)
    with np.errstate(divide="ignore", over="ignore"):
        y = np.exp(v) if function == EXP else np.sqrt(np.maximum(v, 0)) if function == SQRT else 1 / v
    return _table(np.nan_to_num(y, posinf=1e30, neginf=-1e30), qy)


def softmax_table(qx: Quant) -> np.ndarray:
    """256 x uint16: T[d] = round(65535 e^(-s d))"""
    return np.rint(65535 * np.exp(-qx.scale * np.arange(256.0))).astype(np.uint16)


def _reals(q: Quant) -> np.ndarray:
    return q.scale * (np.arange(256.0) - 128 - q.zero)


def _table(y: np.ndarray, q: Quant) -> np.ndarray:
    return np.clip(np.floor(y / q.scale + 0.5) + q.zero, -128, 127).astype(np.int8)


# ---------------------------------------------------------------- by name

FORWARD: dict[str, Callable[..., np.ndarray]] = {
    "linear": linear, "conv2d": conv2d_, "depthwise_conv2d": depthwise_conv2d, "embed_projection": embed_projection_,
    "maxpool2d": maxpool2d, "avgpool2d": avgpool2d_, "global_avg_pool": global_avg_pool, "add": add, "mul": mul,
    "concat": concat, "batchnorm": batchnorm, "prelu": prelu, "softmax": softmax, "activation": lookup,
    "unary": lookup, "flatten": move, "reshape": move, "transpose": move, "slice": move, "pad": pad_,
    "resize": resize_, "quantize": quantize, "dequantize": dequantize,
}  # fmt: skip


def forward(op: str, a: Any, n: Numbers, inputs: list[np.ndarray], qx: list[Quant | None], qy: Quant | None,
            arrays: dict[str, np.ndarray]) -> np.ndarray:  # fmt: skip
    """The output of one int8 operator. qx, qy: None where a tensor is float32; arrays: its weights by role."""
    function: Callable[..., np.ndarray] = FORWARD[op]
    given: dict[str, Any] = {"op": op, "a": a, "n": n, "qy": qy} | arrays
    given |= dict(zip(("x", "x2"), inputs, strict=False)) | dict(zip(("qx", "qx2"), qx, strict=False))
    return function(*(given[name] for name in inspect.signature(function).parameters))
