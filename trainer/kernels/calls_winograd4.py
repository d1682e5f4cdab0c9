"""The launches of conv2d_winograd4*.cu: convolutions of 3 x 3 taps in steps through scratch memory, some tiles at a
time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..ops import Shape
from . import calls_moments
from .call import Arg, Call, Float, Kernel, Ref, Shapes, blocks, constants
from .tiles import DEFAULT_SMS, LAUNCH, SCRATCH_FLOATS, SCRATCH_LIMIT, STEP_WAIT, TILES, Tile
from .variants import NULL, Variant, act_id, divisor, has_bias, ints, older_dx, storage

ELEMENTS = 36
PRODUCTS = tuple(t for t in TILES if t.ks == 1)
BUDGETS = (48 << 20, 16 << 20, 6 << 20)  # bytes for what a turn transforms: the first two fit into large caches
GRAIN = 64  # tiles of a turn are a multiple of it
KERNELS = {  # file and macro
    **{name: ("conv2d_winograd4.cu", name.upper()) for name in ("filter", "input", "product", "output")},
    **{name: ("conv2d_winograd4_wgrad.cu", name.upper()) for name in ("gradient", "weights", "taps")},
}
PART_STEPS, MOST_PARTS = 4, 8  # steps of a part of a product's sum at least, and parts
LEAST = 16  # channels: with fewer the transforms take longer than what they save


def pays(s: Shapes, pool: bool) -> bool:
    """Whether 36 elements of 4 x 4 pixels are clearly less work than 16 of 2 x 2, the images' edges included."""
    Ho, Wo = (2 * s.y[0], 2 * s.y[1]) if pool else s.y[:2]
    large, small = blocks(Ho, 4) * blocks(Wo, 4), blocks(Ho, 2) * blocks(Wo, 2)
    return min(s.x[2], s.y[2]) >= LEAST and ELEMENTS * large <= 0.8 * 16 * small


@dataclass(frozen=True)
class Way:
    """The tile of the products, and whether their last blocks are cut where they would not fill the card (Fill)."""

    tile: Tile
    cut: bool = False


def convs(part: str, s: Shapes, pool: bool) -> list[Variant]:
    """The data gradient ("dgrad"), or a direction of the forward pass."""
    turned = part == "dgrad"
    (_, _, C), (Ho, Wo, O) = _sizes(s, turned, pool)
    CP, OP, sms = blocks(C, 4) * 4, blocks(O, 4) * 4, s.sms or DEFAULT_SMS

    def turn(way: Way, count: int) -> float:
        moved = count * (ELEMENTS + 16) * (CP + OP) / SCRATCH_FLOATS
        return fill(way, count, OP, CP, sms).cycles + moved + 3 * LAUNCH

    ways = [Way(t, cut) for t in PRODUCTS for cut in (False, True)]
    found = forms(s.N * blocks(Ho, 4) * blocks(Wo, 4), 4 * ELEMENTS * (CP + OP), ways, turn)
    variants = [conv(part, s, pool, way, count) for way, count in found]
    if calls_moments.wanted(part, s):
        variants += [conv(part, s, pool, way, count, passed=True) for way, count in found]
    return list({v.name: v for v in variants}.values())  # where nothing can be cut, two ways are one


def _sizes(s: Shapes, turned: bool, pool: bool) -> tuple[Shape, Shape]:
    """(H, W, C) of what is transformed and of the result, before a pool."""
    y = (2 * s.y[0], 2 * s.y[1], s.y[2]) if pool else s.y
    return (y, s.x) if turned else (s.x, y)


