"""edge-check's self-test: every kernel beside its definition, and what is said of one that is wrong."""

import re

import pytest
from fake_cupy import FakeCuda
from shim_device import ShimDevice
from test_edge_check import ROOT, TINY, found, one, small  # noqa: F401 - small is a fixture

from litenet.trainer import check, check_kernels, check_speed
from litenet.trainer.backends import cards
from litenet.trainer.check_line import FAIL, OK, WARN
from litenet.trainer.kernels import calls_other
from litenet.trainer.kernels.call import Float, Int


def families(device, **more):
    return {line.name: line for line in check.kernels(device, **more)}


@pytest.fixture
def alone(monkeypatch):
    """The self-test of a few operators, for tests of what is said."""
    monkeypatch.setattr(check_kernels, "TRAINED", ("softmax", "layernorm", "maxpool2d"))


def test_the_whole_self_test_passes_and_ends_in_an_estimate(monkeypatch, capsys):
    FakeCuda(capability=(6, 1)).install(monkeypatch)
    status, lines, whole = found(capsys, "--device", "cuda")
    assert status == 0, whole
    groups = {line["group"] for line in whole["lines"]}
    assert groups == {"software", "card", "self-test", "speed", "verdict"}
    for name in ("products", "convolution", "Winograd", "pooling", "normalisation", "elementwise", "loading", "losses",
                 "optimisers"):  # fmt: skip
        assert lines[name]["status"] == OK, lines[name]
        assert lines[name]["facts"]["tests"] > 0
        assert lines[name]["facts"]["worst"] <= 1
    for name in ("product", "3 x 3 conv", "memory bus"):
        assert name in [line["name"] for line in whole["lines"] if line["group"] == "speed"]
    assert lines["a net"]["facts"]["gradient_error"] < 1e-4
    assert lines["estimate"]["facts"]["seconds_a_step"] > 0
    assert lines["estimate"]["text"].startswith("mnist_cnn, batch 8: about ")


def test_every_kernel_file_is_reached_by_the_self_test():
    """What a net can launch is tested on the card it trains on."""
    reached = {kernel.name for test in check_kernels.tests(132) for kernel in test.kernels}
    beyond = {"linear", "embed_projection"}  # whose plain formulas serve rows of more than 16 million values
    beyond = {f"{op}_{way}_naive_f32" for op in beyond for way in ("forward", "backward")}
    for path in sorted((ROOT / "trainer" / "kernels").glob("*.cu")):
        text = re.sub(r"__launch_bounds__\s*\((?:[^()]|\([^()]*\))*\)", "", path.read_text())
        names = set(re.findall(r"__global__\s+void\s+(\w+)\s*\(", text))
        assert names
        assert names <= reached | beyond, f"{path.name}: {sorted(names - reached - beyond)}"


def test_a_kernel_that_gives_something_else_is_named_with_its_error(monkeypatch, alone):
    right = calls_other.CALLS["layernorm"]

    def wrong(direction, s):
        """The variance gets a hundred times the eps it should."""
        return [with_args(call, lambda a: Float(100 * a.value) if isinstance(a, Float) else a)
                for call in right(direction, s)]  # fmt: skip

    monkeypatch.setitem(calls_other.CALLS, "layernorm", wrong)
    lines = families(ShimDevice())
    assert lines["normalisation"].status == FAIL
    assert lines["pooling"].status == OK
    assert re.match(
        r"layernorm_forward\w*_f32 in layernorm train of 1028: (y|inv_std) is off by [\d.e-]+, of values about",
        lines["normalisation"].text,
    )
    assert lines["normalisation"].facts["worst"] > 1


def with_args(call, change):
    return type(call)(call.kernel, call.grid, call.block, tuple(change(a) for a in call.args), call.shared)


def test_a_kernel_that_leaves_something_unwritten_is_found(monkeypatch, alone):
    right = calls_other.CALLS["maxpool2d"]

    def short(direction, s):
        """One sample less."""
        return [type(c)(c.kernel, c.grid, c.block, tuple(
            Int(a.value - 1) if i == first_int(c) else a for i, a in enumerate(c.args)), c.shared)
            for c in right(direction, s)]  # fmt: skip

    monkeypatch.setitem(calls_other.CALLS, "maxpool2d", short)
    lines = families(ShimDevice())
    assert lines["pooling"].status == FAIL
    assert "not finite or not written" in lines["pooling"].text
    assert lines["normalisation"].status == OK


def first_int(call):
    return next(i for i, a in enumerate(call.args) if isinstance(a, Int))


def test_a_kernel_that_does_not_compile_is_named_and_the_others_run(monkeypatch, alone, capsys):
    FakeCuda(capability=(6, 1), miscompiled="softmax.cu").install(monkeypatch)
    status, lines, whole = found(capsys)
    assert status == 1
    assert lines["normalisation"]["status"] == FAIL
    assert "softmax.cu (softmax_forward" in lines["normalisation"]["text"]
    assert "softmax.cu(7): error" in lines["normalisation"]["text"]
    assert lines["pooling"]["status"] == OK
    assert "(see normalisation)" in whole["verdict"]
    assert whole["device"] is None


def test_after_a_crash_on_the_card_nothing_more_is_run(monkeypatch, alone, capsys):
    FakeCuda(capability=(6, 1), broken=("bad kernel",)).install(monkeypatch)
    status, lines, _ = found(capsys)
    assert status == 1
    assert "cudaErrorIllegalAddress" in lines["normalisation"]["text"]
    assert lines["pooling"]["status"] == FAIL
    assert "not run" in lines["pooling"]["text"]


def test_wrong_gradients_of_a_net_are_a_failure(monkeypatch, alone, capsys):
    FakeCuda(capability=(6, 1)).install(monkeypatch)
    monkeypatch.setattr(check_speed, "_disagreement", lambda *_: float("nan"))
    status, lines, _ = found(capsys)
    assert status == 1
    assert lines["a net"]["status"] == FAIL
    assert "gradients differ" in lines["a net"]["text"]


def test_a_low_share_of_the_peak_is_a_warning(monkeypatch):
    monkeypatch.undo()
    assert check_speed._share("product", 100.0, 4000.0, "GFLOP/s", "a product").status == WARN
    assert check_speed._share("product", 2000.0, 4000.0, "GFLOP/s", "a product").status == OK
    assert check_speed._share("product", 2000.0, 0.0, "GFLOP/s", "a product").status == OK


def test_the_theoretical_peaks_are_those_of_known_cards():
    """Published single-precision peaks of a GTX 750 Ti, a 1060, a 1660 Ti and an H200, and bandwidths."""
    from litenet.trainer.backends.cuda_info import peak_bytes, peak_flops

    for cc, sms, khz, tflops in (
        ((5, 0), 5, 1_020_000, 1.306), ((6, 1), 10, 1_708_500, 4.375), ((7, 5), 24, 1_770_000, 5.44),
        ((9, 0), 132, 1_980_000, 66.9),
    ):  # fmt: skip
        cupy = FakeCuda(attributes={13: khz}).module()
        assert peak_flops(cupy, sms, cards.cores(cc)) == pytest.approx(tflops * 1e12, rel=0.01)
    assert peak_bytes(FakeCuda(attributes={36: 4_004_000, 37: 192}).module()) == pytest.approx(192.2e9, rel=0.01)
