"""The kernels for vector units against the definition, for every set that this processor can run.

Each model also runs operator by operator, with nothing joined, and must give the same bits (tests/c/ops_driver.c);
memory that nothing has written is NaN.
"""

import re
import shutil
import subprocess
import zlib
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import bins
import cbuild
import numpy as np
import pytest
from c_jobs import BUILDS as BUILDS_OF
from c_jobs import MACHINES, NAMES, Job, Result, job, one_op, run
from closeness import assert_close
from joined_nets import BLOCKS, Net, joined
from test_c_ops import BIG, jobs

from litenet.exporter.format import write
from litenet.pyruntime import InferenceEngine, ModelError
from litenet.pyruntime.kernels import KERNELS, lib
from litenet.trainer.ops import OPS, activations

HERE = {name: number for name, number in KERNELS.items() if lib.ln_fast_has(number)}
CHOOSE, DIRECT, WINOGRAD_2, WINOGRAD_4 = 0, 1, 2, 4  # as in runtime_c/src/fast.h
BUILDS = ["gcc", "gcc-O3", "clang-O3"]  # clang takes minutes over these files with its sanitizers
PLAIN = BUILDS[0]
pytestmark = pytest.mark.skipif(not HERE, reason="no vector kernels for this processor")


@cache
def results(build: str, kernels: str, name: str) -> list[Result]:
    with TemporaryDirectory() as folder:
        return run(build, jobs(name), Path(folder), fast=(HERE[kernels], CHOOSE))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kernels", HERE)
@pytest.mark.parametrize("build", BUILDS)
def test_fast_kernels_agree_with_the_definition_within_the_operators_tolerance(build, kernels, name):
    for got, j in zip(results(build, kernels, name), jobs(name), strict=True):
        try:
            assert_close(got.y.reshape(j.want.shape), j.want, *OPS[name].OP.tolerance)
        except AssertionError as error:
            raise AssertionError(f"{j.what}: {error}") from None


# ---------------------------------------------------------------- around the tiles: 16 rows at most, 16 channels


def products() -> list[Job]:
    rng, out = np.random.default_rng(5), []
    for rows in range(1, 34):
        O, K = int(rng.integers(1, 36)), int(rng.integers(1, 40))
        out.append(job("linear", {"out_features": O, "x": (rows, K), "activation": "relu6"}, "f32", seed=rows))
        out.append(job("linear", {"out_features": K, "x": (rows, O)}, "f16", seed=rows))
    for O in range(1, 36):
        out.append(job("linear", {"out_features": O, "x": (int(rng.integers(1, 70)),)}, "f32", seed=O))
        case = {"out_channels": O, "kernel_size": 3, "padding": 1, "x": (3, 7, int(rng.integers(1, 20)))}
        out.append(job("conv2d", case, "f16" if O % 2 else "f32", seed=O))
    for O in (127, 128, 144, 260):  # vectors: eight panels at once, and what is left of them
        case = {"out_features": O, "x": (int(rng.integers(1, 70)),), "activation": ["relu", "silu"][O % 2]}
        out.append(job("linear", case, "f32", seed=O))
    for width in range(3, 42):  # first layers of images, a line at a time
        case = {"out_channels": int(rng.choice([8, 16, 20, 32, 40])), "kernel_size": int(rng.choice([2, 3, 3, 4])),
                "stride": int(rng.choice([1, 2])), "padding": [int(v) for v in rng.integers(0, 3, 4)],
                "activation": str(rng.choice(["none", "relu", "silu"]))}  # fmt: skip
        out.append(job("conv2d", {**case, "x": (7, width + 1, int(rng.choice([1, 3, 4])))}, "f32", seed=width))
    for C in (256, 300, 512):  # pixels a power of two of bytes apart, weights for many rows
        out.append(job("conv2d", {"out_channels": 48, "kernel_size": 3, "padding": 1, "x": (4, 5, C)}, "f32"))
        out.append(job("conv2d", {"out_channels": 34, "kernel_size": 3, "stride": 2, "x": (9, 9, C)}, "f32"))
    out.append(job("conv2d", {"out_channels": 80, "kernel_size": 1, "x": (33, 31, 128)}, "f32"))
    return out


