"""Launches of the operators that are no matrix product. CALLS and SCRATCH by operator; see call.py.

The direction "again" gives what "train" gave once more, without what backward reads besides: for most it is "train".

What belongs to no operator (load, loss, update, sum) is in calls_step.py.
"""

from __future__ import annotations

from math import prod

from ..ops import Attrs, Shape
from ..ops.activations import FROM_OUTPUT, IDS
from .arguments import DX, DY, NONE, PART, X2, X, Y, cut_of, kernel, matrix, older, wanted
from .call import Arg, BytesOf, Call, CallsOf, Float, Int, Ref, Shapes, blocks
from .calls_batchnorm import batchnorm_add_calls, batchnorm_calls, batchnorm_scratch
from .calls_step import fold_call
from .grids import CARD, MAX_Y, Columns, Teams, columns, flat, picture, power, rows, teams, vector


def activation_calls(direction: str, s: Shapes) -> list[Call]:
    n = s.N * prod(s.x)
    grid, block = flat(n, s.sms)
    if direction == "backward":
        way, read = "backward", Y if s.a.activation in FROM_OUTPUT else X
        args: tuple[Arg, ...] = (DY, read, older(s), DX)
    else:
        way, args = "forward", (X, Y)
    called = kernel(s, "activation.cu", f"activation_{way}_f32", ACT=IDS[s.a.activation])
    return [Call(called, grid, block, (*args, Int(n), Float(s.a.alpha)))]


def add_calls(direction: str, s: Shapes) -> list[Call]:
    n = s.N * prod(s.x)
    grid, block = flat(n, s.sms)
    if direction == "backward":
        way = "backward"
        args: tuple[Arg, ...] = (DY, Y, older(s), older(s, "x2"), wanted(s, "x"), wanted(s, "x2"))
    else:
        way, args = "forward", (X, X2, Y)
    called = kernel(s, "add.cu", f"add_{way}_f32", ACT=IDS[s.a.activation])
    return [Call(called, grid, block, (*args, Int(n), Float(s.a.alpha)))]


def dropout_calls(direction: str, s: Shapes) -> list[Call]:
    n, rate = s.N * prod(s.x), 0.0 if direction == "forward" else s.a.rate
    grid, block = flat(n, s.sms)
    x, add, y = (DY, older(s), DX) if direction == "backward" else (X, NONE, Y)
    args = (x, add, Ref("step"), y, Int(n), Float(rate), Float(1 / (1 - rate)), Int(s.node), Int(s.nodes))
    return [Call(kernel(s, "dropout.cu", "dropout_f32"), grid, block, args)]


def softmax_calls(direction: str, s: Shapes) -> list[Call]:
    R, C = matrix(s)
    team, grid, block = rows(R, C, s.sms)
    way, args = ("backward", (DY, Y, older(s), DX)) if direction == "backward" else ("forward", (X, Y))
    called = kernel(s, "softmax.cu", f"softmax_{way}_f32", **team.macros)
    return [Call(called, grid, block, (*args, Int(R), Int(C)))]


def layernorm_calls(direction: str, s: Shapes) -> list[Call]:
    if direction == "backward":
        return _layernorm_backward(s)
    R, C = matrix(s)
    team, grid, block = rows(R, C, s.sms)
    kept = (Ref("mean"), Ref("inv_std")) if direction == "train" else (NONE, NONE)
    args = (X, Ref("gamma"), Ref("beta"), Y, *kept, Int(R), Int(C), Float(s.a.eps))
    return [Call(kernel(s, "layernorm.cu", "layernorm_forward_f32", **team.macros), grid, block, args)]


