"""The last layer, its loss and its gradients in one launch, run on the CPU, against the definitions in float64."""

import cushim
import numpy as np
import nvrtc
import pytest
from closeness import assert_close
from cuda_examples import step

from litenet.trainer import losses
from litenet.trainer.kernels import calls_head
from litenet.trainer.kernels import calls_step as steps
from litenet.trainer.kernels.call import Shapes
from litenet.trainer.ops import OPS, make_attrs

LINEAR = OPS["linear"]
ALL = frozenset({"x", "weight", "bias"})
SIZES = [(1, 1, 2), (7, 5, 3), (8, 64, 10), (64, 128, 10), (65, 33, 32), (200, 12, 4)]  # N, I, O; the last: two turns
SETTINGS = [{}, {"label_smoothing": 0.1}, {"class_weights": True}, {"class_weights": True, "label_smoothing": 0.2}]


class Head:
    def __init__(self, N, I, O, settings=None, half=False, **more):
        draw, stored = np.random.default_rng(N + I), np.float16 if half else np.float32
        settings = {k: draw.random(O) + 0.1 if k == "class_weights" else v for k, v in (settings or {}).items()}
        self.loss = losses.BoundLoss("cross_entropy", settings, True)
        self.a = make_attrs(LINEAR.OP, {"out_features": O, "bias": more.pop("bias", 1)})
        self.s = Shapes(self.a, N, (I,), (O,), half=half, **({"want": ALL} | more))
        self.arrays = {
            "x": draw.standard_normal((N, I)).astype(stored), "weight": draw.standard_normal((O, I), np.float32) / 4,
            "bias": draw.standard_normal(O, np.float32), "target": draw.integers(0, O, N).astype(np.int32),
        }  # fmt: skip
        if not self.a.bias:
            del self.arrays["bias"]
        if "class_weights" in settings:
            self.arrays["class_weights"] = settings["class_weights"].astype(np.float32)
        self.older = {f"d:{role}": draw.standard_normal(self.arrays[role].shape).astype(self.arrays[role].dtype)
                      for role in ("x", "weight", "bias") if role in self.arrays}  # fmt: skip

    def definition(self):
        """(loss, right answers, gradients by role) in float64."""
        x, w, b = (self.arrays[k].astype(np.float64) if k in self.arrays else None for k in ("x", "weight", "bias"))
        z, t = LINEAR.forward(self.a, x, w, b), self.arrays["target"]
        value, dz = self.loss(z, t)
        needs = {"x": x, "weight": w, "dy": dz, "y": z, "want": ALL}
        names = LINEAR.backward.__code__.co_varnames[1 : LINEAR.backward.__code__.co_argcount]
        return value, int((z.argmax(-1) == t).sum()), LINEAR.backward(self.a, *(needs.get(n) for n in names))

    def run(self, backwards=False, held=None, scaling=None):
        assert calls_head.fits(self.loss, self.s)
        arrays = dict(self.arrays) | {role: np.full_like(v, np.nan) for role, v in self.older.items()} | (held or {})
        arrays |= {"loss": np.full(1, np.nan, np.float32), "correct": np.zeros(1, np.int32)}
        arrays |= {"counters": np.zeros(1, np.int32)} | ({} if scaling is None else {"scaling": scaling})
        arrays |= {"step": step(cursor=1), "history": np.full((2, 4), np.nan, np.float32)}
        arrays["scratch"] = np.full(calls_head.head_scratch(self.s) // 4, np.nan, np.float32)
        cushim.run_all(calls_head.head_calls(self.loss, self.s, history=2), arrays, backwards)
        assert arrays["counters"][0] == 0
        assert arrays["history"][1, :2].tolist() == [arrays["loss"][0], arrays["correct"][0]]
        return arrays


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("settings", SETTINGS)
def test_loss_answers_and_gradients_are_those_of_layer_and_loss(sizes, settings):
    head = Head(*sizes, settings)
    value, right, want = head.definition()
    got, again = head.run(), head.run(backwards=True)
    assert_close(got["loss"][0], value, 1e-6, 3e-6)
    assert got["correct"][0] == right
    for role in ("x", "weight", "bias"):
        assert_close(got[f"d:{role}"], want[role], 2e-6, 2e-5)
        assert got[f"d:{role}"].tobytes() == again[f"d:{role}"].tobytes()


@pytest.mark.parametrize("in_place", [False, True])
def test_older_gradients_are_added_to(in_place):
    head = Head(20, 12, 3, accumulate=True, adds=frozenset({"x"}))
    _, _, want = head.definition()
    held = {role: array.copy() for role, array in head.older.items() if role != "d:x"}
    held["add:x"] = head.older["d:x"].copy()
    if in_place:
        held["d:x"] = held["add:x"]
    got = head.run(held=held)
    for role in ("x", "weight", "bias"):
        assert_close(got[f"d:{role}"], head.older[f"d:{role}"] + want[role], 2e-6, 2e-5)


def test_only_the_gradients_asked_for_are_written():
    head = Head(9, 8, 3, want=frozenset({"weight"}))
    got, want = head.run(), head.definition()[2]
    assert_close(got["d:weight"], want["weight"], 2e-6, 2e-5)
    assert np.isnan(got["d:x"]).all()
    assert np.isnan(got["d:bias"]).all()
    head = Head(9, 8, 3, bias=0)
    assert_close(head.run()["d:x"], head.definition()[2]["x"], 2e-6, 2e-5)


def test_half_precision_carries_the_loss_scale():
    head, scaling = Head(24, 16, 10, half=True), steps.scaling()
    scaling["scale"] = 256
    value, right, want = head.definition()
    got = head.run(scaling=scaling)
    assert_close(got["loss"][0], value, 1e-6, 3e-6)
    assert got["correct"][0] == right
    assert_close(got["d:x"], 256 * want["x"], 1e-3, 1e-3)
    for role in ("weight", "bias"):
        assert_close(got[f"d:{role}"], 256 * want[role], 1e-4, 2e-5)


def test_other_layers_and_losses_are_left_to_launches_of_their_own():
    def fits(name="cross_entropy", N=4, x=(8,), **attrs):
        a = make_attrs(LINEAR.OP, {"out_features": 3} | attrs)
        return calls_head.fits(losses.BoundLoss(name, {}, True), Shapes(a, N, x, (a.out_features,), want=ALL))

    assert fits()
    assert not fits("mse")
    assert not fits(N=4096)
    assert not fits(x=(2, 8))
    assert not fits(activation="relu")
    assert not fits(out_features=33)
    assert not fits(x=(512,), out_features=10)


@pytest.mark.parametrize("arch", nvrtc.ARCHITECTURES)
def test_it_compiles_without_spills(arch):
    half = {"HI": 1024, "HO": 2, "VI": 4, "REAL": "Half"}
    for more in ({"HI": 128, "HO": 10, "VI": 4}, half, {"HI": 71, "HO": 32, "VI": 1}):
        (used,) = nvrtc.resources(nvrtc.compile("head.cu", arch, more)[1]).values()
        assert used.shared <= 48 * 1024
        assert used.spills == 0
