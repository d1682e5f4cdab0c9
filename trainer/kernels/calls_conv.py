"""The launches of conv2d: tiles, Winograd, the kernels for few channels, and the plain formulas for the rest."""

from __future__ import annotations

from dataclasses import dataclass

from .call import Arg, Call, Float, Int, Kernel, Ref, Shapes, blocks, constants
from .tiles import DEFAULT_SMS, SPLITS, ranked
from .variants import (
    NULL,
    Variant,
    act_id,
    divisor,
    has_bias,
    ints,
    naive_grid,
    older_dx,
    sum_gradients,
    sum_parts,
    vector,
)


@dataclass(frozen=True)
class _Conv:
    """A convolution's sizes, and which of the fast kernels it fits."""

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

    @property
    def taps(self) -> int:
        return self.kernel[0] * self.kernel[1]

    @property
    def tiled(self) -> bool:
        return self.groups == 1 and self.taps <= 32

    @property
    def first(self) -> bool:
        """Few enough channels and taps that a pixel's whole sum fits into registers."""
        plain = self.stride == (1, 1) and self.dilation == (1, 1) and self.groups == 1
        return plain and self.C <= 3 and self.taps * self.C <= 27

    @property
    def winograd(self) -> bool:
        """3 x 3 taps side by side, and places that 31 bits hold."""
        plain = self.kernel == (3, 3) and self.stride == (1, 1) and self.dilation == (1, 1) and self.groups == 1
        images = self.N * max(self.H * self.W * self.C, self.Ho * self.Wo * self.O)
        return plain and max(images, 16 * (self.C + 31) * (self.O + 31)) < 1 << 31

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


def _conv(s: Shapes) -> _Conv:
    a, (H, W, C), (Ho, Wo, O) = s.a, s.x, s.y
    window = (tuple(a.kernel_size), tuple(a.stride), tuple(a.padding[:2]), tuple(a.dilation))
    return _Conv(s.N, H, W, C, O, Ho, Wo, *window, a.groups)


def conv_parts(direction: str, s: Shapes) -> dict[str, list[Variant]]:
    c = _conv(s)
    if direction != "backward":
        first = [_first_forward(s, c)] if c.first else []
        plain = _conv_forward(s, c) if c.tiled else [_naive_forward(s, c)]
        return {"forward": [*first, *_with_winograd(s, c, plain, turned=False)]}
    found = {}
    if "x" in s.want:
        found["dgrad"] = _with_winograd(s, c, _conv_dgrad(s, c) if c.tiled else [_naive_dgrad(s, c)], turned=True)
    if "weight" in s.want:
        few = [_first_wgrad(s, c)] if c.first else []
        found["wgrad"] = [*few, *(_conv_wgrad(s, c) if c.tiled else [_naive_wgrad(s, c)])]
    return found


def _conv_forward(s: Shapes, c: _Conv) -> list[Variant]:
    act, alpha, M = act_id(s.a), s.a.alpha, c.N * c.Ho * c.Wo
    found = []
    for t, splits in ranked(M, c.O, lambda t: c.taps * blocks(c.C, t.bk), s.sms):
        steps = c.taps * blocks(c.C, t.bk)
        per = blocks(steps, splits)
        splits = blocks(steps, per)
        whole = splits == 1
        macros = constants(CONV_FORWARD=1, TILE=t.text, VC=vector(c.C), ACT=act if whole else 0)
        refs: tuple[Arg, ...] = (Ref("x"), Ref("weight"), Ref("bias"), Ref("y"), NULL if whole else Ref("scratch"))
        sizes: tuple[Arg, ...] = (*c.sizes(c.Ho, c.Wo), Int(per), Float(alpha))
        kernel = Kernel("conv2d.cu", "conv2d_forward_f32", macros)
        calls: tuple[Call, ...] = (Call(kernel, (t.cover(M, c.O), splits, 1), (t.threads, 1, 1), (*refs, *sizes)),)
        if not whole:
            calls += (
                sum_parts("conv2d.cu", act, alpha, splits, M * c.O, c.O, (Ref("bias"), NULL, NULL, Ref("y"), NULL)),
            )
        found.append(Variant(f"{t.name} k{splits}", calls, 0 if whole else 4 * M * c.O * splits))
    return found


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
        steps = c.taps * blocks(c.O, t.bk)
        per = blocks(steps, splits)
        splits = blocks(steps, per)
        whole = splits == 1
        macros = constants(
            CONV_DGRAD=1, TILE=t.text, VC=vector(c.C), VO=vector(c.O), ACT=act_id(s.a), STRIDED=int(strided)
        )
        args: tuple[Arg, ...] = (
            *(Ref("dy"), Ref("y"), Ref("weight"), older_dx(s), Ref("d:x"), NULL if whole else Ref("scratch")),
            *c.sizes(c.H, c.W),
            *ints(per),
            Float(s.a.alpha),
        )
        kernel = Kernel("conv2d.cu", "conv2d_dgrad_f32", macros)
        calls: tuple[Call, ...] = (Call(kernel, (t.cover(rows, c.C), splits, sh * sw), (t.threads, 1, 1), args),)
        if not whole:
            out = (NULL, older_dx(s), NULL, Ref("d:x"), NULL)
            calls += (sum_parts("conv2d.cu", 0, 0.0, splits, rows * c.C, 1, out),)
        found.append(Variant(f"{t.name} k{splits}", calls, 0 if whole else 4 * rows * c.C * splits))
    return found


