"""The CUDA kernels of a step that belong to no operator, run on the CPU: losses, updates, sums, loading."""

from math import prod

import cushim
import numpy as np
import nvrtc
import pytest
from closeness import assert_close
from cuda_examples import nan, step

from litenet.trainer import losses, optimizers
from litenet.trainer.fields import Options
from litenet.trainer.kernels import calls_load
from litenet.trainer.kernels import calls_step as steps
from litenet.trainer.kernels.call import Ref

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


def run_loss(loss, z, t, classes, inplace=False, backwards=False, scaling=None):
    """z of float16 with `scaling`, else of float32."""
    N, shape, half = len(z), z.shape[1:], scaling is not None
    width = steps.loss_blocks(N, shape, classes)
    arrays = {"z": z.copy(), "target": t, "step": step(cursor=2), "history": nan((4, width, 4))}
    arrays["dz"] = arrays["z"] if inplace else nan(z.shape, z.dtype)
    if half:
        arrays["scaling"] = scaling
    if loss.settings.get("class_weights") is not None:
        arrays["class_weights"] = loss.settings["class_weights"].astype(np.float32)
    cushim.run_all(steps.loss_calls(loss, N, shape, classes, 4, half=half), arrays, backwards)
    assert np.isnan(arrays["history"][[0, 1, 3]]).all()
    value, correct, scale, skipped = steps.figures(arrays["history"])[2]  # steps.HISTORY_ROW
    assert (scale, skipped) == (scaling["scale"][0] if half else 1, 0)
    return np.array([value]), arrays["dz"], np.array([correct])


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


@pytest.mark.parametrize(("name", "settings", "classes"), LOSSES)
def test_losses_of_half_precision_carry_the_loss_scale(name, settings, classes):
    loss, z, t = loss_example(name, settings, classes, 33, 31)
    z = z.astype(np.float16)
    want, dz = loss(z.astype(np.float64), t)
    scaling = steps.scaling()
    scaling["scale"] = 512
    for inplace in (False, True):
        value, got, _ = run_loss(loss, z, t, classes, inplace, scaling=scaling)
        assert_close(value[0], want, 1e-6, 3e-6)
        assert_close(got, 512 * dz, 2**-24, 2**-10)


def test_a_shorter_batch_leaves_the_figures_of_all_blocks():
    """The blocks that have no row left say 0: what an earlier batch wrote there must not be counted again."""
    loss, z, t = loss_example("cross_entropy", {}, True, 90, 10)
    width = steps.loss_blocks(90, (10,), True)
    arrays = {"z": z, "target": t, "dz": nan(z.shape), "step": step(cursor=0), "history": nan((1, width, 4))}
    assert width > 1
    for rows in (90, 3):
        want, _ = loss(z[:rows].astype(np.float64), t[:rows])
        cushim.run_all(steps.loss_calls(loss, rows, (10,), True, 1, width), arrays)
        assert_close(steps.figures(arrays["history"])[0, 0], want, 1e-6, 3e-6)


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
    """Scale, clip by value, norm, clip by norm, update: as loop.py does it. A row of partials for each step."""
    rule, draw = optimizers.make_optimizer(Options(name, settings)), np.random.default_rng(2)
    inside = np.zeros(COUNT, bool)
    for at, size, _ in TENSORS:
        inside[at : at + size] = True
    weights = np.where(inside, draw.standard_normal(COUNT), 0).astype(np.float32)
    w, state = weights.astype(np.float64), {k: np.zeros(COUNT) for k in rule.states}
    rates = np.array([0.1, 0.05, 0.2], np.float32)
    S = steps.partial_count(COUNT)
    bounds = steps.decay_bounds(TENSORS)
    arrays = {
        "weights": weights, "bounds": bounds, "partials": nan((3, S + 2), np.float64),
        **{k: np.zeros(COUNT, np.float32) for k in rule.states},
    }  # fmt: skip
    place = {"first": 1, "history": 3, "in_row": S + 2}
    for k in range(3):
        arrays["gradients"] = np.where(inside, draw.standard_normal(COUNT) * 0.2, 0).astype(np.float32)
        kept = arrays["gradients"].copy()
        arrays["step"] = step(cursor=k, t=k + 1, lr=rates[k], grad_scale=0.25)
        cushim.run_all(steps.update_calls(rule, COUNT, len(bounds), **place, **clip), arrays, backwards=k == 1)
        partials = arrays["partials"]
        assert np.isnan(partials[:, [0, -1]]).all()
        assert np.isnan(partials[k + 1 :]).all()
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
        assert_close(steps.norms(partials[k, 1:-1]), norm, 0, 1e-6)
        assert_close(arrays["weights"], w, 1e-6, 3e-6)
        assert (arrays["weights"][~inside] == 0).all()
    for key, value in state.items():
        assert_close(arrays[key], value, 1e-7, 1e-5)


