"""Scratch memory that hardly pays is not taken: the arena shrinks as far as 2 % of the time allow."""

import math

import numpy as np
import pytest
from nets import net
from shim_device import ShimDevice

from litenet.trainer.device_plan import THRIFT, thrifty_limits
from litenet.trainer.device_trainer import DeviceTrainer
from litenet.trainer.kernels.choose import Choice, within

MB = 1 << 20
OPTIONS = {  # (microseconds, bytes): fastest first
    "a": [[(100.0, 48 * MB), (101.0, 16 * MB), (120.0, 0)]],
    "b": [[(50.0, 40 * MB), (51.5, 8 * MB), (60.0, 0)]],
    "c": [[(40.0, 20 * MB), (44.0, 0)]],
}
ROOM = {"a": 48 * MB, "b": 60 * MB, "c": 90 * MB}  # of an arena of 100 MB


def test_the_arena_shrinks_as_far_as_it_is_paid_for():
    """a gives 32 MB up for 1 us, b then 32 for 1.5 more; together 2.5 of 190, the last too much for 2 % with c's 4."""
    limits = thrifty_limits(OPTIONS, ROOM, 100 * MB)
    shrunk = {name: size - limits[name] for name, size in ROOM.items()}
    (low,) = set(shrunk.values())
    assert 32 * MB - 512 < low <= 32 * MB  # more, and a has to do without scratch memory
    assert within([[48 * MB, 16 * MB, 0]], limits["a"]) == (False, [1])
    assert limits == thrifty_limits(OPTIONS, ROOM, 100 * MB)


def test_what_costs_more_than_that_stays():
    slow = {"a": [[(100.0, 48 * MB), (102.5, 16 * MB)]]}
    assert thrifty_limits(slow, {"a": 48 * MB}, 100 * MB) is None
    near = {"a": [[(100.0, 48 * MB), (100 * (1 + THRIFT) - 1e-6, 16 * MB)]]}
    assert thrifty_limits(near, {"a": 48 * MB}, 100 * MB) is not None


def test_without_times_nothing_changes():
    unknown = {"a": [[(math.nan, 48 * MB), (math.nan, 16 * MB)]]}
    assert thrifty_limits(unknown, {"a": 48 * MB}, 100 * MB) is None
    assert thrifty_limits({}, {}, 100 * MB) is not None  # no product at all: nothing to lose


def test_parts_that_share_what_they_cannot_have_apart():
    assert within([[10, 4], [20, 0]], None) == (True, [0, 0])
    assert within([[10, 4], [20, 0]], 276) == (True, [0, 0])  # each starts at a multiple of 256
    assert within([[10, 4], [20, 0]], 275) == (False, [0, 0])
    assert within([[10, 4], [20, 0]], 9) == (False, [1, 1])
    assert within([[10, 4], [20, 0]], 3) == (False, [None, 1])


class Timed(ShimDevice):
    def measure(self, launches):
        raise AssertionError("the times are given")


@pytest.mark.parametrize(("price", "smaller"), [(0.03, True), (1.0, False)])
def test_a_trainer_takes_the_smaller_arena_for_next_to_no_time(price, smaller, monkeypatch):
    """price: what a variant without scratch memory takes longer, of its time."""
    conv = {"type": "conv2d", "out_channels": 32, "kernel_size": 3, "padding": 1, "activation": "relu"}
    layers = [conv, {"type": "global_avg_pool"}, {"type": "linear", "out_features": 3}]
    blueprint = net(layers, (16, 12, 12))

    def times(self, op, s, variants):
        return [1e-5 * (1 + price * (v.scratch == 0)) for v in variants]

    monkeypatch.setattr(Choice, "_times", times)

    def trainer(table=None):
        device = Timed()
        return DeviceTrainer(device, blueprint, 16, choice=Choice(device, given=table))

    thrifty = trainer()
    assert trainer(thrifty.choice.used).backend.bytes == thrifty.backend.bytes  # as a resumed run finds it
    assert thrifty.infer(np.zeros((2, 12, 12, 16), np.float32)).shape == (2, 3)
    places = {key: [place for place, _ in order] for key, order in thrifty.choice.used.items()}
    fastest = trainer(places)  # an older run's, whose bits must not change
    assert (thrifty.backend.bytes < fastest.backend.bytes) == smaller
    monkeypatch.setattr(DeviceTrainer, "_thrifty", lambda self, plans, need: plans)
    assert trainer().backend.bytes == fastest.backend.bytes
