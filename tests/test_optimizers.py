"""Optimizers: against a scalar derivation in Python floats, over several steps, for every setting."""

import math

import numpy as np
import pytest
from closeness import assert_close

from litenet.trainer import optimizers
from litenet.trainer.errors import UserError
from litenet.trainer.fields import Options
from litenet.trainer.optimizers import make_optimizer

STEPS = 6


class ByHand:
    """One weight, as the papers write it: with bias-corrected means for Adam, and v for the momentum."""

    def __init__(self, w):
        self.w, self.v, self.m, self.s = w, 0.0, 0.0, 0.0

    def sgd(self, g, lr, mu=0.0, nesterov=False, wd=0.0):
        g += wd * self.w
        self.v = mu * self.v + g
        self.w -= lr * (g + mu * self.v if nesterov else self.v)

    def adam(self, g, lr, t, b1=0.9, b2=0.999, eps=1e-8, wd=0.0, decoupled=False):
        if decoupled:
            self.w -= lr * wd * self.w
        else:
            g += wd * self.w
        self.m, self.s = b1 * self.m + (1 - b1) * g, b2 * self.s + (1 - b2) * g * g
        mean, square = self.m / (1 - b1**t), self.s / (1 - b2**t)
        self.w -= lr * mean / (math.sqrt(square) + eps)


CASES = [
    ("sgd", {}, lambda h, g, lr, t: h.sgd(g, lr)),
    ("sgd", {"weight_decay": 0.1}, lambda h, g, lr, t: h.sgd(g, lr, wd=0.1)),
    ("sgd", {"momentum": 0.5}, lambda h, g, lr, t: h.sgd(g, lr, 0.5)),
    ("momentum", {}, lambda h, g, lr, t: h.sgd(g, lr, 0.9)),
    ("momentum", {"weight_decay": 0.1}, lambda h, g, lr, t: h.sgd(g, lr, 0.9, wd=0.1)),
    ("nesterov", {"weight_decay": 0.1}, lambda h, g, lr, t: h.sgd(g, lr, 0.9, True, 0.1)),
    ("sgd", {"momentum": 0.8, "nesterov": True}, lambda h, g, lr, t: h.sgd(g, lr, 0.8, True)),
    ("adam", {}, lambda h, g, lr, t: h.adam(g, lr, t)),
    ("adam", {"weight_decay": 0.1, "beta1": 0.8}, lambda h, g, lr, t: h.adam(g, lr, t, 0.8, wd=0.1)),
    ("adam", {"beta2": 0.9, "eps": 0.01}, lambda h, g, lr, t: h.adam(g, lr, t, b2=0.9, eps=0.01)),
    ("adamw", {}, lambda h, g, lr, t: h.adam(g, lr, t, wd=0.01, decoupled=True)),
    ("adamw", {"weight_decay": 0.3}, lambda h, g, lr, t: h.adam(g, lr, t, wd=0.3, decoupled=True)),
    ("adamw", {"weight_decay": 0.0}, lambda h, g, lr, t: h.adam(g, lr, t)),
]


def run(optimizer, w, gradients, decay=True, lr=0.05):
    state = {name: np.zeros_like(w) for name in optimizer.states}
    for t, g in enumerate(gradients, 1):
        optimizer.apply(w, g.astype(w.dtype), state, lr / t, t, decay)
    return state


@pytest.mark.parametrize(("name", "settings", "by_hand"), CASES)
def test_several_steps_agree_with_the_formula(name, settings, by_hand):
    rng = np.random.default_rng(1)
    w, gradients = rng.normal(size=(2, 3)), rng.normal(size=(STEPS, 2, 3))
    want = w.copy()
    for place in np.ndindex(w.shape):
        h = ByHand(w[place])
        for t in range(1, STEPS + 1):
            by_hand(h, gradients[t - 1][place], 0.05 / t, t)
        want[place] = h.w
    optimizer = make_optimizer(Options(name, settings))
    single = w.astype(np.float32)
    run(optimizer, w, gradients)
    run(optimizer, single, gradients)
    assert_close(w, want, 1e-13, 1e-13)
    assert single.dtype == np.float32
    assert_close(single, want, 1e-6, 1e-5)


