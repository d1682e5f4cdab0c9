"""Every operator's C against its definition: each entry of CASES, and random shapes around the kernels' tiles.

The C is built several times, with two compilers, with and without vector types, under sanitizers and optimised; all
must give the same bits.
"""

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from c_jobs import BUILDS, FIRST, NAMES, Job, Result, attrs_of, job, one_op, run
from closeness import assert_close

from litenet.exporter.pack import packed_type
from litenet.trainer.ops import OPS, ShapeError, activations

SIZES = [1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 20, 31, 32, 33, 37, 49]  # around 4 rows, 4, 8 and 16 channels
RANDOM_CASES = 40

# Where the kernels' own blocks end: lists of 50 spans, 128 zeros, 32 taps on the stack, 32 gathered pixels.
EDGES: dict[str, list[dict[str, Any]]] = {
    "linear": [{"out_features": 33, "x": (n, 21)} for n in (1, 2, 3, 4, 5, 9)],
    "conv2d": [
        {"out_channels": 20, "kernel_size": 7, "padding": 3, "x": (5, 6, 2)},
        {"out_channels": 18, "kernel_size": 8, "padding": 4, "x": (6, 6, 1)},
        {"out_channels": 5, "kernel_size": 9, "padding": 8, "x": (9, 10, 2), "activation": "relu"},
        {"out_channels": 17, "kernel_size": 3, "padding": 1, "x": (3, 3, 127)},
        {"out_channels": 17, "kernel_size": 3, "padding": 1, "x": (3, 2, 300)},
        {"out_channels": 19, "kernel_size": 5, "padding": 2, "x": (2, 3, 300)},
        {"out_channels": 21, "kernel_size": 8, "dilation": [1, 2], "x": (9, 18, 3)},
        {"out_channels": 66, "kernel_size": 3, "padding": 1, "groups": 3, "x": (3, 5, 9)},
        {"out_channels": 3, "kernel_size": 2, "padding": [7, 0, 0, 9], "stride": 2, "x": (1, 3, 3)},
        {"out_channels": 4, "kernel_size": [1, 3], "padding": [0, 4, 0, 4], "dilation": [1, 4], "x": (2, 1, 4)},
    ],
    "depthwise_conv2d": [
        {"kernel_size": 6, "padding": 3, "x": (7, 6, 17), "activation": "relu"},
        {"kernel_size": [2, 33], "padding": [1, 32, 0, 16], "x": (3, 9, 20), "activation": "sigmoid"},
        {"kernel_size": [40, 1], "padding": [20, 0, 20, 0], "stride": [3, 1], "x": (5, 2, 16)},
        {"kernel_size": 2, "padding": [9, 0, 0, 9], "x": (1, 2, 5)},
    ],
    "embed_projection": [
        {"embed_dim": 35, "x": (4, 8, 5)},
        {"embed_dim": 35, "x": (3, 11, 3)},
        {"embed_dim": 20, "x": (13, 10, 6), "keep_channels": 1, "activation": "tanh"},
        {"embed_dim": 4, "x": (1, 129, 9), "keep_channels": 1},
    ],
    "maxpool2d": [{"kernel_size": 16, "padding": 15, "x": (3, 3, 18)}],
    "softmax": [{"x": (1000,)}],
    "layernorm": [{"x": (1000,)}, {"x": (5, 129)}],
}


MADE: dict[str, Any] = {  # attributes that a draw of numbers would hardly ever meet, for a shape x
    "slice": lambda rng, x: _random_slice(rng, x),
    "reshape": lambda rng, x: {"shape": [*rng.permutation([*x, *[1] * (3 - len(x))]).tolist(), 0]},
    "transpose": lambda rng, x: {"axes": [*rng.permutation(len(x)).tolist(), *range(len(x), 4)]},
    "pad": lambda rng, x: {side: [*rng.integers(0, 4, len(x)).tolist(), *[0] * (4 - len(x))]
                           for side in ("before", "after")},
    "concat": lambda rng, x: {"axis": int(rng.integers(len(x)))},
}  # fmt: skip