@pytest.mark.parametrize("clip", [{}, {"clip_norm": 0.5}])
@pytest.mark.parametrize(("name", "settings"), RULES)
def test_groups_of_weights_have_rates_of_their_own(name, settings, clip):
    rule, draw = optimizers.make_optimizer(Options(name, settings)), np.random.default_rng(4)
    factors = [1.0, 0.1, 0.1, 3.0, 1.0]
    starts, groups = steps.rate_groups([(at, f) for (at, _, _), f in zip(TENSORS, factors, strict=True)])
    assert (starts.tolist(), groups.tolist()) == ([0, 1, 12, 537], [1.0, np.float32(0.1), 3.0, 1.0])
    weights = draw.standard_normal(COUNT).astype(np.float32)
    arrays = {
        "weights": weights.copy(), "gradients": draw.standard_normal(COUNT).astype(np.float32),
        "bounds": steps.decay_bounds(TENSORS), "rate_starts": starts, "rate_factors": groups,
        "partials": nan((steps.partial_count(COUNT),), np.float64), "step": step(t=1, lr=0.1),
        **{k: np.zeros(COUNT, np.float32) for k in rule.states},
    }  # fmt: skip
    g = arrays["gradients"].astype(np.float64)
    if clip:
        g = g * min(1.0, clip["clip_norm"] / np.sqrt((g * g).sum()))
    cushim.run_all(steps.update_calls(rule, COUNT, len(arrays["bounds"]), groups=len(groups), **clip), arrays)
    lr = float(np.float32(0.1))
    for (at, size, decay), factor in zip(TENSORS, factors, strict=True):
        w, part = weights[at : at + size].astype(np.float64), g[at : at + size].copy()
        rule.apply(w, part, {n: np.zeros(size) for n in rule.states}, lr * float(np.float32(factor)), 1, decay)
        assert_close(arrays["weights"][at : at + size], w, 1e-6, 3e-6)


@pytest.mark.parametrize("n", [1, 3, 4, 5, 1023, 4097])
@pytest.mark.parametrize("t", [1, 7, 5000])
def test_the_average_follows_at_the_decay_of_its_update(n, t):
    draw = np.random.default_rng(n)
    w, a = draw.standard_normal((2, n)).astype(np.float32)
    arrays = {"weights": w, "average": a.copy(), "step": step(t=t)}
    cushim.run_all(steps.average_calls(n, 0.999), arrays)
    d = min(0.999, (1 + t) / (10 + t))
    assert_close(arrays["average"], d * a.astype(np.float64) + (1 - d) * w, 1e-7, 1e-5)


# ---- what layers are measured by


@pytest.mark.parametrize(("R", "C"), [(1, 1), (7, 31), (8, 32), (9, 33), (511, 5), (1025, 40), (1537, 3)])
@pytest.mark.parametrize("half", [False, True])
def test_channels_are_summed_part_by_part(R, C, half):
    x = np.random.default_rng(R + C).standard_normal((R, C)).astype(np.float16 if half else np.float32)
    x[:, ::3] = -abs(x[:, ::3])
    parts = steps.sum_parts(R)
    arrays = {"x": x, "layer_sums": nan((1 + parts * C * 3 + 1,), np.float64)}
    cushim.run_all(steps.channel_sums_calls(R, C, 8, half), arrays, backwards=True)
    assert np.isnan(arrays["layer_sums"][[0, -1]]).all()
    found = arrays["layer_sums"][1:-1].reshape(parts, C, 3)
    values = x.astype(np.float64)
    assert_close(found[:, :, 0].sum(0), values.sum(0), 1e-9, 1e-12)
    assert_close(found[:, :, 1].sum(0), (values**2).sum(0), 1e-9, 1e-12)
    assert ((found[:, :, 2] > 0).any(0) == (values > 0).any(0)).all()


@pytest.mark.parametrize("n", [1, 255, 2049, 70_001])
@pytest.mark.parametrize("pair", [False, True])
def test_squares_and_those_of_a_difference_are_summed_block_by_block(n, pair):
    a, b = np.random.default_rng(n).standard_normal((2, n)).astype(np.float32)
    count = steps.square_blocks(n)
    arrays = {"a": a, "b": b, "layer_sums": nan((2 * count + 1,), np.float64)}
    cushim.run_all(steps.squares_calls(n, 0, Ref("a"), Ref("b" if pair else "")), arrays)
    assert np.isnan(arrays["layer_sums"][-1])
    own, apart = arrays["layer_sums"][:-1].reshape(count, 2).sum(0)
    assert_close(own, (a.astype(np.float64) ** 2).sum(), 0, 1e-12)
    assert_close(apart, ((a - b).astype(np.float64) ** 2).sum() if pair else 0.0, 1e-30, 1e-12)


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
        "weights": np.ones(5, np.float32), "gradients": np.array([1, 2, np.nan, 3, 4], np.float32), "step": step(),
        "partials": nan((1,), np.float64),
    }  # fmt: skip
    cushim.run_all(steps.update_calls(optimizers.make_optimizer(Options("sgd", {})), 5, 0, clip_value=1.0), arrays)
    assert np.isnan(steps.norms(arrays["partials"]))
    assert np.isnan(arrays["weights"][2])


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


@pytest.mark.parametrize("arch", nvrtc.ARCHITECTURES)
def test_every_kernel_of_a_step_compiles_without_spills(arch):
    every = [(f"{name}.cu", {}) for name in ("sum", "losses", "update", "finite", "average", "layer_sums")]
    every += [(file, {"REAL": "Half"}) for file in ("losses.cu", "finite.cu", "layer_sums.cu")]
    every += [("load.cu", {"VEC": V}) for V in ((4, 1) if arch in (50, 75) else (4,))]
    for file, defines in every:
        _, log = nvrtc.compile(file, arch, defines)
        for name, used in nvrtc.resources(log).items():
            assert used.shared <= 48 * 1024, name
            assert used.spills == 0 or arch not in (50, 75), f"{name} spills {used.spills} bytes on {arch}: {defines}"
