"""The vector kernels for int8, for every set that this processor can run and under emulation: the bytes of the
definition, each model also operator by operator, with nothing joined (tests/c/ops_driver.c)."""

from functools import cache
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from c_jobs import DOT_PRODUCT, MACHINES, OTHERS, Job, run
from int8_nets import Net
from test_int8 import NAMES, Q, as_job, jobs, near, nets

from litenet.pyruntime.kernels import KERNELS, lib
from litenet.trainer.int8.scheme import Quant

HERE = {name: number for name, number in KERNELS.items() if lib.ln_fast_has(number)}
CHOOSE, WINOGRAD_4 = 0, 4
ENDS = ["adds", "blocks", "largest", "extremes", "shifts"]
BUILDS = ["gcc", "gcc-O3", "clang-O3"]
pytestmark = pytest.mark.skipif(not HERE, reason="no vector kernels for this processor")


@cache
def products() -> list[Job]:
    """Around the tiles: 12 rows, panels of 16 channels in twos and fours, four inputs at a time, edges."""
    rng, out = np.random.default_rng(7), []

    def one(x: tuple[int, ...], name: str, **attrs: object) -> None:
        net = Net(x, Q, seed=len(out))
        net.add(name, **attrs)
        out.append(as_job(f"{name} {x} {attrs}", net))

    for rows in range(1, 27):
        one((rows, int(rng.integers(1, 40))), "linear", out_features=int(rng.integers(1, 90)))
    for O in (1, 4, 15, 16, 17, 31, 32, 33, 48, 63, 64, 65, 80, 96, 128):
        one((int(rng.integers(1, 70)),), "linear", out_features=O)
        ends = ((1, 5), (0, 2), (1, 3), (4, 9), (4, 9), (1, 20))
        kernel, padding, stride, H, W, C = (int(rng.integers(*r)) for r in ends)
        case = {"kernel_size": kernel, "padding": padding, "stride": stride}
        one((H, W, C), "conv2d", out_channels=O, **case)
        one((H, W, O), "depthwise_conv2d", **case)
    for C in (8, 12, 24):
        one((5, 6, C), "conv2d", out_channels=2 * C, kernel_size=3, padding=1, groups=4)
        one((9, 8, C), "conv2d", out_channels=20, kernel_size=3, dilation=2, padding=2)
    one((33, 31, 16), "conv2d", out_channels=80, kernel_size=1)
    for K, O in ((4, 1), (4, 17), (8, 16), (12, 5), (64, 33), (1020, 48)):  # one row whose weights are read as stored
        one((K,), "linear", out_features=O)
    for i, C in enumerate((1, 4, 8, 15, 16, 17, 24, 33)):  # columns that several positions see
        for stride in (1, 2):
            one((3 + i % 3, 1 + i, C), "depthwise_conv2d", kernel_size=3, padding=1, stride=stride)
    return out


@cache
def extremes() -> list[Job]:
    """The largest products and sums, of both signs and at random: tiles and one row more, one row, a narrow panel,
    spans of odd length, a pool."""
    out, rng = [], np.random.default_rng(6)
    shapes = [((8192,), "linear", {"out_features": 20}), ((13, 2047), "linear", {"out_features": 17})]
    shapes += [((7, 9, 37), "conv2d", {"out_channels": o, "kernel_size": 3, "padding": 1}) for o in (16, 35)]
    shapes += [((5, 8, 24), "depthwise_conv2d", {"kernel_size": k, "padding": 1}) for k in (2, 3)]
    for i, (shape, name, attrs) in enumerate(shapes):
        for weight, x in ((-127, -128), (127, -128), (-127, 127), (0, -128), (0, 0)):
            net = Net(shape, Q, seed=len(out))
            net.add(name, **attrs)
            roles = net.nodes[-1][4]
            roles["weight"][:] = weight or rng.choice([-127, 127], roles["weight"].shape)
            K = attrs["kernel_size"] ** 2 if name == "depthwise_conv2d" else roles["weight"][0].size
            largest = 128 * 127 * K
            net.factor(100 / largest * (1 if weight else 20))
            if i == 2:
                net.add("maxpool2d", kernel_size=2, stride=2)
            given = np.full(shape, x) if x else rng.choice([-128, 127], shape)
            net.input = lambda given=given: given.astype(np.int8)
            out.append(as_job(f"extreme {name} {shape} {attrs} {weight} {x}", net))
    return out


