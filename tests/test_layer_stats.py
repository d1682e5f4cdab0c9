"""What each layer is like, measured at the end of an epoch: the formulas, and the kernels beside them."""

import json

import numpy as np
import pytest
from closeness import assert_close
from nets import EVERYTHING, SMALL, evaluate64, net
from shim_device import ShimDevice
from test_aids import BOTH, NORMED, on, run
from test_device_trainer import MLP, pictures

from litenet.trainer import layer_stats
from litenet.trainer.budget import Scheme
from litenet.trainer.device_trainer import DeviceTrainer
from litenet.trainer.display import Display
from litenet.trainer.kernels import calls_step
from litenet.trainer.loop import Progress, alarm_text
from litenet.trainer.settings import settings_for

KEYS = ["name", "dead", "mean", "std", "gradient", "update_ratio"]


def last(device, layers, shape=(2, 8, 8), **more):
    """(trainer, "layers" of the last epoch) of a run with statistics."""
    trainer, settings = on(device, layers, shape=shape, layer_statistics=True, **more)
    _, progress = run(trainer, settings)
    assert all(list(layer) == KEYS for row in progress.history for layer in row["layers"])
    return trainer, {layer.pop("name"): layer for layer in progress.history[-1]["layers"]}


@BOTH
def test_outputs_are_described_as_they_are(device):
    trainer, found = last(device, NORMED)
    assert list(found) == ["first", "norm", "pool", "second", "norm2", "gap", "head"]
    data = pictures()
    probe = layer_stats.probe(len(data.x), 4)
    assert [len(index) for index in probe] == [4] * 3
    assert (np.concatenate(probe)[[0, -1]] == [0, 13]).all()
    x = data.x[np.concatenate(probe)]
    plain, _ = on("numpy", NORMED)
    plain.load_arrays(trainer.state_arrays(), "memory", optimizer=False)
    weights = {name[8:]: array for name, array in plain.state_arrays().items()}
    graph = plain.eval_plan.graph
    values = evaluate64(graph, weights, (x - np.float32(120)) / np.float32(70))
    for layer, t in graph.layers.items():
        y = values[t]
        assert_close([found[layer]["mean"], found[layer]["std"]], [y.mean(), y.std()], 1e-5, 1e-4)
        dead = 1 - (y.reshape(-1, y.shape[-1]) > 0).any(0).mean()
        assert found[layer]["dead"] == (pytest.approx(dead) if layer in ("norm", "norm2") else None)
    assert found["pool"]["gradient"] is None


@BOTH
def test_units_that_are_never_above_zero_are_dead(device):
    trainer, settings = on(device, NORMED, layer_statistics=True, learning_rate=1e-6, epochs=1)
    trainer.write(trainer.plan, "norm2.beta", np.float32([-99, 0, -99, 0, -99, 0]))
    _, progress = run(trainer, settings)
    assert {r["name"]: r["dead"] for r in progress.history[0]["layers"]}["norm2"] == 0.5


@BOTH
@pytest.mark.parametrize("more", [{}, {"accumulation": 2}, {"clip_norm": 0.01}, {"clip_value": 1e-3}])
def test_gradient_and_step_are_those_of_the_last_update(device, more):
    trainer, settings = on(device, SMALL, layer_statistics=True, epochs=1, **more)
    before, kept = {}, trainer.keep_weights
    gradients = []

    def keep():
        kept()
        before.update(trainer.state_arrays())

    def run_batch(data, index, first, group, given):
        plain, _ = on("numpy", SMALL, clip_norm=1e9)
        plain.load_arrays(trainer.state_arrays(), "memory", optimizer=False)
        activations = plain.forward(data.x[index])
        gradients.append(plain.backward(plain.criterion(activations["output"], data.y[index])))
        step(data, index, first, group, given)

    trainer.keep_weights, step, trainer.run_batch = keep, trainer.run_batch, run_batch
    _, progress = run(trainer, settings)
    layers = {row["name"]: row for row in progress.history[0]["layers"]}
    after, group = trainer.state_arrays(), settings.accumulation
    mean = sum(np.asarray(g, np.float64) for g in gradients[-(1 + (len(gradients) - 1) % group) :])
    mean = type(gradients[0])(mean / (1 + (len(gradients) - 1) % group), gradients[0].places)
    for layer in ("layer_0", "layer_3"):
        names = [f"{layer}.weight", f"{layer}.bias"]
        norm = np.sqrt(sum((mean[n] ** 2).sum() for n in names))
        assert layers[layer]["gradient"] == pytest.approx(norm, rel=1e-4)
        moved = np.sqrt(sum(((after[f"weights/{n}"] - before[f"weights/{n}"]) ** 2).sum() for n in names))
        size = np.sqrt(sum((before[f"weights/{n}"] ** 2).sum() for n in names))
        assert layers[layer]["update_ratio"] == pytest.approx(moved / size, rel=1e-3)


