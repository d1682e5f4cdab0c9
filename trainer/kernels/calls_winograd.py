"""The launches of conv2d_winograd*.cu: convolutions of 3 x 3 taps side by side."""

from __future__ import annotations

from . import calls_moments, calls_winograd4
from .call import Arg, Call, Float, Kernel, Ref, Shapes, blocks, constants
from .tiles import DEFAULT_SMS, LAUNCH, SCRATCH_FLOATS, SCRATCH_LIMIT
from .variants import NULL, Variant, act_id, divisor, has_bias, ints, older_dx, storage, sum_gradients, sum_parts

# Cycles of a multiprocessor full of blocks, for choosing only: a step of the weight gradient takes its outputs times
# the first, the way back from 16 elements to taps or pixels the others.
STEP_CYCLES, BACK_CYCLES, WAY_BACK = 27, 4000, 4000


def fits(s: Shapes) -> bool:
    """3 x 3 taps side by side, and places that 31 bits hold."""
    a, (H, W, C), (Ho, Wo, O) = s.a, s.x, s.y
    plain = (tuple(a.kernel_size), tuple(a.stride), tuple(a.dilation), a.groups) == ((3, 3), (1, 1), (1, 1), 1)
    return plain and max(s.N * max(H * W * C, Ho * Wo * O), 16 * (C + 63) * (O + 63)) < 1 << 31


def with_winograd(part: str, s: Shapes, plain: list[Variant], pool: bool = False) -> list[Variant]:
    """The variants of a part, "dgrad", "wgrad" or a direction of the forward pass: Winograd's among the plain ones.

    Winograd pays where the sum is long and the tiles fill the card; it comes after the plain tiles where not. Of its
    two forms the larger, F(4x4, 3x3), needs longer sums, for what it moves between its steps.
    """
    if not fits(s) or (pool and part == "dgrad" and tuple(s.a.padding) != (1, 1, 1, 1)):
        return plain
    least = min(s.x[2], s.y[2])
    pays, turned = calls_winograd4.pays(s, pool), part == "dgrad"
    if part == "wgrad":
        found, large = _wgrad(s, pool), calls_winograd4.wgrads(s, pool) if pays else []
    else:
        found = [_conv(part, s, pool, *form) for form in _forms(s, turned, pool)]
        large = calls_winograd4.convs(part, s, pool) if pays else []
    found = [*large, *found] if least >= 64 else [*found, *large]
    return [*found, *plain] if least >= 32 else [*plain, *found]


