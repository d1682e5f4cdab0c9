"""Winograd's F(2x2, 3x3), run on the CPU, against the definition in float64: every form of the kernels, on odd shapes.
How they are run is in test_cuda_gemm.py, what a pooled one is given in test_cuda_pool.py."""

from __future__ import annotations

import nvrtc
import pytest
from test_cuda_gemm import ALL, Case, close, compile_all
from test_cuda_pool import Pooled

from litenet.trainer.kernels import calls_gemm, calls_winograd

SHAPES = [
    ((4, 4, 4), 1, {"out_channels": 32, "padding": 1, "activation": "relu"}),
    ((5, 7, 6), 3, {"out_channels": 33, "padding": 1, "activation": "tanh"}),
    ((3, 3, 5), 2, {"out_channels": 4, "bias": 0}),
    ((6, 9, 4), 2, {"out_channels": 7, "padding": [2, 0, 3, 1]}),
    ((16, 17, 36), 1, {"out_channels": 70, "padding": 1, "activation": "relu"}),
    ((1, 1, 1), 1, {"out_channels": 1, "padding": 1}),
]
FORMS = [(64, 32), (32, 64), (32, 32)]


@pytest.fixture
def every_form(monkeypatch):
    """calls_winograd lists every form of its kernels, whole and with a sum in parts."""

    def forms(s, turned, pool):
        return [(*form, splits) for form in FORMS for splits in ((1,) if pool and not turned else (1, 3))]

    def wgrad_blocks(O, C, tiles, sms):
        return [(outs, halves, steps) for outs in (64, 32) for halves in (2, 1) for steps in (3, -(-tiles // 2))]

    monkeypatch.setattr(calls_winograd, "_forms", forms)
    monkeypatch.setattr(calls_winograd, "_wgrad_blocks", wgrad_blocks)


def conv(x, N, attrs):
    return Case("conv2d", x, N=N, kernel_size=3, **attrs)


def winograds(case, part, **more):
    direction = "train" if part == "forward" else "backward"
    found = calls_gemm.parts(case.op, direction, case.shapes(want=ALL, **more))[part]
    return [v for v in found if v.name.startswith("winograd ")]


@pytest.mark.parametrize(("x", "N", "attrs"), SHAPES)
@pytest.mark.parametrize("accumulate", [False, True])
def test_weight_gradients_agree_with_the_definition(every_form, x, N, attrs, accumulate):
    case = conv(x, N, attrs)
    dy, y, want = case.gradients()
    older = {role: case.random(case.arrays[role].shape) for role in case.weights} if accumulate else {}
    for v in winograds(case, "wgrad", accumulate=accumulate):
        held = {f"d:{role}": value.copy() for role, value in older.items()}
        got = case.backward(v.calls, v.scratch, dy, y, held)
        for role in case.weights:
            close(got[role], want[role] + older.get(role, 0))
        if not accumulate:
            again = case.backward(v.calls, v.scratch, dy, y, backwards=True)
            assert all(got[role].tobytes() == again[role].tobytes() for role in case.weights)


@pytest.mark.parametrize(("x", "N", "attrs"), SHAPES)
@pytest.mark.parametrize("older", [False, True])
def test_forward_and_data_gradients_agree_with_the_definition(every_form, x, N, attrs, older):
    case = conv(x, N, attrs)
    for v in winograds(case, "forward"):
        orders = [case.forward(v.calls, v.scratch, backwards) for backwards in (False, True)]
        close(orders[0], case.want_y)
        assert orders[0].tobytes() == orders[1].tobytes()
    dy, y, want = case.gradients()
    held = {"add:x": case.random(case.arrays["x"].shape)} if older else {}
    for v in winograds(case, "dgrad", adds=frozenset({"x"}) if older else frozenset()):
        got = case.backward(v.calls, v.scratch, dy, y, dict(held))
        close(got["x"], want["x"] + held.get("add:x", 0))


POOLED = [
    ((6, 10, 9), {"out_channels": 37, "padding": 1, "activation": "relu"}),
    ((9, 7, 4), {"out_channels": 6, "padding": 1, "activation": "tanh"}),
    ((8, 8, 4), {"out_channels": 8, "padding": 1, "bias": 0}),
]


@pytest.mark.parametrize(("x", "attrs"), POOLED)
def test_a_pool_behind_the_convolution_is_part_of_it(every_form, x, attrs):
    case = Pooled(x, N=2, kernel_size=3, **attrs)
    for v in winograds(case, "forward"):
        assert case.check_forward(v) == case.check_forward(v, backwards=True), v.name
    for part, roles in (("dgrad", ["x"]), ("wgrad", case.weights)):
        options = winograds(case, part)
        assert options
        for v in options:
            got = case.gradients_of(v)
            for role in roles:
                close(got[role], case.want[role])


def test_activations_may_be_stored_in_half_precision(every_form):
    case = conv((6, 7, 12), 2, {"out_channels": 36, "padding": 1, "activation": "relu", "half": True})
    for v in winograds(case, "forward"):
        close(case.forward(v.calls, v.scratch), case.want_y)
    dy, y, want = case.gradients()
    for part, roles in (("dgrad", ["x"]), ("wgrad", case.weights)):
        for v in winograds(case, part):
            got = case.backward(v.calls, v.scratch, dy, y)
            for role in roles:
                close(got[role], want[role])


# ---- which form is taken, and compiling for cards that are not here

LAYERS = [(128, 32, 64, 64), (64, 4, 512, 512), (64, 8, 128, 64), (16, 64, 32, 64), (1, 8, 32, 32)]


@pytest.mark.parametrize("sms", [0, 6, 132])
@pytest.mark.parametrize(("N", "size", "C", "O"), LAYERS)
def test_few_forms_are_listed_and_their_scratch_is_bounded(sms, N, size, C, O):
    case = conv((size, size, C), 1, {"out_channels": O, "padding": 1})
    case.N = N
    for part in ("forward", "dgrad", "wgrad"):
        found = winograds(case, part, sms=sms)
        assert 1 <= len(found) <= 7
        assert len({v.name for v in found}) == len(found)
        assert all(v.scratch <= 4 * calls_winograd.SCRATCH_LIMIT + 16 * 4 * (C + 64) * (O + 64) for v in found)


FILTERS = [("conv2d_winograd_filter.cu", {"TURNED": turned}) for turned in (0, 1)]
WGRAD = [
    ("conv2d_winograd_wgrad.cu", {"OUTS": outs, "HALVES": halves, "MASK": 1, "POOL": pool, "VO": vo})
    for outs, pool, vo in ((64, 0, 2), (64, 1, 1), (32, 0, 1), (32, 1, 1))
    for halves in (1, 2)
]


def form_of(outs, tiles, mask=0, pool=0, split=0, **more):
    macros = {"OUTS": outs, "TILES": tiles, "ACT": int(not mask), "MASK": mask, "POOL": pool, "TAIL": 0, "SPLIT": split}
    return "conv2d_winograd.cu", macros | more


def kinds_of(outs, tiles, **more):
    """One form forward and as a data gradient; whole, pooled, with its sum in parts, with masks that read y and not."""
    kinds = [{}, {"mask": 1}, {"mask": 6}, {"pool": 1}, {"split": 1}, {"mask": 1, "split": 1}]
    kinds += [{"mask": mask, "pool": 2, "split": split} for mask in (1, 6) for split in (0, 1)]
    return [form_of(outs, tiles, **kind, **more) for kind in kinds]


def fits(jobs, spills=0):
    for job, used in compile_all(jobs):
        assert used.registers <= 128
        assert used.spills <= spills, f"{job} spills {used.spills} bytes"
        assert used.shared <= 48 * 1024, f"{job} takes {used.shared} bytes of shared memory"


@pytest.mark.parametrize("arch", [50, 75])
def test_the_kernels_compile_without_spills(arch):
    """Every form of them: 512 threads have 128 registers each, and eight by eight sums take half."""
    jobs = [*FILTERS, *WGRAD, *(job for form in FORMS for job in kinds_of(*form)), form_of(64, 32, TAIL=1)]
    fits([(file, arch, macros) for file, macros in jobs])


@pytest.mark.slow
@pytest.mark.parametrize("arch", nvrtc.ARCHITECTURES)
@pytest.mark.parametrize("real", ["float", "Half"])
@pytest.mark.parametrize("tail", [0, 1])
def test_every_form_compiles_for_every_card(arch, real, tail):
    jobs = [*FILTERS, *WGRAD, *(job for form in FORMS for job in kinds_of(*form, TAIL=tail))]
    fits([(file, arch, {**macros, "REAL": real}) for file, macros in jobs], spills=0 if arch in (50, 61, 75) else 256)
