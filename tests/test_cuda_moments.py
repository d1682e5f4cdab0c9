"""Convolutions that leave the moments of their output for the batchnorm behind them: every variant, run on the CPU."""

from __future__ import annotations

import cushim
import numpy as np
import nvrtc
import pytest
from closeness import assert_close
from nets import net
from shim_device import ShimDevice
from test_cuda_gemm import Case, only_tile, run

from litenet.trainer.data.dataset import Dataset
from litenet.trainer.debug_nan import Replay
from litenet.trainer.device_trainer import DeviceTrainer
from litenet.trainer.kernels import calls_gemm, calls_moments, calls_other, calls_winograd4, tiles
from litenet.trainer.kernels.call import Shapes
from litenet.trainer.ops import OPS, make_attrs
from litenet.trainer.settings import settings_for
from litenet.trainer.trainer import Trainer

CASES = {
    "first layer": ((9, 11, 3), {"out_channels": 36, "padding": 1}),
    "odd": ((7, 6, 5), {"out_channels": 7, "padding": 1, "activation": "relu"}),
    "wide": ((13, 10, 36), {"out_channels": 70, "padding": 1, "bias": 0}),
    "wide, half": ((13, 10, 36), {"out_channels": 72, "padding": 1, "half": True}),
    "strided": ((9, 8, 20), {"out_channels": 33, "stride": 2, "padding": 1, "bias": 0}),
    "grouped": ((6, 6, 4), {"out_channels": 6, "groups": 2, "padding": 1}),
}


def mostly(default, *slow):
    """Parameters, of which some are left to the slow tests: each compiles kernels of its own."""
    return [*default, *(pytest.param(one, marks=pytest.mark.slow) for one in slow)]


def made(name, N=3):
    x, attrs = CASES[name]
    return Case("conv2d", x, N=N, kernel_size=3, **attrs)


def resized(name, N):
    """A case of another batch, for its variants alone."""
    case = made(name, N=1)
    case.N = N
    return case