@pytest.mark.parametrize(
    ("layers", "more"),
    [(EVERYTHING, {"optimizer": "nesterov", "ema": 0.9}), (SMALL, {"optimizer": "adam", "clip_norm": 0.5}), (MLP, {})],
)
def test_cpu_and_card_say_the_same(layers, more):
    shape = (128,) if layers is MLP else (2, 8, 8)
    found = [last(device, layers, shape, learning_rate=0.01, **more)[1] for device in ("numpy", "cuda")]
    assert found[0].keys() == found[1].keys()
    for name, want in found[0].items():
        for key, value in want.items():
            near = None if value is None else pytest.approx(value, rel=2e-3, abs=2e-6)
            assert found[1][name][key] == near, (name, key)


@BOTH
def test_measuring_changes_no_bit_of_the_run(device):
    states = []
    for statistics in (False, True):
        trainer, settings = on(device, NORMED, layer_statistics=statistics, optimizer="adam")
        run(trainer, settings)
        states.append(trainer.state_arrays())
    for name, array in states[0].items():
        assert array.tobytes() == states[1][name].tobytes(), name


def test_on_a_card_everything_is_measured_in_one_replay_without_an_allocation():
    trainer, settings = on("cuda", NORMED, layer_statistics=True, epochs=1)
    run(trainer, settings)
    held, graphs = len(trainer.device.held), len(trainer._graphs)
    trainer.keep_weights()
    trainer.layer_statistics(pictures())
    assert (len(trainer.device.held), len(trainer._graphs)) == (held, graphs)
    plain, _ = on("cuda", NORMED)
    assert not {"before", "layer_sums"} & plain.plan.values.keys()


# ---- the alarm


def test_a_norm_above_ten_is_told_with_what_to_do():
    trainer, settings = on("numpy", SMALL, epochs=1, learning_rate=1e-6, layer_statistics=True)
    trainer.write(trainer.plan, "layer_3.weight", np.full((3, 64), 5, np.float32) * np.float32([[1], [-9], [4]]))
    _, progress = run(trainer, settings)
    row = progress.history[0]
    assert row["alarms"] == 3
    text = alarm_text(row)
    assert text.startswith("gradients above 10 in 3 updates of epoch 1 (")
    assert "largest in layer_" in text
    assert text.endswith("train with --clip-norm 1, a lower --lr, or --warmup 1")


def test_a_quiet_epoch_raises_no_alarm(capsys):
    trainer, settings = on("numpy", SMALL, epochs=1, learning_rate=1e-6)
    trainer.write(trainer.plan, "layer_3.weight", np.full((3, 64), 1e-3, np.float32))
    _, progress = run(trainer, settings)
    row = progress.history[0]
    assert (row["alarms"], alarm_text(row)) == (0, "")
    display = Display(1, 1)
    display.epoch(Progress(), row)
    display.epoch(Progress(), row | {"alarms": 2, "grad_norm_max": 23.4})
    display.epoch(Progress(), row | {"alarms": 3, "grad_norm_max": 25.0})
    err = capsys.readouterr().err
    assert err.count("gradients above 10 in 2 updates of epoch 1 (23.4 at most)") == 1
    assert "in 3 updates" not in err


def test_the_figures_can_be_written_as_json():
    _, progress = run(*on("numpy", NORMED, layer_statistics=True, epochs=1))
    assert json.loads(json.dumps(progress.history)) == progress.history


def test_half_precision_is_measured_in_the_units_of_single():
    found = []
    for storage in ("f32", "f16"):
        blueprint = net(SMALL, (2, 8, 8), layer_statistics=True, ema=0.9, learning_rate=0.01, epochs=1, batch_size=4)
        settings = settings_for(blueprint, {})
        trainer = DeviceTrainer(
            ShimDevice(), blueprint, 4, 3, (120.0,) * 2, (70.0,) * 2, storage=storage, aids=settings.aids,
            scheme=Scheme(4, 1, "end"),
        )  # fmt: skip
        if storage == "f16":  # a scale from the start at which nothing overflows
            scaling = calls_step.scaling()
            scaling["scale"] = 64.0
            trainer.write(trainer.plan, "scaling", scaling.view(np.int32))
        _, progress = run(trainer, settings)
        found.append(progress.history[0]["layers"])
    for single, half in zip(*found, strict=True):
        for key in ("mean", "std", "gradient", "update_ratio"):
            assert half[key] == (None if single[key] is None else pytest.approx(single[key], rel=0.05, abs=2e-3)), key