@pytest.mark.parametrize(("name", "settings"), [("sgd", {}), ("momentum", {}), ("adam", {}), ("adamw", {})])
def test_decay_can_be_left_out_for_a_tensor(name, settings):
    gradients = np.random.default_rng(2).normal(size=(STEPS, 5))
    with_decay = make_optimizer(Options(name, {**settings, "weight_decay": 0.5}))
    without = make_optimizer(Options(name, {**settings, "weight_decay": 0.0}))
    w, skipped, plain = np.ones(5), np.ones(5), np.ones(5)
    run(with_decay, w, gradients)
    run(with_decay, skipped, gradients, decay=False)
    run(without, plain, gradients)
    assert (skipped == plain).all()
    assert (w < plain).all()


@pytest.mark.parametrize("name", ["sgd", "nesterov", "adam", "adamw"])
@pytest.mark.parametrize("size", [1, optimizers._BLOCK - 1, optimizers._BLOCK, optimizers._BLOCK + 1])
def test_every_element_is_updated_whatever_the_size(name, size):
    optimizer = make_optimizer(Options(name, {"weight_decay": 0.1}))
    gradients = np.random.default_rng(4).normal(size=(2, size)).astype(np.float32)
    w = np.ones(size, np.float32)
    run(optimizer, w, gradients)
    for i in {0, size // 2, size - 1}:
        one = np.ones(1, np.float32)
        run(optimizer, one, gradients[:, i : i + 1])
        assert w[i] == one[0]


def test_the_gradient_is_only_read_and_a_float64_rate_changes_no_precision():
    for name in optimizers.FIELDS:
        optimizer = make_optimizer(Options(name, {"weight_decay": 0.1}))
        w, g = np.ones(3, np.float32), np.full(3, 0.5, np.float32)
        state = {key: np.zeros_like(w) for key in optimizer.states}
        optimizer.apply(w, g, state, np.float64(0.1), 1, True)
        assert (g == 0.5).all()
        assert {w.dtype, *(s.dtype for s in state.values())} == {np.dtype(np.float32)}


def test_states_are_named_only_where_they_are_needed():
    states = {name: make_optimizer(Options(name)).states for name in optimizers.FIELDS}
    assert states == {
        "sgd": (),
        "momentum": ("velocity",),
        "nesterov": ("velocity",),
        "adam": ("m", "v"),
        "adamw": ("m", "v"),
    }


def test_overrides_win_and_none_means_not_given():
    options = Options("sgd", {"momentum": 0.5})
    assert make_optimizer(options, {"momentum": 0.9, "weight_decay": None}).momentum == 0.9
    assert make_optimizer(options, {"momentum": None}).momentum == 0.5
    assert make_optimizer(Options("momentum"), {"momentum": 0.0}).states == ()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (Options("adam", {"momentum": 0.9}), r'optimizer \(adam\): the key "momentum" is unknown'),
        (Options("sgd", {"momentum": 1.5}), "momentum is 1.5, but a number from 0 to 0.9999 is expected"),
        (Options("sgd", {"nesterov": True}), r"optimizer \(sgd\): nesterov is on, but momentum is 0"),
    ],
)
def test_settings_that_do_not_fit_are_refused(options, message):
    with pytest.raises(UserError, match=message):
        make_optimizer(options)


def test_arrays_that_cannot_be_updated_in_place_are_refused():
    w = np.ones((4, 4), np.float32)[:, ::2]
    with pytest.raises(ValueError, match="contiguous"):
        make_optimizer(Options("sgd")).apply(w, w.copy(), {}, 0.1, 1, True)


def test_adaptive_optimizers_start_with_a_smaller_rate():
    assert optimizers.default_learning_rate("adam") == optimizers.default_learning_rate("adamw") == 0.001
    assert optimizers.default_learning_rate("nesterov") == 0.01