def forms(tiles: int, tile_bytes: int, ways: list[Way], turn: Callable[[Way, int], float]) -> list[tuple[Way, int]]:
    """(way, tiles of a turn) by expected time: the best within each budget of bytes, and beside the first the best that
    cuts where it does not, and that of another tile; none that is much worse. turn: cycles of one."""
    found: dict[tuple[Way, int], float] = {}
    for budget in BUDGETS:
        least = blocks(tiles, max(GRAIN, budget // tile_bytes // GRAIN * GRAIN))  # turns
        options: dict[tuple[Way, int], float] = {}
        for turns in range(least, least + 3):
            count = min(tiles, blocks(blocks(tiles, turns), GRAIN) * GRAIN)
            full, rest = divmod(tiles, count)
            for way in ways:
                options[way, count] = full * turn(way, count) + (turn(way, rest) if rest else 0.0)
        order = sorted(options, key=options.__getitem__)
        best = order[0][0]
        cut = next((form for form in order if form[0].cut != best.cut), order[0])
        tile = next((form for form in order if form[0].tile not in (best.tile, cut[0].tile)), order[0])
        found |= {form: options[form] for form in ([order[0]] if found else [order[0], cut, tile])}
    return sorted((form for form, time in found.items() if time < 1.5 * min(found.values())), key=found.__getitem__)


def product_cycles(t: Tile, M: int, N: int, K: int, sms: int, parts: int = 1) -> float:
    """Of the 36 products of M x K and K x N, or so many parts of them."""
    per_sm, steps = blocks(ELEMENTS * parts * t.cover(M, N), sms), blocks(K, t.bk)
    return max(per_sm * steps * t.bm * t.bn * t.bk / (128 * t.share), blocks(per_sm, t.blocks) * steps * STEP_WAIT)


@dataclass(frozen=True)
class Fill:
    """How the blocks of 36 products are shared out, `each` to a product: those that fill the card to the full are
    whole, each of the `rest` is cut into `parts` of `per_part` terms, so that they fill it once more."""

    each: int
    whole: int
    rest: int
    parts: int
    per_part: int
    cycles: float  # expected

    @property
    def grid(self) -> int:
        return self.whole + self.rest * self.parts


def fill(way: Way, M: int, N: int, K: int, sms: int) -> Fill:
    t = way.tile
    each, places, steps = t.cover(M, N), sms * t.blocks, blocks(K, t.bk)
    whole = ELEMENTS * each // places * places
    rest = ELEMENTS * each - whole
    wanted = min(places // rest, steps // PART_STEPS, MOST_PARTS) if way.cut and rest else 1
    per_part = blocks(steps, max(1, wanted)) * t.bk
    parts = blocks(K, per_part)
    if parts == 1:
        return Fill(each, ELEMENTS * each, 0, 1, K, product_cycles(t, M, N, K, sms))
    step = max(t.bm * t.bn * t.bk / (128 * t.share), STEP_WAIT / t.blocks)  # of each of the blocks on a multiprocessor
    steps_of_all = whole // sms * steps + blocks(rest * parts, sms) * (per_part // t.bk)
    added = 2 * rest * (parts - 1) * t.bm * t.bn / SCRATCH_FLOATS
    return Fill(each, whole, rest, parts, per_part, steps_of_all * step + added)


def conv(part: str, s: Shapes, pool: bool, way: Way, per_turn: int, passed: bool = False) -> Variant:
    """F(4x4, 3x3) with `per_turn` tiles of the images at a time. passed: where moments are wanted, a launch of its own
    finds them, which with many turns may be faster than to leave them in each."""
    turned = part == "dgrad"
    (H, W, C), (Ho, Wo, O) = _sizes(s, turned, pool)
    CP, OP, act = blocks(C, 4) * 4, blocks(O, 4) * 4, act_id(s.a)
    th, tw, pad = blocks(Ho, 4), blocks(Wo, 4), s.a.padding[:2]
    per_turn = min(per_turn, s.N * th * tw)
    corner = (2 - pad[0], 2 - pad[1]) if turned else pad
    turns = [(first, min(per_turn, s.N * th * tw - first)) for first in range(0, s.N * th * tw, per_turn)]
    fills = {count: fill(way, count, OP, CP, s.sms or DEFAULT_SMS) for _, count in turns}
    tile, cut = way.tile, fills[per_turn].parts
    later = max((f.parts - 1) * f.rest for f in fills.values()) * tile.bm * tile.bn
    sizes = (ELEMENTS * CP * OP, ELEMENTS * per_turn * CP, ELEMENTS * per_turn * OP, later)
    u, v, m, later_parts = _scratch(*sizes)
    leaves, per = calls_moments.wanted(part, s) and not passed, _tiles_of_a_thread(s, per_turn)
    index, by_tile = Ref("index") if pool else NULL, (*divisor(th * tw), *divisor(tw))
    values = (Ref("dy"), Ref("y"), index) if turned else (Ref("x"), NULL, NULL)
    before: dict[str, int] = {"MASK": act, "POOL": 2 * pool} if turned else {}
    after: dict[str, str | int] = {"ACT": 0 if turned else act, "POOL": int(pool and not turned), **storage(s)}
    out = (NULL, older_dx(s), Ref("d:x"), NULL) if turned else (Ref("bias"), NULL, Ref("y"), index)
    calls = [_filters(s, C, O, CP, OP, turned, u)]
    for turn, (first, count) in enumerate(turns):
        f = fills[count]
        calls.append(_input(s, values, v, (H, W, C), CP, corner, (th, tw), first, count, **before))
        args: tuple[Arg, ...] = (v, u, m, later_parts, *ints(count, CP, OP, f.whole, f.parts, f.per_part))
        calls.append(Call(_kernel("product", TILE=tile.text), (f.grid, 1, 1), (tile.threads, 1, 1), args))
        args = (m, later_parts, *out, *ints(Ho, Wo, O, OP, th, tw, first, count), *by_tile, *divisor(OP))
        shape = (blocks(count, tile.bm), tile.bm.bit_length() - 1, tile.bn.bit_length() - 1)
        args += (*ints(f.whole, f.parts, f.each, *shape), Float(s.a.alpha), *ints(per))
        grid, macros = (blocks(count * OP, 256), 1, 1), {**after, "CUT": int(f.parts > 1)}
        if leaves:
            rows = calls_moments.rows(s, blocks(count, 8 * per), blocks(O, 32), 32)
            grid, macros = (rows.columns, rows.blocks, 1), {**macros, "MOMENTS": 1}
            args += rows.args(part, 0, turn=2 * (turn > 0) + (len(turns) - 1 - turn) % 2)
        else:
            args += calls_moments.NO_ROWS
        calls.append(Call(_kernel("output", **macros), grid, (256, 1, 1), args))
    name = f"winograd4 {tile.name} n{per_turn}" + (f" c{cut}" if cut > 1 else "")
    variant = Variant(name + passed * calls_moments.PASS, tuple(calls), 4 * sum(sizes))
    return calls_moments.with_pass(variant, part, s) if passed else variant


def _tiles_of_a_thread(s: Shapes, per_turn: int) -> int:
    """Where the transform back leaves moments: as few as make no more rows than there can be."""
    return blocks(per_turn, 8 * calls_moments.most(s.N * s.y[0] * s.y[1]))


def wgrads(s: Shapes, pool: bool) -> list[Variant]:
    """The weight gradient."""
    (_, _, C), (Ho, Wo, O) = _sizes(s, False, pool)
    CP, OP, sms = blocks(C, 4) * 4, blocks(O, 4) * 4, s.sms or DEFAULT_SMS

    def turn(way: Way, count: int) -> float:
        moved = count * (ELEMENTS + 16) * (CP + OP) / SCRATCH_FLOATS
        return _split_sum(way.tile, count, OP, CP, sms)[0] + moved + 3 * LAUNCH

    ways = [Way(t) for t in PRODUCTS]
    found = forms(s.N * blocks(Ho, 4) * blocks(Wo, 4), 4 * ELEMENTS * (CP + OP), ways, turn)
    return [wgrad(s, pool, way.tile, n, _split_sum(way.tile, n, OP, CP, sms)[1]) for way, n in found]


def _split_sum(t: Tile, K: int, M: int, N: int, sms: int) -> tuple[float, int]:
    """(cycles, parts) of the 36 products in the best number of parts: those that fill the card once to four times."""
    full, most = sms * t.blocks, max(1, min(blocks(K, 4 * t.bk), SCRATCH_LIMIT // (ELEMENTS * M * N)))
    found = []
    for times in range(1, 5):
        parts = max(1, min(most, times * full // (ELEMENTS * t.cover(M, N))))
        added = 2 * parts * ELEMENTS * M * N / SCRATCH_FLOATS
        found.append((product_cycles(t, M, N, blocks(K, parts), sms, parts) + added, parts))
    return min(found)


def wgrad(s: Shapes, pool: bool, tile: Tile, per_turn: int, parts: int) -> Variant:
    """The adjoint with `per_turn` tiles of the images at a time, a turn's sum in `parts` parts."""
    (H, W, C), (Ho, Wo, O) = _sizes(s, False, pool)
    CP, OP, th, tw, sms = blocks(C, 4) * 4, blocks(O, 4) * 4, blocks(Ho, 4), blocks(Wo, 4), s.sms or DEFAULT_SMS
    per_turn = min(per_turn, s.N * th * tw)
    per_split = blocks(blocks(per_turn, parts), tile.bk) * tile.bk
    parts, bias = blocks(per_turn, per_split), has_bias(s)
    per = max(1, min(8, per_turn * blocks(OP, 32) // (32 * sms)))  # tiles of a thread: 4 blocks a multiprocessor
    turns = [(first, min(per_turn, s.N * th * tw - first)) for first in range(0, s.N * th * tw, per_turn)]
    sums = sum(blocks(count, 8 * per) for _, count in turns) if bias else 0  # rows of dy's sums
    sizes = (ELEMENTS * per_turn * CP, ELEMENTS * per_turn * OP, ELEMENTS * parts * OP * CP, sums * OP)
    v, q, part, rows = _scratch(*sizes)
    by_tile = (*divisor(th * tw), *divisor(tw))
    gradient: dict[str, str | int] = {"MASK": act_id(s.a), "POOL": int(pool), **storage(s)}
    values = (Ref("dy"), Ref("y"), Ref("index") if pool else NULL)
    calls, row = list[Call](), 0
    for first, count in turns:
        calls.append(_input(s, (Ref("x"), NULL, NULL), v, (H, W, C), CP, s.a.padding[:2], (th, tw), first, count))
        high = blocks(count, 8 * per)
        args: tuple[Arg, ...] = (*values, q, rows if bias else NULL, *ints(Ho, Wo, O, OP, th, tw, first, count))
        args += (*by_tile, *ints(per, row), Float(s.a.alpha))
        calls.append(Call(_kernel("gradient", **gradient), (blocks(OP, 32), high, 1), (256, 1, 1), args))
        row += high
        grid = (tile.cover(OP, CP), ELEMENTS, blocks(count, per_split))
        args = (q, v, part, *ints(count, CP, OP, per_split, int(first > 0)))
        calls.append(Call(_kernel("weights", TILE=tile.text), grid, (tile.threads, 1, 1), args))
    args = (part, rows, Ref("d:weight"), Ref("d:bias") if bias else NULL)
    args += ints(C, O, CP, OP, parts, sums, int(s.accumulate))
    grid = (O * blocks(C, 32) + (blocks(O, 32) if bias else 0), 1, 1)
    calls.append(Call(_kernel("taps"), grid, (192, 1, 1), args))
    name = f"winograd4 {tile.name} n{per_turn} k{parts}"
    return Variant(name, tuple(calls), 4 * sum(sizes))


def _scratch(*floats: int) -> list[Ref]:
    """Pieces of scratch memory of so many floats, one behind the other: launches that touch different ones may run side
    by side."""
    return [Ref("scratch", 4 * sum(floats[:i]), 4 * size) for i, size in enumerate(floats)]


def _filters(s: Shapes, C: int, O: int, CP: int, OP: int, turned: bool, u: Ref) -> Call:
    wide, high = (32, 8) if turned else (8, 32)  # outputs and channels of a block
    args: tuple[Arg, ...] = (Ref("weight"), u, *ints(C, O, CP, OP))
    grid = (blocks(OP, wide) * blocks(CP, high), 1, 1)
    return Call(_kernel("filter", TURNED=int(turned)), grid, (256, 1, 1), args)


def _input(
    s: Shapes,
    values: tuple[Ref, Ref, Ref],
    v: Ref,
    size: Shape,
    CP: int,
    corner: tuple[int, ...],
    across: tuple[int, int],
    first: int,
    count: int,
    **macros: int,
) -> Call:
    """values: what is transformed, the output whose mask it takes, the winners of a pool."""
    macros = {"MASK": 0, "POOL": 0, **macros}
    th, tw = across
    args: tuple[Arg, ...] = (*values, v, *ints(*size, CP, *corner, th, tw, first, count))
    args += (*divisor(th * tw), *divisor(tw), *divisor(CP), Float(s.a.alpha))
    return Call(_kernel("input", **macros, **storage(s)), (blocks(count * CP, 256), 1, 1), (256, 1, 1), args)


def _kernel(name: str, **macros: str | int) -> Kernel:
    file, part = KERNELS[name]
    return Kernel(file, f"winograd4_{name}_f32", constants(**{part: 1}, **macros))
