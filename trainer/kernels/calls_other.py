"""Launches of the operators that are no matrix product. CALLS and SCRATCH by operator; see call.py.

What belongs to no operator (load, loss, update, advance, sum) is in calls_step.py.
"""

from __future__ import annotations

from math import prod

from ..ops import Attrs, Shape
from ..ops.activations import FROM_OUTPUT, IDS
from .call import Arg, BytesOf, Call, CallsOf, Float, Int, Kernel, Ref, Shapes, blocks, constants
from .calls_step import fold_call
from .grids import CARD, MAX_Y, Columns, columns, flat, picture, power, rows, vector

DY, DX, ADD, Y = Ref("dy"), Ref("d:x"), Ref("add:x"), Ref("y")
NONE = Ref("")  # NULL
FUSED_ROWS = 1024  # rows up to which one launch of batchnorm takes the statistics too


def activation_calls(direction: str, s: Shapes) -> list[Call]:
    n = s.N * prod(s.x)
    grid, block = flat(n, s.sms)
    defines = constants(ACT=IDS[s.a.activation])
    if direction != "backward":
        args: tuple[Arg, ...] = (Ref("x"), Y, Int(n), Float(s.a.alpha))
        return [Call(Kernel("activation.cu", "activation_forward_f32", defines), grid, block, args)]
    read = Y if s.a.activation in FROM_OUTPUT else Ref("x")
    args = (DY, read, _older(s), DX, Int(n), Float(s.a.alpha))
    return [Call(Kernel("activation.cu", "activation_backward_f32", defines), grid, block, args)]


def add_calls(direction: str, s: Shapes) -> list[Call]:
    n = s.N * prod(s.x)
    grid, block = flat(n, s.sms)
    defines = constants(ACT=IDS[s.a.activation])
    if direction != "backward":
        args: tuple[Arg, ...] = (Ref("x"), Ref("x2"), Y, Int(n), Float(s.a.alpha))
        return [Call(Kernel("add.cu", "add_forward_f32", defines), grid, block, args)]
    args = (
        DY, Y, _older(s), _older(s, "x2"), _wanted(s, "x"), _wanted(s, "x2"), Int(n), Float(s.a.alpha),
    )  # fmt: skip
    return [Call(Kernel("add.cu", "add_backward_f32", defines), grid, block, args)]


def dropout_calls(direction: str, s: Shapes) -> list[Call]:
    n, rate = s.N * prod(s.x), 0.0 if direction == "forward" else s.a.rate
    grid, block = flat(n, s.sms)
    x, add, y = (DY, _older(s), DX) if direction == "backward" else (Ref("x"), NONE, Y)
    args = (x, add, Ref("step"), y, Int(n), Float(rate), Float(1 / (1 - rate)), Int(s.node), Int(s.nodes))
    return [Call(Kernel("dropout.cu", "dropout_f32"), grid, block, args)]


def softmax_calls(direction: str, s: Shapes) -> list[Call]:
    R, C = _matrix(s)
    whole, grid, block = rows(R, C)
    args: tuple[Arg, ...] = (Ref("x"), Y) if direction != "backward" else (DY, Y, _older(s), DX)
    return [Call(_team("softmax", direction, whole), grid, block, (*args, Int(R), Int(C)))]


def layernorm_calls(direction: str, s: Shapes) -> list[Call]:
    R, C = _matrix(s)
    whole, grid, block = rows(R, C)
    defines = constants(VEC=vector(C))
    kernel = _team("layernorm", direction, whole, defines)
    if direction != "backward":
        kept = (Ref("mean"), Ref("inv_std")) if direction == "train" else (NONE, NONE)
        args: tuple[Arg, ...] = (Ref("x"), Ref("gamma"), Ref("beta"), Y, *kept, Int(R), Int(C), Float(s.a.eps))
        return [Call(kernel, grid, block, args)]
    calls = []
    if s.want & {"gamma", "beta"}:
        cut = _layernorm_cut(s)
        args = (
            DY, Ref("x"), Ref("mean"), Ref("inv_std"), Ref("scratch"), Int(R), Int(C), Int(cut.chunk), Int(cut.log_tx),
        )  # fmt: skip
        calls.append(Call(Kernel("layernorm.cu", "layernorm_sums_f32", defines), cut.grid, cut.block, args))
        calls.append(fold_call(cut.ranges, _wanted(s, "gamma"), C, _wanted(s, "beta"), C, s.accumulate))
    if "x" in s.want:
        args = (DY, Ref("x"), Ref("gamma"), Ref("mean"), Ref("inv_std"), _older(s), DX, Int(R), Int(C))
        calls.append(Call(kernel, grid, block, args))
    return calls


