"""The launches of linear, conv2d and embed_projection: which kernel, which tile, how the sum is split.

An operator's launches of one direction fall into parts that do not depend on each other (a convolution's backward:
"dgrad" and "wgrad"). `parts(op, direction, s)` gives for each part its variants, all correct, the one expected to be
fastest first; CALLS takes the first of each, and a backend may time the others and take what is best on its card.

    CALLS["conv2d"]("backward", s) -> [Call, ...]       SCRATCH["conv2d"]("backward", s) -> bytes
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod

from .call import Arg, BytesOf, Call, CallsOf, Float, Int, Kernel, Ref, Shapes, blocks, constants
from .calls_conv import conv_parts
from .tiles import COUNTERS, ranked
from .variants import (
    LAST,
    NULL,
    SECOND,
    WHOLE,
    Variant,
    act_id,
    has_bias,
    ints,
    naive_grid,
    older_dx,
    split_form,
    storage,
    sum_gradients,
    sum_parts,
    vector,
)

LONGEST_ROW = 1 << 24  # elements: gemm.cuh counts within the rows of a tile in 32 bits


# ---- linear


def _linear_parts(direction: str, s: Shapes) -> dict[str, list[Variant]]:
    N, I, O = s.N * prod(s.x[:-1]), s.x[-1], s.y[-1]
    if direction != "backward":
        fits = I <= LONGEST_ROW
        return {"forward": _linear_forward(s, N, I, O) if fits else [Variant("naive", naive("linear", s)[:1])]}
    if not s.want & {"x", "weight"}:
        return {}
    fits = O <= LONGEST_ROW
    return {"backward": _linear_backward(s, N, I, O) if fits else [Variant("naive", naive("linear", s)[1:])]}


def _linear_forward(s: Shapes, N: int, I: int, O: int) -> list[Variant]:
    act, alpha, vi = act_id(s.a), s.a.alpha, vector(I)
    found = []
    for t, splits in ranked(N, O, lambda t: blocks(I, t.bk), s.sms):
        per = blocks(blocks(I, t.bk), splits) * t.bk
        splits, count = blocks(I, per), t.cover(N, O)
        form = split_form(t, count, splits)
        macros = {"TILE": t.text, "VI": vi, "ACT": 0 if form == SECOND else act, **form.macro, **storage(s)}
        kernel = Kernel("linear.cu", "linear_forward_f32", constants(LINEAR_FORWARD=1, **macros))
        refs: tuple[Arg, ...] = (Ref("x"), Ref("weight"), Ref("bias"), Ref("y"), *form.refs)
        first = Call(kernel, (count, splits, 1), (t.threads, 1, 1), (*refs, *ints(N, I, O, per), Float(alpha)))
        calls: tuple[Call, ...] = (first,)
        if form == SECOND:
            out = (Ref("bias"), NULL, NULL, Ref("y"), NULL)
            calls += (sum_parts("linear.cu", act, alpha, splits, N * O, O, out, stored=storage(s)),)
        found.append(Variant(f"{t.name} k{splits}", calls, form.scratch(t, count, splits, N * O)))
    rows = [_linear_rows(s, N, I, O, rm, rn) for rm, rn in ((4, 4), (8, 4), (2, 4))]
    # straight from memory, no barriers: while the outputs are few, and a lane has something to sum
    few = N <= 128 and N * O <= 1 << 16
    return [*rows, *found] if few else [*found, *(rows if N <= 1024 else [])]


def _linear_rows(s: Shapes, N: int, I: int, O: int, rm: int, rn: int) -> Variant:
    macros = constants(LINEAR_ROWS=1, VI=vector(I), RM=rm, RN=rn, ACT=act_id(s.a), **storage(s))
    args: tuple[Arg, ...] = (Ref("x"), Ref("weight"), Ref("bias"), Ref("y"), *ints(N, I, O), Float(s.a.alpha))
    grid = (blocks(O, 8 * rn), blocks(N, rm), 1)
    return Variant(f"rows {rm}x{rn}", (Call(Kernel("linear.cu", "linear_rows_f32", macros), grid, (256, 1, 1), args),))


def _linear_backward(s: Shapes, N: int, I: int, O: int) -> list[Variant]:
    """dx, dw and db in one launch. The tile is chosen for dw, which is the larger part for all but huge batches."""
    act, alpha, dx, dw, db = act_id(s.a), s.a.alpha, "x" in s.want, "weight" in s.want, has_bias(s)
    found = []
    extra = 2 * N * I // (O + I) if dx else 0  # rows of dw that would cost what dx costs
    for t, splits in ranked(O + extra, I, lambda t: blocks(N, t.bk), s.sms):
        per = blocks(blocks(N, t.bk), splits) * t.bk
        splits, count = blocks(N, per) if dw else 1, t.cover(O, I)
        form = split_form(t, count, splits)
        dx_blocks = t.cover(N, I) if dx else 0
        macros = {"TILE": t.text, "VI": vector(I), "VO": vector(O), "ACT": act, **form.macro, **storage(s)}
        args: tuple[Arg, ...] = (
            *(Ref("dy"), Ref("y"), Ref("x"), Ref("weight"), older_dx(s), Ref("d:x"), Ref("d:weight")),
            *(Ref("d:bias") if db else NULL, *form.refs),
            *ints(N, I, O, dx_blocks, per, int(s.accumulate)),
            Float(alpha),
        )
        grid = (dx_blocks + (count * splits if dw else 0), 1, 1)
        kernel = Kernel("linear.cu", "linear_backward_f32", constants(LINEAR_BACKWARD=1, **macros))
        calls: tuple[Call, ...] = (Call(kernel, grid, (t.threads, 1, 1), args),)
        if form == SECOND:
            calls += (sum_gradients("linear.cu", s, splits, O * I, O if db else 0),)
        found.append(Variant(f"{t.name} k{splits}", calls, form.scratch(t, count, splits, O * I + (O if db else 0))))
    return found


# ---- embed_projection


def _embed_parts(direction: str, s: Shapes) -> dict[str, list[Variant]]:
    (H, W, C), E, keep = s.x, s.a.embed_dim, int(s.a.keep_channels)
    P, R = H * W, s.N * (C if keep else 1)
    if direction == "backward":
        return {"backward": _embed_backward(s, R, P, C, E, keep)} if s.want & {"x", "weight"} else {}
    found = []
    for t, splits in ranked(R, E, lambda t: blocks(P, t.bk), s.sms):
        per = blocks(blocks(P, t.bk), splits) * t.bk
        splits, count = blocks(P, per), t.cover(R, E)
        if splits > 1 and count > COUNTERS:
            continue
        form = WHOLE if splits == 1 else LAST
        macros = {"TILE": t.text, "VE": vector(E), "KEEP": keep, "ACT": act_id(s.a), **form.macro, **storage(s)}
        kernel = Kernel("embed_projection.cu", "embed_projection_forward_f32", constants(EMBED_FORWARD=1, **macros))
        refs: tuple[Arg, ...] = (Ref("x"), Ref("weight"), Ref("y"), *form.refs)
        args = (*refs, *ints(R, P, C, E, per), Float(s.a.alpha))
        call = Call(kernel, (count, splits, 1), (t.threads, 1, 1), args)
        found.append(Variant(f"{t.name} k{splits}", (call,), form.scratch(t, count, splits, R * E)))
    return {"forward": found}


def _embed_backward(s: Shapes, R: int, P: int, C: int, E: int, keep: int) -> list[Variant]:
    dx, dw = "x" in s.want, "weight" in s.want
    found = []
    for t, _ in ranked(P, E, lambda t: blocks(R, t.bk), s.sms, (1,)):
        macros = constants(EMBED_BACKWARD=1, TILE=t.text, VE=vector(E), KEEP=keep, ACT=act_id(s.a), **storage(s))
        dx_blocks = t.cover(R, P) if dx else 0
        refs = (Ref("dy"), Ref("y"), Ref("x"), Ref("weight"), older_dx(s), Ref("d:x"), Ref("d:weight"))
        args: tuple[Arg, ...] = (*refs, *ints(R, P, C, E, dx_blocks, int(s.accumulate)), Float(s.a.alpha))
        grid = (dx_blocks + (t.cover(P, E) if dw else 0), 1, 1)
        kernel = Kernel("embed_projection.cu", "embed_projection_backward_f32", macros)
        found.append(Variant(t.name, (Call(kernel, grid, (t.threads, 1, 1), args),)))
    return found


# ---- what others use

PARTS: dict[str, Callable[[str, Shapes], dict[str, list[Variant]]]] = {
    "linear": _linear_parts,
    "conv2d": conv_parts,
    "conv2d_pool": partial(conv_parts, pool=True),
    "embed_projection": _embed_parts,
}


def parts(op: str, direction: str, s: Shapes) -> dict[str, list[Variant]]:
    """For each part of the operator's launches its variants, best expected first. Parts run in order, one after
    another, and may share scratch. direction: forward, train or backward."""
    return PARTS[op](direction, s)


def _calls(op: str, direction: str, s: Shapes) -> list[Call]:
    return [call for variants in parts(op, direction, s).values() for call in variants[0].calls]


def _scratch(op: str, direction: str, s: Shapes) -> int:
    return max((variants[0].scratch for variants in parts(op, direction, s).values()), default=0)


CALLS: dict[str, CallsOf] = {op: partial(_calls, op) for op in PARTS}
SCRATCH: dict[str, BytesOf] = {op: partial(_scratch, op) for op in PARTS}


def naive(op: str, s: Shapes) -> tuple[Call, Call]:
    """(forward, backward) by the plain formulas of linear or embed_projection; those of conv2d are in its parts."""
    a, macros = s.a, constants(**{f"{op.split('_')[0].upper()}_NAIVE": 1}, ACT=act_id(s.a), **storage(s))
    if op == "linear":
        sizes = ints(s.N * prod(s.x[:-1]), s.x[-1], s.y[-1])
    else:
        sizes = ints(s.N, s.x[0] * s.x[1], s.x[2], a.embed_dim, a.keep_channels)
    bias, d_bias = ((Ref("bias"),), (Ref("d:bias"),)) if op == "linear" else ((), ())
    there: tuple[Arg, ...] = (Ref("x"), Ref("weight"), *bias, Ref("y"), *sizes, Float(a.alpha))
    back: tuple[Arg, ...] = (
        *(Ref("dy"), Ref("y"), Ref("x"), Ref("weight"), older_dx(s), Ref("d:x"), Ref("d:weight"), *d_bias),
        *sizes,
        Int(int(s.accumulate)),
        Float(a.alpha),
    )
    grid = naive_grid(s.N * prod(s.x) + prod(s.y))
    return (
        Call(Kernel(f"{op}.cu", f"{op}_forward_naive_f32", macros), grid, (128, 1, 1), there),
        Call(Kernel(f"{op}.cu", f"{op}_backward_naive_f32", macros), grid, (128, 1, 1), back),
    )
