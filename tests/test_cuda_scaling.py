"""Updates under loss scaling, updates tensor by tensor, and the search for NaN: kernels run on the CPU."""

import cushim
import numpy as np
import pytest
from closeness import assert_close
from cuda_examples import nan, step

from litenet.trainer import optimizers
from litenet.trainer.fields import Options
from litenet.trainer.kernels import calls_step as steps

TENSORS = [(0, 1, True), (4, 7, False), (12, 33, True), (48, 2100, True), (2148, 3, False)]  # (first, size, decays)
COUNT = 2151
RULES = [("sgd", {}), ("momentum", {"weight_decay": 0.01}), ("adam", {"weight_decay": 0.1}), ("adamw", {})]


def rule_of(name, settings):
    return optimizers.make_optimizer(Options(name, settings))


def start(rule, scale=None, seed=5):
    """All arrays of an update; its gradients multiplied by the loss scale."""
    draw = np.random.default_rng(seed)
    inside = np.zeros(COUNT, bool)
    for at, size, _ in TENSORS:
        inside[at : at + size] = True
    arrays = {
        "weights": np.where(inside, draw.standard_normal(COUNT), 0).astype(np.float32),
        "gradients": np.where(inside, draw.standard_normal(COUNT), 0).astype(np.float32) * np.float32(scale or 1),
        **{state: np.zeros(COUNT, np.float32) for state in rule.states},
        "bounds": steps.decay_bounds(TENSORS), "partials": nan((steps.partial_count(COUNT),), np.float64),
        "step": step(lr=0.1, grad_scale=0.5), "counters": np.zeros(1, np.int32),
    }  # fmt: skip
    if scale:
        arrays["scaling"] = steps.scaling()
        arrays["scaling"]["scale"] = scale
    return arrays


def update(rule, arrays, backwards=False, **more):
    """One update; the host then counts it."""
    half = "scaling" in arrays
    cushim.run_all(steps.update_calls(rule, COUNT, len(arrays["bounds"]), half=half, **more), arrays, backwards)
    assert arrays["counters"][0] == 0
    arrays["step"]["t"] += 1


@pytest.mark.parametrize(("name", "settings"), RULES)
@pytest.mark.parametrize("clip", [{}, {"clip_norm": 0.5}, {"clip_value": 0.2}])
def test_a_loss_scale_leaves_no_trace_in_the_bits(name, settings, clip):
    rule = rule_of(name, settings)
    plain, scaled = start(rule), start(rule, 1024.0)
    for k in range(3):
        update(rule, plain, **clip)
        update(rule, scaled, backwards=k == 1, **clip)
        for role in ("weights", *rule.states, "partials"):
            assert plain[role].tobytes() == scaled[role].tobytes(), role
    assert scaled["scaling"][0].tolist() == (1024.0, 3, 0, 1 / 1024)


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("clip", [{}, {"clip_norm": 0.5}, {"clip_value": 0.2}])
@pytest.mark.parametrize(("name", "settings"), RULES)
def test_an_update_that_overflowed_is_skipped_and_the_scale_halves(name, settings, clip, bad):
    rule = rule_of(name, settings)
    arrays, undisturbed = start(rule, 1024.0), start(rule, 512.0)
    good = arrays["gradients"].copy()
    arrays["gradients"][[17, 2150]] = bad
    before = {role: arrays[role].copy() for role in ("weights", *rule.states)}
    update(rule, arrays, **clip)
    for role, array in before.items():
        assert array.tobytes() == arrays[role].tobytes(), role
    assert arrays["scaling"][0].tolist() == (512.0, 0, 1, 0)
    assert not np.isfinite(steps.norms(arrays["partials"]))
    arrays["gradients"][:] = good / 2
    update(rule, arrays, **clip)
    update(rule, undisturbed, **clip)
    for role in ("weights", *rule.states, "partials"):  # as if that step had not been: adam's t too
        assert arrays[role].tobytes() == undisturbed[role].tobytes(), role


def test_the_loss_scale_doubles_after_2000_good_updates_and_has_bounds():
    rule = rule_of("sgd", {})
    arrays = start(rule, 4096.0)
    most = 2.0**24
    for good, scale, then in ((1998, 4096.0, (4096.0, 1999)), (1999, 4096.0, (8192.0, 0)), (1999, most, (most, 0))):
        arrays["scaling"]["good"], arrays["scaling"]["scale"] = good, scale
        update(rule, arrays)
        assert arrays["scaling"][0].tolist()[:2] == then
    arrays["gradients"][0] = np.inf
    arrays["scaling"]["scale"] = 2
    for scale in (1, 1):
        update(rule, arrays)
        assert arrays["scaling"]["scale"] == scale
    assert arrays["scaling"]["skipped"] == 2


@pytest.mark.parametrize(("name", "settings"), RULES)
@pytest.mark.parametrize("clip", [{}, {"clip_value": 0.2}])
def test_updates_tensor_by_tensor_give_the_weights_of_one_launch(name, settings, clip):
    """Equal bits of weights and states. The norm is the same sum in another order."""
    rule = rule_of(name, settings)
    whole, apart = start(rule), start(rule)
    in_row = sum(steps.partial_count(size) for _, size, _ in TENSORS)
    apart["partials"] = nan((2, in_row), np.float64)
    for k in range(2):
        update(rule, whole, **clip)
        first = 0
        for at, size, decays in TENSORS:
            part = {role: apart[role][at : at + size] for role in ("weights", "gradients", *rule.states)}
            part["bounds"] = steps.decay_bounds([(0, size, decays)])
            place = {"first": first, "history": 2, "in_row": in_row}
            cushim.run_all(steps.update_calls(rule, size, len(part["bounds"]), **place, **clip), apart | part)
            first += steps.partial_count(size)
        apart["step"]["t"] += 1
        apart["step"]["cursor"] += 1
        for role in ("weights", *rule.states):
            assert whole[role].tobytes() == apart[role].tobytes(), role
        assert_close(steps.norms(apart["partials"][k]), steps.norms(whole["partials"]), 0, 1e-6)


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("n", [1, 3, 4, 4099])
def test_the_first_value_that_is_not_finite_is_found(n, half):
    x = np.random.default_rng(n).standard_normal(n).astype(np.float16 if half else np.float32)
    found = np.full(3, steps.NOT_FOUND, np.int32)
    (call,) = steps.finite_calls(n, "d:x", 1, half, sms=1)
    for bad in [[], [n - 1], [n // 2, n - 1], [0], [min(n - 1, 7), min(n - 1, 4098)]]:
        values = x.copy()
        values[bad] = [np.inf, np.nan][: len(bad)]
        for backwards in (False, True):
            found[1] = steps.NOT_FOUND
            cushim.run(call, {"d:x": values, "finite": found}, backwards)
            assert found.tolist() == [steps.NOT_FOUND, min(bad, default=steps.NOT_FOUND), steps.NOT_FOUND]