@cache
def pooled() -> list[Job]:
    """A convolution and the pool that is joined with it."""
    out = []
    for C, O, side in ((1, 8, 7), (3, 16, 9), (4, 33, 6), (16, 64, 8), (20, 70, 11), (32, 32, 4)):
        for kernel, padding in ((3, 1), (1, 0), (5, 0)):
            if side + 2 * padding < kernel + 2:  # less than two positions
                continue
            net = Net((side, side + 1, C), Q, seed=len(out))
            net.add("conv2d", out_channels=O, kernel_size=kernel, padding=padding, activation="relu")
            net.add("maxpool2d", kernel_size=2, stride=2)
            net.add("flatten")
            net.add("linear", out_features=5)
            out.append(as_job(f"pooled {C} {O} {side} {kernel}", net))
    return out


@cache
def winograd() -> list[Job]:
    """3 x 3 convolutions that Winograd's algorithm can do: images around its tiles of 4 x 4 and blocks of 16 tiles,
    with and without a border and a pool; and the largest sums there are, of both signs."""
    out, rng = [], np.random.default_rng(5)
    for C, O, H, W, padding in (
        (16, 16, 1, 1, 1), (16, 16, 4, 4, 1), (16, 32, 3, 5, 0), (32, 16, 5, 9, 1), (48, 80, 6, 7, 2),
        (64, 64, 17, 13, 1),
        (16, 16, 18, 16, 1), (80, 48, 8, 8, 1), (32, 32, 2, 33, 1), (224, 16, 7, 6, 1), (128, 32, 12, 20, 1),
    ):  # fmt: skip
        for pool in (False, True):
            if pool and min(H, W) + 2 * padding < 4:
                continue
            net = Net((H, W, C), Q, seed=len(out))
            net.add("activation")
            net.add("conv2d", out_channels=O, kernel_size=3, padding=padding, activation="relu")
            if pool:
                net.add("maxpool2d", kernel_size=2, stride=2)
            net.add("flatten")
            out.append(as_job(f"winograd {C} {O} {H} {W} {padding} pool {pool}", net))
    for C, weight, x in ((224, -127, -128), (224, 127, -128), (224, -127, 127), (224, 0, 0), (224, 0, 0)):
        net = Net((9, 9, C), Q, seed=len(out))
        net.add("conv2d", out_channels=16, kernel_size=3, padding=1)
        roles = net.nodes[-1][4]
        roles["weight"][:] = weight or rng.choice([-127, 127], roles["weight"].shape)
        net.factor(100 / (128 * 127 * 9 * C) * (1 if weight else 20))
        given = np.full((9, 9, C), x) if x else rng.choice([-128, 127], (9, 9, C))
        net.input = lambda given=given: given.astype(np.int8)
        out.append(as_job(f"winograd largest {C} {weight} {x}", net))
    # more inputs: 9 * 256 * 113 is the most that is below 2^18; of the second, sums would be 2^32 too far
    for C, weight, x in ((256, -113, -128), (256, 127, -128), (256, 113, 0)):
        net = Net((8, 7, C), Q, seed=len(out))
        net.add("conv2d", out_channels=16, kernel_size=3, padding=1)
        roles = net.nodes[-1][4]
        roles["weight"][:] = weight
        net.factor(100 / (128 * 127 * 9 * C))
        given = np.full((8, 7, C), x) if x else rng.integers(-128, 128, (8, 7, C))
        net.input = lambda given=given: given.astype(np.int8)
        out.append(as_job(f"winograd more inputs {C} {weight} {x}", net))
    return out


