"""The kernels of linear, conv2d and embed_projection, run on the CPU, against the definitions in float64.

Outputs and scratch hold NaN before each run, so what a kernel leaves unwritten shows. Every variant that
calls_gemm.parts lists for a shape must give the result; a run in the opposite thread order must give the same bits.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import cushim
import numpy as np
import nvrtc
import pytest
from closeness import assert_close

from litenet.trainer.kernels import calls_conv, calls_gemm, tiles, variants
from litenet.trainer.kernels.call import Shapes
from litenet.trainer.ops import OPS, activations, make_attrs

OPS_HERE = ("linear", "conv2d", "embed_projection")
ALL = frozenset({"x", "weight", "bias"})


class Case:
    """One operator at one shape: inputs as they are stored, and results of the definition in float64."""

    def __init__(self, op, x, N=3, seed=0, half=False, **attrs):
        self.half, self.real = half, np.float16 if half else np.float32  # of activations and their gradients
        self.op, self.module, self.rng = op, OPS[op], np.random.default_rng(seed)
        self.a = make_attrs(self.module.OP, attrs)
        self.N, self.x, self.y = N, tuple(x), self.module.out_shape(self.a, tuple(x))
        self.arrays = {"x": self.random((N, *self.x)).astype(self.real)}
        for w in self.module.OP.weights:
            if not (w.needs and not getattr(self.a, w.needs)):
                self.arrays[w.name] = self.random(w.shape(self.a, self.x)) * np.float32(0.5)
        self.weights = [k for k in self.arrays if k != "x"]
        double = {k: v.astype(np.float64) for k, v in self.arrays.items()}
        arguments = [double.get(w.name) for w in self.module.OP.weights]
        self.want_y = self.module.forward(self.a, double["x"], *arguments)

    def random(self, shape):
        return self.rng.standard_normal(shape).astype(np.float32)

    def shapes(self, sms=0, **more):
        return Shapes(self.a, self.N, self.x, self.y, half=self.half, sms=sms, **more)

    def forward(self, calls, scratch, backwards=False):
        arrays = {**self.arrays, "y": nan((self.N, *self.y), self.real), "scratch": nan(scratch // 4)}
        run(calls, arrays, backwards)
        return arrays["y"]

    def gradients(self):
        """dy and y as they are stored, and the definition's gradients in float64."""
        dy, y = self.random((self.N, *self.y)).astype(self.real), self.want_y.astype(self.real)
        double = {k: v.astype(np.float64) for k, v in {**self.arrays, "dy": dy, "y": y}.items()}
        names = self.module.backward.__code__.co_varnames[1 : self.module.backward.__code__.co_argcount]
        return dy, y, self.module.backward(self.a, *(ALL if n == "want" else double.get(n) for n in names))

    def backward(self, calls, scratch, dy, y, held=None, backwards=False):
        """The gradients by role; `held` are arrays that exist before (accumulate, add)."""
        arrays = {**self.arrays, "dy": dy, "scratch": nan(scratch // 4)}
        if self.a.activation != "none":
            arrays["y"] = y  # else the planner does not keep it
        for role in ("x", *self.weights):
            arrays[f"d:{role}"] = nan(self.arrays[role].shape, self.arrays[role].dtype)
        arrays |= held or {}
        run(calls, arrays, backwards)
        return {role: arrays[f"d:{role}"] for role in ("x", *self.weights)}


def run(calls, arrays, backwards=False):
    """Counters are 0 before, and 0 they must be after each launch."""
    counters = np.zeros(tiles.COUNTERS, np.int32)
    for call in calls:
        cushim.run(call, arrays | {"counters": counters}, backwards)
        assert not counters.any(), call.kernel


def nan(shape, dtype=np.float32):
    return np.full(shape, np.nan, dtype)


def close(got, want):
    """1e-5 of the values' size: a sum of terms that cancel has an error of the terms' size, not of its own. Of what is
    stored in half precision half a last place."""
    part = 6e-4 if got.dtype == np.float16 else 1e-5
    assert_close(got, want, part * max(1.0, float(np.sqrt(np.mean(np.square(want))))), part)


def found(case, direction, sms=0, **more):
    parts = calls_gemm.parts(case.op, direction, case.shapes(sms, **more))
    return [(part, v) for part, options in parts.items() for v in options]


def check_forward(case, only=None):
    for _, v in found(case, "forward")[:only]:
        close(case.forward(v.calls, v.scratch), case.want_y)


def check_backward(case, only=None, **more):
    dy, y, want = case.gradients()
    for part, options in calls_gemm.parts(case.op, "backward", case.shapes(want=ALL, **more)).items():
        roles = {"dgrad": ["x"], "wgrad": case.weights}.get(part, ["x", *case.weights])
        for v in options[:only]:
            got = case.backward(v.calls, v.scratch, dy, y)
            for role in roles:
                close(got[role], want[role])


CASES = [pytest.param(op, case, id=f"{op}-{i}") for op in OPS_HERE for i, case in enumerate(OPS[op].CASES)]
TRAINED = [p for p in CASES if p.values[1].get("activation", "none") in activations.FROM_OUTPUT]


@pytest.mark.parametrize(("op", "case"), CASES)
@pytest.mark.parametrize("N", [1, 3])
def test_forward_agrees_with_the_definition(op, case, N):
    check_forward(Case(op, **case, N=N), only=1)


@pytest.mark.parametrize(("op", "case"), TRAINED)
@pytest.mark.parametrize("N", [1, 3])
def test_backward_agrees_with_the_definition(op, case, N):
    check_backward(Case(op, **case, N=N), only=1)


# ---- every tile: its edges, both widths of loads, split sums


def only_tile(monkeypatch, t):
    """Let calls_gemm choose nothing but this tile, whole and in 3 parts where the kernel can."""

    def ranked(M, N, steps_of, sms, splits=tiles.SPLITS):
        return [(t, z) for z in (1, 3) if z in splits and z <= max(1, steps_of(t))]

    for module in (calls_gemm, calls_conv):
        monkeypatch.setattr(module, "ranked", ranked)


def tiled(options):
    return [v for v in options if "rows" not in v.name and "first" not in v.name]


TILE = [pytest.param(t, id=t.name) for t in tiles.TILES]


def test_the_parts_of_a_split_sum_may_start_anywhere():
    """10 biases behind 16 x 10 weights: the second part of scratch is no multiple of 16 bytes away."""
    check_backward(Case("linear", (16,), N=70, out_features=10))


@pytest.mark.parametrize("t", TILE)
def test_linear_is_right_at_the_edges_of_a_tile(monkeypatch, t):
    """Rows, columns and terms of one less, one more (loads of 1) and 4 more or less (loads of 4) than whole tiles."""
    only_tile(monkeypatch, t)
    sizes = [(t.bm - 1, t.bk + 1, t.bn + 1), (t.bm + 1, 2 * t.bk + 4, t.bn + 4), (1, 1, 1), (t.bm, t.bk, t.bn)]
    for N, I, O in sizes:
        case = Case("linear", (I,), N=N, out_features=O, activation="relu")
        for v in tiled(calls_gemm.parts("linear", "forward", case.shapes())["forward"]):
            close(case.forward(v.calls, v.scratch), case.want_y)
        check_backward(case)


@pytest.mark.parametrize("t", [TILE[0], TILE[4], TILE[5], TILE[7]])
def test_conv2d_is_right_at_the_edges_of_a_tile(monkeypatch, t):
    """Tiles of each form: large, narrow, flat, sliced. The rest differ in numbers only, and linear runs them all."""
    only_tile(monkeypatch, t)
    for C, O in ((t.bk + 4, t.bn + 4), (t.bk + 1, t.bn - 1)):
        case = Case("conv2d", (5, 7, C), N=1 + t.bm // 35, out_channels=O, kernel_size=3, padding=1, activation="relu")
        check_forward(case)
        check_backward(case)


@pytest.mark.parametrize("keep", [0, 1])
def test_embed_projection_is_right_at_the_edges_of_tiles(keep):
    for E in (33, 36):
        case = Case("embed_projection", (5, 13, 2), N=17, embed_dim=E, keep_channels=keep, activation="tanh")
        check_forward(case, only=1)
        check_backward(case, only=1)


# ---- convolution: other windows, and the kernels for few channels

WINDOWS = [
    {"kernel_size": 3, "stride": 2, "padding": 1},
    {"kernel_size": 3, "stride": 2, "padding": [2, 0, 1, 3]},
    {"kernel_size": [2, 3], "stride": [3, 2], "dilation": [2, 3]},
    {"kernel_size": 1, "stride": 2},
    {"kernel_size": 5, "stride": 4, "dilation": 2, "padding": 4},
    {"kernel_size": 2, "stride": 3, "padding": 1},  # some pixels meet no tap: their gradient is 0
]


@pytest.mark.parametrize("window", WINDOWS)
def test_conv2d_takes_any_window(window):
    case = Case("conv2d", (11, 13, 4), N=2, out_channels=8, **window)
    check_forward(case, only=1)
    check_backward(case, only=1)


@pytest.mark.parametrize("C", [1, 2, 3])
@pytest.mark.parametrize(("size", "O"), [((5, 7), 33), ((9, 33), 8)])
def test_a_first_layer_of_few_channels(C, size, O):
    case = Case("conv2d", (*size, C), N=3, out_channels=O, kernel_size=3, padding=1, activation="relu")
    assert found(case, "forward")[0][1].name == "first"
    check_forward(case, only=1)
    check_backward(case, only=1)
    dy, y, want = case.gradients()
    first = calls_gemm.parts("conv2d", "backward", case.shapes(want=ALL, sms=1))["wgrad"][0]
    got = case.backward(first.calls, first.scratch, dy, y)  # 3 parts, so that a block takes several tiles
    close(got["weight"], want["weight"])
    close(got["bias"], want["bias"])


@pytest.mark.parametrize(
    ("op", "attrs"),
    [
        ("linear", {"x": (7,), "out_features": 5, "activation": "relu"}),
        ("embed_projection", {"x": (2, 3, 3), "embed_dim": 5}),
        ("embed_projection", {"x": (2, 3, 3), "embed_dim": 5, "keep_channels": 1}),
    ],
)
def test_the_naive_kernels_are_a_second_reference(op, attrs):
    """Those of conv2d run in its cases with groups."""
    case = Case(op, **attrs)
    dy, y, want = case.gradients()
    forward, backward = calls_gemm.naive(op, case.shapes(want=ALL))
    close(case.forward([forward], 0), case.want_y)
    for role, got in case.backward([backward], 0, dy, y).items():
        close(got, want[role])


# ---- what a plan may ask for: older gradients, parts of the gradients

FEW = [
    ("linear", {"x": (20,), "out_features": 12, "activation": "relu"}),
    ("linear", {"x": (7,), "out_features": 5, "bias": 0}),
    ("conv2d", {"x": (4, 5, 4), "out_channels": 8, "kernel_size": 3, "padding": 1, "activation": "relu"}),
    ("conv2d", {"x": (5, 5, 3), "out_channels": 5, "kernel_size": 3, "stride": 2}),
    ("conv2d", {"x": (4, 4, 4), "out_channels": 6, "kernel_size": 3, "groups": 2}),
    ("conv2d", {"x": (5, 6, 1), "out_channels": 8, "kernel_size": 3}),
    ("embed_projection", {"x": (3, 4, 3), "embed_dim": 8}),
    ("embed_projection", {"x": (3, 4, 3), "embed_dim": 5, "keep_channels": 1, "activation": "relu"}),
]


@pytest.mark.parametrize(("op", "attrs"), FEW)
@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("split", [False, True])
def test_older_gradients_are_added_to(monkeypatch, op, attrs, in_place, split):
    case = Case(op, **attrs)
    if split:
        only_tile(monkeypatch, tiles.TILES[-2])
    dy, y, want = case.gradients()
    older = {role: case.random(case.arrays[role].shape) for role in ("x", *case.weights)}
    held = {f"d:{role}": older[role].copy() for role in case.weights}
    held["add:x"] = older["x"].copy()
    if in_place:
        held["d:x"] = held["add:x"]
    s = case.shapes(want=ALL, accumulate=True, adds=frozenset({"x"}))
    calls = [c for options in calls_gemm.parts(op, "backward", s).values() for c in options[-1 if split else 0].calls]
    scratch = max(o[-1 if split else 0].scratch for o in calls_gemm.parts(op, "backward", s).values())
    got = case.backward(calls, scratch, dy, y, held)
    for role in got:
        close(got[role], older[role] + want[role])


@pytest.mark.parametrize(("op", "attrs"), FEW)
@pytest.mark.parametrize("asked", [{"x"}, {"weight"}, {"weight", "bias"}, {"x", "weight"}])
def test_only_the_gradients_asked_for_are_written(op, attrs, asked):
    case = Case(op, **attrs)
    dy, y, want = case.gradients()
    s = case.shapes(want=frozenset(asked))
    got = case.backward(calls_gemm.CALLS[op]("backward", s), calls_gemm.SCRATCH[op]("backward", s), dy, y)
    for role in got:
        if role in asked:
            close(got[role], want[role])
        else:
            assert np.isnan(got[role]).all()


@pytest.mark.parametrize(("op", "attrs"), FEW)
def test_two_runs_and_the_opposite_thread_order_give_equal_bits(op, attrs):
    case = Case(op, **attrs)
    s = case.shapes(want=ALL)
    forward = [case.forward(calls_gemm.CALLS[op]("train", s), calls_gemm.SCRATCH[op]("train", s), b) for b in (0, 1, 0)]
    dy, y, _ = case.gradients()
    calls, scratch = calls_gemm.CALLS[op]("backward", s), calls_gemm.SCRATCH[op]("backward", s)
    backward = [case.backward(calls, scratch, dy, y, backwards=b) for b in (0, 1, 0)]
    for other in (1, 2):
        assert forward[0].tobytes() == forward[other].tobytes()
        for role in backward[0]:
            assert backward[0][role].tobytes() == backward[other][role].tobytes()


HALF = [
    ("linear", {"x": (20,), "out_features": 12, "activation": "relu"}),
    ("linear", {"x": (7,), "N": 40, "out_features": 5, "activation": "tanh"}),
    ("embed_projection", {"x": (3, 4, 3), "embed_dim": 8}),
    ("embed_projection", {"x": (13, 5, 2), "embed_dim": 5, "keep_channels": 1, "activation": "relu"}),
]


@pytest.mark.parametrize(("op", "attrs"), HALF)
@pytest.mark.parametrize("tile", [0, -1])
def test_activations_may_be_stored_in_half_precision(monkeypatch, op, attrs, tile):
    """Whole and split sums; weights and their gradients stay float32."""
    only_tile(monkeypatch, tiles.TILES[tile])
    case = Case(op, half=True, **attrs)
    for _, v in found(case, "train"):
        close(case.forward(v.calls, v.scratch), case.want_y)
    check_backward(case)
    dy, y, want = case.gradients()
    older = case.random(case.arrays["x"].shape).astype(np.float16)
    s = case.shapes(want=ALL, adds=frozenset({"x"}))
    for v in calls_gemm.parts(op, "backward", s)["backward"]:
        got = case.backward(v.calls, v.scratch, dy, y, {"add:x": older.copy()})
        assert got["weight"].dtype == np.float32
        close(got["x"], older + want["x"])


@pytest.mark.parametrize("t", [pytest.param(t, id=t.name) for t in tiles.TILES[-3:]])
def test_the_last_block_adds_parts_with_the_bits_of_a_second_launch(monkeypatch, t):
    """As long as the second launch has one lane for all parts."""
    only_tile(monkeypatch, t)
    case = Case("linear", (3 * t.bk - 4,), N=3 * t.bk - 3, out_features=37, activation="relu")
    dy, y, _ = case.gradients()
    bits = []
    for joins in (True, False):
        monkeypatch.setattr(variants, "joins", lambda *a, joins=joins: joins)
        forward = calls_gemm.parts("linear", "train", case.shapes())["forward"]
        backward = calls_gemm.parts("linear", "backward", case.shapes(want=ALL))["backward"]
        split = [v for v in forward if v.name.endswith("k3")], [v for v in backward if v.name.endswith("k3")]
        assert [len(v.calls) for v in (*split[0], *split[1])] == ([1, 1] if joins else [2, 2])
        for backwards in (False, True):
            results = [case.forward(v.calls, v.scratch, backwards) for v in split[0]]
            for v in split[1]:
                results += case.backward(v.calls, v.scratch, dy, y, backwards=backwards).values()
            bits.append([r.tobytes() for r in results])
    assert bits[0] == bits[1] == bits[2] == bits[3]


def test_a_sum_of_more_tiles_than_counters_takes_a_second_launch():
    t = tiles.TILES[-1]
    assert tiles.joins(t, tiles.COUNTERS, 2)
    assert not tiles.joins(t, tiles.COUNTERS + 1, 2)
    assert not tiles.joins(tiles.TILES[0], 1, 2)  # long parts, or many: all multiprocessors are faster
    assert not tiles.joins(t, 1, 8)


def test_many_parts_of_a_sum_are_added_by_8_lanes(monkeypatch):
    monkeypatch.setattr(calls_conv, "ranked", lambda *a: [(tiles.TILES[-3], 12)])
    case = Case("conv2d", (9, 9, 4), N=4, out_channels=8, kernel_size=3, padding=1)
    assert any(("ZL", 8) in c.kernel.defines for _, v in found(case, "backward", want=ALL) for c in v.calls)
    check_backward(case)


def test_divisors_divide():
    numbers = np.array([0, 1, 2, 3, 7, 100, 12345, 2**20 + 1, 2**31 - 1], np.uint64)
    for d in [1, 2, 3, 5, 7, 28 * 28, 1024, 65537, 2**30, 2**31 - 1]:
        mul, shift = (v.value for v in variants.divisor(d))
        high = numbers * np.uint64(mul % 2**32) >> np.uint64(32)
        assert ((high + numbers >> np.uint64(shift)) == numbers // np.uint64(d)).all()


# ---- compiling for cards that are not here

HOT_TILES = [t for t in tiles.TILES if t.tm * t.tn >= 32]  # those that large products take
LINEAR = (("linear.cu", "LINEAR_FORWARD"), ("linear.cu", "LINEAR_BACKWARD"))
HOT = (
    *LINEAR,
    ("conv2d.cu", "CONV_FORWARD"),
    ("conv2d.cu", "CONV_DGRAD"),
    ("conv2d.cu", "CONV_WGRAD"),
)
TINY = (
    ("linear.cu", {"LINEAR_ROWS": 1, "VI": 4, "RM": 8, "RN": 4}),
    ("linear.cu", {"LINEAR_SUM": 1, "ZL": 8}),
    ("linear.cu", {"LINEAR_SUM": 1, "ZL": 1, "REAL": "Half"}),
    ("linear.cu", {"LINEAR_ROWS": 1, "VI": 4, "RM": 4, "RN": 4, "REAL": "Half"}),
    ("conv2d.cu", {"CONV_SUM": 1, "ZL": 1}),
    ("embed_projection.cu", {"EMBED_FORWARD": 1, "TILE": tiles.TILES[-1].text, "VE": 4, "KEEP": 0}),
    ("embed_projection.cu", {"EMBED_BACKWARD": 1, "TILE": tiles.TILES[-1].text, "VE": 4, "KEEP": 1}),
)


def compile_all(jobs):
    """Resources by job: (file, architecture, macros)."""
    nvrtc.library()  # skip here, not in a thread

    def one(job):
        (used,) = nvrtc.resources(nvrtc.compile(*job)[1]).values()
        return used

    with ThreadPoolExecutor() as pool:
        return list(zip(jobs, pool.map(one, jobs), strict=True))


def fits(jobs, spills=0):
    for job, used in compile_all(jobs):
        assert used.spills <= spills, f"{job} spills {used.spills} bytes"
        assert used.shared <= 48 * 1024, f"{job} takes {used.shared} bytes of shared memory"


@pytest.mark.parametrize("arch", [50, 75])
def test_hot_kernels_compile_without_spills(arch):
    """Loads of 4, relu."""
    macros = {"VC": 4, "VO": 4, "VI": 4, "ACT": 1, "STRIDED": 0}
    jobs = [(file, arch, macros | {"TILE": t.text, part: 1}) for t in HOT_TILES for file, part in HOT]
    for t in tiles.TILES:
        for more in ({"SPLIT": 1 + tiles.joins(t, 1, 2)}, {"REAL": "Half"}):
            jobs += [(file, arch, macros | more | {"TILE": t.text, part: 1}) for file, part in LINEAR]
    fits(jobs + [(file, arch, {"ACT": 1, **more}) for file, more in TINY])


@pytest.mark.slow
@pytest.mark.parametrize("arch", nvrtc.ARCHITECTURES)
def test_every_kernel_compiles_for_every_card(arch):
    jobs = [(file, arch, {"ACT": 1, **more}) for file, more in TINY]
    for t in tiles.TILES:
        for file, part in HOT:
            for v, act, strided in ((4, 1, 0), (1, 1, 0), (4, 0, 1)):
                if strided and (part != "CONV_DGRAD" or not t.strided):
                    continue
                macros = {"VC": v, "VO": v, "VI": v, "ACT": act, "STRIDED": strided, "TILE": t.text, part: 1}
                jobs.append((file, arch, macros))
        for part in ("EMBED_FORWARD", "EMBED_BACKWARD"):
            for v in (4, 1):
                jobs.append(("embed_projection.cu", arch, {"VE": v, "KEEP": 0, "ACT": 1, "TILE": t.text, part: 1}))
    fits(jobs, spills=128)  # a few words, where loads are not of 4
