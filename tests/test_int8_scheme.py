"""From real numbers to whole ones: worked numbers, and the bounds that every file keeps."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from litenet.trainer.int8 import scheme
from litenet.trainer.int8.scheme import ONE, Quant, asymmetric

FINITE = st.floats(-1e6, 1e6, width=32)


def test_a_range_spreads_over_256_steps_and_0_has_one():
    q = asymmetric(-1.0, 3.0)
    assert q == Quant(float(np.float32(4 / 255)), -64)
    assert asymmetric(0.0, 6.0).zero == -128 and asymmetric(2.0, 6.0).zero == -128  # 0 is always inside
    assert asymmetric(-6.0, 0.0).zero == 127
    assert asymmetric(-1.0, 0.5, symmetric=True) == Quant(1 / 128, 0)
    assert asymmetric(0.0, 0.0) == Quant(1 / 128, 0) or asymmetric(0.0, 0.0).zero == -128


@settings(max_examples=100, deadline=None)
@given(FINITE, FINITE)
def test_both_ends_of_a_range_are_within_one_step(a, b):
    lo, hi = min(a, b, 0.0), max(a, b, 0.0)
    q = asymmetric(lo, hi)
    least, most = q.range
    assert least - q.scale <= lo and hi <= most + q.scale  # rounding of the zero point moves half a step
    assert q.nearest(0.0) == q.zero


@pytest.mark.parametrize("lo,hi", [(math.nan, 1.0), (0.0, math.inf), (1.0, -1.0), (math.nan, math.nan)])
def test_no_range_no_scale(lo, hi):
    with pytest.raises(ValueError, match="in order"):
        asymmetric(lo, hi)


def test_multipliers():
    assert scheme.multiplier(0.5) == 1 << 30
    assert scheme.multiplier(0.0) == 0
    assert scheme.multiplier(1.0) == ONE == 2147483647
    assert scheme.multiplier(0.3) == 644245094  # 0.3 * 2^31 = 644245094.4
    assert scheme.multiplier(0.0007, 7) == 192414535  # 0.0007 * 2^38 = 192414534.9
    for wrong in (1.0000001, -1e-9, math.nan):
        with pytest.raises(ValueError, match="multiplier"):
            scheme.multiplier(wrong)


def test_the_finest_shift_is_the_largest_that_holds_the_multiplier():
    assert [scheme.finest(m) for m in (1.0, 0.5, 0.4999, 0.25, 0.01, 2.0**-7, 2.0**-8, 0.0)] == [0, 0, 1, 1, 6, 6, 7, 7]
    assert all(scheme.multiplier(m, scheme.finest(m)) < ONE for m in (0.5, 0.4999, 0.2500001, 0.01, 0.0078126))


def test_rescaling_takes_the_largest_shift_that_holds_every_ratio():
    assert scheme.rescaling([1.0, 0.5]) == ([1 << 21, 1 << 20], [], 21)
    assert scheme.rescaling([0.01]) == ([167772], [], 24)  # 0.01 * 2^24 = 167772.16
    assert scheme.rescaling([-3.0, 3.0]) == ([-1572864, 1572864], [], 19)
    ms, bs, shift = scheme.rescaling([0.01], [100.0])  # the offset decides
    assert (bs[0], shift) == (838860800, 23) and ms == [83886]
    with pytest.raises(ValueError, match="ratio"):
        scheme.rescaling([3e6])


def test_bounds_of_relu_and_relu6():
    y = asymmetric(-2.0, 10.0)
    assert scheme.bounds("none", y) == (-128, 127)
    assert scheme.bounds("relu", y) == (y.zero, 127)
    lo, hi = scheme.bounds("relu6", y)
    assert lo == y.zero and abs(y.scale * (hi - y.zero) - 6.0) <= y.scale / 2
    with pytest.raises(ValueError, match="of its own"):
        scheme.bounds("tanh", y)


def test_a_layer_by_hand():
    """x = 0.5 (q + 10), w = (1, -2), b = 3: the largest weight is 127 steps, B = 3 / (0.5 s) - zx sum q."""
    x, y = Quant(0.5, -10), Quant(1.0, 5)
    found = scheme.layer(np.array([[1.0, -2.0]]), np.array([3.0]), x, y)
    s = float(np.float32(2 / 127))
    assert found.scale[0] == np.float32(2 / 127)
    assert found.rows.tolist() == [[64, -127]]  # 63.5 goes to the even number
    assert found.bias[0] == round(3 / (0.5 * s)) + 10 * (64 - 127) == 381 - 630
    assert found.multiplier[0] == math.floor(0.5 * s * 2**31 + 0.5)
    assert found.rows.dtype == np.int8 and found.bias.dtype == found.multiplier.dtype == np.int32


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_what_every_layer_keeps(data):
    O, K = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 40))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    rows = rng.standard_normal((O, K)) * 10.0 ** rng.integers(-12, 4, (O, 1)) * rng.integers(0, 2, (O, 1))
    bias = rng.standard_normal(O) * 10.0 ** rng.integers(-9, 6, O)
    x = asymmetric(-data.draw(st.floats(0, 9)), data.draw(st.floats(0.01, 9)))
    y = scheme.wider(asymmetric(-1.0, 1.0), scheme.least_scale(x, scheme.weight_scales(rows)))
    found = scheme.layer(rows, bias, x, y)
    total = np.abs(found.rows.astype(np.int64)).sum(1)
    assert (np.abs(found.bias.astype(np.int64)) + 128 * total < 1 << 30).all()
    assert (found.multiplier >= 0).all()
    assert np.abs(found.rows.astype(int)).max(initial=0) <= 127
    own = x.scale * found.scale.astype(np.float64) / y.scale
    assert np.abs(found.multiplier / 2**31 - own).max() <= 2**-31


def test_a_bias_that_does_not_go_with_its_weights_makes_them_coarser():
    x, y = asymmetric(-1, 1), asymmetric(-100, 100)
    found = scheme.layer(np.array([[1e-9, 0.0], [1.0, 1.0]]), np.array([50.0, 0.5]), x, y)
    wanted = y.nearest(50.0) - y.zero
    assert (int(found.bias[0]) * int(found.multiplier[0]) + 2**30) >> 31 == wanted
    assert found.scale[0] > 1e-9 / 127 and found.rows[1].tolist() == [127, 127]


def test_a_scale_that_is_too_small_is_refused_and_wider_helps():
    x, rows = asymmetric(-1, 1), np.full((1, 3), 50.0)
    small = asymmetric(-0.1, 0.1)
    with pytest.raises(ValueError, match="output's scale is too small"):
        scheme.layer(rows, np.zeros(1), x, small)
    y = scheme.wider(small, scheme.least_scale(x, scheme.weight_scales(rows)))
    assert scheme.layer(rows, np.zeros(1), x, y).multiplier[0] > ONE - 1000
    assert scheme.wider(y, 1e-9) is y


def test_not_finite_is_refused():
    x = asymmetric(-1, 1)
    for w, b in ((math.nan, 0.0), (1.0, math.inf)):
        with pytest.raises(ValueError, match="not finite"):
            scheme.layer(np.array([[w]]), np.array([b]), x, x)


def test_a_picture_goes_in_by_whole_numbers():
    """Mean 33.3, deviation 78.6, as MNIST: a scale of one pixel step is exact but for the mean's fraction."""
    mean, std = 33.3, 78.6
    x = asymmetric(-mean / std, (255 - mean) / std)
    P, Q = scheme.picture([mean], [std], x)
    v = np.arange(256)
    q = np.clip((v * P[0] + Q[0]) >> 16, -128, 127)
    want = (v - mean) / std / x.scale + x.zero
    assert np.abs(q - np.clip(want, -128, 127)).max() <= 0.5 + 1e-2
    back_mean, back_std = scheme.normalisation(P, Q, x)
    assert abs(back_mean[0] - mean) < 1e-2 and abs(back_std[0] - std) < 1e-2
    with pytest.raises(ValueError, match="picture"):
        scheme.picture([0.0], [1e-6], x)