def _random_slice(rng: np.random.Generator, x: tuple[int, ...]) -> dict[str, int]:
    axis = int(rng.integers(len(x)))
    begin, step = int(rng.integers(x[axis])), int(rng.integers(1, 4))
    return {"axis": axis, "begin": begin, "step": step, "size": int(rng.integers(-(-(x[axis] - begin) // step))) + 1}


def random_case(name: str, rng: np.random.Generator) -> dict[str, Any]:
    """A case the shape rule allows, with small attributes and sizes around the tiles."""
    op = OPS[name].OP
    small = {"kernel_size": 4, "stride": 3, "padding": 2, "dilation": 2, "groups": 4}
    while True:
        case: dict[str, Any] = {}
        for attr in op.attrs:
            if attr.type == "f32":
                continue
            if attr.hi > 255 and attr.name not in small:
                values = [int(rng.choice(SIZES))]
            else:
                hi = min(attr.hi, small.get(attr.name, attr.hi))
                values = [int(v) for v in rng.integers(attr.lo, hi + 1, attr.count)]
            case[attr.name] = values if attr.count > 1 else values[0]
        if op.activation:
            case["activation"] = str(rng.choice([*activations.IDS]))
        image = (int(rng.integers(1, 9)), int(rng.integers(1, 9)), int(rng.choice(SIZES)))
        case["x"] = image[3 - int(rng.integers(1, 4)) :]
        if name in MADE:
            case |= MADE[name](rng, case["x"])
        try:
            OPS[name].out_shape(attrs_of(name, case), *[case["x"]] * len(op.inputs))
        except ShapeError:
            continue
        return case


@cache
def jobs(name: str) -> list[Job]:
    """All cases of one operator: in float32; in float16 where it stores its weights so; in place where it may."""
    op, rng = OPS[name].OP, np.random.default_rng(OPS[name].OP.id)
    cases = [*OPS[name].CASES, *EDGES.get(name, []), *(random_case(name, rng) for _ in range(RANDOM_CASES))]
    out = []
    for i, case in enumerate(cases):
        out.append(job(name, case, "f32", seed=i))
        if packed_type(op, "f16") == "f16":
            out.append(job(name, case, "f16", seed=i))
        out += [job(name, case, "f32", k, seed=i) for k, role in enumerate(op.inputs) if role in op.inplace]
    return out


@cache
def results(build: str, name: str) -> list[Result]:
    with TemporaryDirectory() as folder:
        return run(build, jobs(name), Path(folder))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("build", BUILDS)
def test_c_agrees_with_the_definition_within_the_operators_tolerance(build, name):
    for got, j in zip(results(build, name), jobs(name), strict=True):
        try:
            assert_close(got.y.reshape(j.want.shape), j.want, *OPS[name].OP.tolerance)
        except AssertionError as error:
            raise AssertionError(f"{j.what}: {error}") from None


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("build", [b for b in BUILDS if b != FIRST])
def test_every_build_gives_the_same_bits(build, name):
    for got, first, j in zip(results(build, name), results(FIRST, name), jobs(name), strict=True):
        assert got.y.tobytes() == first.y.tobytes(), j.what


@pytest.mark.parametrize("name", NAMES)
def test_c_counts_the_multiply_accumulates_of_the_definition(name):
    for got, j in zip(results(FIRST, name), jobs(name), strict=True):
        assert got.macs[j.at] == j.macs, j.what


@pytest.mark.parametrize("build", BUILDS)
def test_every_finite_half_reaches_the_sums_exactly(build, tmp_path):
    """All halves, denormal ones too, through each register tile: y = 1 * w. The last of 63,490 fill a tail."""
    halves = np.arange(65536, dtype=np.uint16).view(np.float16)
    halves = np.append(halves[np.isfinite(halves)], [1.5, 2.5]).astype(np.float64)
    outer = {"out_features": halves.size, "bias": 0}
    todo = [one_op("linear", outer, np.ones((rows, 1)), {"weight": halves[:, None]}, "f16") for rows in (1, 4)]
    for n in (4, 12):  # panels that are all tail
        few = halves[: halves.size // n * n].reshape(n, -1)
        k = few.shape[1]
        one_hot = np.zeros((5, k))
        one_hot[np.arange(5), [0, 1, 5, k // 2, k - 1]] = 1
        tail = {"out_features": n, "bias": 0}
        todo += [one_op("linear", tail, x, {"weight": few}, "f16") for x in (one_hot, one_hot[:1])]
    todo.append(one_op("depthwise_conv2d", {"kernel_size": 1, "bias": 0}, np.ones((1, 1, halves.size)),
                       {"weight": halves[None, None]}, "f16"))  # fmt: skip
    for got, j in zip(run(build, todo, tmp_path), todo, strict=True):
        assert (got.y.reshape(j.want.shape) == j.want).all(), j.what


BIG = [0.0, -0.0, 1e-45, -1e-45, 1e-20, -1e-20, 87.0, -87.0, 1e4, -1e4, 3e38, -3e38]


@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("name", activations.IDS)
def test_activations_are_right_at_extremes(name, build, tmp_path):
    """NaN stays NaN, as in the definition; inf gives the limit; nothing else leaves the range of float32."""
    x = np.array([*BIG, np.inf, np.nan])
    j = one_op("activation", {"activation": name, "alpha": 0.25}, x, {})
    (got,) = run(build, [j], tmp_path)
    assert_close(got.y[:-1][np.isfinite(j.want[:-1])], j.want[:-1][np.isfinite(j.want[:-1])], 1e-5, 1e-5)
    assert got.y[-2] == j.want[-2]
    assert np.isnan(got.y[-1])


@pytest.mark.parametrize("name", ["gelu", "gelu_tanh", "silu", "hard_swish"])
def test_smooth_activations_are_as_accurate_as_ln_math_says(name, tmp_path):
    h = np.concatenate([np.linspace(-12, 12, 20001), np.logspace(-36, 3, 4001), -np.logspace(-36, 3, 4001)])
    h = h[h != 0].astype(np.float32)
    j = one_op("activation", {"activation": name}, h, {})
    (got,) = run(FIRST, [j], tmp_path)
    worst = np.max(np.abs(got.y - j.want) / np.abs(h.astype(np.float64)))
    assert worst <= 2e-7, f"{worst:.3g} |h|"


@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("C", [1, 5, 16, 21])
def test_nan_and_infinity_pass_through_pools_and_softmax_as_in_the_definition(C, build, tmp_path):
    rng = np.random.default_rng(C)
    x = rng.choice([np.nan, -np.inf, np.inf, 1.0, -2.0, 0.0], (6, 7, C), p=[0.05, 0.15, 0.1, 0.3, 0.2, 0.2])
    pool = {"kernel_size": 3, "stride": 2, "padding": 1}
    todo = [one_op(name, pool, x, {}) for name in ("maxpool2d", "avgpool2d")]
    todo += [one_op("softmax", {}, x.reshape(42, C), {}), one_op("global_avg_pool", {}, x, {})]
    for got, j in zip(run(build, todo, tmp_path), todo, strict=True):
        np.testing.assert_allclose(got.y.reshape(j.want.shape), j.want, rtol=1e-5, atol=1e-5, err_msg=j.what)


def test_a_large_mean_does_not_spoil_layernorm(tmp_path):
    """Values near 1000 that differ by hundredths: float32 holds them to 6e-5, and no more may be lost."""
    rng = np.random.default_rng(3)
    x = (1000 + 0.05 * rng.standard_normal((4, 200))).astype(np.float32)
    j = one_op("layernorm", {}, x, {"gamma": np.ones(200), "beta": np.zeros(200)})
    (got,) = run(FIRST, [j], tmp_path)
    assert_close(got.y.reshape(j.want.shape), j.want, 1e-5, 1e-5)


@pytest.mark.parametrize("size", [12544, 300 * 300])
def test_the_mean_of_a_large_image_is_accurate(size, tmp_path):
    side = int(size**0.5)
    x = np.random.default_rng(4).random((side, side, 3)).astype(np.float32)
    j = one_op("global_avg_pool", {}, x, {})
    (got,) = run(FIRST, [j], tmp_path)
    assert_close(got.y, j.want, 0, 2e-6)