def _layernorm_backward(s: Shapes) -> list[Call]:
    """With short rows one launch, and where that takes several blocks one more that adds up their sums."""
    R, C = matrix(s)
    team, grid, block = rows(R, C, s.sms)
    statistics, sums = (Ref("mean"), Ref("inv_std")), bool(s.want & {"gamma", "beta"})
    dgamma, dbeta = wanted(s, "gamma"), wanted(s, "beta")
    calls, macros = [], team.macros
    if sums and _joined(team):
        parts, warps = _layernorm_blocks(s, team)
        grid, block, macros = (parts, 1, 1), (32 * warps, 1, 1), macros | {"WARPS": warps}
    elif sums:
        cut = _layernorm_cut(s)
        args: tuple[Arg, ...] = (DY, X, *statistics, PART, Int(R), Int(C), *cut_of(cut))
        called = kernel(s, "layernorm.cu", "layernorm_sums_f32", **macros)
        calls = [Call(called, cut.grid, cut.block, args), fold_call(cut.ranges, dgamma, C, dbeta, C, s.accumulate)]
    if "x" in s.want or "WARPS" in macros:
        args = (
            DY, X, Ref("gamma"), *statistics, older(s), wanted(s, "x"), PART, dgamma, dbeta, Int(R), Int(C),
            Int(s.accumulate),
        )  # fmt: skip
        calls.append(Call(kernel(s, "layernorm.cu", "layernorm_backward_f32", **macros), grid, block, args))
    if "WARPS" in macros and grid[0] > 1:
        calls.append(fold_call(grid[0], dgamma, C, dbeta, C, s.accumulate))
    return calls


def layernorm_scratch(direction: str, s: Shapes) -> int:
    if direction != "backward" or not s.want & {"gamma", "beta"}:
        return 0
    team = teams(s.x[-1])
    return 8 * s.x[-1] * (_layernorm_blocks(s, team)[0] if _joined(team) else _layernorm_cut(s).bound)


def _joined(team: Teams) -> bool:
    """Whether the sums down the columns find room in the registers of those who have the rows."""
    return 0 < team.per * team.V <= 16


