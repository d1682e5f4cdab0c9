"""Losses: their values by hand, their gradients against central differences in float64, and extreme logits."""

import math

import numpy as np
import pytest
from closeness import assert_close

from litenet.trainer import losses
from litenet.trainer.errors import UserError
from litenet.trainer.fields import Options

RNG = np.random.default_rng(3)
Z = RNG.normal(size=(5, 4))
T = np.array([0, 3, 2, 2, 1])
VALUES = RNG.normal(size=(5, 4))
CASES = {
    "cross_entropy": (losses.cross_entropy, Z, T, {}),
    "smoothed": (losses.cross_entropy, Z, T, {"label_smoothing": 0.2}),
    "weighted": (losses.cross_entropy, Z, T, {"class_weights": np.array([1.0, 0.5, 3.0, 0.0])}),
    "both": (losses.cross_entropy, Z, T, {"label_smoothing": 0.1, "class_weights": np.array([1.0, 2.0, 3.0, 0.5])}),
    "sequence": (losses.cross_entropy, Z.reshape(1, 5, 4), T.reshape(1, 5), {}),
    "logit_margin": (losses.logit_margin, Z, T, {}),
    "wide_margin": (losses.logit_margin, Z, T, {"m": 2.0}),
    "mse": (losses.mse, Z, VALUES, {}),
    "mse_classes": (losses.mse, Z, T, {}),
    "bce": (losses.bce, Z, (VALUES > 0).astype(float), {}),
    "bce_classes": (losses.bce, Z, T, {}),
    "bce_one_output": (losses.bce, Z[:, :1], (T > 1).astype(int), {}),
}


@pytest.mark.parametrize("name", CASES)
def test_the_gradient_is_that_of_the_mean_loss(name):
    function, z, t, options = CASES[name]
    dz = function(z, t, **options)[1]
    want, h = np.empty_like(z), 1e-6
    for place in np.ndindex(z.shape):
        up, down = z.copy(), z.copy()
        up[place] += h
        down[place] -= h
        want[place] = (function(up, t, **options)[0] - function(down, t, **options)[0]) / (2 * h)
    assert_close(dz, want, 1e-9, 1e-6)


@pytest.mark.parametrize("name", CASES)
def test_float32_stays_float32_and_agrees_with_float64(name):
    function, z, t, options = CASES[name]
    loss, dz = function(z.astype(np.float32), t, **options)
    want, want_dz = function(z, t, **options)
    assert type(loss) is float
    assert dz.dtype == np.float32
    assert_close(loss, want, 1e-6, 1e-6)
    assert_close(dz, want_dz, 1e-7, 1e-5)


@pytest.mark.parametrize("name", CASES)
def test_the_arguments_are_left_alone(name):
    function, z, t, options = CASES[name]
    before = z.copy(), t.copy()
    function(z, t, **options)
    assert (z == before[0]).all()
    assert (t == before[1]).all()


def test_cross_entropy_by_hand():
    z = np.log(np.array([[1.0, 2.0, 5.0]]))
    loss, dz = losses.cross_entropy(z, np.array([1]))
    assert_close(loss, math.log(4), 1e-12, 0)
    assert_close(dz, [[1 / 8, 2 / 8 - 1, 5 / 8]], 1e-12, 0)


def test_weights_and_smoothing_by_hand():
    """Two classes, p = (1/4, 3/4) for both samples, weights (1, 3), smoothing 1/2: q = w (1/2 [true] + 1/4)."""
    z = np.log(np.array([[1.0, 3.0], [1.0, 3.0]]))
    l = -np.log([1 / 4, 3 / 4])
    first, second = 1 * 0.75 * l[0] + 3 * 0.25 * l[1], 1 * 0.25 * l[0] + 3 * 0.75 * l[1]
    loss, _ = losses.cross_entropy(z, np.array([0, 1]), 0.5, np.array([1.0, 3.0]))
    assert_close(loss, (first + second) / 4, 1e-12, 0)


def test_equal_weights_and_no_smoothing_change_nothing():
    plain, options = losses.cross_entropy(Z, T), {"label_smoothing": 0.0, "class_weights": np.full(4, 7.0)}
    loss, dz = losses.cross_entropy(Z, T, **options)
    assert_close(loss, plain[0], 1e-12, 0)
    assert_close(dz, plain[1], 1e-12, 0)