def _conv_wgrad(s: Shapes, c: _Conv) -> list[Variant]:
    pixels, K, db = c.N * c.Ho * c.Wo, c.taps * c.C, c.O if has_bias(s) else 0
    found = []
    for t, splits in ranked(c.O, K, lambda t: blocks(pixels, t.bk), s.sms):
        per = blocks(blocks(pixels, t.bk), splits) * t.bk
        splits = blocks(pixels, per)
        whole = splits == 1
        macros = constants(CONV_WGRAD=1, TILE=t.text, VC=vector(c.C), VO=vector(c.O), ACT=act_id(s.a))
        args: tuple[Arg, ...] = (
            *(Ref("dy"), Ref("y"), Ref("x"), Ref("d:weight"), Ref("d:bias") if db else NULL),
            NULL if whole else Ref("scratch"),
            *c.sizes(c.Ho, c.Wo),
            *ints(per, int(s.accumulate)),
            Float(s.a.alpha),
        )
        kernel = Kernel("conv2d.cu", "conv2d_wgrad_f32", macros)
        calls: tuple[Call, ...] = (Call(kernel, (t.cover(c.O, K), splits, 1), (t.threads, 1, 1), args),)
        if not whole:
            calls += (sum_gradients("conv2d.cu", s, splits, c.O * K, db),)
        found.append(Variant(f"{t.name} k{splits}", calls, 0 if whole else 4 * splits * (c.O * K + db)))
    return found


def _with_winograd(s: Shapes, c: _Conv, plain: list[Variant], turned: bool) -> list[Variant]:
    """Winograd pays where the sum is long and the tiles fill the card; it comes after the plain tiles where not."""
    if not c.winograd:
        return plain
    v = _winograd(s, c, turned)
    groups = v.calls[1].grid[0] * v.calls[1].grid[1]
    pays = min(c.C, c.O) >= 32 and groups >= (s.sms or DEFAULT_SMS)
    return [v, *plain] if pays else [*plain, v]