@cache
def blocks() -> list[Job]:
    """1 x 1 convolutions with counts of positions around the 48 that AVX2 finds, and widens, at a time and the 6 that
    may be left over, with as many inputs as it widens so, odd ones and more; 3 x 3 depthwise ones, of every stride and
    dilation, with weights of 127 and -127 for -128 and 127."""
    out, rng = [], np.random.default_rng(13)
    sizes = [(1, 1), (1, 5), (7, 7), (6, 8), (5, 11), (1, 53), (6, 9), (2, 97), (9, 11)]
    for i, (H, W) in enumerate(sizes):
        for C, O in ((2, 16), (16, 33), (17, 16), (192, 24), (194, 8)):
            for pool in (False, True):
                if pool and (min(H, W) < 2 or C == 17):
                    continue
                net = Net((H, W, C), Q, seed=len(out))
                net.add("conv2d", out_channels=O, kernel_size=1)
                if i % 3 == 2:
                    weight = net.nodes[-1][4]["weight"]
                    weight[:] = rng.choice([-127, 127], weight.shape)
                    net.factor(100 / (128 * 127 * C**0.5))
                    net.input = lambda shape=(H, W, C): rng.choice([-128, 127], shape).astype(np.int8)
                if pool:
                    net.add("maxpool2d", kernel_size=2, stride=2)
                out.append(as_job(f"blocks {H} {W} {C} {O} pool {pool}", net))
    for C, stride, dilation in product((4, 8, 16, 32, 40), (1, 2, [1, 3]), (1, 2, [2, 1])):
        net = Net((9, 8, C), Q, seed=len(out))
        net.add("depthwise_conv2d", kernel_size=3, padding=1, stride=stride, dilation=dilation)
        weight = net.nodes[-1][4]["weight"]
        weight[:] = rng.choice([-127, 127], weight.shape)
        net.factor(100 / (128 * 127 * 3))
        net.input = lambda shape=(9, 8, C): rng.choice([-128, 127], shape).astype(np.int8)
        out.append(as_job(f"blocks depthwise {C} {stride} {dilation}", net))
    return out


@cache
def largest() -> list[Job]:
    """The largest products there are, of both signs, all of one sign and mixed: weights of 127 and -127 times -128 and
    127. Rows, channels and lengths of a row around what the kernels take at once, which has 4 rows, 8 or 16 channels,
    and 16, 8 or 4 numbers of a row."""
    out, rng = [], np.random.default_rng(11)
    kinds = ((127, -128), (-127, -128), (-127, 127), (0, 0))
    # fmt: off
    shapes: list[tuple[tuple[int, ...], str, dict[str, object]]] = [
        ((rows, K), "linear", {"out_features": O})
        for rows, K, O in (
            (1, 4099, 16), (1, 40, 33), (2, 16, 16), (3, 24, 20), (4, 28, 8), (5, 12, 4), (7, 33, 12), (9, 7, 31),
        )
    ]
    shapes += [
        ((H, W, C), "conv2d", {"out_channels": O, "kernel_size": kernel, "padding": padding, "stride": stride})
        for H, W, C, O, kernel, padding, stride in (
            (5, 7, 3, 8, 3, 1, 2), (4, 5, 16, 16, 1, 0, 1), (3, 7, 20, 24, 3, 1, 1),
        )
    ]
    shapes += [
        ((H, W, C), "depthwise_conv2d", {"kernel_size": kernel, "padding": padding, "stride": stride})
        for H, W, C, kernel, padding, stride in (
            (5, 6, 16, 3, 1, 1), (6, 5, 16, 3, 1, 2), (4, 4, 8, 3, 1, 1), (5, 4, 8, 3, 0, 2), (4, 5, 37, 3, 1, 1),
            (6, 6, 5, 3, 1, 2), (6, 7, 16, 5, 2, 1), (5, 5, 24, 5, 2, 2), (3, 9, 19, 2, 0, 1),
        )
    ]
    # fmt: on
    for (x, name, attrs), (weight, value) in product(shapes, kinds):
        net = Net(x, Q, seed=len(out))
        net.add(name, numbers={"lo": -128, "hi": 127}, **attrs)
        net.quants[-1] = Q
        roles = net.nodes[-1][4]
        roles["weight"][:] = weight or rng.choice([-127, 127], roles["weight"].shape)
        K = roles["weight"].size // len(roles["bias"])
        net.factor(120 / (128 * 127 * (K if weight else K**0.5)))
        roles["bias"][:] = rng.integers(-127, 128, len(roles["bias"])) * (K * 16 if weight else 640)
        given = np.full(x, value) if value else rng.choice([-128, 127], x)
        net.input = lambda given=given: given.astype(np.int8)
        out.append(as_job(f"largest {name} {x} {attrs} {weight} {value}", net))
    return out