def _layernorm_blocks(s: Shapes, team: Teams) -> tuple[int, int]:
    """(blocks, warps of each) of a backward pass that sums down the columns: one block if that has few turns to do."""
    most = min(16, 4096 // (team.lanes * team.per * team.V))  # 32 KB of shared memory
    turns = blocks(matrix(s)[0], team.rows)  # of one warp
    if turns <= 4 * most:
        return 1, min(power(turns), most)
    return min(blocks(turns, 4 * 8), 4 * (s.sms or CARD)), 8


def _layernorm_cut(s: Shapes) -> Columns:
    R, C = matrix(s)
    return columns(R, C, 4 * (s.sms or CARD), 128, 4)


def maxpool2d_calls(direction: str, s: Shapes) -> list[Call]:
    kept = Ref("index") if direction == "train" else NONE
    return _pool_calls("maxpool2d", direction, s, (X, Y, kept), (DY, Ref("index")), {})


def avgpool2d_calls(direction: str, s: Shapes) -> list[Call]:
    return _pool_calls("avgpool2d", direction, s, (X, Y), (DY,), {"COUNT_PAD": s.a.count_include_pad})


def _pool_calls(
    name: str, direction: str, s: Shapes, forward: tuple[Ref, ...], backward: tuple[Ref, ...], more: dict[str, int]
) -> list[Call]:
    V, (H, W, C), (Ho, Wo, _) = vector(s.x[-1]), s.x, s.y
    macros = {"VEC": V} | _window(s.a) | more
    sizes = (Int(s.N), Int(H), Int(W), Int(C), Int(Ho), Int(Wo))
    if direction != "backward":
        grid, block = picture(Wo * C // V, s.N * Ho)
        return [Call(kernel(s, f"{name}.cu", f"{name}_forward_f32", **macros), grid, block, (*forward, *sizes))]
    Hc, Wc = _cells(s)
    grid, block = picture(Wc * C // V, s.N * Hc)
    args: tuple[Arg, ...] = (*backward, older(s), DX, *sizes, Int(Hc), Int(Wc))
    return [Call(kernel(s, f"{name}.cu", f"{name}_backward_f32", **macros), grid, block, args)]


def global_avg_pool_calls(direction: str, s: Shapes) -> list[Call]:
    (H, W, C), N = s.x, s.N
    P, V = H * W, vector(s.x[-1])
    if direction == "backward":
        grid, block = picture(C // V, N * P)
        args: tuple[Arg, ...] = (DY, older(s), DX, Int(N), Int(P), Int(C))
        return [Call(kernel(s, "global_avg_pool.cu", "global_avg_pool_backward_f32", VEC=V), grid, block, args)]
    tx = min(power(C // V), 32 // V)
    cut = columns(P, C, 1, 1, 1, threads=max(32, min(256, tx * power(blocks(P, 4)))))
    args = (X, Y, Int(N), Int(P), Int(C), Int(cut.log_tx))
    called = kernel(s, "global_avg_pool.cu", "global_avg_pool_forward_f32", VEC=V)
    return [Call(called, (cut.tiles, min(N, MAX_Y), 1), cut.block, args)]


def depthwise_conv2d_calls(direction: str, s: Shapes) -> list[Call]:
    """Kernels with a patch of outputs a thread where they fit into registers, else the naive ones."""
    a, (H, W, C), (Ho, Wo, _) = s.a, s.x, s.y
    V, patch = _depthwise_tile(a, C)
    window = _window(a) | {"DH": a.dilation[0], "DW": a.dilation[1]}
    macros = {"ACT": IDS[a.activation], "VEC": V} | window | ({"QH": patch[0], "QW": patch[1]} if patch else {})
    tail = (Int(s.N), Int(H), Int(W), Int(C), Int(Ho), Int(Wo))
    alpha = Float(a.alpha)
    QH, QW = patch or (1, 1)

    def call(what: str, wide: int, high: int, args: tuple[Arg, ...]) -> Call:
        grid, block = picture(blocks(wide, QW) * C // V, s.N * blocks(high, QH))
        name = f"depthwise_conv2d_{what}{'' if patch else '_naive'}_f32"
        return Call(kernel(s, "depthwise_conv2d.cu", name, **macros), grid, block, (*args, *tail, alpha))

    if direction != "backward":
        return [call("forward", Wo, Ho, (X, Ref("weight"), Ref("bias") if a.bias else NONE, Y))]
    calls = _depthwise_weights(s, macros, tail) if s.want & {"weight", "bias"} else []
    if "x" in s.want:
        high, wide = _cells(s) if patch else (H, W)
        calls.append(call("backward", wide, high, (DY, Y, Ref("weight"), older(s), DX)))
    return calls


def _depthwise_weights(s: Shapes, macros: dict[str, int], tail: tuple[Int, ...]) -> list[Call]:
    taps, C, alpha = prod(s.a.kernel_size), s.x[-1], Float(s.a.alpha)
    cut = _depthwise_cut(s)
    args: tuple[Arg, ...]
    dw, db = wanted(s, "weight"), wanted(s, "bias")
    if cut is None:
        cut = columns(s.N * s.y[0] * s.y[1], C, 1, 1, 1, _depthwise_tile(s.a, C)[0])
        args = (DY, Y, X, dw, db, *tail, Int(cut.log_tx), Int(s.accumulate), alpha)
        called = kernel(s, "depthwise_conv2d.cu", "depthwise_conv2d_weights_naive_f32", **macros)
        return [Call(called, (cut.tiles, taps + 1, 1), cut.block, args)]
    args = (DY, Y, X, PART, *tail, *cut_of(cut), alpha)
    called = kernel(s, "depthwise_conv2d.cu", "depthwise_conv2d_weights_f32", **macros)
    fold = fold_call(cut.ranges, dw, taps * C, db, C, s.accumulate)
    return [Call(called, cut.grid, cut.block, args), fold]


def depthwise_conv2d_scratch(direction: str, s: Shapes) -> int:
    cut = _depthwise_cut(s) if direction == "backward" and s.want & {"weight", "bias"} else None
    return 4 * cut.bound * (prod(s.a.kernel_size) + 1) * s.x[-1] if cut else 0


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
    "batchnorm_add": batchnorm_add_calls,
    "depthwise_conv2d": depthwise_conv2d_calls,
    "dropout": dropout_calls,
    "global_avg_pool": global_avg_pool_calls,
    "layernorm": layernorm_calls,
    "maxpool2d": maxpool2d_calls,
    "softmax": softmax_calls,
}
SCRATCH: dict[str, BytesOf] = {
    "batchnorm": batchnorm_scratch,
    "batchnorm_add": batchnorm_scratch,
    "depthwise_conv2d": depthwise_conv2d_scratch,
    "layernorm": layernorm_scratch,
}
