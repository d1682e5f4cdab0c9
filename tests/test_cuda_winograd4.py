"""Winograd's F(4x4, 3x3), run on the CPU, against the definition in float64: on odd shapes, with tiles of the product
that the shapes do not fill, and in turns. How they are run is in test_cuda_gemm.py and test_cuda_pool.py."""

from __future__ import annotations

import numpy as np
import nvrtc
import pytest
from closeness import assert_close
from test_cuda_gemm import ALL, Case, compile_all
from test_cuda_pool import Pooled

from litenet.trainer.kernels import calls_gemm, calls_winograd4
from litenet.trainer.kernels.calls_winograd4 import Way
from litenet.trainer.kernels.tiles import TILES

TOLERANCE, HALF_TOLERANCE = 2e-5, 6e-4  # of the values' size: errors here are up to 1e-5
FORMS = [(TILES[0], 64), (TILES[3], 3), (TILES[4], 5)]  # tile of the product, tiles of a turn

SHAPES = [
    ((4, 4, 4), 1, {"out_channels": 32, "padding": 1, "activation": "relu"}),
    ((5, 7, 6), 3, {"out_channels": 33, "padding": 1, "activation": "tanh"}),
    ((9, 5, 5), 2, {"out_channels": 4, "bias": 0}),
    ((6, 9, 4), 2, {"out_channels": 7, "padding": [2, 0, 3, 1], "activation": "leaky_relu"}),
    ((13, 10, 36), 1, {"out_channels": 70, "padding": 1, "activation": "relu6"}),
    ((1, 1, 1), 1, {"out_channels": 1, "padding": 1, "activation": "sigmoid"}),
]


def conv(x, N, attrs):
    return Case("conv2d", x, N=N, kernel_size=3, **attrs)


def close(got, want):
    part = HALF_TOLERANCE if got.dtype == np.float16 else TOLERANCE
    assert_close(got, want, part * max(1.0, float(np.sqrt(np.mean(np.square(want))))), part)


def part_of(turned):
    return "dgrad" if turned else "forward"


def variants(case, turned, pool=False, **more):
    s = case.shapes(want=ALL, **more)
    return [calls_winograd4.conv(part_of(turned), s, pool, Way(t), per_turn) for t, per_turn in FORMS]


@pytest.mark.parametrize(("x", "N", "attrs"), SHAPES)
def test_forward_agrees_with_the_definition(x, N, attrs):
    case = conv(x, N, attrs)
    for v in variants(case, turned=False):
        orders = [case.forward(v.calls, v.scratch, backwards) for backwards in (False, True)]
        close(orders[0], case.want_y)
        assert orders[0].tobytes() == orders[1].tobytes()


@pytest.mark.parametrize("activation", ["gelu", "silu", "hard_swish"])
def test_activations_whose_gradient_is_another_layers_are_applied(activation):
    case = conv((6, 5, 4), 1, {"out_channels": 5, "padding": 1, "activation": activation})
    (v, *_) = variants(case, turned=False)
    close(case.forward(v.calls, v.scratch), case.want_y)