@pytest.mark.parametrize("kernels", HERE)
def test_products_are_right_for_every_number_of_rows_and_channels(kernels, tmp_path):
    todo = products()
    for got, j in zip(run(PLAIN, todo, tmp_path, fast=(HERE[kernels], DIRECT)), todo, strict=True):
        assert_close(got.y.reshape(j.want.shape), j.want, 2e-5, 2e-5)


# ---------------------------------------------------------------- Winograd


def threes() -> list[Job]:
    """3 x 3 convolutions of all sizes around the tiles of both forms, and of uneven padding."""
    rng, out = np.random.default_rng(6), []
    for size in range(1, 20):
        pads = [int(v) for v in rng.integers(0, 4, 4)] if size > 2 else [1, 1, 1, 1]
        C, O = (int(v) for v in rng.choice([16, 32, 48, 80], 2))
        case = {"out_channels": O, "kernel_size": 3, "padding": pads, "activation": ["none", "relu", "silu"][size % 3]}
        width = int(rng.integers(max(size - 2, 1), size + 9))
        out.append(job("conv2d", {**case, "x": (size, width, C)}, "f32", seed=size))
    out.append(job("conv2d", {"out_channels": 16, "kernel_size": 3, "padding": 1, "x": (9, 5, 16)}, "f16"))
    return out


@pytest.mark.parametrize("kernels", HERE)
@pytest.mark.parametrize("choice", [DIRECT, WINOGRAD_2, WINOGRAD_4])
@pytest.mark.parametrize("build", ["gcc", "clang-O3"])
def test_every_algorithm_of_a_convolution_agrees_with_the_definition(build, choice, kernels, tmp_path):
    """Within 1e-4 of the layer's largest output, as litenet_fast.h promises; the direct sum within a tenth of that."""
    todo = threes()
    for got, j in zip(run(build, todo, tmp_path, fast=(HERE[kernels], choice)), todo, strict=True):
        largest = np.abs(j.want).max()
        assert_close(got.y.reshape(j.want.shape), j.want, (1e-4 if choice != DIRECT else 1e-5) * largest, 0)


def test_winograd_is_as_accurate_as_the_header_says_over_many_channels(tmp_path):
    """512 channels of values that are all positive: sums grow, and their rounding errors."""
    rng = np.random.default_rng(7)
    x = rng.random((6, 6, 512)).astype(np.float32)
    w = (rng.random((16, 3, 3, 512)) / 512).astype(np.float32).astype(np.float64)
    given = {"out_channels": 16, "kernel_size": 3, "padding": 1, "bias": 0}
    j = one_op("conv2d", given, x, {"weight": w})
    for choice in (WINOGRAD_2, WINOGRAD_4):
        (got,) = run(PLAIN, [j], tmp_path, fast=(max(HERE.values()), choice))
        assert_close(got.y.reshape(j.want.shape), j.want, 2e-5 * np.abs(j.want).max(), 0)


# ---------------------------------------------------------------- two operators as one


def pooled(seed: int) -> tuple[bins.Bin, np.ndarray]:
    """A convolution of some form, the largest of each 2 x 2, and a second convolution that reads what was stored."""
    rng = np.random.default_rng(seed)
    shape = (int(rng.integers(2, 15)), int(rng.integers(2, 15)), int(rng.choice([1, 3, 4, 16, 32])))
    net = bins.Bin(shape, seed=seed, half=seed % 5 == 0)
    net.add("conv2d", out_channels=int(rng.choice([5, 16, 32])), kernel_size=3, padding=1,
            activation=str(rng.choice(["none", "relu", "tanh"])))  # fmt: skip
    net.add("maxpool2d", kernel_size=2, stride=2)
    net.add("conv2d", out_channels=4, kernel_size=1)
    return net, rng.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("kernels", HERE)
@pytest.mark.parametrize("choice", [DIRECT, WINOGRAD_2, WINOGRAD_4])
def test_a_convolution_and_its_pooling_run_as_one_with_the_same_bits(choice, kernels, tmp_path):
    todo = []
    for seed in range(30):
        net, x = pooled(seed)
        todo.append(Job(f"pooled {seed}", "", net.bytes(0), x, net.definition(x), 0, 0))
    for got, j in zip(run(PLAIN, todo, tmp_path, fast=(HERE[kernels], choice)), todo, strict=True):
        assert_close(got.y.reshape(j.want.shape), j.want, 1e-4, 1e-4)


