"""Launches of a step that belong to no operator: loss, update, sums of gradients, and looking for NaN.

Roles: z, target, class_weights -> dz, loss, correct, history · weights, gradients, velocity | m, v, bounds,
rate_starts, rate_factors -> partials · weights -> average · step, scaling · counters (int32, zero between launches).
STEP and SCALING are the structs of common.cuh as the host writes them; where activations are floats no launch has the
role "scaling".

What the host wants to know of each step stands in rows, which it reads now and then: the loss's in "history", and in
"partials" sums of squares that make the norm of the gradients (norms).
"""

from __future__ import annotations

from collections.abc import Iterable
from math import log, prod

import numpy as np

from ..losses import BoundLoss
from ..ops import Shape
from ..optimizers import SGD, Adam, Optimizer
from .call import Arg, Call, Float, Int, Kernel, Ref, blocks
from .grids import CARD, THREADS, flat, power

STEP = np.dtype(
    [
        ("seed", "<u4", 2),
        ("micro", "<u4", 2),
        ("cursor", "<i4"),
        ("t", "<i4"),  # from 1: the update under way
        ("lr", "<f4"),
        ("grad_scale", "<f4"),
        ("share", "<f4"),
        ("blend", "<f4"),
        ("box", "<i4", 4),
        ("pad", "<u4"),
        ("epoch", "<u4"),  # from 0
    ]
)
LETTERS = {"u": "I", "i": "i", "f": "f"}


def _packed(field: np.dtype) -> str:
    kind, shape = field.subdtype or (field, (1,))
    return f"{prod(shape)}{LETTERS[kind.kind]}"


# the same for struct.pack, which writes all fields in one call
STEP_FORMAT = "<" + "".join(_packed(STEP[name]) for name in STEP.names or ())
# Loss scaling. It begins high: an update or two are skipped until it fits, which costs less than small gradients
# lost for long. update.cu halves it after an overflow, and doubles it after 2000 good updates.
SCALING = np.dtype([("scale", "<f4"), ("good", "<i4"), ("skipped", "<i4"), ("inverse", "<f4")])
FIRST_SCALE = 65536.0
HISTORY_ROW = ("loss", "correct", "loss_scale", "skipped")  # float32, of a block; skipped: updates before this step's
NOT_FOUND = 2**31 - 1  # what finite_calls leaves of its result
LOSS_THREADS, MOST_LOSS_BLOCKS = 128, 64
MAX_PARTIALS = 512  # float64 sums one update leaves in "partials"


def scaling() -> np.ndarray:
    """The value of the role "scaling" before the first step."""
    return np.array([(FIRST_SCALE, 0, 0, 0)], SCALING)


def loss_calls(
    loss: BoundLoss, N: int, shape: Shape, classes: bool, history: int, width: int = 0, half: bool = False,
    mixed: bool = False,
) -> list[Call]:  # fmt: skip
    """z (N, *shape) -> dz, and the figures of the batch into the role "history" (history, width, HISTORY_ROW). classes:
    the target holds class numbers, else values as many as z. width: loss_blocks of the most samples there may be, 0: of
    these. half: z and dz are stored in half precision, and dz is multiplied by the loss scale. mixed: a batch was mixed
    with itself in opposite order, which cross_entropy takes."""
    settings, R, C = loss.settings, N * prod(shape[:-1]), shape[-1]
    log_g = _loss_lanes(C, classes).bit_length() - 1
    z, dz, target = Ref("z"), Ref("dz"), Ref("target")
    figures = (_scaling(half), Ref("step"), Ref("history"), Int(history))
    sizes = (Int(R), Int(C), Int(log_g))
    args: tuple[Arg, ...]
    if loss.name == "cross_entropy":
        weights = Ref("class_weights" if settings.get("class_weights") is not None else "")
        smoothing = Float(settings.get("label_smoothing", 0.0))
        name, args = loss.name, (z, target, weights, dz, *figures, *sizes, smoothing, Int(mixed))
    elif loss.name == "logit_margin":
        name, args = loss.name, (z, target, dz, *figures, *sizes, Float(settings.get("m", 0.3)))
    elif classes:
        name, args = f"{loss.name}_classes", (z, target, dz, *figures, *sizes)
    else:
        name, args = f"{loss.name}_values", (z, target, dz, *figures, Int(R * C), Int(C == 1))
    grid = (width or loss_blocks(N, shape, classes), 1, 1)
    return [Call(Kernel("losses.cu", f"{name}_f32", _real(half)), grid, (LOSS_THREADS, 1, 1), args)]


