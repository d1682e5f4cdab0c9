"""Launches side by side: nothing runs beside what it depends on, and any order that is allowed gives the same bits."""

import numpy as np
import pytest
from nets import EVERYTHING, RESIDUAL, SMALL, net
from shim_device import ShimDevice

from litenet.trainer.backends.lanes import LANES, Bound, Span, conflict, in_lane, needs, schedule
from litenet.trainer.budget import Scheme, candidates_of
from litenet.trainer.data.dataset import Dataset
from litenet.trainer.device_trainer import DeviceTrainer
from litenet.trainer.kernels.call import Call, Int, Kernel, Ref
from litenet.trainer.kernels.tiles import COUNTERS
from litenet.trainer.loop import Events, Progress, fit
from litenet.trainer.settings import settings_for

CALL = Call(Kernel("sum.cu", "sum_f32"), (1, 1, 1), (32, 1, 1), (Ref("a"), Ref("counters"), Int(3)))
NETS = {"small": SMALL, "residual": RESIDUAL, "everything": EVERYTHING}


def touching(*spans):
    return Bound(CALL, (None, None), tuple(Span(*s) for s in spans))


def test_two_launches_conflict_where_one_writes_what_the_other_touches():
    reads, writes, beside = touching((0, 8, False)), touching((4, 6, True)), touching((8, 12, True))
    assert conflict(reads, writes) and conflict(writes, reads) and conflict(writes, writes)
    assert not conflict(reads, reads) and not conflict(reads, beside) and not conflict(writes, beside)
    assert conflict(Bound(CALL, (None, None)), reads)


def test_what_is_waited_for_already_is_not_waited_for_again():
    chain = [touching((0, 4, True)), touching((0, 4, False), (4, 8, True)), touching((0, 4, False), (4, 8, False))]
    assert needs(chain) == [set(), {0}, {1}]
    fork = [touching((0, 4, True)), touching((0, 4, False), (4, 8, True)), touching((0, 4, False), (8, 12, True)),
            touching((4, 12, False))]  # fmt: skip
    assert needs(fork) == [set(), {0}, {0}, {1, 2}]
    lanes = [task.lane for task in schedule(fork)]
    assert lanes[1] != lanes[2]
    follows = [task.follows for task in schedule(fork)]
    assert follows[0] is False and sorted(follows[1:3]) == [False, True]  # one goes on in the lane, one begins another
    assert follows[3] is False  # it waits for two
    assert [task.follows for task in schedule(chain)] == [False, True, True]
    assert set(lanes) <= set(range(LANES))


def test_each_lane_has_counters_of_its_own():
    assert in_lane(CALL, (100, 200), 0) == (100, 200)
    assert in_lane(CALL, (100, 200), 2) == (100, 200 + 8 * COUNTERS)
    assert in_lane(CALL, (None, None), 1) == (None, None)


class Shuffled(ShimDevice):
    """Replays in another allowed order each time, and stops where two that are not ordered touch the same bytes."""

    def __init__(self, seed):
        super().__init__()
        self.rng = np.random.default_rng(seed)
        self.beside = set()  # names of two kernels that may run at once

    def capture(self, launches):
        launches = list(launches)
        tasks, before = schedule(launches), []
        latest = {}
        for i, task in enumerate(tasks):
            direct = {*task.waits} | ({latest[task.lane]} if task.lane in latest else set())
            before.append(direct.union(*(before[j] for j in direct)) if direct else set())
            latest[task.lane] = i
        for i in range(len(launches)):
            for j in range(i):
                if j not in before[i]:
                    self.beside.add((launches[j][0].kernel.name, launches[i][0].kernel.name))
                    assert not conflict(launches[i], launches[j])

        def replay():
            left, done = list(range(len(launches))), set()
            while left:
                ready = [i for i in left if before[i] <= done]
                i = ready[int(self.rng.integers(len(ready)))]
                call, addresses = launches[i]
                self.launch(call, in_lane(call, addresses, tasks[i].lane))
                left.remove(i)
                done.add(i)

        return replay


def trained(device, layers, how="kept", epochs=2, samples=12):
    """All that is left of a run: weights, state, history."""
    rng = np.random.default_rng(0)
    data = Dataset(rng.integers(0, 256, (samples, 8, 8, 2), np.uint8), rng.integers(0, 3, samples))
    blueprint = net(layers, (2, 8, 8), optimizer="momentum", learning_rate=0.01)
    settings = settings_for(blueprint, {"epochs": epochs, "batch_size": 4})
    first = DeviceTrainer(ShimDevice(), blueprint, 4)
    names = frozenset(candidates_of(first.graph) if how == "computed again" else ())
    scheme = Scheme(4, 1, "immediate" if how == "updated at once" else "end", names)
    trainer = DeviceTrainer(device, blueprint, 4, 3, (120.0,) * 2, (70.0,) * 2, scheme=scheme)
    fit(trainer, data, data, settings, Progress(), Events())
    return trainer.state_arrays()


def equal_bits(ends):
    for name, array in ends[0].items():
        assert all(array.tobytes() == other[name].tobytes() for other in ends[1:]), name


@pytest.mark.parametrize("how", ["kept", "updated at once", "computed again"])
@pytest.mark.parametrize("layers", NETS.values(), ids=NETS)
def test_every_allowed_order_gives_the_same_bits(layers, how):
    devices = (ShimDevice(), Shuffled(1), Shuffled(2))
    equal_bits([trained(device, layers, how) for device in devices])
    assert devices[-1].beside or layers is SMALL


def test_steps_of_a_convolution_that_touch_different_scratch_memory_run_side_by_side():
    """With 64 channels Winograd's F(4x4, 3x3) is expected to be fastest: filters and input are transformed at once."""
    wide = {"type": "conv2d", "out_channels": 64, "kernel_size": 3, "padding": 1, "activation": "relu"}
    layers = [wide, wide, {"type": "flatten"}, {"type": "linear", "out_features": 3}]
    devices = (ShimDevice(), Shuffled(1), Shuffled(2))
    equal_bits([trained(device, layers, epochs=1, samples=4) for device in devices])
    pairs = {frozenset(pair) for pair in devices[-1].beside}
    assert frozenset(("winograd4_filter_f32", "winograd4_input_f32")) in pairs
    assert frozenset(("winograd4_input_f32", "winograd4_gradient_f32")) in pairs