@pytest.mark.parametrize("kernels", HERE)
@pytest.mark.parametrize("choice", [CHOOSE, DIRECT, WINOGRAD_2, WINOGRAD_4])
@pytest.mark.parametrize("kind", BLOCKS)
@pytest.mark.parametrize("build", [PLAIN, "clang-O3"])
def test_what_follows_a_layer_runs_with_it_and_gives_the_same_bits(build, kind, choice, kernels, tmp_path):
    """The driver compares with the operators run one by one, bit by bit; here the definition is beside it."""
    todo = [joined(seed, kind).job(f"{kind} {seed}") for seed in range(60)]
    for got, j in zip(run(build, todo, tmp_path, fast=(HERE[kernels], choice)), todo, strict=True):
        try:
            assert_close(got.y.reshape(j.want.shape), j.want, 2e-4 * max(np.abs(j.want).max(), 1), 0)
        except AssertionError as error:
            raise AssertionError(f"{j.what}: {error}") from None


@pytest.mark.parametrize("kernels", HERE)
def test_a_sum_that_would_be_written_over_what_is_added_later_is_not_joined(kernels, tmp_path):
    net = Net((6, 5, 16), 1)
    other = net.add("conv2d", out_channels=16, kernel_size=1)
    net.add("conv2d", 0, out_channels=16, kernel_size=1)
    net.add("add", 2, other)
    net.add("activation", activation="relu")
    net.add("batchnorm")
    size = 4 * 6 * 5 * 16
    j = net.job("shifted", places=[0, 0, 16 + size, 16 + 2 * size, 16, 0])  # the activation's 16 bytes behind `other`
    (got,) = run(PLAIN, [j], tmp_path, fast=(HERE[kernels], DIRECT))
    assert_close(got.y.reshape(j.want.shape), j.want, 1e-5, 1e-5)


@pytest.mark.parametrize("threads", [2, 3])
def test_layers_joined_over_a_large_image_give_the_same_bits_in_parts(threads):
    net = Net((96, 96, 3), 2)
    net.add("conv2d", out_channels=32, kernel_size=3, padding=1)
    net.add("prelu")
    net.add("depthwise_conv2d", kernel_size=3, padding=1, activation="relu6")
    net.add("conv2d", out_channels=48, kernel_size=1)
    net.add("depthwise_conv2d", kernel_size=5, stride=2, padding=2)
    net.add("conv2d", out_channels=20, kernel_size=1)
    j = net.job("large")
    file = write(j.model)
    alone = InferenceEngine(file, threads=1)
    y = alone.predict(j.x)
    assert_close(y, j.want, 1e-4 * np.abs(j.want).max(), 0)
    assert (alone.trace(j.x)[-1].array == y).all()
    assert (InferenceEngine(file, threads=threads).predict(j.x) == y).all()


@pytest.mark.parametrize("kernels", HERE)
def test_a_first_layer_in_parts_that_begin_within_a_line_gives_the_same_bits(kernels):
    net = Net((110, 97, 3), 4)
    net.add("conv2d", out_channels=32, kernel_size=3, padding=1, activation="relu")
    net.add("conv2d", out_channels=4, kernel_size=1)
    j = net.job("first layer")
    y = InferenceEngine(write(j.model), threads=1, kernels=kernels).predict(j.x)
    assert_close(y, j.want, 1e-4 * np.abs(j.want).max(), 0)
    assert (InferenceEngine(write(j.model), threads=3, kernels=kernels).predict(j.x) == y).all()