def loss_blocks(N: int, shape: Shape, classes: bool) -> int:
    """Blocks of loss_calls: each leaves figures of its own, since waiting for the last takes longer than the sums."""
    R, C = N * prod(shape[:-1]), shape[-1]
    items = R * _loss_lanes(C, classes) if classes else blocks(R * C, 4)
    return min(blocks(items, LOSS_THREADS), MOST_LOSS_BLOCKS)


def _loss_lanes(C: int, classes: bool) -> int:
    """Lanes that share a row."""
    return min(32, power(C)) if classes else 1


def figures(rows: np.ndarray) -> np.ndarray:
    """(n, width, 4) of the role "history" -> (n, 4) of HISTORY_ROW, float64: the blocks' sums added in their order."""
    out = rows[:, 0].astype(np.float64)
    out[:, :2] = rows[:, :, :2].sum(1, dtype=np.float64)
    return out


def _scaling(half: bool) -> Ref:
    return Ref("scaling" if half else "")


def _real(half: bool) -> tuple[tuple[str, str | int], ...]:
    return (("REAL", "Half"),) if half else ()


def partial_count(n: int, sms: int = 0) -> int:
    """How many float64 sums of squares the update of n weights leaves in "partials"."""
    return max(1, min(blocks(n, 4 * THREADS), 4 * (sms or CARD), MAX_PARTIALS))


def decay_bounds(tensors: Iterable[tuple[int, int, bool]]) -> np.ndarray:
    """The role "bounds": of (first element, elements, whether it decays), ascending, where decay begins and ends in
    turn, in units of four elements."""
    bounds: list[int] = []
    for at, size, decay in tensors:
        if decay:
            start, end = at // 4, blocks(at + size, 4)
            if bounds and bounds[-1] == start:
                bounds[-1] = end
            else:
                bounds += [start, end]
    return np.array(bounds, np.int32)


