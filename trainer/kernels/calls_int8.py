"""Launches of operators that train in whole numbers (trainer/int8): forward in the device's integers, and what stands
before the float kernels of their backward pass. `Shapes.scales` says which entries of the role "scales" belong to the
inputs and, last, to the output; a kernel that makes an output's scale grow does so in the forward pass.

Backward, the float kernels run on the gradient without what was held at an end of int8, and on the weights that the
int8 stand for: both are made in the launch's scratch memory, and so are all whole numbers.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from ..ops.activations import IDS
from .call import Arg, Call, Dims, Float, Int, Kernel, Ref, Shapes, blocks, constants
from .grids import CARD, THREADS

WEIGHTED = ("linear", "conv2d", "depthwise_conv2d")
WHOLE = (*WEIGHTED, "add", "activation", "avgpool2d", "global_avg_pool")  # operators that have kernels here
ALIGN, SCALE, TILE = 256, 8, 64  # bytes: where arrays in scratch memory start, and of a scale; side of a tile
X, X2, Y, NONE = Ref("x"), Ref("x2"), Ref("y"), Ref("")


class _Scratch:
    """Hands out the launch's scratch memory from its start."""

    def __init__(self) -> None:
        self.bytes = 0

    def take(self, size: int) -> Ref:
        at, self.bytes = self.bytes, self.bytes + -(-size // ALIGN) * ALIGN
        return Ref("scratch", at, size)


def scale(place: int) -> Ref:
    return Ref("scales", SCALE * place, SCALE)


def forward(op: str, s: Shapes) -> tuple[list[Call], int]:
    """(launches, bytes of scratch memory)."""
    room = _Scratch()
    if op in WEIGHTED:
        return _weighted(op, s, room), room.bytes
    *x, y = (scale(place) for place in s.scales)
    n, act = prod(s.y) * s.N, IDS[s.a.activation]
    if op == "add":
        numbers = room.take(20)
        first = _call("int8_add.cu", "int8_add_numbers", (1, 1), (*x, y, numbers), ACT=act)
        return [first, _call("int8_add.cu", "int8_add", _flat(s, n), (X, X2, numbers, *x, y, Y, Int(n)), ACT=act)], (
            room.bytes
        )
    if op == "activation":
        table, alpha = room.take(256), _single(s.a.alpha)
        slope = Float(alpha), Float(s.a.alpha - alpha)
        first = _call("int8_activation.cu", "int8_table", (1, 256), (*x, y, table, *slope), ACT=act)
        args: tuple[Arg, ...] = (X, table, *x, y, Y, Int(n))
        return [first, _call("int8_activation.cu", "int8_activation", _flat(s, n), args, ACT=act)], room.bytes
    if op == "avgpool2d":
        (KH, KW), (SH, SW), (PT, PL, _, _) = s.a.kernel_size, s.a.stride, s.a.padding
        window = {"KH": KH, "KW": KW, "SH": SH, "SW": SW, "PT": PT, "PL": PL, "COUNT_PAD": s.a.count_include_pad}
        args = (X, *x, Y, *_ints(s.N, *s.x, *s.y[:2]))
        return [_call("int8_pools.cu", "int8_avgpool2d", _flat(s, n), args, **window)], 0
    P, C = s.x[0] * s.x[1], s.x[2]
    grown = _call("int8_pools.cu", "int8_mean_scale", (1, 1), (*x, y, Int(P)))
    args = (X, *x, y, Y, *_ints(s.N, P, C))
    return [grown, _call("int8_pools.cu", "int8_global_avg_pool", _flat(s, n), args)], 0


def before(op: str, s: Shapes) -> tuple[list[Call], int, dict[str, Ref]]:
    """(launches before those of the float operator's backward pass, bytes of scratch memory, and what those read in
    place of dy and weight)."""
    room, n, y = _Scratch(), s.N * prod(s.y), scale(s.scales[-1])
    instead = {"dy": room.take(4 * n)}
    calls = [_call("int8_round.cu", "int8_inside", _flat(s, n), (Ref("dy"), Y, y, instead["dy"], Int(n)))]
    if op in WEIGHTED and "x" in s.want:
        instead["weight"] = room.take(4 * prod(_weight_shape(op, s)))
        calls += _weights(op, s, room, rounded=instead["weight"])[1]
    return calls, room.bytes, instead


def over(call: Call, at: int, size: int, instead: dict[str, Ref]) -> Call:
    """A call of the float operator, whose `size` bytes of scratch memory start at `at`, and which reads other values in
    place of some."""

    def moved(arg: Arg) -> Arg:
        if not isinstance(arg, Ref):
            return arg
        if arg.role == "scratch":
            return replace(arg, offset=at + arg.offset, bytes=arg.bytes or size - arg.offset)
        return instead.get(arg.role, arg)

    return replace(call, args=tuple(moved(arg) for arg in call.args))


def round_calls(count: int, place: int, sms: int) -> list[Call]:
    """x, `count` values, as the int8 with that scale stand for them."""
    grid = (max(1, min(blocks(count, THREADS), 16 * (sms or CARD))), THREADS)
    return [_call("int8_round.cu", "int8_round", grid, (X, scale(place), Int(count)))]


# ---- layers with weights


def _weight_shape(op: str, s: Shapes) -> tuple[int, ...]:
    """(output channels, taps, input channels of each)"""
    O, C = s.y[-1], s.x[-1]
    if op == "linear":
        return O, 1, C
    taps = prod(s.a.kernel_size)
    return (O, taps, 1) if op == "depthwise_conv2d" else (O, taps, C // s.a.groups)


def _weights(
    op: str, s: Shapes, room: _Scratch, words: Ref = NONE, octets: Ref = NONE, rounded: Ref = NONE
) -> tuple[Ref, list[Call]]:
    """(numbers, the launches that make them and the arrays asked for)."""
    O, taps, C = _weight_shape(op, s)
    strides = (1, O) if op == "depthwise_conv2d" else (taps * C, 1)
    peaks, numbers, act = room.take(4 * O), room.take(4 * (2 * O + 4)), IDS[s.a.activation]
    weight, bias = Ref("weight"), Ref("bias") if getattr(s.a, "bias", 0) else NONE
    x, y = (scale(place) for place in s.scales)
    args: tuple[Arg, ...] = (weight, peaks, *_ints(taps * C, *strides))
    first = _call("int8_weights.cu", "int8_peaks", (O, 128), args, ACT=act)
    args = (weight, bias, peaks, x, y, numbers, words, octets, rounded, *_ints(O, taps * C, *strides, C, blocks(C, 4)))
    return numbers, [first, _call("int8_weights.cu", "int8_weights", (O, 128), args, ACT=act)]


def _weighted(op: str, s: Shapes, room: _Scratch) -> list[Call]:
    O, taps, C = _weight_shape(op, s)
    x, y = (scale(place) for place in s.scales)
    if op == "depthwise_conv2d":
        octets = room.take(O * taps)
        numbers, calls = _weights(op, s, room, octets=octets)
        args: tuple[Arg, ...] = (X, octets, numbers, x, y, Y, *_ints(s.N, *s.x, *s.y[:2]), *_window(s))
        return [*calls, _call("int8_depthwise.cu", "int8_depthwise", _flat(s, s.N * prod(s.y)), args)]
    if op == "linear":
        images, (H, W), (Ho, Wo), groups = s.N * prod(s.x[:-1]), (1, 1), (1, 1), 1
        window = _ints(1, 1, 1, 1, 0, 0, 1, 1)
    else:
        images, (H, W), (Ho, Wo), groups, window = s.N, s.x[:2], s.y[:2], s.a.groups, _window(s)
    Cw = blocks(C, 4)
    words, count = room.take(4 * O * taps * Cw), images * H * W * groups * Cw
    packed = room.take(4 * count)
    numbers, calls = _weights(op, s, room, words=words)
    calls.append(_call("int8_product.cu", "int8_pack", _flat(s, count), (X, x, packed, *_ints(count, C, Cw))))
    grid: Dims = (blocks(images * Ho * Wo, TILE), blocks(O // groups, TILE), groups)
    args = (packed, words, numbers, x, y, Y, *_ints(images, H, W, Cw, O // groups, Ho, Wo), *window, Int(groups))
    return [*calls, Call(Kernel("int8_product.cu", "int8_product"), grid, (256, 1, 1), args)]


def _window(s: Shapes) -> tuple[Int, ...]:
    return _ints(*s.a.kernel_size, *s.a.stride, *s.a.padding[:2], *s.a.dilation)


def _ints(*values: int) -> tuple[Int, ...]:
    return tuple(Int(v) for v in values)


def _single(value: float) -> float:
    """The float32 nearest to a number."""
    from struct import pack, unpack

    return float(unpack("<f", pack("<f", value))[0])


def _flat(s: Shapes, n: int) -> tuple[int, int]:
    """(blocks, threads) for n values, one a thread at a time."""
    return max(1, min(blocks(n, THREADS), 16 * (s.sms or CARD))), THREADS


def _call(file: str, name: str, grid: tuple[int, int], args: tuple[Arg, ...], **macros: int) -> Call:
    return Call(Kernel(file, name, constants(**macros)), (grid[0], 1, 1), (grid[1], 1, 1), args)