@pytest.mark.parametrize("kernels", HERE)
def test_nan_and_infinity_pass_through_joined_operators_as_in_the_definition(kernels, tmp_path):
    """By direct sums: Winograd's algorithm spreads what is not finite over its tile."""
    todo = []
    with np.errstate(invalid="ignore"):
        nan = np.float32(np.inf) - np.float32(np.inf)  # the one that this processor makes
    for seed in range(20):
        net = Net((9, 8, 16), seed)
        skip = net.add("conv2d", out_channels=16, kernel_size=3, padding=1, activation="relu")
        net.add("conv2d", out_channels=32, kernel_size=1)
        net.add("prelu")
        net.add("depthwise_conv2d", kernel_size=3, padding=1)
        net.add("prelu")
        net.add("conv2d", out_channels=16, kernel_size=1)
        net.add("add", len(net.shapes) - 1, skip, activation=net.pick(("none", "relu", "relu6")))
        x = net.rng.standard_normal(net.shapes[0]).astype(np.float32)
        x[tuple(net.rng.integers(0, net.shapes[0], (3, 3)).T)] = nan, np.inf, -np.inf
        todo.append(net.job(f"special {seed}", x))
    for got, j in zip(run(PLAIN, todo, tmp_path, fast=(HERE[kernels], DIRECT)), todo, strict=True):
        assert np.isnan(j.want).any()
        assert np.isfinite(j.want).any()
        np.testing.assert_allclose(got.y.reshape(j.want.shape), j.want, rtol=1e-4, atol=1e-3, err_msg=j.what)


# ---------------------------------------------------------------- depthwise convolutions


def windows(rng: np.random.Generator, width: int, five: bool = False) -> dict:
    """Some window over an image of this width: of 3 x 3 mostly, for which there are tiles of their own; with `five`, of
    five taps in a row, for which there are others."""
    kernel = [3, 3] if rng.random() < 0.6 else [int(v) for v in rng.integers(1, 6, 2)]
    dilation = [int(v) for v in rng.choice([1, 1, 1, 2, 3], 2)]
    if five:
        kernel, dilation = [int(rng.choice([1, 2, 5, 5, 7])), 5], [dilation[0], 1]
    height = int(rng.integers(1, 12))
    padding = [int(v) for v in rng.integers(0, 4, 4)]
    for axis, size in enumerate((height, width)):  # so that the window fits
        lacking = dilation[axis] * (kernel[axis] - 1) + 1 - size - padding[axis] - padding[axis + 2]
        padding[axis + 2] += max(lacking, 0)
    return {
        "kernel_size": kernel, "dilation": dilation, "padding": padding,
        "stride": [int(v) for v in rng.choice([1, 1, 2, 3], 2)],
        "activation": str(rng.choice(["none", "relu6", "silu"])), "x": (height, width),
    }  # fmt: skip


def depthwise(seed: int) -> list[Job]:
    """Every width around one and two tiles of positions, every number of channels around one and two panels."""
    rng, out = np.random.default_rng(seed), []
    for width in range(1, 18):
        case = windows(rng, width)
        case["x"] += (int(rng.choice([16, 32, 48, 80])),)
        out.append(job("depthwise_conv2d", case, "f16" if width % 4 == 0 else "f32", seed=width))
    for C in range(1, 66):
        case = windows(rng, int(rng.integers(1, 18)))
        out.append(job("depthwise_conv2d", {**case, "x": (*case["x"], C)}, "f16" if C % 5 == 0 else "f32", seed=C))
    for width in range(1, 50):
        case = windows(rng, width, five=True)
        case["x"] += (int(rng.choice([16, 32, 48, 5, 20])),)
        out.append(job("depthwise_conv2d", case, "f16" if width % 4 == 0 else "f32", seed=width))
    return out


@pytest.mark.parametrize("kernels", HERE)
@pytest.mark.parametrize("build", ["gcc", "clang-O3"])
def test_depthwise_convolutions_are_right_for_every_width_and_number_of_channels(build, kernels, tmp_path):
    todo = depthwise(11)
    for got, j in zip(run(build, todo, tmp_path, fast=(HERE[kernels], CHOOSE)), todo, strict=True):
        assert_close(got.y.reshape(j.want.shape), j.want, 2e-5, 2e-5)


def test_a_depthwise_window_of_more_taps_than_the_kernels_take_is_right(tmp_path):
    case = {"padding": 4, "x": (20, 21, 18)}
    todo = [job("depthwise_conv2d", {**case, "kernel_size": k}, "f32") for k in ([17, 1], [9, 9], [8, 8], [1, 20])]
    for got, j in zip(run(PLAIN, todo, tmp_path, fast=(max(HERE.values()), CHOOSE)), todo, strict=True):
        assert_close(got.y.reshape(j.want.shape), j.want, 2e-5, 2e-5)