def rate_groups(tensors: Iterable[tuple[int, float]]) -> tuple[np.ndarray, np.ndarray]:
    """The roles "rate_starts" and "rate_factors": of (first element, factor) of each tensor, ascending."""
    starts, factors = list[int](), list[float]()
    for at, factor in tensors:
        if not factors or factors[-1] != factor:
            starts.append(at // 4)
            factors.append(factor)
    return np.array(starts, np.int32), np.array(factors, np.float32)


def update_calls(
    rule: Optimizer,
    n: int,
    bounds: int,
    clip_value: float = 0.0,
    clip_norm: float = 0.0,
    first: int = 0,
    sms: int = 0,
    half: bool = False,
    history: int = 1,
    in_row: int = 0,
    groups: int = 0,
    group: int = 0,
) -> list[Call]:
    """Update n weights. bounds: the length of the role "bounds". history, in_row: rows of "partials", and sums in each;
    first: where in a row this update's sums begin. groups: how many rates of their own the roles "rate_starts" and
    "rate_factors" have, from `group` on.

    One launch; where the norm has to be known before, two: for clip_norm, and for half, where gradients carry the loss
    scale. Else each tensor can be updated by itself as soon as its gradient is complete.
    """
    S = partial_count(n, sms)
    grid, block = (S, 1, 1), (THREADS, 1, 1)
    partials, gradients, step = Ref("partials", 8 * first), Ref("gradients"), Ref("step")
    place = (Int(history), Int(in_row))
    calls = []
    if clip_norm or half:
        counter = Ref("counters" if half else "")
        args = (gradients, step, _scaling(half), partials, counter, Int(n), *place, Float(clip_value))
        calls.append(Call(Kernel("update.cu", "gradient_norm_f32"), grid, block, args))
    shared: tuple[Arg, ...] = (
        gradients, step, _scaling(half), Ref("bounds" if bounds else ""), Ref("rate_starts" if groups > 1 else ""),
        Ref("rate_factors", 4 * group) if groups else Ref(""), partials, Int(n), Int(bounds), Int(groups),
        Int(S if calls else 0), *place, Float(rule.weight_decay), Float(clip_value), Float(clip_norm),
    )  # fmt: skip
    states = tuple(Ref(state) for state in rule.states)
    own: tuple[Arg, ...]
    if isinstance(rule, Adam):
        b1, b2 = rule.beta1, rule.beta2
        name = "adam"
        own = (
            Float(b1), Float(1 - b1), Float(_log(b1)), Float(b2), Float(1 - b2), Float(_log(b2)), Float(rule.eps),
            Int(rule.decoupled),
        )  # fmt: skip
    elif isinstance(rule, SGD) and states:
        name, own = "momentum", (Float(rule.momentum), Int(rule.nesterov))
    elif isinstance(rule, SGD):
        name, own = "sgd", ()
    else:
        raise ValueError(f"optimizer {rule.name} has no CUDA kernel; train on the CPU")
    kernel = Kernel("update.cu", f"update_{name}_f32")
    return [*calls, Call(kernel, grid, block, (Ref("weights"), *states, *shared, *own))]


def average_calls(n: int, decay: float, sms: int = 0) -> list[Call]:
    """The role "average" follows n weights."""
    grid, block = flat(n, sms)
    args = (Ref("weights"), Ref("average"), Ref("step"), Int(n), Float(decay))
    return [Call(Kernel("average.cu", "average_f32"), grid, block, args)]


def sum_parts(R: int) -> int:
    """Into how many parts channel_sums_calls cuts R rows."""
    return max(1, min(32, R // 512))


def channel_sums_calls(R: int, C: int, offset: int, half: bool = False) -> list[Call]:
    """Of x (R, C) into the role "layer_sums" at byte `offset`: float64 (sum_parts(R), C, 3), see layer_sums.cu."""
    grid = (blocks(C, 32), sum_parts(R), 1)
    args = (Ref("x"), Ref("layer_sums", offset), Int(R), Int(C))
    return [Call(Kernel("layer_sums.cu", "channel_sums_f32", _real(half)), grid, (32, 8, 1), args)]


def square_blocks(n: int) -> int:
    """Blocks of squares_calls: each leaves two sums."""
    return max(1, min(blocks(n, 8 * THREADS), 32))


def squares_calls(n: int, offset: int, a: Ref, b: Ref) -> list[Call]:
    """Sums of a^2 and of (a - b)^2 into "layer_sums" at byte `offset`: float64 (square_blocks(n), 2)."""
    args = (a, b, Ref("layer_sums", offset), Int(n))
    return [Call(Kernel("layer_sums.cu", "squares_f32"), (square_blocks(n), 1, 1), (THREADS, 1, 1), args)]


def _log(b: float) -> float:
    return log(b) if b > 0 else float("-inf")


def norms(partials: np.ndarray) -> np.ndarray:
    """The norms of the gradients (float32), from rows of the role "partials"; infinite or NaN where an update was
    skipped because they overflowed."""
    with np.errstate(invalid="ignore", over="ignore"):
        return np.sqrt(partials.sum(-1)).astype(np.float32)


def finite_calls(n: int, role: str, at: int = 0, half: bool = False, sms: int = 0) -> list[Call]:
    """Where in the n values of `role` the first NaN or infinity is: into word `at` of the role "finite" (int32), which
    must hold NOT_FOUND before and then still does where all are finite. half: of the values' storage."""
    grid, block = flat(n, sms)
    args = (Ref(role), Ref("finite", 4 * at), Int(n))
    return [Call(Kernel("finite.cu", "finite_f32", _real(half)), grid, block, args)]


def sum_calls(n: int, sms: int = 0, half: bool = False) -> list[Call]:
    """y = a + b, where a tensor's gradient comes from several nodes."""
    grid, block = flat(n, sms)
    return [Call(Kernel("sum.cu", "sum_f32", _real(half)), grid, block, (Ref("a"), Ref("b"), Ref("y"), Int(n)))]


def fold_call(S: int, out1: Ref, n1: int, out2: Ref, n2: int, accumulate: bool) -> Call:
    """The sums of S partial results of n1 + n2 values at the start of scratch."""
    groups = min(32, power(blocks(S, 4)))
    args = (Ref("scratch"), out1, out2, Int(S), Int(n1), Int(n2), Int(accumulate))
    return Call(Kernel("sum.cu", "fold_f32"), (blocks(n1 + n2, 32), 1, 1), (32 * groups, 1, 1), args)
