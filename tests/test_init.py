"""Initial weights: the variances of the papers, and the same numbers wherever they are drawn."""

import numpy as np
import pytest
from closeness import assert_close

from litenet.trainer import init
from litenet.trainer.ops import activations

FANS = (300, 100)


@pytest.mark.parametrize(
    ("kind", "variance"),
    [
        ("kaiming_uniform", 2 / 300),
        ("kaiming_normal", 2 / 300),
        ("kaiming", 2 / 300),
        ("xavier_uniform", 2 / 400),
        ("xavier_normal", 2 / 400),
        ("xavier", 2 / 400),
    ],
)
def test_the_variance_is_that_of_the_paper(kind, variance):
    w = init.fill((100, 300), kind, FANS, seed=1, index=2)
    assert w.dtype == np.float32
    assert w.shape == (100, 300)
    assert_close(w.astype(np.float64).mean(), 0.0, 0.002, 0)
    assert_close(w.astype(np.float64).var(), variance, 0, 0.03)


@pytest.mark.parametrize(
    ("kind", "bound"), [("kaiming_uniform", (6 / 300) ** 0.5), ("xavier_uniform", (6 / 400) ** 0.5)]
)
def test_uniform_weights_stay_inside_their_bound_and_come_near_it(kind, bound):
    w = init.fill((100, 300), kind, FANS, seed=1, index=2)
    assert np.abs(w).max() <= bound * (1 + 1e-6)
    assert np.abs(w).max() >= bound * 0.999


def test_zeros_and_ones_need_no_fans():
    assert (init.fill((2, 3), "zeros", None, 0, 0) == 0).all()
    assert (init.fill((2, 3), "ones", None, 0, 0) == 1).all()
    assert init.fill((2, 3), "ones", None, 0, 0).dtype == np.float32


def test_seed_and_index_decide_the_weights():
    def draw(seed, index):
        return init.fill((5,), "kaiming", FANS, seed, index).tolist()

    assert draw(1, 2) == draw(1, 2)
    assert draw(1, 2) != draw(1, 3)
    assert draw(1, 2) != draw(2, 2)


def test_the_first_weights_stay_what_they_are():
    """A change of these numbers changes every trained network."""
    got = init.fill((4,), "xavier_uniform", (1, 2), seed=0, index=0)
    uniform = [(word >> 8) / 2**24 for word in (0x4D7B25FC, 0xD75EE2F1, 0x26BC1F97, 0xC64D811C)]
    assert_close(got, [(2 * u - 1) * 2**0.5 for u in uniform], 1e-6, 0)


@pytest.mark.parametrize(
    ("kind", "activation", "want"),
    [
        ("auto", "relu", "kaiming_normal"),
        ("auto", "gelu", "kaiming_normal"),
        ("auto", "none", "xavier_uniform"),
        ("auto", "tanh", "xavier_uniform"),
        ("kaiming", "none", "kaiming_normal"),
        ("xavier", "relu", "xavier_uniform"),
        ("xavier_normal", "relu", "xavier_normal"),
    ],
)
def test_kinds_resolve_to_a_formula(kind, activation, want):
    assert init.resolve(kind, activation) == want


def test_every_kind_of_the_blueprint_resolves_and_every_relu_like_activation_exists():
    assert all(init.resolve(kind) in init.CONCRETE for kind in init.KINDS)
    assert set(activations.IDS) >= init.RELU_LIKE


@pytest.mark.parametrize(("kind", "fans"), [("auto", FANS), ("kaiming", None), ("he", FANS)])
def test_what_is_no_formula_is_refused(kind, fans):
    with pytest.raises(ValueError, match="no initialisation"):
        init.fill((2,), kind, fans, 0, 0)