def before_depthwise(seed: int) -> tuple[bins.Bin, np.ndarray]:
    """A convolution of some form between others, and the depthwise one that reads it, often over what it read."""
    rng = np.random.default_rng(seed)
    window = windows(rng, int(rng.integers(1, 20)), five=seed % 3 == 0)
    shape = (*window.pop("x"), int(rng.choice([1, 3, 8, 16, 24])))
    net = bins.Bin(shape, seed=seed, half=seed % 5 == 0, turns=seed % 2 == 0)
    net.add("conv2d", out_channels=int(rng.choice([4, 16, 24])), kernel_size=1)
    kernel = int(rng.choice([1, 3]))
    net.add("conv2d", out_channels=int(rng.choice([4, 8, 16, 24, 40, 64])), kernel_size=kernel, padding=kernel // 2,
            activation=str(rng.choice(["none", "relu", "tanh"])))  # fmt: skip
    net.add("depthwise_conv2d", **window)
    net.add("conv2d", out_channels=4, kernel_size=1)
    return net, rng.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("kernels", HERE)
@pytest.mark.parametrize("choice", [CHOOSE, DIRECT])
def test_a_convolution_and_the_depthwise_one_after_it_run_as_one_with_the_same_bits(choice, kernels, tmp_path):
    todo = []
    for seed in range(60):
        net, x = before_depthwise(seed)
        todo.append(Job(f"before depthwise {seed}", "", net.bytes(0), x, net.definition(x), 0, 0))
    for got, j in zip(run(PLAIN, todo, tmp_path, fast=(HERE[kernels], choice)), todo, strict=True):
        assert_close(got.y.reshape(j.want.shape), j.want, 1e-4, 1e-4)


@pytest.mark.parametrize("kernels", HERE)
def test_an_image_too_large_for_the_nearest_cache_goes_line_by_line_into_the_depthwise_convolution(kernels, tmp_path):
    """Its lines take turns in the ring."""
    todo = []
    for stride in (1, 2):
        net = bins.Bin((37, 53, 8), seed=stride)
        net.add("conv2d", out_channels=40, kernel_size=1, activation="relu6")
        net.add("depthwise_conv2d", kernel_size=3, stride=stride, padding=1, activation="relu6")
        net.add("conv2d", out_channels=8, kernel_size=1)
        x = np.random.default_rng(stride).standard_normal((37, 53, 8)).astype(np.float32)
        todo.append(Job(f"stride {stride}", "", net.bytes(0), x, net.definition(x), 0, 0))
    for got, j in zip(run(PLAIN, todo, tmp_path, fast=(HERE[kernels], CHOOSE)), todo, strict=True):
        assert_close(got.y.reshape(j.want.shape), j.want, 1e-4, 1e-4)


# ---------------------------------------------------------------- extremes


@pytest.mark.parametrize("kernels", HERE)
@pytest.mark.parametrize("name", activations.IDS)
def test_fast_activations_are_right_at_extremes(name, kernels, tmp_path):
    x = np.array([*BIG, *[0.5] * 9, np.inf, np.nan])  # more than a vector
    j = one_op("activation", {"activation": name, "alpha": 0.25}, x, {})
    (got,) = run(PLAIN, [j], tmp_path, fast=(HERE[kernels], CHOOSE))
    assert_close(got.y[:-1][np.isfinite(j.want[:-1])], j.want[:-1][np.isfinite(j.want[:-1])], 1e-5, 1e-5)
    assert got.y[-2] == j.want[-2]
    assert np.isnan(got.y[-1])


