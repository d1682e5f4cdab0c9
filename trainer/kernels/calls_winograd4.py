"""The launches of conv2d_winograd4*.cu: convolutions of 3 x 3 taps in steps through scratch memory, some tiles at a
time."""

from __future__ import annotations

from collections.abc import Callable

from ..ops import Shape
from .call import Arg, Call, Float, Kernel, Ref, Shapes, blocks, constants
from .tiles import DEFAULT_SMS, LAUNCH, SCRATCH_FLOATS, STEP_WAIT, TILES, Tile
from .variants import NULL, Variant, act_id, divisor, ints, older_dx, storage

ELEMENTS = 36
PRODUCTS = tuple(t for t in TILES if t.ks == 1)
BUDGETS = (48 << 20, 16 << 20, 6 << 20)  # bytes for what a turn transforms: the first two fit into large caches
GRAIN = 64  # tiles of a turn are a multiple of it
LEAST = 16  # channels: with fewer the transforms take longer than what they save


def pays(s: Shapes, pool: bool) -> bool:
    """Whether 36 elements of 4 x 4 pixels are clearly less work than 16 of 2 x 2, the images' edges included."""
    Ho, Wo = (2 * s.y[0], 2 * s.y[1]) if pool else s.y[:2]
    large, small = blocks(Ho, 4) * blocks(Wo, 4), blocks(Ho, 2) * blocks(Wo, 2)
    return min(s.x[2], s.y[2]) >= LEAST and ELEMENTS * large <= 0.8 * 16 * small


def convs(s: Shapes, turned: bool, pool: bool) -> list[Variant]:
    """The forward pass, or, turned, the data gradient."""
    return [conv(s, turned, pool, *form) for form in _forms(s, turned, pool)]


def _sizes(s: Shapes, turned: bool, pool: bool) -> tuple[Shape, Shape]:
    """(H, W, C) of what is transformed and of the result, before a pool."""
    y = (2 * s.y[0], 2 * s.y[1], s.y[2]) if pool else s.y
    return (y, s.x) if turned else (s.x, y)


def _forms(s: Shapes, turned: bool, pool: bool) -> list[tuple[Tile, int]]:
    (_, _, C), (Ho, Wo, O) = _sizes(s, turned, pool)
    CP, OP, sms = blocks(C, 4) * 4, blocks(O, 4) * 4, s.sms or DEFAULT_SMS

    def turn(t: Tile, count: int) -> float:
        moved = count * (ELEMENTS + 16) * (CP + OP) / SCRATCH_FLOATS
        return product_cycles(t, count, OP, CP, sms) + moved + 3 * LAUNCH

    return forms(s.N * blocks(Ho, 4) * blocks(Wo, 4), 4 * ELEMENTS * (CP + OP), turn)


def forms(tiles: int, tile_bytes: int, turn: Callable[[Tile, int], float]) -> list[tuple[Tile, int]]:
    """(tile of the product, tiles of a turn) by expected time: the best within each budget of bytes, and the first's
    second, if not much worse. turn: cycles of one."""
    found: dict[tuple[Tile, int], float] = {}
    for budget in BUDGETS:
        least = blocks(tiles, max(GRAIN, budget // tile_bytes // GRAIN * GRAIN))  # turns
        options = []
        for turns in range(least, least + 3):
            count = min(tiles, blocks(blocks(tiles, turns), GRAIN) * GRAIN)
            full, rest = divmod(tiles, count)
            for t in PRODUCTS:
                options.append((full * turn(t, count) + (turn(t, rest) if rest else 0.0), t, count))
        options.sort(key=lambda option: option[0])
        second = [option for option in options if option[1] != options[0][1]][: 0 if found else 1]
        found |= {(t, count): time for time, t, count in [options[0], *second]}
    return sorted((form for form, time in found.items() if time < 1.5 * min(found.values())), key=found.__getitem__)


def product_cycles(t: Tile, M: int, N: int, K: int, sms: int) -> float:
    """Of the 36 products of M x K and K x N."""
    per_sm, steps = blocks(ELEMENTS * t.cover(M, N), sms), blocks(K, t.bk)
    return max(per_sm * steps * t.bm * t.bn * t.bk / (128 * t.share), blocks(per_sm, t.blocks) * steps * STEP_WAIT)


def conv(s: Shapes, turned: bool, pool: bool, tile: Tile, per_turn: int) -> Variant:
    """F(4x4, 3x3) with `per_turn` tiles of the images at a time."""
    (H, W, C), (Ho, Wo, O) = _sizes(s, turned, pool)
    CP, OP, act = blocks(C, 4) * 4, blocks(O, 4) * 4, act_id(s.a)
    th, tw, pad = blocks(Ho, 4), blocks(Wo, 4), s.a.padding[:2]
    top, left = (2 - pad[0], 2 - pad[1]) if turned else pad
    u_bytes, v_bytes = 4 * ELEMENTS * CP * OP, 4 * ELEMENTS * per_turn * CP
    u, v, m = Ref("scratch"), Ref("scratch", u_bytes), Ref("scratch", u_bytes + v_bytes)
    index, alpha, real = Ref("index") if pool else NULL, Float(s.a.alpha), storage(s)
    by_tile = (*divisor(th * tw), *divisor(tw))
    calls = [_filters(s, C, O, CP, OP, turned, u)]
    for first in range(0, s.N * th * tw, per_turn):
        count = min(per_turn, s.N * th * tw - first)
        macros = {"MASK": act if turned else 0, "POOL": 2 if pool and turned else 0, **real}
        sizes = ints(H, W, C, CP, top, left, th, tw, first, count)
        values = (Ref("dy"), Ref("y"), index) if turned else (Ref("x"), NULL, NULL)
        args: tuple[Arg, ...] = (*values, v, *sizes, *by_tile, *divisor(CP), alpha)
        calls.append(_call("input", "INPUT", blocks(count * CP, 256), args, **macros))

        grid = (tile.cover(count, OP), ELEMENTS, 1)
        kernel = _kernel("product", "PRODUCT", TILE=tile.text)
        calls.append(Call(kernel, grid, (tile.threads, 1, 1), (v, u, m, *ints(count, CP, OP))))

        macros = {"ACT": 0 if turned else act, "POOL": int(pool and not turned), **real}
        sizes = ints(Ho, Wo, O, OP, th, tw, first, count)
        out = (NULL, older_dx(s), Ref("d:x"), NULL) if turned else (Ref("bias"), NULL, Ref("y"), index)
        args = (m, *out, *sizes, *by_tile, *divisor(OP), alpha)
        calls.append(_call("output", "OUTPUT", blocks(count * OP, 256), args, **macros))
    return Variant(f"winograd4 {tile.name} n{per_turn}", tuple(calls), u_bytes + v_bytes // CP * (CP + OP))


def _filters(s: Shapes, C: int, O: int, CP: int, OP: int, turned: bool, u: Ref) -> Call:
    wide, high = (32, 8) if turned else (8, 32)  # outputs and channels of a block
    args: tuple[Arg, ...] = (Ref("weight"), u, *ints(C, O, CP, OP))
    return _call("filter", "FILTER", blocks(OP, wide) * blocks(CP, high), args, TURNED=int(turned))


def _kernel(name: str, macro: str, **macros: str | int) -> Kernel:
    return Kernel("conv2d_winograd4.cu", f"winograd4_{name}_f32", constants(**{macro: 1}, **macros))


def _call(name: str, macro: str, grid: int, args: tuple[Arg, ...], **macros: str | int) -> Call:
    return Call(_kernel(name, macro, **macros), (grid, 1, 1), (256, 1, 1), args)