def test_a_batch_of_weightless_classes_has_no_loss_and_no_gradient():
    loss, dz = losses.cross_entropy(Z[:1], np.array([3]), 0.1, np.array([1.0, 1.0, 1.0, 0.0]))
    assert loss == 0
    assert (dz == 0).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_cross_entropy_is_finite_for_huge_logits(dtype, smoothing):
    z = np.array([[1e30, -1e30, 0], [-1e30, 1e30, 0], [1e30, 1e30, 1e30]], dtype)
    loss, dz = losses.cross_entropy(z, np.array([0, 0, 0]), smoothing)
    assert np.isfinite(loss)
    assert np.isfinite(dz).all()
    if not smoothing:
        assert_close(dz[1], [-1 / 3, 1 / 3, 0], 1e-6, 0)


def test_a_nan_shows_in_the_loss():
    z = Z.copy()
    z[0, 0] = np.nan
    assert math.isnan(losses.cross_entropy(z, T)[0])


def test_logit_margin_by_hand():
    """Sample 0 leads by 1: no loss. Sample 1 trails by 1. Sample 2 leads by 0.1, short of 0.3 by 0.2."""
    z = np.array([[2.0, 1.0, 0.0], [1.0, 0.0, 2.0], [0.1, 0.0, 0.0]])
    loss, dz = losses.logit_margin(z, np.array([0, 0, 0]))
    assert_close(loss, (0 + 1.3 + 0.2) / 3, 1e-12, 0)
    assert_close(dz * 3, [[0, 0, 0], [-1, 0, 1], [-1, 1, 0]], 1e-12, 0)


def test_a_single_class_has_no_rival():
    loss, dz = losses.logit_margin(np.ones((2, 1)), np.array([0, 0]))
    assert loss == 0
    assert (dz == 0).all()


def test_mse_by_hand_and_class_numbers_are_one_hot_rows():
    loss, dz = losses.mse(np.array([[1.0, 3.0]]), np.array([[0.0, 1.0]]))
    assert_close(loss, 2.5, 1e-12, 0)
    assert_close(dz, [[1.0, 2.0]], 1e-12, 0)
    assert losses.mse(np.array([[1.0, 3.0]]), np.array([1]))[0] == loss


def test_one_value_for_each_sample_may_come_without_its_axis():
    z, t = np.array([[1.0], [2.0]]), np.array([0.0, 4.0])
    assert_close(losses.mse(z, t)[0], 2.5, 1e-12, 0)
    assert losses.mse(z, t)[1].shape == (2, 1)


def test_bce_by_hand_and_for_huge_logits():
    assert_close(losses.bce(np.array([[0.0]]), np.array([1]))[0], math.log(2), 1e-12, 0)
    assert_close(losses.bce(np.array([[math.log(3)]]), np.array([1]))[0], math.log(4 / 3), 1e-12, 0)
    loss, dz = losses.bce(np.array([[1e30, -1e30]], np.float32), np.array([[0.0, 1.0]]))
    assert_close(loss, 1e30, 0, 1e-6)
    assert_close(dz, [[0.5, -0.5]], 1e-6, 0)


def test_a_loss_is_made_from_options():
    loss = losses.make_loss(Options("cross_entropy", {"label_smoothing": 0.2}))
    assert loss.name == "cross_entropy"
    assert loss.classification
    assert loss(Z, T)[0] == losses.cross_entropy(Z, T, 0.2)[0]
    assert losses.make_loss(Options("logit_margin", {"m": 2.0}))(Z, T)[0] == losses.logit_margin(Z, T, 2.0)[0]
    assert not losses.make_loss(Options("mse")).classification


def test_class_weights_must_fit_the_outputs_and_not_all_be_0():
    loss = losses.make_loss(Options("cross_entropy", {"class_weights": [1.0, 2.0, 0.0]}))
    loss.check_outputs(3, "net.json")
    losses.make_loss(Options("mse")).check_outputs(3, "net.json")
    with pytest.raises(UserError, match="net.json: class_weights has 3 numbers, but the network has 10 outputs"):
        loss.check_outputs(10, "net.json")
    with pytest.raises(UserError, match="all class_weights are 0"):
        losses.make_loss(Options("cross_entropy", {"class_weights": [0.0, 0.0]}))


def test_predictions_are_classes_where_the_loss_chooses_among_them():
    def predictions(name, z, t=None):
        return losses.make_loss(Options(name)).predictions(z, t)

    assert predictions("cross_entropy", Z).tolist() == Z.argmax(-1).tolist()
    assert predictions("bce", np.array([[0.5], [-0.5]])).tolist() == [1, 0]
    assert predictions("mse", Z) is None
    assert predictions("mse", Z, VALUES) is None
    assert predictions("mse", Z, T).tolist() == Z.argmax(-1).tolist()
    assert predictions("bce", Z, T).tolist() == Z.argmax(-1).tolist()
