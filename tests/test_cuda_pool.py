"""The kernels of conv2d_pool, run on the CPU, against the definition in float64: every variant that calls_gemm.parts
lists, in both thread orders. How they are run is in test_cuda_gemm.py."""

from __future__ import annotations

import numpy as np
import nvrtc
import pytest
from test_cuda_gemm import ALL, Case, close, compile_all, nan, only_tile, run

from litenet.trainer.kernels import calls_gemm, tiles
from litenet.trainer.ops import OPS, activations


class Pooled(Case):
    """A conv2d_pool at one shape. dy, y and index are what a backward pass is given."""

    def __init__(self, x, N=3, half=False, **attrs):
        super().__init__("conv2d_pool", x, N, half=half, **attrs)
        double = {k: v.astype(np.float64) for k, v in self.arrays.items()}
        y, aux = self.module.forward_train(self.a, double["x"], double["weight"], double.get("bias"))
        self.dy, self.index = self.random(y.shape).astype(self.real), aux["index"]
        stored = y.astype(self.real)
        given = {**double, "dy": self.dy.astype(np.float64), "y": stored.astype(np.float64)}
        given |= {"index": self.index, "want": ALL}
        names = self.module.backward.__code__.co_varnames[1 : self.module.backward.__code__.co_argcount]
        self.want = self.module.backward(self.a, *(given.get(n) for n in names))
        self.given = {"dy": self.dy, "index": self.index}
        if self.a.activation != "none":
            self.given["y"] = stored

    def check_forward(self, v, backwards=False):
        """y, and the winners wherever the activation leaves them a gradient."""
        arrays = {**self.arrays, "y": nan(self.want_y.shape, self.real), "scratch": nan(v.scratch // 4)}
        arrays["index"] = np.full(self.index.shape, 255, np.uint8)
        run(v.calls, arrays, backwards)
        close(arrays["y"], self.want_y)
        ones = np.ones_like(self.want_y)
        alive = activations.backward_from_output(self.a.activation, ones, self.want_y, self.a.alpha)
        assert (arrays["index"] == self.index)[alive != 0].all()
        return arrays["y"].tobytes() + arrays["index"].tobytes()

    def gradients_of(self, v, held=None, backwards=False):
        arrays = {**self.arrays, **self.given, "scratch": nan(v.scratch // 4)}
        arrays |= {f"d:{role}": nan(self.arrays[role].shape, self.arrays[role].dtype) for role in ("x", *self.weights)}
        arrays |= held or {}
        run(v.calls, arrays, backwards)
        return {role: arrays[f"d:{role}"] for role in ("x", *self.weights)}

    def check_backward(self, **more):
        for part, options in calls_gemm.parts("conv2d_pool", "backward", self.shapes(want=ALL, **more)).items():
            for v in options:
                got = [self.gradients_of(v, backwards=order) for order in (False, True)]
                for role in ["x"] if part == "dgrad" else self.weights:
                    close(got[0][role], self.want[role])
                    assert got[0][role].tobytes() == got[1][role].tobytes(), v.name


def forward_variants(case, **more):
    return calls_gemm.parts("conv2d_pool", "train", case.shapes(**more))["forward"]


def named(options, name):
    (found,) = [v for v in options if v.name.startswith(name)]
    return found


CASES = [c for c in OPS["conv2d_pool"].CASES if c.get("activation", "none") in activations.FROM_OUTPUT]


@pytest.mark.parametrize("attrs", CASES)
@pytest.mark.parametrize("N", [1, 3])
def test_the_first_variant_agrees_with_the_definition(attrs, N):
    case = Pooled(**attrs, N=N)
    case.check_forward(forward_variants(case)[0])
    for part, options in calls_gemm.parts("conv2d_pool", "backward", case.shapes(want=ALL)).items():
        got = case.gradients_of(options[0])
        for role in ["x"] if part == "dgrad" else case.weights:
            close(got[role], case.want[role])


SHAPES = [
    ((4, 6, 1), {"out_channels": 33, "padding": 1, "activation": "relu"}),
    ((10, 18, 3), {"out_channels": 8, "padding": 1, "activation": "relu"}),
    ((6, 10, 3), {"out_channels": 6, "padding": [2, 0, 2, 2], "activation": "sigmoid"}),
    ((6, 8, 12), {"out_channels": 20, "padding": 1, "activation": "leaky_relu"}),
    ((8, 6, 9), {"out_channels": 7, "padding": 1, "bias": 0}),
    ((9, 11, 10), {"out_channels": 5, "padding": 1, "activation": "relu6"}),
]


@pytest.mark.parametrize(("x", "attrs"), SHAPES)
def test_every_variant_agrees_and_the_thread_order_does_not_matter(x, attrs):
    case = Pooled(x, N=2, kernel_size=3, **attrs)
    for v in forward_variants(case):
        assert case.check_forward(v) == case.check_forward(v, backwards=True), v.name
    case.check_backward()


@pytest.mark.parametrize("t", [tiles.TILES[0], tiles.TILES[4], tiles.TILES[7], tiles.TILES[8]])
def test_the_product_is_right_at_the_edges_of_a_tile(monkeypatch, t):
    """Tiles of each form, whole and with a sum in 3 parts; loads of 4 and of 1."""
    only_tile(monkeypatch, t)
    for C, O in ((t.bk + 4, t.bn + 4), (t.bk + 1, t.bn - 1)):
        case = Pooled((6, 8, C), N=1 + t.bm // 48, out_channels=O, kernel_size=3, padding=1, activation="relu")
        for v in forward_variants(case):
            case.check_forward(v)
        case.check_backward()


@pytest.mark.parametrize(
    ("x", "O"), [((4, 32, 40), 70), ((16, 8, 33), 33), ((8, 8, 64), 32), ((2, 2, 32), 64), ((14, 14, 32), 65)]
)
def test_the_winners_kernel_takes_any_size_and_many_steps(x, O):
    """Tiles of each form, several blocks for the channels, and with few multiprocessors several steps for a block."""
    case = Pooled(x, N=3, out_channels=O, kernel_size=3, padding=1, activation="relu")
    for sms in (1, 20):
        wgrad = calls_gemm.parts("conv2d_pool", "backward", case.shapes(sms, want=ALL))["wgrad"][0]
        assert wgrad.name.startswith("winners")
        got = case.gradients_of(wgrad)
        for role in case.weights:
            close(got[role], case.want[role])


@pytest.mark.parametrize(
    ("x", "O", "padding"),
    [((32, 10, 40), 11, 1), ((8, 8, 8), 17, 1), ((14, 14, 32), 8, 1), ((4, 64, 9), 9, 1), ((12, 12, 10), 9, 0),
     ((6, 126, 3), 4, 1), ((10, 8, 12), 5, [2, 2, 2, 0]), ((36, 20, 8), 6, [0, 1, 2, 1])],
)  # fmt: skip
@pytest.mark.parametrize("older", [False, True])
def test_the_winners_kernel_gives_the_data_gradient(x, O, padding, older):
    """Bands of every height: with many multiprocessors low ones, so that their edges are added by the second launch."""
    case = Pooled(x, N=2, out_channels=O, kernel_size=3, padding=padding, activation="relu")
    held = {"add:x": case.random(case.arrays["x"].shape)} if older else {}
    names = set()
    for sms in (1, 8, 64):
        s = case.shapes(sms, want=ALL, adds=frozenset({"x"}) if older else frozenset())
        dgrad = named(calls_gemm.parts("conv2d_pool", "backward", s)["dgrad"], "winners")
        if dgrad.name in names:
            continue
        names.add(dgrad.name)
        got = [case.gradients_of(dgrad, dict(held), backwards)["x"] for backwards in (False, True)]
        close(got[0], case.want["x"] + held.get("add:x", 0))
        assert got[0].tobytes() == got[1].tobytes()


@pytest.mark.parametrize("kernel", [1, [1, 3], [2, 3]])
def test_the_winners_kernel_takes_other_taps(kernel):
    case = Pooled((6, 8, 16), N=2, out_channels=9, kernel_size=kernel, padding=1)
    case.check_backward()


@pytest.mark.parametrize("C", [1, 2, 3])
@pytest.mark.parametrize(("size", "O"), [((6, 8), 33), ((10, 66), 8), ((64, 4), 4)])
def test_a_pooled_first_layer_of_few_channels(C, size, O):
    """With one multiprocessor a block takes several tiles."""
    case = Pooled((*size, C), N=3, out_channels=O, kernel_size=3, padding=1, activation="relu")
    for sms in (1, 20):
        case.check_forward(named(forward_variants(case, sms=sms), "first"))
        wgrad = named(calls_gemm.parts("conv2d_pool", "backward", case.shapes(sms, want=ALL))["wgrad"], "first")
        got = case.gradients_of(wgrad)
        for role in case.weights:
            close(got[role], case.want[role])


def test_inference_keeps_no_winners():
    for x in ((6, 8, 3), (6, 8, 5)):
        case = Pooled(x, N=2, out_channels=6, kernel_size=3, padding=1, activation="relu")
        for v in calls_gemm.parts("conv2d_pool", "forward", case.shapes())["forward"]:
            close(case.forward(v.calls, v.scratch), case.want_y)


@pytest.mark.parametrize(("x", "attrs"), [SHAPES[1], SHAPES[3], SHAPES[4]])
def test_older_gradients_are_added_to(x, attrs):
    case = Pooled(x, N=2, kernel_size=3, **attrs)
    older = {role: case.random(case.arrays[role].shape) for role in ("x", *case.weights)}
    s = case.shapes(want=ALL, accumulate=True, adds=frozenset({"x"}))
    for part, options in calls_gemm.parts("conv2d_pool", "backward", s).items():
        for v in options:
            held = {f"d:{role}": older[role].copy() for role in case.weights} | {"add:x": older["x"].copy()}
            got = case.gradients_of(v, held)
            for role in ["x"] if part == "dgrad" else case.weights:
                close(got[role], older[role] + case.want[role])


def test_among_equal_sums_the_first_wins_and_a_nan_is_seen():
    for C in (3, 5):
        case = Pooled((4, 4, C), N=1, out_channels=4, kernel_size=1)
        case.arrays["x"][:] = 1.0
        case.arrays["x"][0, 3, 2] = np.nan
        for v in forward_variants(case):
            arrays = {**case.arrays, "y": nan(case.want_y.shape), "scratch": nan(v.scratch // 4)}
            arrays["index"] = np.full(case.index.shape, 255, np.uint8)
            run(v.calls, arrays)
            assert (arrays["index"].reshape(4, 4)[:3] == 0).all()
            assert (arrays["index"][0, 1, 1] == 2).all() and np.isnan(arrays["y"][0, 1, 1]).all()
            assert np.isfinite(arrays["y"].reshape(4, 4)[:3]).all()


@pytest.mark.parametrize(("x", "attrs"), [SHAPES[0], SHAPES[1], SHAPES[3], SHAPES[4]])
@pytest.mark.parametrize("sms", [0, 64])
def test_activations_may_be_stored_in_half_precision(x, attrs, sms):
    """x, y, dy and dx, with an older gradient; the weights' gradients are float32. Winograd's has its own test."""
    case = Pooled(x, N=2, half=True, kernel_size=3, **attrs)
    for v in forward_variants(case, sms=sms):
        if not v.name.startswith("winograd"):
            case.check_forward(v)
    older = case.random(case.arrays["x"].shape).astype(np.float16)
    s = case.shapes(sms, want=ALL, adds=frozenset({"x"}))
    for part, options in calls_gemm.parts("conv2d_pool", "backward", s).items():
        for v in options:
            if v.name.startswith("winograd"):
                continue
            got = case.gradients_of(v, {"add:x": older})
            for role in ["x"] if part == "dgrad" else case.weights:
                close(got[role], case.want[role] + (older if role == "x" else 0))


# ---- compiling for cards that are not here

HOT = [
    ("conv2d_first.cu", {"CONV_FORWARD": 1, "ACROSS": 4, "FC": 3, "FKH": 3, "FKW": 3}),
    ("conv2d_first.cu", {"CONV_FORWARD": 1, "ACROSS": 4, "FC": 1, "FKH": 3, "FKW": 3}),
    ("conv2d_first.cu", {"CONV_WGRAD": 1, "TW": 8, "FC": 3, "FKH": 3, "FKW": 3}),
    ("conv2d_first.cu", {"CONV_WGRAD": 1, "TW": 8, "FC": 1, "FKH": 3, "FKW": 3}),
    *[("conv2d_pool_dgrad.cu", {"CONV_DGRAD": 1, "PASS": 16, "WR": r, "WC": c}) for r, c in ((2, 8), (4, 4), (2, 2))],
    ("conv2d_pool_dgrad.cu", {"CONV_EDGES": 1, "WR": 2, "WC": 8}),
    *[("conv2d_pool_wgrad.cu", {"FKH": 3, "FKW": 3, "OW": ow, "TW": 8, "TH": 2, "VC": 4}) for ow in (4, 8)],
]


def fits(jobs, spills=0):
    for job, used in compile_all(jobs):
        assert used.spills <= spills, f"{job} spills {used.spills} bytes"
        assert used.shared <= 48 * 1024, f"{job} takes {used.shared} bytes of shared memory"


@pytest.mark.parametrize("arch", [50, 75])
def test_hot_kernels_compile_without_spills(arch):
    jobs = [(file, arch, {"ACT": 1, "POOL": 1, **macros}) for file, macros in HOT]
    jobs += [(file, arch, {**macros, "REAL": "Half"}) for file, arch, macros in jobs]
    for t in tiles.TILES[1:6]:
        for part in ("CONV_FORWARD", "CONV_WGRAD"):
            jobs.append(("conv2d.cu", arch, {"ACT": 1, "POOL": 1, "VC": 4, "VO": 4, "TILE": t.text, part: 1}))
    fits(jobs)


@pytest.mark.slow
@pytest.mark.parametrize("arch", nvrtc.ARCHITECTURES)
def test_every_kernel_compiles_for_every_card(arch):
    jobs = [(file, arch, {"ACT": act, "POOL": 1, **macros}) for file, macros in HOT for act in (0, 1, 6)]
    jobs += [(file, arch, {"ACT": 1, "POOL": 1, **macros, "VC": 1}) for file, macros in HOT if "VC" in macros]
    for t in tiles.TILES:
        for split in (0, 2) if t.part * 2 <= tiles.LAST_BLOCK else (0,):
            for part in ("CONV_FORWARD", "CONV_WGRAD"):
                for v in (4, 1):
                    macros = {"ACT": 1, "POOL": 1, "VC": v, "VO": v, "TILE": t.text, "SPLIT": split, part: 1}
                    jobs.append(("conv2d.cu", arch, macros))
    fits(jobs, spills=128)