def left(case, variant, backwards=False):
    """(y, moments) of a variant."""
    arrays = {**case.arrays, "y": np.full((case.N, *case.y), np.nan, case.real)}
    arrays |= {"scratch": np.full(variant.scratch // 4, np.nan, np.float32)}
    pixels, C = case.N * case.y[0] * case.y[1], case.y[-1]
    arrays["moments"] = np.full(calls_moments.floats(pixels, C), np.nan, np.float32)
    run(variant.calls, arrays, backwards)
    return arrays["y"], arrays["moments"]


def forms(case, direction="train", sms=3):
    """On few multiprocessors: blocks then have more than one tile."""
    (found,) = calls_gemm.parts("conv2d", direction, case.shapes(sms, moments=True)).values()
    return found


def together(moments, pixels, C):
    """(mean, m2) of all rows, in float64."""
    most = calls_moments.most(pixels)
    rows, n = moments[: most * 3 * C].reshape(most, 3, C).astype(np.float64), moments[most * 3 * C :][:most]
    assert n.sum() == pixels
    (origin, mean, m2), n = rows[n > 0].transpose(1, 0, 2), n[n > 0, None]
    both = (n * (origin + mean)).sum(0) / pixels
    return both, (m2 + n * (origin + mean - both) ** 2).sum(0)


def check(y, left):
    """The mean is off by a last place or 5e-7 of the spread, the sum of squares by four last places."""
    rows = y.reshape(-1, y.shape[-1]).astype(np.float64)
    moments = together(left, *rows.shape)
    mean, m2 = rows.mean(0), ((rows - rows.mean(0)) ** 2).sum(0)
    size = np.sqrt(m2 / len(rows))
    assert (np.abs(moments[0] - mean) <= 1e-7 * np.abs(mean) + 5e-7 * size).all()
    assert (np.abs(moments[1] - m2) <= 5e-7 * m2).all()


def leaves(variant):
    return "batchnorm_moments_f32" not in {call.kernel.name for call in variant.calls}


@pytest.mark.parametrize("name", mostly(["wide", "strided", "grouped"], "first layer", "odd", "wide, half"))
def test_every_variant_leaves_the_moments_of_what_it_stores(name):
    case = made(name)
    for v in forms(case):
        y, moments = left(case, v)
        assert_close(y, case.want_y, 2e-3 if case.half else 1e-4, 2e-3 if case.half else 1e-4)
        check(y, moments)
        again, same = left(case, v, backwards=True)
        assert (again.tobytes(), same.tobytes()) == (y.tobytes(), moments.tobytes()), v.name


def test_tiles_winograd_and_the_first_layer_need_no_pass_of_their_own():
    names = {v.name.split()[0] for name in ("wide", "first layer") for v in forms(made(name)) if leaves(v)}
    assert {"winograd", "winograd4", "first"} <= names and any(name[0].isdigit() for name in names)
    assert not any(leaves(v) for v in forms(made("grouped")))


@pytest.mark.parametrize("t", mostly([tiles.TILES[0], tiles.TILES[7]], *tiles.TILES[1:7], tiles.TILES[8]), ids=str)
def test_every_tile_leaves_them(monkeypatch, t):
    """The sum whole, and in 3 parts."""
    only_tile(monkeypatch, t)
    monkeypatch.setattr(calls_moments, "MOST", 3)
    case = Case("conv2d", (11, 9, 8), N=3, kernel_size=3, out_channels=20, padding=1)
    found = [v for v in forms(case) if v.name.startswith(t.name)]
    assert any(leaves(v) for v in found)
    for v in found:
        check(*left(case, v))


@pytest.mark.parametrize("name", mostly(["wide"], "first layer", "odd", "strided"))
def test_many_rows_are_put_together_in_groups(monkeypatch, name):
    monkeypatch.setattr(calls_moments, "MOST", 2)
    case = made(name, N=4)
    for v in forms(case, sms=40):
        check(*left(case, v))


def test_more_rows_than_counters_take_a_pass_of_their_own(monkeypatch):
    monkeypatch.setattr(calls_moments, "COUNTERS", 0)
    monkeypatch.setattr(calls_moments, "MOST", 1)
    case = made("wide")
    for v in forms(case):
        within = v.name.startswith("winograd4")  # whose launches have as many rows as there can be
        assert leaves(v) is (within and not v.name.endswith(calls_moments.PASS))
        check(*left(case, v))


def test_launches_after_one_another_add_to_the_same_rows(monkeypatch):
    """F(4x4, 3x3) in turns, the last of them with fewer rows: an even and an odd number of them."""
    monkeypatch.setattr(calls_moments, "LEAST_PIXELS", 8)
    case = Case("conv2d", (13, 10, 36), N=4, kernel_size=3, out_channels=70, padding=1)
    s = case.shapes(40, moments=True)
    for tiles_of_a_turn in (13, 20, 48):
        v = calls_winograd4.conv("train", s, False, calls_winograd4.Way(tiles.TILES[3]), tiles_of_a_turn)
        check(*left(case, v))
        assert left(case, v)[1].tobytes() == left(case, v, backwards=True)[1].tobytes()


@pytest.mark.parametrize("sms", [4, 132])
@pytest.mark.parametrize("name", CASES)
def test_one_variant_needs_no_scratch_memory(name, sms):
    """A shorter last batch has the room that a whole one was planned with, which may be none."""
    for N in (1, 5, 64):
        assert min(v.scratch for v in forms(resized(name, N), sms=sms)) == 0


@pytest.mark.parametrize("name", mostly(["wide", "grouped"], "odd", "first layer"))
def test_the_pass_computed_again_has_the_bits_of_the_first_and_leaves_nothing(name):
    case = made(name)
    for first, again in zip(forms(case), forms(case, "again"), strict=True):
        assert (first.name, first.scratch) == (again.name, again.scratch)
        y, moments = left(case, again)
        assert y.tobytes() == left(case, first)[0].tobytes(), first.name
        assert np.isnan(moments).all()


@pytest.mark.parametrize("name", mostly(["wide", "strided"], "odd", "first layer"))
def test_a_mean_far_from_zero_costs_no_digits(name):
    """A bias of 1000 on sums of about 1: sums of squares would leave the variance one digit."""
    x, attrs = CASES[name]
    case = Case("conv2d", x, N=3, kernel_size=3, **attrs | {"bias": 1})
    case.arrays["bias"][:] = 1000
    case.arrays["weight"] /= np.float32(np.sqrt(9 * x[-1]))
    for v in forms(case):
        y, moments = left(case, v)
        check(y, moments)


@pytest.mark.parametrize("op", ["batchnorm", "batchnorm_add"])
@pytest.mark.parametrize("x", [(3, 4, 17), (20, 18, 36)], ids=["small", "large"])
def test_batchnorm_uses_the_moments_it_is_given(op, x):
    module, rng = OPS[op], np.random.default_rng(0)
    a = make_attrs(module.OP, {"activation": "relu"})
    s = Shapes(a, 3, x, x, sms=4, moments=True)
    assert calls_other.SCRATCH[op]("train", s) == 0
    (call,) = calls_other.CALLS[op]("train", s)
    arrays = {role: rng.standard_normal((3, *x)).astype(np.float32) + 2 for role in module.OP.inputs}
    for w in module.OP.weights:
        arrays[w.name] = rng.standard_normal(x[-1]).astype(np.float32) ** 2
    double = {k: v.astype(np.float64) for k, v in arrays.items()}
    want, aux = module.forward_train(a, *(double[k] for k in (*module.OP.inputs, *(w.name for w in module.OP.weights))))
    rows = double["x"].reshape(-1, x[-1])
    most = calls_moments.most(len(rows))
    parts = np.array_split(rows, most)[: max(most - 1, 1)]  # one row less than there can be, where that can be
    if most > 1:
        parts[-1] = np.concatenate([parts[-1], np.array_split(rows, most)[-1]])
    moments = np.full(calls_moments.floats(*rows.shape), np.nan, np.float32)
    for i, part in enumerate(parts):
        m2 = ((part - part.mean(0)) ** 2).sum(0)
        moments[3 * i * x[-1] :][: 3 * x[-1]] = np.concatenate([part[0], part.mean(0) - part[0], m2])
    moments[3 * most * x[-1] :][:most] = [*map(len, parts), *[0] * (most - len(parts))]
    kept = {k: np.full(x[-1], np.nan, np.float32) for k in ("mean", "inv_std")}
    arrays |= kept | {"y": np.full((3, *x), np.nan, np.float32), "moments": moments}
    cushim.run(call, arrays)
    for role, value in {"y": want, **aux}.items():
        assert_close(arrays[role], value, 1e-5, 1e-5)


LAYERS = [
    {"type": "conv2d", "out_channels": 8, "kernel_size": 3, "padding": 1, "bias": False},
    {"type": "batchnorm", "activation": "relu"},
    {"type": "conv2d", "out_channels": 8, "kernel_size": 3, "padding": 1, "bias": False},
    {"type": "batchnorm"},
    {"type": "global_avg_pool"},
    {"type": "linear", "out_features": 3},
]


def stepped(make, **more):
    rng = np.random.default_rng(0)
    data = Dataset(rng.integers(0, 256, (8, 24, 24, 3), np.uint8), rng.integers(0, 3, 8))
    blueprint = net(LAYERS, (3, 24, 24), optimizer="momentum", learning_rate=0.01, **more)
    trainer = make(blueprint)
    settings = settings_for(blueprint, {"epochs": 1, "batch_size": 8})
    for _ in range(2):
        trainer.run_batch(data, np.arange(8), True, 1, settings)
    return trainer, trainer.state_arrays()


def on_device(blueprint):
    return DeviceTrainer(ShimDevice(), blueprint, 8, 1, (120.0,) * 3, (70.0,) * 3)


def test_a_net_on_a_device_takes_no_pass_for_the_moments_and_learns_as_on_the_cpu():
    device, got = stepped(on_device)
    assert [n.moments for n in device.graph.nodes] == ["out", "in", "out", "in", "", ""]
    assert "batchnorm_moments_f32" not in device.device.launched
    value = device.plan.values[device.graph.tensors[device.graph.nodes[0].output].name + ":moments"]
    assert (value.shape, value.batched) == ((calls_moments.floats(8 * 24 * 24, 8),), False)
    _, want = stepped(lambda b: Trainer(b, 8, 1, (120.0,) * 3, (70.0,) * 3))
    for name in want:
        assert_close(got[name], want[name], 2e-4, 2e-4)


def test_debug_nan_looks_past_rows_that_nobody_wrote():
    device, _ = stepped(on_device)
    launch = next(launch for launch in device.plan.launches if "moments" in launch.writes)
    name, plan = launch.writes["moments"], device.plan
    device.load(plan, np.zeros((8, 24, 24, 3), np.float32))
    device.backend.write(plan, name, np.full(plan.values[name].shape, np.nan, np.float32))
    view = Replay(device, 8)
    view.before(launch)
    device.run(plan, launch, 8)
    view.after(launch, 0.0)
    assert np.isnan(device.read(plan, name)).any()
    assert view.bad is None


def test_a_norm_that_keeps_the_averages_it_has_asks_for_none():
    device, _ = stepped(on_device, freeze=["layer_0", "layer_1"])
    assert [n.moments for n in device.graph.nodes] == ["", "", "out", "in", "", ""]


FORWARD = {"CONV_FORWARD": 1, "MOMENTS": 1, "ACT": 0}
WINOGRAD = {"MOMENTS": 1, "ACT": 0, "MASK": 0, "POOL": 0, "SPLIT": 0, "TAIL": 0, "TILES": 32}
COMPILED = [
    *[("conv2d.cu", {**FORWARD, "VC": 4, "TILE": t.text}) for t in (tiles.TILES[0], tiles.TILES[7])],
    ("conv2d_first.cu", {**FORWARD, "FC": 3, "FKH": 3, "FKW": 3, "POOL": 0, "ACROSS": 1}),
    *[("conv2d_winograd.cu", {**WINOGRAD, "OUTS": outs}) for outs in (64, 32)],
    ("conv2d_winograd4.cu", {"OUTPUT": 1, "MOMENTS": 1, "ACT": 0, "POOL": 0, "CUT": 1}),
]


@pytest.mark.parametrize("arch", nvrtc.ARCHITECTURES)
def test_kernels_that_leave_moments_compile_for_every_card(arch):
    for file, macros in COMPILED if arch in (50, 75) else COMPILED[1:3]:
        (used,) = nvrtc.resources(nvrtc.compile(file, arch, macros)[1]).values()
        assert used.shared <= 48 << 10
        if arch in (50, 75):
            assert used.spills == 0, (file, macros, used)


@pytest.mark.slow
@pytest.mark.parametrize("arch", nvrtc.ARCHITECTURES)
def test_all_of_them_compile_for_every_card(arch):
    for file, macros in COMPILED:
        assert nvrtc.resources(nvrtc.compile(file, arch, macros)[1])
