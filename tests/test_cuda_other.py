"""The CUDA kernels that are no matrix product, run on the CPU, against the NumPy definitions in float64."""

import dataclasses
from math import prod

import cushim
import numpy as np
import nvrtc
import pytest
from closeness import assert_close

from litenet.trainer import losses, optimizers, rng
from litenet.trainer.fields import Options
from litenet.trainer.kernels import calls_load, grids
from litenet.trainer.kernels import calls_other as other
from litenet.trainer.kernels import calls_step as steps
from litenet.trainer.kernels.call import Shapes
from litenet.trainer.ops import OPS, activations, backward_needs, make_attrs, parameters

EXTRA = {  # sizes at and around the widths of warps, tiles and vectors, and the ways that CASES do not take
    "activation": [{"x": (n,), "activation": "relu"} for n in (1, 31, 32, 33, 6001)],
    "add": [{"x": (n,), "activation": "relu"} for n in (3, 32, 33)],
    "batchnorm": [
        {"x": (20, 18, 5), "activation": "relu"},
        {"x": (20, 18, 36), "activation": "relu"},
        {"x": (2, 33), "activation": "relu"},
    ],
    "layernorm": [{"x": (33,)}, {"x": (1028,)}, {"x": (90, 3)}],
    "softmax": [{"x": (33,)}, {"x": (1100,)}],
    "maxpool2d": [
        {"kernel_size": 9, "stride": 7, "padding": 4, "x": (16, 9, 2)},
        {"kernel_size": 2, "stride": 2, "x": (5, 7, 32)},
        {"kernel_size": 1, "stride": 3, "x": (5, 5, 3)},
    ],
    "avgpool2d": [{"kernel_size": 9, "stride": 7, "padding": 4, "count_include_pad": 0, "x": (16, 9, 2)}],
    "global_avg_pool": [{"x": (5, 7, 33)}, {"x": (3, 3, 36)}],
    "depthwise_conv2d": [
        {"kernel_size": 3, "padding": 1, "x": (9, 9, 36)},
        {"kernel_size": 5, "padding": 2, "stride": 2, "x": (9, 8, 10), "activation": "relu"},
        {"kernel_size": 7, "padding": 3, "x": (9, 8, 8), "activation": "relu"},
        {"kernel_size": 3, "stride": [1, 3], "dilation": [4, 1], "padding": [4, 0, 3, 1], "x": (9, 8, 3)},
        {"kernel_size": 2, "stride": [1, 2], "dilation": [2, 1], "padding": [1, 0, 0, 2], "x": (6, 7, 3)},
    ],
}
MATRIX = [
    pytest.param(name, case, id=f"{name}-{i}")
    for name in sorted(other.CALLS)
    for i, case in enumerate([*OPS[name].CASES, *EXTRA.get(name, [])])
]
TRAINED = [
    p for p in MATRIX if p.values[0] == "activation" or p.values[1].get("activation", "none") in activations.FROM_OUTPUT
]
NODE, NODES, SEED, MICRO = 3, 7, 0x123456789ABCDEF0, (1 << 33) + 5


class Draw:
    """The numbers of that node in that micro-step, as trainer/backends/numpy.py draws them."""

    @staticmethod
    def uniform(shape):
        return rng.uniform(SEED, rng.DROPOUT, MICRO * NODES + NODE, shape)


def step(cursor=0, t=1, lr=0.1, grad_scale=1.0):
    s = np.zeros(1, steps.STEP)
    s["seed"], s["micro"] = (SEED & 0xFFFFFFFF, SEED >> 32), (MICRO & 0xFFFFFFFF, MICRO >> 32)
    s["cursor"], s["t"], s["lr"], s["grad_scale"] = cursor, t, lr, grad_scale
    return s


def nan(shape, dtype=np.float32):
    """An array that nothing has written yet."""
    return np.full(prod(shape) * np.dtype(dtype).itemsize, 0xFF, np.uint8).view(dtype).reshape(shape)


