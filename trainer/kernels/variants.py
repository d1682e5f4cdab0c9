"""What the launches of linear, conv2d and embed_projection have in common: variants, arguments, split sums."""

from __future__ import annotations

from dataclasses import dataclass

from ..ops import Attrs
from ..ops.activations import IDS
from .call import Arg, Call, Float, Int, Kernel, Ref, Shapes, blocks, constants
from .tiles import Tile, joins

NULL = Ref("")  # no launch has a role of that name


@dataclass(frozen=True)
class Variant:
    """One way to do a part. scratch: bytes of Ref("scratch"), dead after the last of the calls."""

    name: str
    calls: tuple[Call, ...]
    scratch: int = 0


@dataclass(frozen=True)
class SplitForm:
    """What a split sum adds to a kernel: the macro SPLIT, and its arguments part and counters."""

    macro: dict[str, int]
    refs: tuple[Ref, Ref]

    def scratch(self, t: Tile, count: int, splits: int, results: int) -> int:
        """Bytes for the parts of `results` values in `count` tiles."""
        if self == SECOND:
            return 4 * splits * results
        return 4 * splits * count * t.part if self == LAST else 0


WHOLE = SplitForm({}, (NULL, NULL))
SECOND = SplitForm({"SPLIT": 1}, (Ref("scratch"), NULL))  # a second launch adds the parts
LAST = SplitForm({"SPLIT": 2}, (Ref("scratch"), Ref("counters")))  # the last block of each tile does


def split_form(t: Tile, count: int, splits: int) -> SplitForm:
    if splits == 1:
        return WHOLE
    return LAST if joins(t, count, splits) else SECOND


def vector(n: int) -> int:
    return 4 if n % 4 == 0 else 1


def act_id(a: Attrs) -> int:
    return IDS[a.activation]


def has_bias(s: Shapes) -> bool:
    return bool(getattr(s.a, "bias", 0)) and "bias" in s.want


def older_dx(s: Shapes) -> Ref:
    return Ref("add:x") if "x" in s.adds else NULL


def storage(s: Shapes) -> dict[str, str]:
    """The macro that says how activations are stored, where it is not as float."""
    return {"REAL": "Half"} if s.half else {}


def ints(*values: int) -> tuple[Int, ...]:
    return tuple(Int(v) for v in values)


def divisor(d: int) -> tuple[Int, Int]:
    """(mul, shift) of gemm.cuh's Divisor: n / d = (umulhi(n, mul) + n) >> shift."""
    shift = (d - 1).bit_length()
    mul = ((1 << 32) * ((1 << shift) - d)) // d + 1
    return Int(mul - (1 << 32) if mul >= 1 << 31 else mul), Int(shift)


def sum_parts(
    file: str,
    act: int,
    alpha: float,
    splits: int,
    out: int,
    cols: int,
    args: tuple[Arg, ...],
    out2: int = 0,
    stored: dict[str, str] | None = None,
) -> Call:
    """The second pass of a split sum (add_parts of gemm.cuh). args: bias, older, older2, out, out2. stored: `storage`
    where the results are activations or their gradients."""
    lanes = 8 if splits > 8 else 1
    op = file.removesuffix(".cu")
    macro = "CONV_SUM" if op == "conv2d" else "LINEAR_SUM"
    kernel = Kernel(file, f"{op}_sum_f32", constants(**{macro: 1}, ACT=act, ZL=lanes, **(stored or {})))
    sizes: tuple[Arg, ...] = (*ints(out, out2, cols, splits), Float(alpha))
    return Call(kernel, (blocks(out + out2, 256 // lanes), 1, 1), (256, 1, 1), (Ref("scratch"), *args, *sizes))


def naive_grid(n: int) -> tuple[int, int, int]:
    return (min(blocks(n, 128), 1 << 20), 1, 1)


def sum_gradients(file: str, s: Shapes, splits: int, dw: int, db: int) -> Call:
    older = (Ref("d:weight"), Ref("d:bias")) if s.accumulate else (NULL, NULL)
    out = (NULL, older[0], older[1] if db else NULL, Ref("d:weight"), Ref("d:bias") if db else NULL)
    return sum_parts(file, 0, 0.0, splits, dw, 1, out, db)
