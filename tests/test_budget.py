"""Steps that fit a budget: what is computed again, when weights are updated, how a batch is split, at what price."""

import numpy as np
import pytest
from nets import EVERYTHING, SMALL, graph_of, net, random_layers

from litenet.trainer.budget import Maker, Scheme, candidates_of, fit, live_bytes
from litenet.trainer.data.dataset import Dataset
from litenet.trainer.errors import UserError
from litenet.trainer.fuse import for_training
from litenet.trainer.loop import Events, Progress
from litenet.trainer.loop import fit as train
from litenet.trainer.plan import draft_training, plan_training
from litenet.trainer.settings import settings_for
from litenet.trainer.trainer import Trainer

DEEP = [
    layer
    for _ in range(6)
    for layer in ({"type": "conv2d", "out_channels": 8, "kernel_size": 3, "padding": 1, "activation": "relu"},)
] + [{"type": "flatten"}, {"type": "linear", "out_features": 3}]
NORMED = [
    layer
    for _ in range(4)
    for layer in (
        {"type": "conv2d", "out_channels": 24, "kernel_size": 5, "padding": 2, "bias": False},
        {"type": "batchnorm", "activation": "relu"},
    )
] + [{"type": "global_avg_pool"}, {"type": "linear", "out_features": 3}]


def maker_of(layers, one_by_one=True, shape=(2, 8, 8), states=("velocity",)):
    graph = for_training(graph_of(layers, shape), "cross_entropy")

    def draft(batch, update, recompute):
        return draft_training(graph, batch, states, update, ((), "i32"), None, "f32", recompute)

    return Maker(graph, draft, lambda *a: draft(*a).finish(True, a[1]), one_by_one)


def test_a_budget_that_holds_everything_changes_nothing():
    maker = maker_of(DEEP)
    need = maker.plan(16, "end", ()).arena_bytes
    scheme = fit(maker, 16, 1, need, "net.json")
    assert scheme == Scheme(16, 1, "end")
    assert scheme.text(16) == ""


@pytest.mark.parametrize("layers", [DEEP, NORMED, EVERYTHING, SMALL], ids=["deep", "normed", "everything", "small"])
@pytest.mark.parametrize("share", [0.95, 0.8, 0.65, 0.5])
def test_what_is_found_fits(layers, share):
    maker = maker_of(layers)
    budget = int(share * maker.plan(16, "end", ()).arena_bytes)
    scheme = fit(maker, 16, 1, budget, "net.json")
    assert maker.plan(scheme.batch, scheme.update, scheme.recompute).arena_bytes <= budget
    assert scheme.batch * scheme.accumulation == 16
    assert scheme.seconds > 0 or scheme.batch < 16
    assert scheme.text(16)


def test_what_costs_little_for_a_byte_is_computed_again_first():
    maker = maker_of(NORMED)
    names = candidates_of(maker.graph)
    norms, convolutions = ("layer_1", "layer_3", "layer_5", "layer_7"), ("layer_2", "layer_4", "layer_6")
    assert max(map(names.index, norms)) < min(map(names.index, convolutions))
    budget = int(0.9 * maker.plan(16, "end", ()).arena_bytes)
    scheme = fit(maker_of(NORMED, one_by_one=False), 16, 1, budget, "net.json")
    assert scheme.recompute
    assert not scheme.recompute & set(convolutions)
    assert scheme.share == pytest.approx(0.0, abs=0.02)


def test_weights_are_updated_at_once_only_where_that_is_allowed():
    layers = [{"type": "linear", "out_features": n} for n in (400, 400, 3)]
    maker = maker_of(layers, shape=(400,))
    budget = int(0.85 * maker.plan(8, "end", ()).arena_bytes)
    assert fit(maker, 8, 1, budget, "net.json").update == "immediate"
    with pytest.raises(UserError, match="the weights and what belongs to them need"):
        fit(maker_of(layers, one_by_one=False, shape=(400,)), 8, 1, budget, "net.json")


def test_a_budget_for_less_than_one_sample_is_refused_with_layer_and_bytes():
    maker = maker_of(DEEP)
    with pytest.raises(UserError, match=r"net\.json: .*(layer_\d|MB|kB)") as caught:
        fit(maker, 16, 1, maker.plan(16, "end", ()).persistent_bytes + 100, "net.json")
    assert "--memory" in str(caught.value)


def test_live_bytes_are_those_of_the_finished_plan():
    maker = maker_of(EVERYTHING)
    persistent, live = live_bytes(maker.draft(4, "end", ()))
    plan = maker.plan(4, "end", ())
    assert persistent == plan.persistent_bytes
    assert persistent + live.max() == plan.lower_bound
    for at in range(len(plan.launches)):
        assert live[at] == sum(-(-b.bytes // 256) * 256 for b in plan.live(at))


@pytest.mark.parametrize("seed", range(10))
def test_tensors_computed_again_change_no_bit(seed):
    """Random nets, random sets of tensors, with dead regions filled with NaN."""
    rng = np.random.default_rng(seed)
    layers = EVERYTHING if seed == 0 else NORMED if seed == 1 else random_layers(rng, 5)
    blueprint = net(layers, (2, 8, 8), optimizer="momentum", learning_rate=0.05)
    names = candidates_of(Trainer(blueprint, 4).graph)
    chosen = names if seed < 3 else [n for n in names if rng.random() < 0.5]
    data = Dataset(rng.integers(0, 256, (16, 8, 8, 2), np.uint8), rng.integers(0, 3, 16))
    settings = settings_for(blueprint, {"epochs": 2, "batch_size": 4})
    ends = []
    for recompute in ((), chosen):
        trainer = Trainer(blueprint, 4, 1, (120.0,) * 2, (70.0,) * 2, poison=True, recompute=recompute)
        if recompute:
            assert any(launch.kind == "again" for launch in trainer.plan.launches) or not chosen
        train(trainer, data, None, settings, Progress(), Events())
        ends.append(trainer.state_arrays())
    for name, array in ends[0].items():
        assert array.tobytes() == ends[1][name].tobytes(), name


def test_recomputed_tensors_die_between_forward_and_backward():
    graph = for_training(graph_of(NORMED, (2, 8, 8)), "cross_entropy")
    kept, again = plan_training(graph, 16), plan_training(graph, 16, recompute=["layer_1", "layer_3", "layer_5"])
    assert again.arena_bytes < kept.arena_bytes
    launches = [launch.name for launch in again.launches]
    assert launches.index("layer_5.again") < launches.index("layer_6.backward")
    first = next(b for b in again.buffers if b.name == "layer_1")
    assert again.launches[first.last].name == "layer_2.forward"