class Example:
    """One case: float32 arrays for the kernel and the same in float64 for the definition."""

    def __init__(self, name, case, N=3):
        self.module, draw = OPS[name], np.random.default_rng(0)
        self.name, x = name, tuple(case["x"])
        self.a = make_attrs(self.module.OP, {k: v for k, v in case.items() if k != "x"})
        self.y_shape = tuple(self.module.out_shape(self.a, *[x] * len(self.module.OP.inputs)))
        self.s = Shapes(self.a, N, x, self.y_shape, node=NODE, nodes=NODES)
        self.env = {role: draw.standard_normal((N, *x), np.float32) for role in self.module.OP.inputs}
        for w in self.module.OP.weights:
            if not (w.needs and not getattr(self.a, w.needs)):
                value = draw.standard_normal(w.shape(self.a, x), np.float32) / 2
                self.env[w.name] = abs(value) + 0.5 if w.name == "running_var" else value
        self.dy = draw.standard_normal((N, *self.y_shape), np.float32)
        self.draw = draw

    def wide(self, **more):
        known = {k: v.astype(np.float64) if v.dtype == np.float32 else v for k, v in (self.env | more).items()}
        return known | {"rng": Draw, "x_shape": (self.s.N, *self.s.x), "want": frozenset({"x", "x2"})}

    def define(self, train):
        """(y, auxiliaries) in float64."""
        f = getattr(self.module, "forward_train", self.module.forward) if train else self.module.forward
        known = self.wide()
        result = f(self.a, *(known.get(p) for p in parameters(f)))
        return result if isinstance(result, tuple) else (result, {})

    def launch(self, direction, s, arrays):
        """Run twice, the second time with the threads in the opposite order: equal bits."""
        scratch = other.SCRATCH.get(self.name, lambda *_: 0)(direction, s)
        before, found = {k: v.copy() for k, v in arrays.items()}, []
        for backwards in (False, True):
            for k, v in before.items():
                arrays[k][...] = v
            memory = {"scratch": nan((scratch // 4,))} if scratch else {}
            cushim.run_all(other.CALLS[self.name](direction, s), arrays | memory | {"step": step()}, backwards)
            found.append({k: v.tobytes() for k, v in arrays.items()})
        for k, v in found[0].items():
            assert v == found[1][k], f"{k} depends on the order of the threads"


def tolerance(example):
    absolute, relative = example.module.OP.tolerance
    return (absolute * 2, relative * 2)


@pytest.mark.parametrize(("name", "case"), MATRIX)
def test_inference_gives_what_the_definition_gives(name, case):
    e = Example(name, case)
    want, _ = e.define(train=False)
    arrays = e.env | {"y": nan(want.shape)}
    e.launch("forward", e.s, arrays)
    assert_close(arrays["y"], want, *tolerance(e))
    for role in e.module.OP.inplace:
        arrays = {k: v.copy() for k, v in e.env.items()}
        cushim.run_all(other.CALLS[name]("forward", e.s), arrays | {"y": arrays[role], "step": step()})
        assert_close(arrays[role], want, *tolerance(e))


@pytest.mark.parametrize(("name", "case"), TRAINED)
def test_training_also_gives_the_auxiliaries(name, case):
    e = Example(name, case)
    want, aux = e.define(train=True)
    for inplace in (None, *e.module.OP.inplace):
        arrays = {k: v.copy() for k, v in e.env.items()} | {
            k: nan(v.shape, v.dtype if v.dtype == np.uint8 else np.float32) for k, v in aux.items() if k not in e.env
        }
        arrays["y"] = arrays[inplace] if inplace else nan(want.shape)
        if inplace:
            scratch = {"scratch": nan((other.SCRATCH.get(name, lambda *_: 0)("train", e.s) // 4 + 1,))}
            cushim.run_all(other.CALLS[name]("train", e.s), arrays | scratch | {"step": step()})
        else:
            e.launch("train", e.s, arrays)
        assert_close(arrays["y"], want, *tolerance(e))
        for role, value in aux.items():
            assert_close(arrays[role], value, *tolerance(e))


def ways(name):
    """How a gradient can be asked for."""
    yield from ("plain", "older gradients")
    if OPS[name].OP.backward_inplace:
        yield "in place"
    if any(w.trainable for w in OPS[name].OP.weights):
        yield "no dx"


@pytest.mark.parametrize(
    ("name", "case", "way"), [pytest.param(*p.values, w, id=f"{p.id}-{w}") for p in TRAINED for w in ways(p.values[0])]
)
def test_backward_gives_the_gradients_of_the_definition(name, case, way):
    e = Example(name, case)
    y, aux = e.define(train=True)
    kept = {k: v.astype(np.float32) if v.dtype == np.float64 else v for k, v in aux.items()}
    kept["y"] = y.astype(np.float32)
    f = e.module.backward
    known = e.wide(dy=e.dy, **kept)
    want = {k: v for k, v in f(e.a, *(known.get(p) for p in parameters(f))).items() if k in e.env}
    params = set(want) - set(e.module.OP.inputs)
    if way == "no dx":
        want = {k: want[k] for k in params}
    needed = {k: (e.env | kept)[k] for k in backward_needs(name, e.a) if k in e.env | kept}
    arrays = needed | {"dy": e.dy.copy()}
    sms = {"older gradients": 1, "in place": 132}.get(way, 0)  # few and many blocks
    s = dataclasses.replace(e.s, want=frozenset(want), sms=sms)
    if way == "older gradients":
        s = dataclasses.replace(s, adds=frozenset(want) - params, accumulate=True)
        for role in want:
            older = e.draw.standard_normal(want[role].shape, np.float32)
            want[role] = want[role] + older
            arrays[f"d:{role}"] = older
            if role not in params:
                arrays[f"add:{role}"] = older
    else:
        arrays |= {f"d:{role}": nan(value.shape) for role, value in want.items()}
    if way == "in place":
        arrays["d:x"] = arrays["dy"]
    e.launch("backward", s, arrays)
    absolute, relative = (max(t, 1e-6) for t in tolerance(e))
    for role, value in want.items():
        grown = 1 + e.dy.size / value.size / 50  # sums of many terms
        assert_close(arrays[f"d:{role}"], value, absolute * grown, relative * grown)


@pytest.mark.parametrize("name", ["batchnorm", "layernorm"])
def test_a_large_mean_costs_no_digits_of_the_variance(name):
    for case in [c for c in (*OPS[name].CASES, *EXTRA[name]) if prod(c["x"]) > 60]:
        e = Example(name, case)
        e.env["x"] = (e.env["x"] + 4096).astype(np.float32)
        _, aux = e.define(train=True)
        arrays = e.env | {k: nan(v.shape) for k, v in aux.items() if k not in e.env} | {"y": nan(e.dy.shape)}
        e.launch("train", e.s, arrays)
        assert_close(arrays["inv_std"], aux["inv_std"], 0, 2e-5)
        assert_close(arrays["mean"], aux["mean"], 0, 1e-6)


@pytest.mark.parametrize("name", ["avgpool2d", "depthwise_conv2d", "global_avg_pool", "maxpool2d"])
def test_more_rows_than_a_grid_can_have_are_strided_over(name, monkeypatch):
    for module in (grids, other):
        monkeypatch.setattr(module, "MAX_Y", 2)
    for case in OPS[name].CASES[:4]:
        test_inference_gives_what_the_definition_gives(name, case)
        test_backward_gives_the_gradients_of_the_definition(name, case, "plain")


def test_maxpool_gives_the_gradient_to_the_first_of_equal_values():
    e = Example("maxpool2d", {"kernel_size": 3, "stride": 2, "padding": 1, "x": (6, 7, 4)})
    e.env["x"][...] = 1
    _, aux = e.define(train=True)
    arrays = e.env | {"index": nan(e.dy.shape, np.uint8), "y": nan(e.dy.shape)}
    e.launch("train", e.s, arrays)
    assert (arrays["index"] == aux["index"]).all()


def test_a_nan_comes_through_every_activation_and_pool():
    for name in activations.IDS:
        e = Example("activation", {"x": (5,), "activation": name}, N=1)
        e.env["x"][0, 2] = np.nan
        arrays = e.env | {"y": np.zeros_like(e.dy)}
        e.launch("forward", e.s, arrays)
        assert np.isnan(arrays["y"]).tolist() == [[False, False, True, False, False]], name
    e = Example("maxpool2d", {"kernel_size": 2, "stride": 2, "x": (4, 4, 1)}, N=1)
    e.env["x"][0, 1, 1, 0] = np.nan
    arrays = e.env | {"y": np.zeros_like(e.dy)}
    e.launch("forward", e.s, arrays)
    assert np.isnan(arrays["y"]).sum() == 1


# ---- random numbers


def test_dropout_draws_the_same_bits_as_the_definition():
    """A rate equal to one of the numbers keeps that value, a rate one step above drops it."""
    n = 4 * 9 + 3
    u = Draw.uniform((1, n))[0]
    for i in np.flatnonzero(u < 0.98)[::5]:
        for above, keeps in ((0.0, True), (2.0**-24, False)):
            e = Example("dropout", {"x": (n,), "rate": float(u[i]) + above}, N=1)
            e.env["x"][...] = 1
            arrays = e.env | {"y": nan((1, n))}
            e.launch("train", e.s, arrays)
            assert (arrays["y"][0, i] != 0) == keeps
            assert arrays["y"].tobytes() == e.define(train=True)[0].astype(np.float32).tobytes()


# ---- losses

LOGITS = [(1, 1), (1, 3), (5, 10), (33, 31), (64, 33), (7, 1000), (70, 300)]  # the last takes several blocks
LOSSES = [
    ("cross_entropy", {}, True),
    ("cross_entropy", {"label_smoothing": 0.1}, True),
    ("cross_entropy", {"class_weights": True}, True),
    ("cross_entropy", {"class_weights": True, "label_smoothing": 0.2}, True),
    ("logit_margin", {"m": 0.5}, True),
    ("mse", {}, True),
    ("mse", {}, False),
    ("bce", {}, True),
    ("bce", {}, False),
]


def loss_example(name, settings, classes, N, C):
    draw = np.random.default_rng(N + C)
    z = 3 * draw.standard_normal((N, C), np.float32)
    t = draw.integers(0, max(C, 2 if name in ("mse", "bce") else 1), N).astype(np.int32)
    if not classes:
        t = (draw.integers(0, 2, (N, C)) if name == "bce" else draw.standard_normal((N, C))).astype(np.float32)
    bound = losses.make_loss(Options(name, {}))
    settings = {k: draw.random(C) + 0.1 if k == "class_weights" else v for k, v in settings.items()}
    return losses.BoundLoss(name, settings, bound.classification), z, t


def run_loss(loss, z, t, classes, inplace=False, backwards=False):
    N, shape = len(z), z.shape[1:]
    arrays = {"z": z.copy(), "target": t, "loss": nan((1,)), "correct": nan((1,), np.int32)}
    arrays["dz"] = arrays["z"] if inplace else nan(z.shape)
    if loss.settings.get("class_weights") is not None:
        arrays["class_weights"] = loss.settings["class_weights"].astype(np.float32)
    if scratch := steps.loss_scratch(N, shape, classes):
        arrays["scratch"] = nan((scratch // 4,))
    cushim.run_all(steps.loss_calls(loss, N, shape, classes), arrays, backwards)
    return arrays["loss"], arrays["dz"], arrays["correct"]


@pytest.mark.parametrize(("N", "C"), LOGITS)
@pytest.mark.parametrize(("name", "settings", "classes"), LOSSES)
def test_losses_give_mean_gradient_and_right_answers(name, settings, classes, N, C):
    loss, z, t = loss_example(name, settings, classes, N, C)
    wide = z.astype(np.float64)
    want, dz = loss(wide, t)
    found = loss.predictions(wide, t)
    right = 0 if found is None else int((found == t.reshape(found.shape)).sum())
    first = run_loss(loss, z, t, classes)
    assert_close(first[0][0], want, 1e-6, 3e-6)
    assert_close(first[1], dz, 1e-7, 1e-5)
    assert first[2][0] == right
    for other_way in (run_loss(loss, z, t, classes, inplace=True), run_loss(loss, z, t, classes, backwards=True)):
        assert all(a.tobytes() == b.tobytes() for a, b in zip(first, other_way, strict=True))


def test_losses_stay_finite_at_extremes():
    z = np.array([[1e4, -1e4, 0], [-1e4, -1e4, -1e4], [88, 89, 90]], np.float32)
    t = np.array([1, 2, 0], np.int32)
    for name in ("cross_entropy", "logit_margin", "bce"):
        loss = losses.make_loss(Options(name, {}))
        value, dz, _ = run_loss(loss, z, t, True)
        want, want_dz = loss(z.astype(np.float64), t)
        assert_close(value[0], want, 1e-5, 1e-6)
        assert_close(dz, want_dz, 1e-7, 1e-5)


def test_a_batch_without_weight_has_no_loss():
    loss = losses.BoundLoss("cross_entropy", {"class_weights": np.array([0.0, 1.0])}, True)
    value, dz, _ = run_loss(loss, np.ones((4, 2), np.float32), np.zeros(4, np.int32), True)
    assert value[0] == 0
    assert (dz == 0).all()


def test_ties_go_to_the_first_class():
    z = np.zeros((2, 5), np.float32)
    for name in ("cross_entropy", "logit_margin", "mse"):
        loss = losses.make_loss(Options(name, {}))
        assert run_loss(loss, z, np.array([0, 3], np.int32), True)[2][0] == 1
    _, dz, _ = run_loss(losses.make_loss(Options("logit_margin", {})), z, np.array([0, 3], np.int32), True)
    assert dz.tolist() == [[-0.5, 0.5, 0, 0, 0], [0.5, 0, 0, -0.5, 0]]


# ---- updates

TENSORS = [(0, 1, True), (4, 7, False), (12, 33, True), (48, 2100, True), (2148, 3, False)]  # (first, size, decays)
COUNT = 2151
RULES = [
    ("sgd", {}),
    ("sgd", {"weight_decay": 0.01}),
    ("momentum", {"weight_decay": 0.01}),
    ("nesterov", {}),
    ("adam", {}),
    ("adam", {"weight_decay": 0.1, "beta1": 0.0}),
    ("adamw", {"weight_decay": 0.1}),
]


@pytest.mark.parametrize("clip", [{}, {"clip_norm": 0.5}, {"clip_value": 0.02, "clip_norm": 0.5}, {"clip_norm": 1e9}])
@pytest.mark.parametrize(("name", "settings"), RULES)
def test_updates_follow_the_definition_over_several_steps(name, settings, clip):
    """Scale, clip by value, norm, clip by norm, update: as loop.py does it; with the schedule in advance_calls."""
    rule, draw = optimizers.make_optimizer(Options(name, settings)), np.random.default_rng(2)
    inside = np.zeros(COUNT, bool)
    for at, size, _ in TENSORS:
        inside[at : at + size] = True
    weights = np.where(inside, draw.standard_normal(COUNT), 0).astype(np.float32)
    w, state = weights.astype(np.float64), {k: np.zeros(COUNT) for k in rule.states}
    rates = np.array([0.1, 0.05, 0.2, 0.1], np.float32)
    S = steps.partial_count(COUNT)
    bounds = steps.decay_bounds(TENSORS)
    arrays = {
        "weights": weights, "bounds": bounds, "rates": rates, "norm": nan((1,)), "partials": nan((S + 2,), np.float64),
        "step": step(lr=rates[0], grad_scale=0.25), **{k: np.zeros(COUNT, np.float32) for k in rule.states},
        "loss": np.array([2.5], np.float32), "correct": np.array([3], np.int32), "history": nan((3, 4)),
    }  # fmt: skip
    for k in range(3):
        arrays["gradients"] = np.where(inside, draw.standard_normal(COUNT) * 0.2, 0).astype(np.float32)
        kept = arrays["gradients"].copy()
        cushim.run_all(steps.update_calls(rule, COUNT, len(bounds), first=1, **clip), arrays, backwards=k == 1)
        partials = arrays["partials"]
        assert np.isnan(partials[[0, -1]]).all()
        cushim.run_all(steps.advance_calls(S, len(rates), 3), arrays | {"partials": partials[1:-1]})
        assert (arrays["gradients"] == kept).all()
        g = kept.astype(np.float64) * 0.25
        if "clip_value" in clip:
            g = np.clip(g, -clip["clip_value"], clip["clip_value"])
        norm = np.sqrt((g * g).sum())
        if "clip_norm" in clip and norm > clip["clip_norm"]:
            g *= clip["clip_norm"] / norm
        for at, size, decay in TENSORS:
            part = slice(at, at + size)
            rule.apply(w[part], g[part], {n: v[part] for n, v in state.items()}, float(rates[k]), k + 1, decay)
        assert_close(arrays["norm"][0], norm, 0, 1e-6)
        assert_close(arrays["history"][k], [2.5, 3, norm, rates[k]], 0, 1e-6)
        assert_close(arrays["weights"], w, 1e-6, 3e-6)
        assert (arrays["weights"][~inside] == 0).all()
    for key, value in state.items():
        assert_close(arrays[key], value, 1e-7, 1e-5)
    at_end = arrays["step"][0]
    assert (at_end["t"], at_end["cursor"], at_end["lr"]) == (4, 3, rates[3])
    assert int(at_end["micro"][0]) + (int(at_end["micro"][1]) << 32) == MICRO + 3


def test_adam_keeps_its_digits_in_the_first_and_in_late_steps():
    rule = optimizers.make_optimizer(Options("adam", {}))
    for t in (1, 2, 1000, 100_000):
        w, g = np.ones(8), np.full(8, 0.3)
        rule.apply(w, g, {"m": np.full(8, 0.01), "v": np.full(8, 0.001)}, 0.01, t, False)
        arrays = {
            "weights": np.ones(8, np.float32), "m": np.full(8, 0.01, np.float32), "v": np.full(8, 0.001, np.float32),
            "gradients": g.astype(np.float32), "step": step(t=t, lr=0.01), "partials": nan((1,), np.float64),
        }  # fmt: skip
        cushim.run_all(steps.update_calls(rule, 8, 0), arrays)
        assert_close(1 - arrays["weights"], 1 - w, 1e-7, 1e-6)


def test_a_nan_in_the_gradients_shows_in_the_norm():
    arrays = {
        "weights": np.ones(5, np.float32), "gradients": np.array([1, 2, np.nan, 3, 4], np.float32),
        "step": step(), "partials": nan((1,), np.float64), "norm": np.zeros(1, np.float32),
    }  # fmt: skip
    calls = steps.update_calls(optimizers.make_optimizer(Options("sgd", {})), 5, 0, clip_value=1.0)
    cushim.run_all([*calls, *steps.advance_calls(1, 0)], arrays)
    assert np.isnan(arrays["norm"][0])


def test_a_micro_step_without_update_moves_only_cursor_and_micro():
    s = step(cursor=4, t=2, lr=0.3)
    s["micro"] = (0xFFFFFFFF, 1)
    cushim.run_all(steps.advance_calls(0, 2), {"step": s, "rates": np.array([1, 2], np.float32)})
    assert (s[0]["cursor"], s[0]["t"], s[0]["lr"]) == (5, 2, np.float32(0.3))
    assert s[0]["micro"].tolist() == [0, 2]


def test_decay_bounds_join_neighbours():
    assert steps.decay_bounds(TENSORS).tolist() == [0, 1, 3, 537]
    assert steps.decay_bounds([]).tolist() == []


def test_sums_of_gradients_and_their_place():
    for n in (1, 3, 31, 33, 1030):
        a, b = np.random.default_rng(n).standard_normal((2, n), np.float32)
        arrays = {"a": a.copy(), "b": b, "y": nan((n,))}
        cushim.run_all(steps.sum_calls(n), arrays)
        assert (arrays["y"] == a + b).all()
        cushim.run_all(steps.sum_calls(n), arrays | {"y": arrays["a"]})
        assert (arrays["a"] == a + b).all()


# ---- loading


@pytest.mark.parametrize("shape", [(3, 3, 1), (2, 2, 3), (5, 7, 3), (4,), (2, 3, 17)])
@pytest.mark.parametrize("dtype", ["u8", "f32"])
def test_load_gathers_and_normalises_with_the_bits_of_numpy(shape, dtype):
    from litenet.trainer.data import to_input

    draw, count, batch, C = np.random.default_rng(4), 11, 4, shape[-1]
    data = draw.integers(0, 256, (count, *shape)).astype(np.uint8)
    data = data if dtype == "u8" else draw.standard_normal((count, *shape), np.float32)
    labels, values = draw.integers(0, 9, count).astype(np.int32), draw.standard_normal((count, 3), np.float32)
    mean, std = draw.random(C).astype(np.float32) * 100, draw.random(C).astype(np.float32) + 50
    order = draw.permutation(count).astype(np.int32)
    for cursor, rows in ((0, 4), (1, 4), (2, 3)):
        index = order[cursor * batch : cursor * batch + rows]
        arrays = {
            "set": data, "labels": labels, "order": order, "mean": mean, "std": std, "step": step(cursor=cursor),
            "x": nan((rows, *shape)), "target": nan((rows,), np.int32),
        }  # fmt: skip
        cushim.run_all(calls_load.load_calls(dtype, rows, batch, count, prod(shape), C), arrays)
        assert (arrays["x"] == to_input(data[index].astype(np.float32), mean, std)).all()
        assert (arrays["target"] == labels[index]).all()
    arrays |= {"labels": values, "target": nan((4, 3)), "x": nan((4, *shape))}
    del arrays["order"]
    cushim.run_all(calls_load.load_calls(dtype, 4, batch, count, prod(shape), C, 3, normalise=False), arrays)
    place = [8, 9, 10, 10]  # the last sample stands in past the end
    assert (arrays["x"] == data[place]).all()
    assert (arrays["target"] == values[place]).all()


# ---- resources


def kernels(every):
    """(file, defines): one hot form of each file, or every one that is told apart by its registers."""
    for file in ("sum.cu", "dropout.cu", "softmax.cu", "losses.cu", "update.cu", "advance.cu"):
        yield file, {}
    yield "add.cu", {"ACT": 1}
    for act in (4, 1) if every else (4,):
        yield "activation.cu", {"ACT": act}
    for V in (4, 1) if every else (4,):
        for file in ("layernorm.cu", "global_avg_pool.cu", "load.cu"):
            yield file, {"VEC": V}
        yield "batchnorm.cu", {"ACT": 1, "VEC": V}
        for stride in (1, 2) if every else (1,):
            window = {"SH": stride, "SW": stride, "KH": 3, "KW": 3, "PT": 1, "PL": 1, "VEC": V}
            yield "maxpool2d.cu", window
            yield "avgpool2d.cu", window | {"COUNT_PAD": 0}
            patch = {"QH": 3 - stride, "QW": 6 - 2 * stride, "ACT": 2, "DH": 1, "DW": 1}
            yield "depthwise_conv2d.cu", window | patch
    if every:
        yield "depthwise_conv2d.cu", window | patch | {"KH": 5, "KW": 5, "PT": 2, "PL": 2, "VEC": 2}


@pytest.mark.parametrize("arch", nvrtc.ARCHITECTURES)
def test_every_kernel_compiles_without_spills(arch):
    for file, defines in kernels(every=arch in (50, 75)):
        _, log = nvrtc.compile(file, arch, defines)
        for name, used in nvrtc.resources(log).items():
            assert used.shared <= 48 * 1024, name
            assert used.spills == 0 or arch not in (50, 75), f"{name} spills {used.spills} bytes on {arch}: {defines}"
