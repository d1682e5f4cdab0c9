"""The factors of imported layers: sums round where those of a runtime do that multiplies them by a float32."""

import numpy as np
import pytest

from litenet.exporter.int8 import factors
from litenet.trainer.int8 import ops, scheme

OUTPUTS = (0, 255)  # behind a relu


def theirs(acc, factor):
    return np.rint(acc.astype(np.float32) * np.float32(factor)).astype(np.int64)


def unequal(factor, found, acc):
    return int((theirs(acc, factor) != ops.requant(acc.astype(np.int32), *found)).sum())


def chosen(factor, outputs=OUTPUTS, rows=None, bias=0):
    """(M, S) of one channel, by default of one whose sums reach all outputs."""
    rows = np.full((1, 20000), 127) if rows is None else rows
    M, S = factors.multipliers(np.array([factor], np.float32), rows, np.array([bias]), 0, outputs)
    return int(M[0]), S


@pytest.mark.parametrize("factor", [0.9, 1 / 3, 0.0117399152368307, 2.0**-9, 3e-5])
def test_the_staircase_is_where_the_products_round(factor):
    factor = np.float32(factor)
    steps = np.arange(-40, 41)
    t = factors.staircase(np.array([factor]), steps)[0]
    assert (theirs(t, factor) >= steps).all() and (theirs(t - 1, factor) < steps).all()


def test_a_step_that_no_sum_reaches_is_at_the_end():
    assert factors.staircase(np.array([1e-9], np.float32), np.array([2]))[0] == factors.REACH


def test_few_likely_sums_round_otherwise_and_fewer_than_with_the_nearest_factor():
    """Channels whose outputs spread by 24 steps."""
    short = near = best = 0
    for factor in np.random.default_rng(4).uniform(2.0**-11, 2.0**-8, 1500).astype(np.float32):
        rows = np.full((1, max(1, round((24 / factor / 127 / factors.SPREAD) ** 2))), 127)
        acc = np.arange(int(32 / factor))
        S = scheme.finest(float(factor))
        short += unequal(factor, (scheme.multiplier(float(factor)), 0), acc)
        near += unequal(factor, (scheme.multiplier(float(factor), S), S), acc)
        best += unequal(factor, chosen(factor, rows=rows), acc)
    assert best < near * 0.9 and near < short / 3, (short, near, best)


def test_halves_go_up_where_no_factor_can_have_them_go_to_even():
    acc = np.arange(510)
    assert ops.requant(acc[:4].astype(np.int32), *chosen(0.5)).tolist() in ([0, 0, 1, 1], [0, 1, 1, 2])
    assert unequal(0.5, chosen(0.5), acc) in (127, 128)


def test_steps_out_of_reach_do_not_matter():
    """25211276 / 2^31, of a real net: step 20 and step 59 cannot both be where float32 has them."""
    factor, low, high = np.float32(0.011739915236830711), np.arange(4000), np.arange(4000, 6000)
    few = chosen(factor, rows=np.array([[15]]), bias=1500)
    assert unequal(factor, few, low) == 0 < unequal(factor, few, high)
    many = chosen(factor, rows=np.array([[15]]), bias=5000)
    assert unequal(factor, many, high) == 0 < unequal(factor, many, low)


def test_the_ends_of_factors():
    assert chosen(0.0) == (0, 0) and chosen(1.0) == (scheme.ONE, 0)
    one = factors.factors(1 / 3, np.array([0.3]), 0.1)
    assert one.dtype == np.float32 and one[0] <= 1
    with pytest.raises(ValueError, match="a multiplier of 2"):
        chosen(2.0)
    with pytest.raises(ValueError, match="a multiplier of inf"):
        chosen(factors.factors(1e30, np.array([1e30]), 1e-30)[0])