@cache
def shifts() -> list[Job]:
    """Requantisations with every shift and zero points at the ends: results within a byte and around its ends, and sums
    that, before the shift, are far outside 16 bits."""
    out = []
    for S, zero, spread in product(range(8), (-128, 0, 127), (300, 40000)):
        for name, x, attrs in (
            ("linear", (5, 9), {"out_features": 20}),
            ("conv2d", (6, 6, 16), {"out_channels": 16, "kernel_size": 3, "padding": 1}),
            ("depthwise_conv2d", (5, 5, 20), {"kernel_size": 3, "padding": 1}),
        ):
            net = Net(x, Q, seed=len(out))
            net.add(name, numbers={"lo": -128, "hi": 127, "shift": S}, **attrs)
            net.quants[-1] = Quant(0.0625, zero)
            roles = net.nodes[-1][4]
            roles["weight"] >>= 7 - S
            roles["bias"][:] = net.rng.integers(-spread << S, spread << S, len(roles["bias"]))
            roles["multiplier"][:] = 2.0 ** net.rng.uniform(28, 31, len(roles["bias"]))
            out.append(as_job(f"shift {S} zero {zero} spread {spread} {name}", net))
    return out


@cache
def adds() -> list[Job]:
    """Sums with factors of 16 bits and of more, of both signs."""
    out = []
    for seed, (m1, m2, shift) in enumerate(
        ((1, 1, 1), (32767, -32768, 15), (32768, 5, 15), (-32769, 129, 16), (2**21, 2**21, 22), (-(2**21), 2**21, 22),
         (-(2**21), -(2**21), 21), (1000003, -127, 20), (-128, 70000, 17))
    ):  # fmt: skip
        net = Net((5, 7, 3), Q, seed)
        a, b = net.add("activation", 0), net.add("activation", 0)
        net.add("add", a, b, numbers={"m1": m1, "m2": m2, "shift": shift})
        out.append(as_job(f"add {m1} {m2} {shift}", net))
    return out