def _winograd(s: Shapes, c: _Conv, turned: bool) -> Variant:
    """F(2x2, 3x3): the filters' transform into scratch, then one kernel. turned: the data gradient."""
    C, O = (c.O, c.C) if turned else (c.C, c.O)
    (H, W), (Ho, Wo) = ((c.Ho, c.Wo), (c.H, c.W)) if turned else ((c.H, c.W), (c.Ho, c.Wo))
    top, left = (2 - c.pad[0], 2 - c.pad[1]) if turned else c.pad
    C4, O32, th, tw = blocks(C, 4) * 4, blocks(O, 32) * 32, blocks(Ho, 2), blocks(Wo, 2)
    act, file = act_id(s.a), "conv2d_winograd.cu"
    macros = {"ACT": 0 if turned else act, "MASK": act if turned else 0, "TURNED": int(turned), "TAIL": int(C % 4 > 0)}
    filters = Call(
        Kernel(file, "winograd_filter_f32", constants(WINOGRAD_FILTER=1, ACT=0, MASK=0, TURNED=int(turned), TAIL=0)),
        (blocks(C4 * O32, 128), 1, 1),
        (128, 1, 1),
        (Ref("weight"), Ref("scratch"), *ints(C, O)),
    )
    roles = (Ref("dy"), Ref("y")) if turned else (Ref("x"), NULL)
    rest = (NULL, older_dx(s), Ref("d:x")) if turned else (Ref("bias"), NULL, Ref("y"))
    args: tuple[Arg, ...] = (
        *(*roles, Ref("scratch"), *rest),
        *ints(c.N, H, W, C, O, Ho, Wo, top, left, th, tw, W * C, 16 * O32),
        *(*divisor(th * tw), *divisor(tw)),
        Float(s.a.alpha),
    )
    grid = (blocks(c.N * th * tw, 32), O32 // 32, 1)
    conv = Call(Kernel(file, "winograd_conv_f32", constants(WINOGRAD_CONV=1, **macros)), grid, (256, 1, 1), args)
    return Variant("winograd", (filters, conv), 4 * C4 * 16 * O32)


def _across(c: _Conv, area: int) -> int:
    """How many groups of 8 pixels stand side by side in a tile of `area` groups: the least of what is cut off."""

    def covered(n: int) -> int:
        return blocks(c.Wo, 8 * n) * 8 * n * blocks(c.Ho, area // n) * (area // n)

    return min((8, 4, 2, 1), key=covered)


def _first(c: _Conv, act: int, across: int, part: str) -> tuple[tuple[str, str | int], ...]:
    return constants(FC=c.C, FKH=c.kernel[0], FKW=c.kernel[1], ACROSS=across, ACT=act, **{part: 1})


def _first_tiles(c: _Conv, across: int, area: int) -> int:
    return c.N * blocks(c.Wo, 8 * across) * blocks(c.Ho, area // across)


def _first_forward(s: Shapes, c: _Conv) -> Variant:
    across = _across(c, 32)
    kernel = Kernel("conv2d_first.cu", "conv2d_first_forward_f32", _first(c, act_id(s.a), across, "CONV_FORWARD"))
    sizes = ints(c.N, c.H, c.W, c.O, c.Ho, c.Wo, *c.pad)
    args: tuple[Arg, ...] = (Ref("x"), Ref("weight"), Ref("bias"), Ref("y"), *sizes, Float(s.a.alpha))
    return Variant("first", (Call(kernel, (_first_tiles(c, across, 32), 1, 1), (256, 1, 1), args),))


def _first_wgrad(s: Shapes, c: _Conv) -> Variant:
    across, db, dw = _across(c, 16), c.O if has_bias(s) else 0, c.O * c.taps * c.C
    turns = blocks(c.O, 32)
    parts = min(_first_tiles(c, across, 16), blocks(3 * (s.sms or DEFAULT_SMS), turns))  # 3 to a multiprocessor
    kernel = Kernel("conv2d_first.cu", "conv2d_first_wgrad_f32", _first(c, act_id(s.a), across, "CONV_WGRAD"))
    sizes = ints(c.N, c.H, c.W, c.O, c.Ho, c.Wo, *c.pad, int(db > 0))
    args: tuple[Arg, ...] = (Ref("dy"), Ref("y"), Ref("x"), Ref("scratch"), *sizes, Float(s.a.alpha))
    first = Call(kernel, (parts, turns, 1), (128, 1, 1), args)
    return Variant(f"first k{parts}", (first, sum_gradients("conv2d.cu", s, parts, dw, db)), 4 * parts * (dw + db))


def _naive(s: Shapes, c: _Conv, name: str, n: int, refs: tuple[Ref, ...], more: tuple[Int, ...] = ()) -> Variant:
    kernel = Kernel("conv2d_naive.cu", f"conv2d_{name}_naive_f32", constants(ACT=act_id(s.a)))
    args: tuple[Arg, ...] = (*refs, *c.naive_sizes(), *more, Float(s.a.alpha))
    return Variant("naive", (Call(kernel, naive_grid(n), (128, 1, 1), args),))


def _naive_forward(s: Shapes, c: _Conv) -> Variant:
    refs = (Ref("x"), Ref("weight"), Ref("bias"), Ref("y"))
    return _naive(s, c, "forward", c.N * c.Ho * c.Wo * c.O, refs)


def _naive_dgrad(s: Shapes, c: _Conv) -> Variant:
    refs = (Ref("dy"), Ref("y"), Ref("weight"), older_dx(s), Ref("d:x"))
    return _naive(s, c, "dgrad", c.N * c.H * c.W * c.C, refs)


def _naive_wgrad(s: Shapes, c: _Conv) -> Variant:
    db = has_bias(s)
    refs = (Ref("dy"), Ref("y"), Ref("x"), Ref("d:weight"), Ref("d:bias") if db else NULL)
    one = _naive(s, c, "wgrad", 0, refs, (Int(int(s.accumulate)),)).calls[0]
    values = c.O * c.taps * (c.C // c.groups) + (c.O if db else 0)
    return Variant("naive", (Call(one.kernel, (values, 1, 1), (256, 1, 1), one.args),))
