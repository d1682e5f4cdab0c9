"""The launches of conv2d and of conv2d_pool (with `pool`, y and dy are the pooled ones): tiles, Winograd, the direct
kernels, and the plain formulas for the rest."""

from __future__ import annotations

from dataclasses import dataclass

from . import calls_moments
from .call import Arg, Call, Dims, Float, Int, Kernel, Ref, Shapes, blocks, constants
from .calls_winograd import with_winograd
from .tiles import DEFAULT_SMS, SPLITS, ranked
from .variants import (
    LAST,
    NULL,
    SECOND,
    Variant,
    act_id,
    divisor,
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


@dataclass(frozen=True)
class _Conv:
    """A convolution's sizes, and which of the fast kernels it fits. pool: Ho and Wo count the sums in windows."""

    N: int
    H: int
    W: int
    C: int
    O: int
    Ho: int
    Wo: int
    kernel: tuple[int, int]
    stride: tuple[int, int]
    pad: tuple[int, int]  # top, left: bottom and right are in Ho and Wo already
    dilation: tuple[int, int]
    groups: int
    pool: bool

    @property
    def taps(self) -> int:
        return self.kernel[0] * self.kernel[1]

    @property
    def tiled(self) -> bool:
        return self.groups == 1 and self.taps <= 32

    @property
    def plain(self) -> bool:
        return self.stride == (1, 1) and self.dilation == (1, 1) and self.groups == 1

    @property
    def first(self) -> bool:
        """Few enough channels and taps that a pixel's whole sum fits into registers."""
        return self.plain and self.C <= 3 and self.taps * self.C <= 27

    @property
    def winners(self) -> bool:
        """conv2d_pool_wgrad.cu: lanes for the channels, registers for the taps of 8 outputs."""
        return self.pool and self.plain and self.C >= 8 and self.taps <= 9

    @property
    def y(self) -> tuple[int, int]:
        return (self.Ho // 2, self.Wo // 2) if self.pool else (self.Ho, self.Wo)

    @property
    def macros(self) -> dict[str, int]:
        return {"POOL": 1} if self.pool else {}

    @property
    def index(self) -> Ref:
        return Ref("index") if self.pool else NULL

    @property
    def window(self) -> tuple[Int, ...]:
        return ints(*self.kernel, *self.stride, *self.pad, *self.dilation)

    def sizes(self, height: int, width: int) -> tuple[Int, ...]:
        """SIZES of conv2d.cu but per_split; rows are divided by height * width and width."""
        dims = ints(self.N, self.H, self.W, self.C, self.O, self.Ho, self.Wo)
        return (*dims, *self.window, *divisor(height * width), *divisor(width))

    def naive_sizes(self) -> tuple[Int, ...]:
        dims = ints(self.N, self.H, self.W, self.C, self.O, self.Ho, self.Wo)
        return (*dims, *self.window, Int(self.groups))


def _conv(s: Shapes, pool: bool) -> _Conv:
    a, (H, W, C), (Hy, Wy, O) = s.a, s.x, s.y
    Ho, Wo = (2 * Hy, 2 * Wy) if pool else (Hy, Wy)
    window = (tuple(a.kernel_size), tuple(a.stride), tuple(a.padding[:2]), tuple(a.dilation))
    return _Conv(s.N, H, W, C, O, Ho, Wo, *window, a.groups, pool)


def conv_parts(direction: str, s: Shapes, pool: bool = False) -> dict[str, list[Variant]]:
    c = _conv(s, pool)
    if direction != "backward":
        first = [_first_forward(direction, s, c)] if c.first else []
        if c.tiled:
            plain = _conv_forward(direction, s, c)
        else:
            plain = [_passed(_naive_forward(s, c), direction, s)]
        return {"forward": [*first, *with_winograd(direction, s, plain, pool)]}
    found = {}
    if "x" in s.want:
        plain = _conv_dgrad(s, c) if c.tiled and not pool else []
        direct = _winners_dgrad(s, c) if pool else []
        others = with_winograd("dgrad", s, plain, pool)
        found["dgrad"] = ([*direct, *others] if c.C >= 16 else [*others, *direct]) or [_naive_dgrad(s, c)]
    if "weight" in s.want:
        direct = [_first_wgrad(s, c)] if c.first else [_winners_wgrad(s, c)] if c.winners else []
        plain = _conv_wgrad(s, c) if c.tiled else [_naive_wgrad(s, c)]
        found["wgrad"] = [*direct, *with_winograd("wgrad", s, plain, pool)]
    return found


def _passed(v: Variant, direction: str, s: Shapes) -> Variant:
    """A forward variant whose kernels leave no moments, with the launch that finds them if they are wanted."""
    return calls_moments.with_pass(v, direction, s) if calls_moments.wanted(direction, s) else v


def _conv_forward(direction: str, s: Shapes, c: _Conv) -> list[Variant]:
    """Those that leave moments may need scratch memory for it where they need none else: then one more does without."""
    found = _tiles_forward(direction, s, c)
    if calls_moments.wanted(direction, s) and min(v.scratch for v in found) > 0:
        plain = next(v for v in _tiles_forward("forward", s, c) if v.scratch == 0)
        named = Variant(plain.name + calls_moments.PASS, plain.calls)
        found.append(calls_moments.with_pass(named, direction, s))
    return found


def _tiles_forward(direction: str, s: Shapes, c: _Conv) -> list[Variant]:
    act, alpha, M = act_id(s.a), s.a.alpha, c.N * c.Ho * c.Wo
    found: dict[str, Variant] = {}
    for t, splits in ranked(M, c.O, lambda t: c.taps * blocks(c.C, t.bk), s.sms):
        steps, count = c.taps * blocks(c.C, t.bk), t.cover(M, c.O)
        per = blocks(steps, splits)
        form = split_form(t, count, blocks(steps, per))
        if form == SECOND and c.pool:  # its second launch would not know the windows
            per, form = steps, split_form(t, count, 1)
        splits = blocks(steps, per)
        parts = form.scratch(t, count, splits, M * c.O)
        rows = calls_moments.rows(s, blocks(M, t.bm), blocks(c.O, t.bn), t.bn)
        counter, at = count if form == LAST else 0, blocks(parts, 16) * 16
        leaves = calls_moments.wanted(direction, s) and form != SECOND and rows.fit(counter)
        macros = {"TILE": t.text, "VC": vector(c.C), "ACT": 0 if form == SECOND else act, **form.macro, **c.macros}
        macros |= {"MOMENTS": 1} if leaves else {}
        kernel = Kernel("conv2d.cu", "conv2d_forward_f32", constants(CONV_FORWARD=1, **macros, **storage(s)))
        args: tuple[Arg, ...] = (
            *(Ref("x"), Ref("weight"), Ref("bias"), Ref("y"), c.index, *form.refs),
            *c.sizes(*c.y),
            *ints(per),
            Float(alpha),
            *(rows.args(direction, at, counter) if leaves else calls_moments.NO_ROWS),
        )
        calls: tuple[Call, ...] = (Call(kernel, (count, splits, 1), (t.threads, 1, 1), args),)
        if form == SECOND:
            out = (Ref("bias"), NULL, NULL, Ref("y"), NULL)
            calls += (sum_parts("conv2d.cu", act, alpha, splits, M * c.O, c.O, out, stored=storage(s)),)
        name = f"{t.name} k{splits}"
        v = Variant(name, calls, at + rows.bytes if leaves else parts)
        found[name] = v if leaves else _passed(v, direction, s)
    return list(found.values())


def _conv_dgrad(s: Shapes, c: _Conv) -> list[Variant]:
    strided = c.stride != (1, 1)
    sh, sw = c.stride
    rows = c.N * blocks(c.H, sh) * blocks(c.W, sw)  # of the largest residue
    taps = max(1, c.taps // (sh * sw))  # that a pixel meets, about
    found = []
    for t, splits in ranked(
        rows * sh * sw, c.C, lambda t: taps * blocks(c.O, t.bk), s.sms, (1,) if strided else SPLITS
    ):
        if strided and not t.strided:
            continue
        steps, count = c.taps * blocks(c.O, t.bk), t.cover(rows, c.C)
        per = blocks(steps, splits)
        splits = blocks(steps, per)
        form = split_form(t, count, splits)
        macros = {"TILE": t.text, "VC": vector(c.C), "VO": vector(c.O), "ACT": act_id(s.a), "STRIDED": int(strided)}
        args: tuple[Arg, ...] = (
            *(Ref("dy"), Ref("y"), Ref("weight"), older_dx(s), Ref("d:x"), *form.refs),
            *c.sizes(c.H, c.W),
            *ints(per),
            Float(s.a.alpha),
        )
        kernel = Kernel("conv2d.cu", "conv2d_dgrad_f32", constants(CONV_DGRAD=1, **macros, **form.macro, **storage(s)))
        calls: tuple[Call, ...] = (Call(kernel, (count, splits, sh * sw), (t.threads, 1, 1), args),)
        if form == SECOND:
            out = (NULL, older_dx(s), NULL, Ref("d:x"), NULL)
            calls += (sum_parts("conv2d.cu", 0, 0.0, splits, rows * c.C, 1, out, stored=storage(s)),)
        found.append(Variant(f"{t.name} k{splits}", calls, form.scratch(t, count, splits, rows * c.C)))
    return found


def _conv_wgrad(s: Shapes, c: _Conv) -> list[Variant]:
    pixels, K, db = c.N * c.Ho * c.Wo, c.taps * c.C, c.O if has_bias(s) else 0
    found = []
    for t, splits in ranked(c.O, K, lambda t: blocks(pixels, t.bk), s.sms):
        per = blocks(blocks(pixels, t.bk), splits) * t.bk
        splits, count = blocks(pixels, per), t.cover(c.O, K)
        form = split_form(t, count, splits)
        macros = {"TILE": t.text, "VC": vector(c.C), "VO": vector(c.O), "ACT": act_id(s.a), **form.macro, **c.macros}
        args: tuple[Arg, ...] = (
            *(Ref("dy"), Ref("y"), c.index, Ref("x"), Ref("d:weight"), Ref("d:bias") if db else NULL, *form.refs),
            *c.sizes(*c.y),
            *ints(per, int(s.accumulate)),
            Float(s.a.alpha),
        )
        kernel = Kernel("conv2d.cu", "conv2d_wgrad_f32", constants(CONV_WGRAD=1, **macros, **storage(s)))
        calls: tuple[Call, ...] = (Call(kernel, (count, splits, 1), (t.threads, 1, 1), args),)
        if form == SECOND:
            calls += (sum_gradients("conv2d.cu", s, splits, c.O * K, db),)
        found.append(Variant(f"{t.name} k{splits}", calls, form.scratch(t, count, splits, c.O * K + db)))
    return found


# ---- the direct kernels


def _least_cut(c: _Conv, tiles: tuple[tuple[int, int], ...]) -> tuple[int, int]:
    """The tile (rows, columns of y) of which the least lies outside the images."""
    Hy, Wy = c.y
    return min(tiles, key=lambda t: blocks(Hy, t[0]) * t[0] * blocks(Wy, t[1]) * t[1])


def _tiles(c: _Conv, tile: tuple[int, int]) -> tuple[int, tuple[Int, ...]]:
    """How many tiles cover y, and the divisors that find one."""
    down, across = blocks(c.y[0], tile[0]), blocks(c.y[1], tile[1])
    return c.N * down * across, (*divisor(down * across), *divisor(across))


def _first_macros(s: Shapes, c: _Conv) -> dict[str, str | int]:
    return {
        **{"FC": c.C, "FKH": c.kernel[0], "FKW": c.kernel[1], "ACT": act_id(s.a), "POOL": int(c.pool)},
        **storage(s),
    }


def _first_forward(direction: str, s: Shapes, c: _Conv) -> Variant:
    side = 2 if c.pool else 1
    tile = _least_cut(c, tuple((32 // n // side, 8 * n // side) for n in (8, 4, 2, 1)))
    tiles, divisors = _tiles(c, tile)
    turns = blocks(c.O, 32)
    grid = (min(tiles, blocks(2 * (s.sms or DEFAULT_SMS), turns)), turns, 1)  # 2 to a multiprocessor
    rows = calls_moments.rows(s, grid[0], turns, 32)
    leaves = calls_moments.wanted(direction, s) and rows.fit()
    macros = _first_macros(s, c) | {"ACROSS": tile[1] * side // 8} | ({"MOMENTS": 1} if leaves else {})
    kernel = Kernel("conv2d_first.cu", "conv2d_first_forward_f32", constants(CONV_FORWARD=1, **macros))
    args: tuple[Arg, ...] = (
        *(Ref("x"), Ref("weight"), Ref("bias"), Ref("y"), c.index),
        *ints(c.N, c.H, c.W, c.O, *c.y, *c.pad),
        *divisors,
        Float(s.a.alpha),
        *(rows.args(direction, 0) if leaves else calls_moments.NO_ROWS),
    )
    v = Variant("first", (Call(kernel, grid, (256, 1, 1), args),), rows.bytes if leaves else 0)
    return v if leaves else _passed(v, direction, s)


def _first_wgrad(s: Shapes, c: _Conv) -> Variant:
    sides = (8, 4, 16, 2) if c.pool else (16, 8, 32, 4)
    tile = _least_cut(c, tuple(((32 if c.pool else 64) // n, n) for n in sides))
    tiles, divisors = _tiles(c, tile)
    turns, resident = blocks(c.O, 32), 3 if c.pool else 2  # blocks of a multiprocessor
    parts = min(tiles, blocks(resident * (s.sms or DEFAULT_SMS), turns))
    kernel = Kernel(
        "conv2d_first.cu", "conv2d_first_wgrad_f32", constants(CONV_WGRAD=1, TW=tile[1], **_first_macros(s, c))
    )
    return _direct_wgrad(s, c, "first", kernel, (parts, turns, 1), parts, ints(c.N, c.H, c.W, c.O), divisors)


def _winners_wgrad(s: Shapes, c: _Conv) -> Variant:
    tile = _least_cut(c, ((2, 8), (4, 4), (8, 2), (1, 16)))
    steps, divisors = _tiles(c, tile)
    warps = 4 if c.O <= 32 else 8
    tiles = blocks(c.O, 8 * warps) * blocks(c.C, 32)
    parts = max(1, min(steps, (s.sms or DEFAULT_SMS) // tiles))
    parts = blocks(steps, blocks(steps, parts))  # all take as many steps, but the last
    macros = {"FKH": c.kernel[0], "FKW": c.kernel[1], "OW": warps, "TH": tile[0], "TW": tile[1], "VC": vector(c.C)}
    kernel = Kernel("conv2d_pool_wgrad.cu", "conv2d_pool_wgrad_f32", constants(ACT=act_id(s.a), **macros, **storage(s)))
    return _direct_wgrad(s, c, "winners", kernel, (tiles, parts, 1), parts, ints(c.N, c.H, c.W, c.C, c.O), divisors)


def _winners_dgrad(s: Shapes, c: _Conv) -> list[Variant]:
    """conv2d_pool_dgrad.cu, where its windows reach all of the image: the warps of a block as many across as the width
    takes, as many down as soonest done, and the rest share the channels."""
    (Hp, Wp), sms, (top, left) = c.y, s.sms or DEFAULT_SMS, c.pad
    across = next((n for n in (1, 2, 4, 8, 16) if Wp <= 4 * n and 8 * n + 2 - left >= c.W), 0)
    if not (c.plain and c.kernel == (3, 3) and across):
        return []

    def bands(down: int) -> int:
        return blocks(Hp, 2 * down)

    def cost(down: int) -> float:
        rounds = blocks(c.N * bands(down) * blocks(c.C, 32), sms)
        turns = blocks(c.O, 8) * max(across * down // 2, 1) + 8  # and what a block does at its ends
        return rounds * turns + (8 if bands(down) > 1 else 0)

    fitting = [n for n in (1, 2, 4, 8, 16) if 2 <= n * across <= 16 and 4 * n * bands(n) + 2 - top >= c.H]
    if not fitting:
        return []
    down = min(fitting, key=cost)
    many, across_and_down = bands(down), {"WR": down, "WC": across}
    images = 16 // (down * across) * (4 * down + 2) * (8 * across + 2)  # pixels; of each group of warps one
    macros = {"ACT": act_id(s.a), "PASS": 16 if 64 * images <= 47 << 10 else 8, **across_and_down, **storage(s)}
    file = "conv2d_pool_dgrad.cu"
    args: tuple[Arg, ...] = (
        *(Ref("dy"), Ref("y"), c.index, Ref("weight"), older_dx(s), Ref("d:x"), Ref("scratch")),
        *ints(c.H, c.W, c.C, c.O, Hp, Wp, top, left, many),
        Float(s.a.alpha),
    )
    grid = (c.N * many * blocks(c.C, 32), 1, 1)
    calls = [Call(Kernel(file, "conv2d_pool_dgrad_f32", constants(CONV_DGRAD=1, **macros)), grid, (512, 1, 1), args)]
    edges = c.N * (many - 1) * 2 * c.W * c.C
    if edges:
        kernel = Kernel(file, "conv2d_pool_edges_f32", constants(CONV_EDGES=1, **across_and_down, **storage(s)))
        sizes = ints(c.N, c.H, c.W, c.C, top, many)
        calls.append(Call(kernel, (blocks(edges, 256), 1, 1), (256, 1, 1), (Ref("scratch"), Ref("d:x"), *sizes)))
    return [Variant(f"winners {2 * down}x{4 * across}", tuple(calls), 4 * edges)]


def _direct_wgrad(
    s: Shapes,
    c: _Conv,
    name: str,
    kernel: Kernel,
    grid: Dims,
    parts: int,
    dims: tuple[Int, ...],
    divisors: tuple[Int, ...],
) -> Variant:
    """A direct kernel that writes `parts` parts of dw and db, and the launch that adds them."""
    db, dw = c.O if has_bias(s) else 0, c.O * c.taps * c.C
    args: tuple[Arg, ...] = (
        *(Ref("dy"), Ref("y"), c.index, Ref("x"), Ref("scratch")),
        *(*dims, *ints(*c.y, *c.pad), *divisors, Int(int(db > 0))),
        Float(s.a.alpha),
    )
    threads = 512 if name == "winners" else 256
    calls = (Call(kernel, grid, (threads, 1, 1), args), sum_gradients("conv2d.cu", s, parts, dw, db))
    return Variant(f"{name} k{parts}", calls, 4 * parts * (dw + db))


# ---- the plain formulas


def _naive(s: Shapes, c: _Conv, name: str, n: int, refs: tuple[Ref, ...], more: tuple[Int, ...] = ()) -> Variant:
    macros = constants(ACT=act_id(s.a), POOL=int(c.pool), **storage(s))
    args: tuple[Arg, ...] = (*refs, *c.naive_sizes(), *more, Float(s.a.alpha))
    kernel = Kernel("conv2d_naive.cu", f"conv2d_{name}_naive_f32", macros)
    return Variant("naive", (Call(kernel, naive_grid(n), (128, 1, 1), args),))


def _naive_forward(s: Shapes, c: _Conv) -> Variant:
    refs = (Ref("x"), Ref("weight"), Ref("bias"), Ref("y"), c.index)
    return _naive(s, c, "forward", c.N * c.Ho * c.Wo * c.O, refs)


def _naive_dgrad(s: Shapes, c: _Conv) -> Variant:
    refs = (Ref("dy"), Ref("y"), c.index, Ref("weight"), older_dx(s), Ref("d:x"))
    return _naive(s, c, "dgrad", c.N * c.H * c.W * c.C, refs)


def _naive_wgrad(s: Shapes, c: _Conv) -> Variant:
    db = has_bias(s)
    refs = (Ref("dy"), Ref("y"), c.index, Ref("x"), Ref("d:weight"), Ref("d:bias") if db else NULL)
    one = _naive(s, c, "wgrad", 0, refs, (Int(int(s.accumulate)),)).calls[0]
    values = c.O * c.taps * (c.C // c.groups) + (c.O if db else 0)
    return Variant("naive", (Call(one.kernel, (values, 1, 1), (256, 1, 1), one.args),))