@cache
def depthwise() -> list[Job]:
    """Depthwise convolutions, each also behind the product that is joined with it: channels around 64 bytes and their
    fractions, odd numbers of lines, strides, dilations, every padding, images of more bytes than are made at a time; y
    over the product's x; the largest sums there are, of both signs."""
    out, rng = [], np.random.default_rng(11)

    def one(shape: tuple[int, ...], C: int, extreme: int = 0, **attrs: object) -> None:
        for joined in (False, True):
            net, offsets = Net(shape if joined else (*shape[:2], C), Q, seed=len(out)), None
            if joined:
                wide = {"lo": -128, "hi": 127} if extreme else {}
                net.add("activation")
                net.add("conv2d", out_channels=C, kernel_size=1 if len(out) % 4 else 2, numbers=wide)
                if extreme:  # every byte at an end
                    net.factor(1)
            y = net.add("depthwise_conv2d", **attrs)
            net.add("activation")
            if extreme:
                net.nodes[y - 1][4]["weight"][:] = 127 * extreme if extreme < 2 else rng.choice([-127, 127])
                net.input = lambda shape=net.shapes[0]: rng.choice([-128, 127], shape).astype(np.int8)
            if joined and np.prod(net.shapes[y]) <= np.prod(net.shapes[1]) and len(out) % 8 > 2:
                offsets = {1: 0, 2: -(-int(np.prod(net.shapes[1])) // 16) * 16, y: 0}
            out.append(as_job(f"depthwise {shape} {C} {attrs} joined {joined}", net, offsets))

    for C in (1, 2, 3, 5, 8, 15, 16, 17, 24, 31, 32, 33, 48, 63, 64, 65, 80, 96, 128, 144, 160):
        H, W, stride = (int(v) for v in rng.integers((2, 2, 1), (12, 14, 4)))
        one((H + 3, W + 3, 5), C, kernel_size=3, padding=1)
        one((H + 3, W + 3, 4), C, kernel_size=3, padding=1, stride=2)
        kernel, padding, dilation = (
            [int(v) for v in rng.integers(a, b, n)] for a, b, n in ((1, 5, 2), (0, 5, 4), (1, 3, 2))
        )
        one((H + 8, W + 8, 3), C, kernel_size=kernel, padding=padding, stride=stride, dilation=dilation)
    for padding in ([0, 0, 0, 0], [1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1], [5, 5, 5, 5]):
        for stride in (1, 2, [1, 2], [2, 1]):
            one((7, 8, 6), 16, kernel_size=3, padding=padding, stride=stride)
    one((40, 41, 3), 144, kernel_size=3, padding=1)
    one((41, 40, 3), 144, kernel_size=3, padding=1, stride=2)
    one((9, 60, 3), 400, kernel_size=5, padding=2)
    one((8, 8, 3), 8, kernel_size=8, padding=3)
    one((4, 4, 3), 48, kernel_size=[3, 16], padding=[1, 8, 1, 8])
    for extreme in (-1, 1, 2):
        one((6, 7, 3), 48, extreme, kernel_size=3, padding=1)
        one((9, 9, 3), 20, extreme, kernel_size=8, stride=2)
    return out


def todo(name: str) -> list[Job]:
    made = (nets, products, pooled, blocks, largest, extremes, winograd, depthwise, adds, shifts)
    return next((f for f in made if f.__name__ == name), lambda: jobs(name))()


@cache
def results(build: str, name: str, kernels: int, choice: int) -> list[bytes]:
    with TemporaryDirectory() as folder:
        return [r.bytes for r in run(build, todo(name), Path(folder), fast=(kernels, choice))]


def compare(build: str, name: str, kernels: int, choice: int = CHOOSE) -> None:
    for got, j in zip(results(build, name, kernels, choice), todo(name), strict=True):
        assert got == j.want.tobytes() or near(j, got), j.what


@pytest.mark.parametrize("name", [*NAMES, "nets", "products", "pooled", "depthwise", *ENDS])
@pytest.mark.parametrize("kernels", HERE)
@pytest.mark.parametrize("build", BUILDS)
def test_every_set_of_kernels_gives_the_bytes_of_the_definition(build, kernels, name):
    compare(build, name, HERE[kernels])


@pytest.mark.parametrize("name", ["winograd", "pooled", "products"])
@pytest.mark.parametrize("kernels", HERE)
@pytest.mark.parametrize("build", BUILDS)
def test_winograds_algorithm_gives_the_bytes_of_the_definition(build, kernels, name):
    compare(build, name, HERE[kernels], WINOGRAD_4)


@pytest.mark.skipif("avx2" not in HERE, reason="x86-64 with AVX2 only")
@pytest.mark.parametrize("name", ["nets", "products", "blocks", "extremes", "winograd", "shifts"])
def test_the_kernels_for_avx_vnni_give_the_bytes_of_the_definition(name):
    """Where the processor has AVX-512 VNNI; elsewhere AVX2's are tested once more."""
    compare("evex-vnni", name, HERE["avx2"], WINOGRAD_4 if name == "winograd" else CHOOSE)


MANY = ["nets", "products", "pooled", "depthwise", *ENDS, "add", "maxpool2d", "global_avg_pool"]


@pytest.mark.parametrize("name", MANY)
@pytest.mark.parametrize("machine", [*MACHINES, DOT_PRODUCT])
def test_other_machines_give_the_bytes_of_the_definition(machine, name):
    compare(machine, name, OTHERS[machine][3])


@pytest.mark.parametrize("machine", [*MACHINES])
def test_winograds_algorithm_gives_them_on_other_machines(machine):
    compare(machine, "winograd", MACHINES[machine][3], WINOGRAD_4)