@pytest.mark.parametrize(("x", "N", "attrs"), SHAPES)
@pytest.mark.parametrize("older", [False, True])
def test_data_gradients_agree_with_the_definition(x, N, attrs, older):
    case = conv(x, N, attrs)
    dy, y, want = case.gradients()
    held = {"add:x": case.random(case.arrays["x"].shape)} if older else {}
    for v in variants(case, turned=True, adds=frozenset({"x"}) if older else frozenset()):
        orders = [case.backward(v.calls, v.scratch, dy, y, dict(held), backwards)["x"] for backwards in (False, True)]
        close(orders[0], want["x"] + held.get("add:x", 0))
        assert orders[0].tobytes() == orders[1].tobytes()


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("per_turn", [64, 9])
def test_blocks_that_would_not_fill_the_card_may_be_cut(monkeypatch, turned, per_turn):
    """On 8 multiprocessors, of 72 blocks forward (36 backward) 8 (4) are left for the last round."""
    monkeypatch.setattr(calls_winograd4, "PART_STEPS", 1)
    case = conv((13, 10, 36), 1, {"out_channels": 70, "padding": 1, "activation": "relu"})
    s = case.shapes(8, want=ALL)
    v, whole = (calls_winograd4.conv(part_of(turned), s, False, Way(TILES[3], cut), per_turn) for cut in (True, False))
    assert v.name == f"{whole.name} c{5 if turned else 3}"
    dy, y, want = case.gradients()
    for backwards in (False, True):
        if turned:
            close(case.backward(v.calls, v.scratch, dy, y, backwards=backwards)["x"], want["x"])
        else:
            close(case.forward(v.calls, v.scratch, backwards), case.want_y)


def test_an_older_gradient_may_lie_where_the_new_one_goes():
    case = conv((5, 6, 8), 2, {"out_channels": 8, "padding": 1})
    dy, y, want = case.gradients()
    for v in variants(case, turned=True, adds=frozenset({"x"})):
        older = case.random(case.arrays["x"].shape)
        both = older.copy()
        got = case.backward(v.calls, v.scratch, dy, y, {"add:x": both, "d:x": both})
        close(got["x"], want["x"] + older)


def wgrads(case, pool=False, **more):
    """Whole, in turns, and with each turn's sum in parts."""
    s = case.shapes(want=ALL, **more)
    return [calls_winograd4.wgrad(s, pool, t, n, parts) for t, n in FORMS for parts in (1, 2)]


@pytest.mark.parametrize(("x", "N", "attrs"), [*SHAPES, ((12, 17, 8), 2, {"out_channels": 20, "padding": 1})])
@pytest.mark.parametrize("accumulate", [False, True])
def test_weight_gradients_agree_with_the_definition(x, N, attrs, accumulate):
    case = conv(x, N, attrs)
    dy, y, want = case.gradients()
    older = {role: case.random(case.arrays[role].shape) for role in case.weights} if accumulate else {}
    for v in wgrads(case, accumulate=accumulate):
        held = [{f"d:{role}": value.copy() for role, value in older.items()} for _ in range(2)]
        orders = [case.backward(v.calls, v.scratch, dy, y, held[b], backwards=bool(b)) for b in range(2)]
        for role in case.weights:
            close(orders[0][role], want[role] + older.get(role, 0))
            assert orders[0][role].tobytes() == orders[1][role].tobytes(), v.name


POOLED = [
    ((6, 10, 9), {"out_channels": 37, "padding": 1, "activation": "relu"}),
    ((9, 7, 4), {"out_channels": 6, "padding": 1, "activation": "tanh"}),
    ((8, 8, 4), {"out_channels": 8, "padding": 1, "bias": 0}),
]


@pytest.mark.parametrize(("x", "attrs"), POOLED)
def test_a_pool_behind_the_convolution_is_part_of_it(x, attrs):
    case = Pooled(x, N=2, kernel_size=3, **attrs)
    for v in variants(case, turned=False, pool=True):
        assert case.check_forward(v) == case.check_forward(v, backwards=True), v.name
    for v in variants(case, turned=True, pool=True):
        close(case.gradients_of(v)["x"], case.want["x"])
    for v in wgrads(case, pool=True):
        got = case.gradients_of(v)
        for role in case.weights:
            close(got[role], case.want[role])