@pytest.mark.parametrize("kernels", HERE)
@pytest.mark.parametrize("C", [1, 5, 16, 21, 64, 100])
def test_nan_and_infinity_pass_through_fast_pools_and_softmax_as_in_the_definition(C, kernels, tmp_path):
    rng = np.random.default_rng(C)
    x = rng.choice([np.nan, -np.inf, np.inf, 1.0, -2.0, 0.0], (6, 7, C), p=[0.05, 0.15, 0.1, 0.3, 0.2, 0.2])
    pool = {"kernel_size": 3, "stride": 2, "padding": 1}
    todo = [one_op(name, pool, x, {}) for name in ("maxpool2d", "avgpool2d")]
    todo += [one_op("softmax", {}, x.reshape(42, C), {}), one_op("global_avg_pool", {}, x, {})]
    for got, j in zip(run(PLAIN, todo, tmp_path, fast=(HERE[kernels], CHOOSE)), todo, strict=True):
        np.testing.assert_allclose(got.y.reshape(j.want.shape), j.want, rtol=1e-5, atol=1e-5, err_msg=j.what)


@pytest.mark.parametrize("kernels", HERE)
@pytest.mark.parametrize("activation", ["none", "relu", "relu6", "leaky_relu"])
def test_a_nan_or_infinity_in_the_image_reaches_what_sees_it_and_nothing_else(activation, kernels, tmp_path):
    """Direct sums only: Winograd's transforms spread them over the tile, as in every library that has it."""
    x = np.random.default_rng(8).standard_normal((7, 9, 16))
    x[3, 4, 5], x[0, 8, 2], x[6, 0, 1] = np.nan, np.inf, 1e-42
    given = {"kernel_size": 3, "padding": 1, "activation": activation, "bias": 0}
    w = np.random.default_rng(9).standard_normal((20, 3, 3, 16))
    five = np.random.default_rng(10).standard_normal((5, 5, 16))
    todo = [one_op("conv2d", {**given, "out_channels": 20}, x, {"weight": w.astype(np.float32).astype(np.float64)}),
            one_op("depthwise_conv2d", given, x, {"weight": w[0].astype(np.float32).astype(np.float64)}),
            one_op("depthwise_conv2d", {**given, "kernel_size": 5, "padding": 2}, x,
                   {"weight": five.astype(np.float32).astype(np.float64)})]  # fmt: skip
    for got, j in zip(run(PLAIN, todo, tmp_path, fast=(HERE[kernels], DIRECT)), todo, strict=True):
        np.testing.assert_allclose(got.y.reshape(j.want.shape), j.want, rtol=1e-4, atol=1e-4, err_msg=j.what)


@pytest.mark.parametrize("kernels", HERE)
def test_every_finite_half_reaches_the_fast_sums_exactly(kernels, tmp_path):
    halves = np.arange(65536, dtype=np.uint16).view(np.float16)
    halves = halves[np.isfinite(halves)].astype(np.float64)
    outer = {"out_features": halves.size, "bias": 0}
    todo = [one_op("linear", outer, np.ones((rows, 1)), {"weight": halves[:, None]}, "f16") for rows in (1, 5)]
    for got, j in zip(run(PLAIN, todo, tmp_path, fast=(HERE[kernels], CHOOSE)), todo, strict=True):
        assert (got.y.reshape(j.want.shape) == j.want).all(), j.what


# ---------------------------------------------------------------- the checksum

CHECKED = [0, 1, 15, 16, 63, 64, 127, 128, 129, 191, 192, 1000, 8191, 16384]  # bytes
CHECKED += [(1 << 18) - 1, (1 << 18) + 40, (1 << 18) + 295, 1 << 19]  # from 1 << 18 on perhaps 64 bytes at once


def checksums(compiler: str, sanitize: bool, flags: tuple[str, ...] = (), command: tuple[str, ...] = ()) -> None:
    sources = [cbuild.TESTS_C / "crc_driver.c", *cbuild.core(), *cbuild.fast()]
    driver = cbuild.program("crc_driver", sources, compiler, sanitize, ("-DLN_TEST_FAST", *flags))
    for n in CHECKED:
        data = np.random.default_rng(n).integers(0, 256, n, np.uint8).tobytes()
        done = subprocess.run([*command, driver], input=data, capture_output=True, check=True)
        assert done.stdout.decode() == f"{zlib.crc32(data):08x}\n"


@pytest.mark.parametrize("build", ["gcc", "gcc-O3", "clang-O3"])
def test_the_checksum_by_instructions_made_for_it_is_that_of_zip(build):
    compiler, sanitize, flags = BUILDS_OF[build]
    checksums(compiler, sanitize, flags)