def _forms(s: Shapes, turned: bool, pool: bool) -> list[tuple[int, int, int]]:
    """(outs, tiles, splits) of _wide by expected time; of each form its best two, if not much worse."""
    y = (2 * s.y[0], 2 * s.y[1], s.y[2]) if pool else s.y
    C, (Ho, Wo, O) = (y[2], s.x) if turned else (s.x[2], y)
    sms, tiles, values = s.sms or DEFAULT_SMS, s.N * blocks(Ho, 2) * blocks(Wo, 2), s.N * Ho * Wo * O
    found: list[tuple[float, int, int, int]] = []
    for outs, per_block, channel_cycles in ((64, 32, 400), (32, 64, 520), (32, 32, 260)):
        narrow = O % 64 in range(1, 33)  # pieces of 64 channels would be half empty
        if (outs == 64 and O <= 32) or (per_block == 64 and not narrow):
            continue
        places = sms * 2048 // (outs * per_block)  # for blocks on the card at once
        pieces, best = blocks(tiles, per_block) * blocks(O, outs), []
        for splits in {1, max(1, places // pieces), max(1, 2 * places // pieces)}:
            per_split = blocks(blocks(C, 8), splits) * 8
            splits = blocks(C, per_split)
            if splits > 1 and (splits * values > SCRATCH_LIMIT or (pool and not turned)):
                continue
            rounds = blocks(pieces * splits, places) * (2048 // (outs * per_block))
            time = rounds * (per_split * channel_cycles + WAY_BACK) + (splits > 1) * LAUNCH
            best.append((time + (splits > 1) * splits * values * 2 / SCRATCH_FLOATS, outs, per_block, splits))
        found += sorted(set(best))[:2]
    return [(outs, per_block, splits) for time, outs, per_block, splits in sorted(found) if time < 2 * min(found)[0]]


def _conv(part: str, s: Shapes, pool: bool, outs: int, per_block: int, splits: int) -> Variant:
    """F(2x2, 3x3): the filters' transform into scratch, then one kernel, or two if the sum is split. outs channels of
    per_block tiles to a block."""
    turned = part == "dgrad"
    act, y = act_id(s.a), (2 * s.y[0], 2 * s.y[1], s.y[2]) if pool else s.y
    (H, W, C), (Ho, Wo, O) = (y, s.x) if turned else (s.x, y)
    pad = s.a.padding[:2]
    top, left = (2 - pad[0], 2 - pad[1]) if turned else pad
    th, tw, per_split = blocks(Ho, 2), blocks(Wo, 2), blocks(blocks(C, 8), splits) * 8
    splits, tiles, values = blocks(C, per_split), s.N * th * tw, s.N * Ho * Wo * O
    parts = blocks(4 * splits * values, 256) * 256 if splits > 1 else 0  # bytes; the filters come behind them
    filters, OP, u_bytes = _filters(C, O, outs, turned, parts)
    pooled = 0 if not pool else 2 if turned else 1
    whole = splits == 1
    macros = {"OUTS": outs, "TILES": per_block, "ACT": act if whole and not turned else 0, "MASK": act if turned else 0}
    macros |= {"POOL": pooled, "TAIL": int(C % 8 > 0), "SPLIT": int(not whole)}
    rows = calls_moments.rows(s, blocks(tiles, per_block), OP // outs, outs)
    wanted = calls_moments.wanted(part, s)
    leaves = wanted and whole and rows.fit()
    macros |= {"MOMENTS": 1} if leaves else {}
    index = Ref("index") if pool else NULL
    args: tuple[Arg, ...] = (
        *((Ref("dy"), Ref("y")) if turned else (Ref("x"), NULL)),
        *(index, Ref("scratch", parts), Ref("bias") if whole and not turned else NULL),
        older_dx(s) if whole and turned else NULL,
        Ref("scratch") if not whole else Ref("d:x") if turned else Ref("y"),
        *ints(s.N, H, W, C, O, Ho, Wo, top, left, th, tw, tiles, (W // 2 if pooled == 2 else W) * C, 16 * OP),
        *(*divisor(th * tw), *divisor(tw), *ints(per_split)),
        Float(s.a.alpha),
        *(rows.args(part, parts + u_bytes) if leaves else calls_moments.NO_ROWS),
    )
    kernel = Kernel("conv2d_winograd.cu", "winograd_conv_f32", constants(**macros, **storage(s)))
    grid = (blocks(tiles, per_block), OP // outs, splits)
    calls: tuple[Call, ...] = (filters, Call(kernel, grid, (outs * per_block // 4, 1, 1), args))
    if not whole:
        out = (NULL, older_dx(s), NULL, Ref("d:x"), NULL) if turned else (Ref("bias"), NULL, NULL, Ref("y"), NULL)
        summed = 0 if turned else act
        calls += (sum_parts("conv2d.cu", summed, s.a.alpha, splits, values, O, out, stored=storage(s)),)
    name = f"winograd {outs}x{per_block}" + ("" if whole else f" k{splits}")
    v = Variant(name, calls, parts + u_bytes + (rows.bytes if leaves else 0))
    return calls_moments.with_pass(v, part, s) if wanted and not leaves else v


def _filters(C: int, O: int, outs: int, turned: bool, offset: int) -> tuple[Call, int, int]:
    """The launch that transforms the filters into scratch, O rounded up to pieces of outs, and the bytes they take."""
    C4, OP = blocks(C, 4) * 4, blocks(O, outs) * outs
    kernel = Kernel("conv2d_winograd_filter.cu", "winograd_filter_f32", constants(TURNED=int(turned)))
    args: tuple[Arg, ...] = (Ref("weight"), Ref("scratch", offset), *ints(C, O, OP))
    wide, high = (32, 8) if turned else (8, 32)  # outputs and channels of a block
    return Call(kernel, (OP // wide * blocks(C, high), 1, 1), (256, 1, 1), args), OP, 4 * C4 * 16 * OP


def _wgrad(s: Shapes, pool: bool) -> list[Variant]:
    """The weight gradient: 64 or 32 outputs to a block, which makes one half of the 16 elements or both."""
    (H, W, C), (Ho, Wo, O) = s.x, s.y
    if pool:
        Ho, Wo = 2 * Ho, 2 * Wo
    th, tw = blocks(Ho, 2), blocks(Wo, 2)
    tiles, dw, db = s.N * th * tw, O * 9 * C, O if has_bias(s) else 0
    found = []
    for outs, halves, steps in _wgrad_blocks(O, C, tiles, s.sms or DEFAULT_SMS):
        splits = blocks(tiles, outs // 16 * steps)
        parts = splits * 2 // halves
        pairs = outs == 64 and O % 2 == 0 and not pool
        macros = constants(OUTS=outs, HALVES=halves, MASK=act_id(s.a), VO=1 + pairs, POOL=int(pool), **storage(s))
        whole = parts == 1
        args: tuple[Arg, ...] = (
            *(Ref("dy"), Ref("y"), Ref("index") if pool else NULL, Ref("x"), Ref("d:weight")),
            *(Ref("d:bias") if db else NULL, NULL if whole else Ref("scratch")),
            *ints(s.N, H, W, C, O, Ho, Wo, *s.a.padding[:2], th, tw, tiles),
            *(*divisor(th * tw), *divisor(tw), *ints(steps, int(s.accumulate))),
            Float(s.a.alpha),
        )
        grid = (blocks(O, outs) * blocks(C, 32), splits, 2 // halves)
        kernel = Kernel("conv2d_winograd_wgrad.cu", "winograd_wgrad_f32", macros)
        calls: tuple[Call, ...] = (Call(kernel, grid, (4 * halves * outs, 1, 1), args),)
        if not whole:
            calls += (sum_gradients("conv2d.cu", s, parts, dw, db),)
        name = f"winograd {outs}x32{'' if halves == 2 else ' half'} k{splits}"
        found.append(Variant(name, calls, 0 if whole else 4 * parts * (dw + db)))
    return found


def _wgrad_blocks(O: int, C: int, tiles: int, sms: int) -> list[tuple[int, int, int]]:
    """(outs, halves, steps) of the weight gradient by expected time: of each form its best two, if not much worse."""
    found: list[tuple[float, int, int, int]] = []
    for outs in (64, 32) if O % 64 in range(1, 33) and O > 64 else (64,) if O > 32 else (32,):
        for halves in (2, 1):
            places = sms * 128 // (halves * outs)  # for blocks on the card at once
            pieces = blocks(O, outs) * blocks(C, 32) * 2 // halves
            most = max(1, SCRATCH_LIMIT // (9 * O * C * 2 // halves))
            rounds = [r * places // pieces for r in range(1, 9)]
            best: dict[int, float] = {}
            for splits in {1, most, *rounds, *(z + 1 for z in rounds)} - {0}:
                steps = blocks(tiles, outs // 16 * min(splits, most))
                splits = blocks(tiles, outs // 16 * steps)
                parts = splits * 2 // halves
                work = blocks(pieces * splits, places) * (steps * outs * STEP_CYCLES + BACK_CYCLES)
                best[steps] = work + (LAUNCH + parts * 9 * O * C * 2 / SCRATCH_FLOATS if parts > 1 else 0)
            found += sorted((time, outs, halves, steps) for steps, time in best.items())[:2]
    return [(outs, halves, steps) for time, outs, halves, steps in sorted(found) if time < 2 * min(found)[0]]
