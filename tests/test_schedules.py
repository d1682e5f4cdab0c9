"""Schedules: rates worked out by hand."""

import pytest
from closeness import assert_close

from litenet.trainer.errors import UserError
from litenet.trainer.fields import Options
from litenet.trainer.schedules import FIELDS, amount_to_steps, make_schedule


def rates(options, total, warmup=0, epoch_steps=1, base=1.0):
    schedule = make_schedule(options, base, total, warmup, epoch_steps)
    return [schedule.lr(step) for step in range(total)]


def test_constant_is_constant_and_the_default():
    assert rates(Options("constant"), 3, base=0.1) == [0.1, 0.1, 0.1]
    assert rates(None, 3, base=0.1) == [0.1, 0.1, 0.1]


def test_warm_up_rises_in_equal_steps_to_the_first_rate():
    assert_close(rates(Options("constant"), 6, warmup=4), [0.2, 0.4, 0.6, 0.8, 1, 1], 1e-15, 0)


def test_step_falls_every_so_many_epochs():
    got = rates(Options("step", {"every": 2.0, "factor": 0.5}), 10, epoch_steps=2)
    assert_close(got, [1, 1, 1, 1, 0.5, 0.5, 0.5, 0.5, 0.25, 0.25], 1e-15, 0)


def test_step_falls_every_share_of_the_run():
    got = rates(Options("step", {"every": 0.5}), 4)
    assert_close(got, [1, 1, 0.1, 0.1], 1e-15, 0)


def test_milestones_are_shares_of_the_run_or_epochs():
    want = [1, 1, 1, 0.1, 0.1, 0.01]
    assert_close(rates(Options("step", {"milestones": [0.5, 0.8]}), 6), want, 1e-15, 0)
    assert_close(rates(Options("step", {"milestones": [5.0, 3.0]}), 6), want, 1e-15, 0)
    assert_close(rates(Options("step", {"milestones": 0.5}), 4), [1, 1, 0.1, 0.1], 1e-15, 0)


def test_step_alone_falls_at_one_half_and_three_quarters():
    assert_close(rates(Options("step"), 8), [1, 1, 1, 1, 0.1, 0.1, 0.01, 0.01], 1e-15, 0)


def test_a_fall_within_the_warm_up_lowers_what_it_rises_to():
    got = rates(Options("step", {"milestones": [1.0]}), 4, warmup=3)
    assert_close(got, [0.025, 0.05, 0.075, 0.1], 1e-15, 0)


def test_cosine_goes_from_the_rate_to_the_floor():
    half = 2**0.5 / 4
    assert_close(rates(Options("cosine"), 4), [1, 0.5 + half, 0.5, 0.5 - half], 1e-15, 0)
    got = rates(Options("cosine", {"floor": 0.2}), 4, base=10.0)
    assert_close(got, [10, 10 * (0.6 + 0.8 * half), 6, 10 * (0.6 - 0.8 * half)], 1e-14, 0)


def test_cosine_takes_the_steps_after_the_warm_up_and_stays_at_its_floor():
    schedule = make_schedule(Options("cosine", {"floor": 0.1}), 1.0, 6, 2)
    got = [schedule.lr(step) for step in (0, 1, 2, 4, 6, 100)]
    assert_close(got, [1 / 3, 2 / 3, 1, 0.55, 0.1, 0.1], 1e-15, 0)


def test_one_cycle_rises_to_the_rate_and_ends_far_below_its_start():
    options = Options("one_cycle", {"pct": 0.5, "div": 10.0, "final_div": 100.0})
    assert_close(rates(options, 5), [0.1, 0.55, 1, 0.5005, 0.001], 1e-15, 0)
    got = rates(Options("one_cycle"), 11)
    assert_close([got[0], got[3], got[10]], [1 / 25, 1, 1 / 25e4], 1e-15, 0)
    assert max(got) == got[3]


def test_one_cycle_of_one_step_is_at_its_start():
    assert_close(rates(Options("one_cycle"), 1), [1 / 25], 1e-15, 0)


@pytest.mark.parametrize("name", FIELDS)
@pytest.mark.parametrize(("total", "warmup"), [(1, 0), (1, 1), (3, 5), (100, 10)])
def test_every_rate_is_within_the_base_rate(name, total, warmup):
    assert all(0 < rate <= 1 for rate in rates(Options(name), total, warmup))


def test_a_rate_depends_on_the_step_alone():
    schedule = make_schedule(Options("one_cycle"), 0.1, 50, 5)
    forward = [schedule.lr(step) for step in range(50)]
    assert forward == [schedule.lr(step) for step in reversed(range(50))][::-1]


def test_amounts_are_shares_below_1_and_epochs_from_1_on():
    assert [amount_to_steps(a, 200, 50) for a in (0, 0.1, 0.999, 1, 1.5, 3)] == [0, 20, 200, 50, 75, 150]


def test_every_and_milestones_together_are_refused():
    with pytest.raises(UserError, match=r"net.json, line 3 \(step\): every and milestones are both given"):
        make_schedule(Options("step", {"every": 1.0, "milestones": [0.5]}), 1.0, 10, where="net.json, line 3")