def layernorm_scratch(direction: str, s: Shapes) -> int:
    return 8 * s.x[-1] * _layernorm_cut(s).ranges if direction == "backward" and s.want & {"gamma", "beta"} else 0


def _layernorm_cut(s: Shapes) -> Columns:
    R, C = _matrix(s)
    return columns(R, C, 4 * (s.sms or CARD), 128, 4)


def batchnorm_calls(direction: str, s: Shapes) -> list[Call]:
    """One launch; in training two where there are more rows than FUSED_ROWS: sums of ranges of rows, then the rest."""
    R, C = _matrix(s)
    a, sms = s.a, s.sms or CARD
    defines = constants(ACT=IDS[a.activation], VEC=vector(C))
    sizes = (Int(R), Int(C))
    gamma, beta, x = Ref("gamma"), Ref("beta"), Ref("x")
    running, kept = (Ref("running_mean"), Ref("running_var")), (Ref("mean"), Ref("inv_std"))
    if direction == "forward":
        cut = columns(R, C, 8 * sms, MAX_Y, 4)
        args: tuple[Arg, ...] = (x, gamma, beta, *running, Y, *sizes, *_cut(cut), Float(a.eps), Float(a.alpha))
        return [Call(Kernel("batchnorm.cu", "batchnorm_forward_f32", defines), cut.grid, cut.block, args)]
    part = _batchnorm_cut(s)
    first: list[Call] = []
    if part is None:
        cut, S, part_chunk = columns(R, C, 1, 1, 1, threads=512, spread=sms), 0, 0
    else:
        whole = (1, R) if direction == "backward" and "x" not in s.want else (4 * sms, MAX_Y)
        cut = columns(R, C, whole[0], whole[1], 4, threads=512)
        S, part_chunk = part.ranges, part.chunk
        if direction == "train":
            kernel = Kernel("batchnorm.cu", "batchnorm_moments_f32", defines)
            args = (x, Ref("scratch"), *sizes, *_cut(part))
        else:
            kernel = Kernel("batchnorm.cu", "batchnorm_sums_f32", defines)
            args = (DY, Y, x, *kept, Ref("scratch"), *sizes, *_cut(part), Float(a.alpha))
        first = [Call(kernel, part.grid, part.block, args)]
    if direction == "train":
        kernel = Kernel("batchnorm.cu", "batchnorm_train_f32", defines)
        args = (
            x, gamma, beta, *running, Ref("scratch"), Y, *kept, *sizes, *_cut(cut), Int(S), Int(part_chunk),
            Float(a.eps), Float(a.momentum), Float(a.alpha),
        )  # fmt: skip
    else:
        kernel = Kernel("batchnorm.cu", "batchnorm_backward_f32", defines)
        args = (
            DY, Y, x, gamma, *kept, _older(s), Ref("scratch"), _wanted(s, "x"), _wanted(s, "gamma"), _wanted(s, "beta"),
            *sizes, *_cut(cut), Int(S), Int(s.accumulate), Float(a.alpha),
        )  # fmt: skip
    return [*first, Call(kernel, cut.grid, cut.block, args)]


def batchnorm_scratch(direction: str, s: Shapes) -> int:
    part = None if direction == "forward" else _batchnorm_cut(s)
    return 4 * s.x[-1] * (2 * part.ranges + (direction == "train")) if part else 0


def _batchnorm_cut(s: Shapes) -> Columns | None:
    """How the statistics are cut into ranges of rows; None: one block takes all rows of a tile of columns."""
    R, C = _matrix(s)
    if R <= FUSED_ROWS:
        return None
    return columns(R, C, 2 * (s.sms or CARD), 64 if C > 32 else 128, 4, threads=512)


def maxpool2d_calls(direction: str, s: Shapes) -> list[Call]:
    kept = Ref("index") if direction == "train" else NONE
    return _pool_calls("maxpool2d", direction, s, (Ref("x"), Y, kept), (DY, Ref("index")), {})


