"""Launches of batchnorm, and of batchnorm_add, which adds another tensor before the activation; see call.py.

Where the convolution before has left the moments (calls_moments.py) training takes one launch. Else, up to FUSED_ROWS
rows, one launch takes the statistics too; with more rows a launch over ranges of them comes first.
"""

from __future__ import annotations

from collections.abc import Callable

from ..ops.activations import IDS
from .arguments import DY, NONE, PART, X2, X, Y, cut_of, kernel, matrix, older, wanted
from .call import Arg, Call, Float, Int, Kernel, Ref, Shapes
from .calls_moments import most
from .grids import CARD, MAX_Y, Columns, columns, vector

FUSED_ROWS = 1024
GAMMA, BETA = Ref("gamma"), Ref("beta")
MOMENTS = Ref("moments")  # rows of them, which the convolution before has left
RUNNING, KEPT = (Ref("running_mean"), Ref("running_var")), (Ref("mean"), Ref("inv_std"))


def batchnorm_calls(direction: str, s: Shapes) -> list[Call]:
    return _calls(direction, s, False)


def batchnorm_add_calls(direction: str, s: Shapes) -> list[Call]:
    return _calls(direction, s, True)


def batchnorm_scratch(direction: str, s: Shapes) -> int:
    part = _ranges(s) if direction == "backward" or (direction == "train" and not s.moments) else None
    return 4 * s.x[-1] * (2 * part.bound + (direction == "train")) if part else 0


def _calls(direction: str, s: Shapes, add: bool) -> list[Call]:
    def named(way: str, masked: bool = True) -> Kernel:
        """Not `masked`: what is left of the backward pass when dh is there."""
        macros = {"ACT": IDS[s.a.activation] if masked else 0, "VEC": vector(s.x[-1])}
        return kernel(s, "batchnorm.cu", f"batchnorm_{way}_f32", **macros, **({"ADD": 1} if add and masked else {}))

    if direction == "train":
        return _train(s, named, X2 if add else NONE)
    if direction == "backward":
        return _backward(s, named, add)
    R, C = matrix(s)
    cut = columns(R, C, 8 * (s.sms or CARD), MAX_Y, 4)
    args: tuple[Arg, ...] = (X, X2 if add else NONE, GAMMA, BETA)
    sizes = (Int(R), Int(C), *cut_of(cut))
    if direction == "again":
        args = (*args, *KEPT, Y, *sizes, Float(s.a.alpha))
    else:
        args = (*args, *RUNNING, Y, *sizes, Float(s.a.eps), Float(s.a.alpha))
    return [Call(named(direction), cut.grid, cut.block, args)]


def _train(s: Shapes, named: Callable[..., Kernel], x2: Ref) -> list[Call]:
    R, C = matrix(s)
    part, first = None if s.moments else _ranges(s), []
    if part:
        args: tuple[Arg, ...] = (X, PART, Int(R), Int(C), *cut_of(part), Int(0))
        first = [Call(named("moments"), part.grid, part.block, args)]
    ranges = -most(R) if s.moments else part.ranges if part else 0
    cut = _side_by_side(s) if ranges else _rest(s, None)
    args = (
        X, x2, GAMMA, BETA, *RUNNING, MOMENTS if s.moments else PART, Y, *KEPT, Int(R), Int(C), *cut_of(cut),
        Int(ranges), Int(part.chunk if part else 0),
        Float(s.a.eps), Float(s.a.momentum), Float(s.a.alpha),
    )  # fmt: skip
    return [*first, Call(named("train"), cut.grid, cut.block, args)]


def _backward(s: Shapes, named: Callable[..., Kernel], add: bool) -> list[Call]:
    R, C = matrix(s)
    part, first, alpha = _ranges(s), [], Float(s.a.alpha)
    dy, masked = DY, True
    y, beta, add2, dx2 = (Y, NONE, older(s, "x2"), wanted(s, "x2")) if add else (NONE, BETA, NONE, NONE)
    if part:
        early = dx2 if add2 == NONE else NONE
        args: tuple[Arg, ...] = (
            dy, y, X, GAMMA, beta, *KEPT, PART, early, Int(R), Int(C), *cut_of(part), alpha,
        )  # fmt: skip
        first = [Call(named("sums"), part.grid, part.block, args)]
        if early != NONE:  # dh is there
            dy, y, dx2, masked = dx2, NONE, NONE, False
    cut = _rest(s, part, all_rows="x" in s.want or dx2 != NONE)
    args = (dy, y, X, GAMMA, beta, *KEPT, older(s), add2)
    out = (wanted(s, "x"), dx2, wanted(s, "gamma"), wanted(s, "beta"), Int(R), Int(C))
    if part is None:
        args = (*args, *out, Int(cut.log_tx), Int(s.accumulate), alpha)
        return [Call(named("backward_whole"), cut.grid, cut.block, args)]
    args = (*args, PART, *out, *cut_of(cut), Int(part.ranges), Int(s.accumulate), alpha)
    return [*first, Call(named("backward", masked), cut.grid, cut.block, args)]


def _ranges(s: Shapes) -> Columns | None:
    """How the statistics are cut into ranges of rows; None: one block takes all rows of a tile of columns."""
    R, C = matrix(s)
    if R <= FUSED_ROWS:
        return None
    return columns(R, C, 2 * (s.sms or CARD), 128, 4, threads=512)


def _rest(s: Shapes, part: Columns | None, all_rows: bool = True) -> Columns:
    """How what follows the statistics is cut; not all_rows: it only writes one value for each column."""
    (R, C), sms = matrix(s), s.sms or CARD
    if part is None:
        return columns(R, C, 1, 1, 1, threads=512, spread=sms)
    return _side_by_side(s) if all_rows else columns(R, C, 1, R, 4, threads=512)


def _side_by_side(s: Shapes) -> Columns:
    """All rows in blocks that run at once."""
    return columns(*matrix(s), 2 * (s.sms or CARD), MAX_Y, 4, threads=512)