# ---------------------------------------------------------------- other processors, emulated


def on_machine(name: str) -> int:
    """The number of its kernels; skips where compiler or emulator is missing."""
    compiler, _, (emulator, *_), kernels = MACHINES[name]
    cbuild.need(compiler)
    if shutil.which(emulator) is None:
        pytest.skip(f"{emulator} is not installed")
    return kernels


@pytest.mark.parametrize("machine", MACHINES)
def test_an_emulated_processor_agrees_with_the_definition(machine, tmp_path):
    kernels = on_machine(machine)
    for name in NAMES:
        todo = jobs(name)
        for got, j in zip(run(machine, todo, tmp_path, fast=(kernels, CHOOSE)), todo, strict=True):
            assert_close(got.y.reshape(j.want.shape), j.want, *OPS[name].OP.tolerance)
    for todo in (products(), depthwise(11)):
        for got, j in zip(run(machine, todo, tmp_path, fast=(kernels, DIRECT)), todo, strict=True):
            assert_close(got.y.reshape(j.want.shape), j.want, 2e-5, 2e-5)
    for choice in (DIRECT, WINOGRAD_2, WINOGRAD_4):
        for got, j in zip(run(machine, threes(), tmp_path, fast=(kernels, choice)), threes(), strict=True):
            assert_close(got.y.reshape(j.want.shape), j.want, 1e-4 * np.abs(j.want).max(), 0)
    todo = [joined(seed, kind).job(f"{kind} {seed}") for kind in BLOCKS for seed in range(15)]
    for choice in (DIRECT, WINOGRAD_4):
        for got, j in zip(run(machine, todo, tmp_path, fast=(kernels, choice)), todo, strict=True):
            assert_close(got.y.reshape(j.want.shape), j.want, 2e-4 * max(np.abs(j.want).max(), 1), 0)


@pytest.mark.parametrize("machine", [m for m in MACHINES if m != "wasm"])  # there it is the portable one
def test_the_checksum_of_an_emulated_processor_is_that_of_zip(machine):
    on_machine(machine)
    compiler, flags, command, _ = MACHINES[machine]
    checksums(compiler, False, flags, command)


# ---------------------------------------------------------------- the binding


@pytest.mark.parametrize("kernels", [*HERE, "portable", None])
def test_an_engine_runs_the_kernels_it_is_asked_for_and_passes_its_self_test(kernels):
    net = bins.digits()
    engine = InferenceEngine(net.bytes(), kernels=kernels)
    engine.selftest()
    x = np.random.default_rng(0).standard_normal((28, 28, 1)).astype(np.float32)
    np.testing.assert_allclose(engine.predict(x), net.definition(x), rtol=1e-4, atol=1e-5)


def test_kernels_that_do_not_exist_are_refused_with_those_that_do():
    with pytest.raises(ModelError, match=r"no kernels 'mmx' on this processor; it can run .*portable"):
        InferenceEngine(bins.mlp().bytes(), kernels="mmx")


# ---------------------------------------------------------------- what the files hold


@pytest.mark.skipif("avx2" not in KERNELS or "avx512" not in HERE and "sse2" not in HERE, reason="x86-64 only")
@pytest.mark.parametrize("compiler", cbuild.COMPILERS)
def test_files_that_are_not_chosen_at_run_time_hold_baseline_instructions_only(compiler):
    """No VEX or EVEX instruction, whose names begin with v, outside the files for such processors."""
    chosen = {"fast_avx2.c", "fast_avx512.c", "fast_crc_avx512.c", "fast_int8_avx2.c", "fast_int8_avxvnni.c",
              "fast_int8_vnni.c"}
    for source in [*cbuild.core(), *cbuild.fast(), *sorted(cbuild.SRC.glob("ln_file.c"))]:
        (built,) = cbuild.objects([source], compiler, sanitize=False, flags=("-O2",))
        command = ["objdump", "-d", "--no-show-raw-insn", built]
        code = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        wide = re.findall(r"^\s+[0-9a-f]+:\s+(v\w+)", code, re.MULTILINE)
        wide = [name for name in wide if name not in ("verr", "verw")]
        assert bool(wide) == (source.name in chosen), (source.name, wide[:3])