def avgpool2d_calls(direction: str, s: Shapes) -> list[Call]:
    return _pool_calls("avgpool2d", direction, s, (Ref("x"), Y), (DY,), {"COUNT_PAD": s.a.count_include_pad})


def _pool_calls(
    name: str, direction: str, s: Shapes, forward: tuple[Ref, ...], backward: tuple[Ref, ...], more: dict[str, int]
) -> list[Call]:
    V, (H, W, C), (Ho, Wo, _) = vector(s.x[-1]), s.x, s.y
    defines = constants(VEC=V, **_window(s.a), **more)
    sizes = (Int(s.N), Int(H), Int(W), Int(C), Int(Ho), Int(Wo))
    if direction != "backward":
        grid, block = picture(Wo * C // V, s.N * Ho)
        return [Call(Kernel(f"{name}.cu", f"{name}_forward_f32", defines), grid, block, (*forward, *sizes))]
    Hc, Wc = _cells(s)
    grid, block = picture(Wc * C // V, s.N * Hc)
    args: tuple[Arg, ...] = (*backward, _older(s), DX, *sizes, Int(Hc), Int(Wc))
    return [Call(Kernel(f"{name}.cu", f"{name}_backward_f32", defines), grid, block, args)]


def global_avg_pool_calls(direction: str, s: Shapes) -> list[Call]:
    (H, W, C), N = s.x, s.N
    P, V = H * W, vector(s.x[-1])
    defines = constants(VEC=V)
    if direction == "backward":
        grid, block = picture(C // V, N * P)
        args: tuple[Arg, ...] = (DY, _older(s), DX, Int(N), Int(P), Int(C))
        return [Call(Kernel("global_avg_pool.cu", "global_avg_pool_backward_f32", defines), grid, block, args)]
    tx = min(power(C // V), 32 // V)
    cut = columns(P, C, 1, 1, 1, threads=max(32, min(256, tx * power(blocks(P, 4)))))
    args = (Ref("x"), Y, Int(N), Int(P), Int(C), Int(cut.log_tx))
    kernel = Kernel("global_avg_pool.cu", "global_avg_pool_forward_f32", defines)
    return [Call(kernel, (cut.tiles, min(N, MAX_Y), 1), cut.block, args)]


def depthwise_conv2d_calls(direction: str, s: Shapes) -> list[Call]:
    """Kernels with a patch of outputs a thread where they fit into registers, else the naive ones."""
    a, (H, W, C), (Ho, Wo, _) = s.a, s.x, s.y
    V, patch = _depthwise_tile(a, C)
    window = _window(a) | {"DH": a.dilation[0], "DW": a.dilation[1]}
    defines = constants(ACT=IDS[a.activation], VEC=V, **window, **({"QH": patch[0], "QW": patch[1]} if patch else {}))
    tail = (Int(s.N), Int(H), Int(W), Int(C), Int(Ho), Int(Wo))
    alpha = Float(a.alpha)
    QH, QW = patch or (1, 1)

    def call(what: str, wide: int, high: int, args: tuple[Arg, ...]) -> Call:
        grid, block = picture(blocks(wide, QW) * C // V, s.N * blocks(high, QH))
        name = f"depthwise_conv2d_{what}{'' if patch else '_naive'}_f32"
        return Call(Kernel("depthwise_conv2d.cu", name, defines), grid, block, (*args, *tail, alpha))

    if direction != "backward":
        return [call("forward", Wo, Ho, (Ref("x"), Ref("weight"), Ref("bias") if a.bias else NONE, Y))]
    calls = _depthwise_weights(s, defines, tail) if s.want & {"weight", "bias"} else []
    if "x" in s.want:
        high, wide = _cells(s) if patch else (H, W)
        calls.append(call("backward", wide, high, (DY, Y, Ref("weight"), _older(s), DX)))
    return calls


def _depthwise_weights(s: Shapes, defines: tuple, tail: tuple[Int, ...]) -> list[Call]:
    taps, C, alpha = prod(s.a.kernel_size), s.x[-1], Float(s.a.alpha)
    cut = _depthwise_cut(s)
    args: tuple[Arg, ...]
    dw, db = _wanted(s, "weight"), _wanted(s, "bias")
    if cut is None:
        cut = columns(s.N * s.y[0] * s.y[1], C, 1, 1, 1, _depthwise_tile(s.a, C)[0])
        args = (DY, Y, Ref("x"), dw, db, *tail, Int(cut.log_tx), Int(s.accumulate), alpha)
        kernel = Kernel("depthwise_conv2d.cu", "depthwise_conv2d_weights_naive_f32", defines)
        return [Call(kernel, (cut.tiles, taps + 1, 1), cut.block, args)]
    args = (DY, Y, Ref("x"), Ref("scratch"), *tail, *_cut(cut), alpha)
    kernel = Kernel("depthwise_conv2d.cu", "depthwise_conv2d_weights_f32", defines)
    fold = fold_call(cut.ranges, dw, taps * C, db, C, s.accumulate)
    return [Call(kernel, cut.grid, cut.block, args), fold]


def depthwise_conv2d_scratch(direction: str, s: Shapes) -> int:
    cut = _depthwise_cut(s) if direction == "backward" and s.want & {"weight", "bias"} else None
    return 4 * cut.ranges * (prod(s.a.kernel_size) + 1) * s.x[-1] if cut else 0


def _depthwise_cut(s: Shapes) -> Columns | None:
    V, patch = _depthwise_tile(s.a, s.x[-1])
    if patch is None:
        return None
    return columns(s.N * s.y[0] * blocks(s.y[1], patch[1]), s.x[-1], 4 * (s.sms or CARD), 128, 2, V)


def _depthwise_tile(a: Attrs, C: int) -> tuple[int, tuple[int, int] | None]:
    """(channels a thread takes, its patch of outputs); no patch where its taps and pixels need too many registers."""
    taps, (sh, sw), (dh, dw) = prod(a.kernel_size), a.stride, a.dilation
    if taps > 25 or max(a.kernel_size) > 7 or max(sh, sw) > 2 or max(dh, dw) > 2 or (sh > 1 < dh) or (sw > 1 < dw):
        return vector(C), None
    V = 4 if C % 4 == 0 and taps <= 9 else 2 if C % 2 == 0 else 1
    return V, (2 if sh == 1 else 1, 4 if sw == 1 else 2)


# ---- what several share


def _matrix(s: Shapes) -> tuple[int, int]:
    """x as (rows, columns)."""
    return s.N * prod(s.x[:-1]), s.x[-1]


def _older(s: Shapes, role: str = "x") -> Ref:
    return Ref(f"add:{role}") if role in s.adds else NONE


def _wanted(s: Shapes, role: str) -> Ref:
    return Ref(f"d:{role}") if role in s.want else NONE


def _cut(c: Columns) -> tuple[Int, Int]:
    return Int(c.chunk), Int(c.log_tx)


def _team(name: str, direction: str, whole: bool, defines: tuple = ()) -> Kernel:
    way = "backward" if direction == "backward" else "forward"
    return Kernel(f"{name}.cu", f"{name}_{way}_{'block' if whole else 'warp'}_f32", defines)


def _window(a: Attrs) -> dict[str, int]:
    (KH, KW), (SH, SW), (PT, PL, _, _) = a.kernel_size, a.stride, a.padding
    return {"KH": KH, "KW": KW, "SH": SH, "SW": SW, "PT": PT, "PL": PL}


def _cells(s: Shapes) -> Shape:
    """(Hc, Wc): cells of stride x stride pixels that cover the padded image down to its last pixel."""
    (H, W, _), (SH, SW), (PT, PL, _, _) = s.x, s.a.stride, s.a.padding
    return blocks(H + PT, SH), blocks(W + PL, SW)


CALLS: dict[str, CallsOf] = {
    "activation": activation_calls,
    "add": add_calls,
    "avgpool2d": avgpool2d_calls,
    "batchnorm": batchnorm_calls,
    "depthwise_conv2d": depthwise_conv2d_calls,
    "dropout": dropout_calls,
    "global_avg_pool": global_avg_pool_calls,
    "layernorm": layernorm_calls,
    "maxpool2d": maxpool2d_calls,
    "softmax": softmax_calls,
}
SCRATCH: dict[str, BytesOf] = {
    "batchnorm": batchnorm_scratch,
    "depthwise_conv2d": depthwise_conv2d_scratch,
    "layernorm": layernorm_scratch,
}