def test_activations_may_be_stored_in_half_precision():
    case = conv((6, 7, 12), 2, {"out_channels": 36, "padding": 1, "activation": "relu", "half": True})
    dy, y, want = case.gradients()
    for v in variants(case, turned=False):
        close(case.forward(v.calls, v.scratch), case.want_y)
    for v in variants(case, turned=True):
        close(case.backward(v.calls, v.scratch, dy, y)["x"], want["x"])
    for v in wgrads(case):
        got = case.backward(v.calls, v.scratch, dy, y)
        for role in case.weights:
            close(got[role], want[role])
    pooled = Pooled((6, 6, 8), N=2, half=True, kernel_size=3, out_channels=9, padding=1, activation="relu")
    (forward, *_), (backward, *_) = (variants(pooled, turned, pool=True) for turned in (False, True))
    pooled.check_forward(forward)
    close(pooled.gradients_of(backward)["x"], pooled.want["x"])


# ---- which form is taken, and compiling for cards that are not here


def listed(case, part, **more):
    direction = "train" if part == "forward" else "backward"
    found = calls_gemm.parts(case.op, direction, case.shapes(want=ALL, **more))[part]
    return [v for v in found if v.name.startswith("winograd4")]


@pytest.mark.parametrize("sms", [0, 6, 132])
@pytest.mark.parametrize(("N", "size", "C"), [(128, 32, 64), (64, 4, 512), (128, 8, 256), (16, 64, 32), (1, 8, 16)])
def test_few_forms_are_listed_and_their_scratch_is_bounded(sms, N, size, C):
    case = conv((size, size, C), 1, {"out_channels": C, "padding": 1})
    case.N = N
    for part in ("forward", "dgrad", "wgrad"):
        found = listed(case, part, sms=sms)
        assert 1 <= len(found) <= 5
        assert len({v.name for v in found}) == len(found)
        more = 4 * (36 * C * C + calls_winograd4.SCRATCH_LIMIT)  # filters and parts
        assert all(v.scratch <= calls_winograd4.BUDGETS[0] + more for v in found)


@pytest.mark.parametrize(("size", "C"), [(6, 64), (2, 64), (5, 64), (32, 8)])
def test_no_form_is_listed_where_edges_or_transforms_are_most_of_the_work(size, C):
    case = conv((size, size, C), 1, {"out_channels": C, "padding": 1})
    assert not any(listed(case, part) for part in ("forward", "dgrad", "wgrad"))


REALS = ("float", "Half")
ACTS = [{"POOL": pool, "ACT": act, "CUT": cut} for pool in (0, 1) for act, cut in ((0, 0), (1, 1), (4, 0))]
MASKS = [{"POOL": 0, "MASK": mask} for mask in (0, 1, 6)]
POOLED_INPUT, POOLED_GRADIENT = ([{"POOL": pool, "MASK": mask} for mask in (0, 1)] for pool in (2, 1))
PRODUCTS = [{"TILE": t.text} for t in calls_winograd4.PRODUCTS]
MACROS = {  # by kernel
    "FILTER": [{"TURNED": turned} for turned in (0, 1)],
    "INPUT": [m | {"REAL": real} for m in (*MASKS, *POOLED_INPUT) for real in REALS],
    "PRODUCT": PRODUCTS,
    "OUTPUT": [m | {"REAL": real} for m in ACTS for real in REALS],
    "GRADIENT": [m | {"REAL": real} for m in (*MASKS, *POOLED_GRADIENT) for real in REALS],
    "WEIGHTS": PRODUCTS,
    "TAPS": [{}],
}


def fits(arch, spills=0):
    found = calls_winograd4.KERNELS.values()
    jobs = [(file, arch, {part: 1, **macros}) for file, part in found for macros in MACROS[part]]
    for job, used in compile_all(jobs):
        assert used.spills <= spills, f"{job} spills {used.spills} bytes"
        assert used.shared <= 48 * 1024, f"{job} takes {used.shared} bytes of shared memory"


@pytest.mark.parametrize("arch", [50, 75])
def test_the_kernels_compile_without_spills(arch):
    fits(arch)


@pytest.mark.slow
@pytest.mark.parametrize("arch", nvrtc.ARCHITECTURES)
def test_every_kernel_compiles_for_every_card(arch):
    fits(arch, spills=128)
