"""Training aids inside the step: an average of the weights, layers that stand still, learning rates of their own.

Each on the NumPy backend by its formula, and on the CUDA kernels, run on the CPU, beside it.
"""

import numpy as np
import pytest
from closeness import assert_close
from fake_cupy import FakeCuda
from nets import EVERYTHING, SMALL, net
from runs import train
from shim_device import ShimDevice
from test_device_trainer import MLP, pictures
from test_loop import pictures as pictures_file

from litenet.trainer import checkpoint
from litenet.trainer.aids import Aids, decay_at
from litenet.trainer.base import BaseTrainer
from litenet.trainer.budget import live_bytes
from litenet.trainer.debug_nan import Watch
from litenet.trainer.device_trainer import DeviceTrainer
from litenet.trainer.errors import UserError
from litenet.trainer.graph import RESERVED
from litenet.trainer.loop import Events, Progress, fit
from litenet.trainer.planning import cpu_maker
from litenet.trainer.profile import profile_step
from litenet.trainer.settings import settings_for
from litenet.trainer.trainer import Trainer

NORMED = [
    {"type": "conv2d", "out_channels": 4, "kernel_size": 3, "padding": 1, "name": "first", "bias": False},
    {"type": "batchnorm", "activation": "relu", "name": "norm"},
    {"type": "maxpool2d", "kernel_size": 2, "name": "pool"},
    {"type": "conv2d", "out_channels": 6, "kernel_size": 3, "padding": 1, "name": "second"},
    {"type": "batchnorm", "activation": "relu", "name": "norm2"},
    {"type": "global_avg_pool", "name": "gap"},
    {"type": "linear", "out_features": 3, "name": "head"},
]


def on(device, layers, given=None, shape=(2, 8, 8), **more):
    """(trainer, settings) on "numpy", or the kernels of "cuda" through the shim."""
    blueprint = net(layers, shape, **{"learning_rate": 0.05, "epochs": 2, "batch_size": 4} | more)
    settings = settings_for(blueprint, given or {})
    mean, std = (120.0,) * 2, (70.0,) * 2
    if device == "numpy":
        return Trainer(blueprint, 4, 3, mean, std, settings.update, aids=settings.aids), settings
    from litenet.trainer.budget import Scheme

    scheme = Scheme(4, settings.accumulation, settings.update)
    return DeviceTrainer(ShimDevice(), blueprint, 4, 3, mean, std, scheme=scheme, aids=settings.aids), settings


def run(trainer, settings, data=None, **events):
    progress = Progress()
    data = data or pictures()
    result = fit(trainer, data, data, settings, progress, Events(**events))
    return result, progress


BOTH = pytest.mark.parametrize("device", ["numpy", "cuda"])
WAYS = pytest.mark.parametrize("more", [{}, {"accumulation": 2}, {"clip_norm": 0.5}], ids=["alone", "two", "clip"])


# ---- the average of the weights


@WAYS
@BOTH
def test_the_average_follows_the_weights_and_the_statistics_by_its_formula(device, more):
    trainer, settings = on(device, NORMED, ema=0.5, **more)
    names = [*trainer.graph.params]
    want = {name: trainer.read(trainer.plan, name).astype(np.float64) for name in names}
    assert names == sorted(names, key=names.index)
    assert any("running" in name for name in names)

    def after(progress, metrics):
        if metrics["updated"]:
            d = decay_at(0.5, progress.updates)
            for name in names:
                want[name] = d * want[name] + (1 - d) * trainer.read(trainer.plan, name)

    if device == "cuda":  # figures come late there: look after every step
        step = trainer.run_batch

        def run_batch(*args):
            step(*args)
            metrics = trainer.collect(True)[-1]
            trainer._finished.append(metrics)
            run_batch.updates += metrics["updated"]
            after(type("P", (), {"updates": run_batch.updates}), metrics)

        run_batch.updates = 0
        trainer.run_batch = run_batch
        run(trainer, settings)
    else:
        run(trainer, settings, step=after)
    arrays = trainer.state_arrays()
    for name in names:
        assert_close(arrays[f"average/{name}"], want[name], 1e-6, 1e-5)
        assert not np.array_equal(arrays[f"average/{name}"], arrays[f"weights/{name}"])


@BOTH
def test_what_is_evaluated_is_the_average(device):
    trainer, settings = on(device, NORMED, ema=0.9)
    run(trainer, settings)
    arrays, x = trainer.state_arrays(), pictures().x[:4]
    plain, _ = on(device, NORMED)
    averages = {k.replace("average/", "weights/"): v for k, v in arrays.items() if k.startswith("average/")}
    plain.load_arrays(averages, "memory", optimizer=False)
    assert trainer.infer(x).tobytes() == plain.infer(x).tobytes()
    plain.load_arrays(arrays, "memory", optimizer=False)
    assert np.abs(trainer.infer(x) - plain.infer(x)).max() > 1e-4


@BOTH
def test_training_goes_the_same_way_with_an_average_beside_it(device):
    results = []
    for ema in (None, 0.99):
        trainer, settings = on(device, NORMED, ema=ema, optimizer="momentum")
        run(trainer, settings)
        results.append({k: v for k, v in trainer.state_arrays().items() if not k.startswith("average/")})
    for name, array in results[0].items():
        assert array.tobytes() == results[1][name].tobytes(), name


@BOTH
def test_a_run_taken_up_again_has_the_bits_of_one_that_was_never_stopped(device):
    def fresh():
        return on(device, NORMED, ema=0.7, rates={"first": 0.5}, optimizer="adam", learning_rate=0.01)

    whole, settings = fresh()
    run(whole, settings, pictures(12))
    stopped, _ = fresh()
    half, data = Progress(), pictures(12)
    stop = Events(stop=lambda: half.batch >= 2 or half.updates >= 2)
    assert fit(stopped, data, data, settings, half, stop) == "stopped"
    resumed, _ = fresh()
    resumed.load_arrays(stopped.state_arrays(), "memory")
    resumed.optimizer.t, resumed.micro_step = stopped.optimizer.t, stopped.micro_step
    fit(resumed, data, data, settings, Progress.from_dict(half.as_dict()), Events())
    for name, array in whole.state_arrays().items():
        assert array.tobytes() == resumed.state_arrays()[name].tobytes(), name


# ---- both backends


AIDS = [
    pytest.param(EVERYTHING, {"ema": 0.8}, {"optimizer": "nesterov"}, id="average"),
    pytest.param(EVERYTHING, {"rates": {"layer_1*": 0.1, "layer_0": 3}}, {"optimizer": "momentum"}, id="rates"),
    pytest.param(SMALL, {"rates": {"*": 0.5, "layer_3": 2}, "clip_norm": 0.3}, {"optimizer": "adamw"}, id="clipped"),
    pytest.param(NORMED, {"freeze": ["first", "norm"]}, {"optimizer": "momentum"}, id="frozen front"),
    pytest.param(NORMED, {"freeze": ["second", "norm2"], "ema": 0.9}, {"optimizer": "sgd"}, id="frozen between"),
    pytest.param(SMALL, {"freeze": ["*", "!layer_3"], "accumulation": 2}, {"optimizer": "adam"}, id="head alone"),
    pytest.param(MLP, {"freeze": "layer_1", "rates": {"layer_0": 0.5}}, {"optimizer": "adam"}, id="mlp, frozen end"),
    pytest.param(EVERYTHING, {"freeze": ["*", "!layer_1[0-9]"]}, {"optimizer": "nesterov"}, id="everything, ends"),
]


@pytest.mark.parametrize(("layers", "aids", "more"), AIDS)
def test_a_run_with_aids_ends_with_the_weights_of_the_numpy_backend(layers, aids, more):
    shape, results = (128,) if layers is MLP else (2, 8, 8), []
    for device in ("numpy", "cuda"):
        trainer, settings = on(device, layers, shape=shape, **{"learning_rate": 0.01} | more | aids)
        _, progress = run(trainer, settings)
        results.append((trainer.state_arrays(), progress.history))
    (want, rows), (got, device_rows) = results
    assert got.keys() == want.keys()
    for name in want:
        assert_close(got[name], want[name], 3e-5, 2e-4)
    for row, device_row in zip(rows, device_rows, strict=True):
        for key in ("train_loss", "validation_loss", "grad_norm_mean"):
            assert device_row[key] == pytest.approx(row[key], rel=3e-4, abs=1e-6), key


# ---- layers that stand still


@BOTH
def test_frozen_layers_keep_their_bits_and_the_others_learn(device):
    trainer, settings = on(device, NORMED, freeze=["first", "norm"], optimizer="momentum")
    before = trainer.state_arrays()
    run(trainer, settings)
    after = trainer.state_arrays()
    moved = {name for name in after if before[name].tobytes() != after[name].tobytes()}
    assert {name.split("/")[-1].split(".")[0] for name in moved} == {"second", "norm2", "head"}
    assert not any("first" in name or "norm." in name for name in after if name.startswith("optimizer/"))
    assert "weights/norm2.running_mean" in moved


@BOTH
def test_a_frozen_front_costs_no_backward_work_and_no_memory(device):
    whole, settings = on(device, NORMED, optimizer="adam")
    frozen, _ = on(device, NORMED, freeze=["first", "norm"], optimizer="adam")
    kinds = [(n.node.name, n.kind) for n in frozen.plan.launches if n.node]
    assert not [name for name, kind in kinds if kind == "backward" and name.startswith(("first", "norm.", "pool"))]
    assert not [name for name in frozen.plan.values if name.startswith(("norm:", "pool:", "d:norm.", "d:first"))]
    control = sum(b.bytes for b in whole.plan.buffers if b.kind == "control")
    assert frozen.plan.arena_bytes - control < 0.7 * (whole.plan.arena_bytes - control)
    if device == "cuda":
        data = pictures()
        for trainer in (whole, frozen):
            trainer.run_batch(data, np.arange(4), True, 1, settings)
        assert len(frozen.device.launched) < len(whole.device.launched) - 3


def test_a_frozen_norm_in_front_uses_its_statistics_as_at_inference():
    trainer, _ = on("numpy", NORMED, freeze=["first", "norm"])
    x = pictures().x[:4]
    trainer.write(trainer.plan, "norm.running_mean", np.full(4, 0.3, np.float32))
    trained = trainer.forward(x)["norm"]
    trainer.infer(x)
    plain, _ = on("numpy", NORMED)
    assert np.abs(trained - plain.forward(x)["norm"]).max() > 0.1
    array = trainer.read(trainer.plan, "norm.running_mean")
    assert (array == np.float32(0.3)).all()


def test_what_is_computed_again_may_stand_still():
    kept, settings = on("numpy", NORMED, freeze=["first", "norm"])
    again = Trainer(
        kept.blueprint, 4, 3, (120.0,) * 2, (70.0,) * 2, settings.update, aids=settings.aids, poison=True,
        recompute=["norm", "pool", "second"],
    )  # fmt: skip
    for trainer in (kept, again):
        run(trainer, settings)
    for name, array in kept.state_arrays().items():
        assert array.tobytes() == again.state_arrays()[name].tobytes(), name


def test_nothing_left_to_train_is_refused():
    with pytest.raises(UserError, match='freeze leaves no layer to train.\n  Leave at least one out, such as "!head"'):
        on("numpy", NORMED, freeze=["*"])


def test_a_pattern_that_fits_no_layer_is_refused():
    with pytest.raises(UserError, match="freeze names 'pool', but no layer with weights has such a name") as found:
        on("numpy", NORMED, freeze=["first", "pool"])
    assert "These have weights: first, norm, second, norm2, head." in str(found.value)
    with pytest.raises(UserError, match="rates names 'conv\\*'"):
        on("numpy", NORMED, rates={"conv*": 2})


# ---- learning rates of their own


@BOTH
@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam"])
def test_a_rate_multiplies_the_first_step_of_its_layers_alone(optimizer, device):
    moves = []
    for rates in (None, {"first": 0.25, "head": 2}):
        trainer, settings = on(device, NORMED, rates=rates, optimizer=optimizer)
        before = trainer.state_arrays()
        trainer.run_batch(pictures(), np.arange(4), True, 1, settings)
        after = trainer.state_arrays()
        moves.append({n: after[n] - before[n] for n in after if n.startswith("weights/") and "running" not in n})
    for name, plain in moves[0].items():
        factor = {"first": 0.25, "head": 2.0}.get(name[8:].split(".")[0], 1.0)
        assert np.abs(plain).max() > 0
        assert_close(moves[1][name], factor * plain, 1e-7, 1e-4)


def test_without_an_aid_no_launch_and_no_byte_is_more():
    plain, settings = on("cuda", NORMED, optimizer="adam")
    data = pictures()
    plain.run_batch(data, np.arange(4), True, 1, settings)
    assert not [name for name in plain.plan.values if name.startswith(("ema:", "rate_"))]
    assert not [name for name in plain.device.launched if name.startswith("average")]
    aided, settings = on("cuda", NORMED, optimizer="adam", ema=0.9, rates={"head": 2})
    aided.run_batch(data, np.arange(4), True, 1, settings)
    extra = sorted(set(aided.device.launched) - set(plain.device.launched))
    assert extra == ["average_f32"]
    assert aided.device.launched.count("average_f32") == 2  # weights, statistics


def test_the_defaults_are_no_aid():
    assert Aids() == settings_for(net(MLP, (128,)), {}).aids


def test_a_layer_cannot_have_the_name_of_what_a_step_needs_on_a_card():
    with pytest.raises(UserError, match="the name 'mean' is kept for what a step needs on a card"):
        on("numpy", [{"type": "global_avg_pool", "name": "mean"}, {"type": "linear", "out_features": 3}])


def test_every_value_that_a_card_wants_beside_the_net_is_a_name_no_layer_can_have():
    loss = {"type": "cross_entropy", "class_weights": [1, 2, 3]}
    trainer, _ = on("cuda", NORMED, ema=0.9, rates={"head": 2}, loss=loss)
    control = {b.name for b in trainer.plan.buffers if b.kind == "control"}
    assert control <= set(RESERVED)


# ---- beside other tools


@BOTH
@WAYS
def test_a_step_with_aids_can_be_profiled_and_leaves_no_trace(device, more):
    trainer, settings = on(device, NORMED, ema=0.9, freeze=["first", "norm"], rates={"head": 2}, **more)
    before = trainer.state_arrays()
    found = profile_step(trainer, pictures(), settings)
    rows = [row for row in found.launches if row.kind == "average"]
    assert [row.name for row in rows] == ["average"]
    assert rows[0].us > 0
    params = (*trainer.graph.trainable, *trainer.graph.statistics)
    moving = sum(trainer.read(trainer.plan, p.name).nbytes for p in params)
    assert (rows[0].read, rows[0].written) == (2 * moving, moving)
    for name, array in trainer.state_arrays().items():
        assert array.tobytes() == before[name].tobytes(), name


@BOTH
def test_a_nan_is_named_in_a_net_with_aids(device):
    trainer, settings = on(device, NORMED, ema=0.9, freeze=["first", "norm"], rates={"head": 2})
    trainer.write(trainer.plan, "second.bias", np.full(6, np.inf, np.float32))
    progress = Progress()
    with pytest.raises(UserError, match="second"):
        fit(trainer, pictures(), None, settings, progress, Events(), watch=Watch(trainer, progress))


def test_the_budget_counts_the_average():
    plain, settings = on("numpy", NORMED)
    aided, aided_settings = on("numpy", NORMED, ema=0.9)
    grown = aided.plan.persistent_bytes - plain.plan.persistent_bytes
    weights = sum(b.bytes for b in plain.plan.buffers if b.kind in ("weights", "state"))
    assert weights <= grown <= weights + 1024
    for given, trainer in ((settings, plain), (aided_settings, aided)):
        base = BaseTrainer()
        base.set_up(trainer.blueprint, 3, None, given.aids)
        persistent, _ = live_bytes(cpu_maker(base, given).draft(4, trainer.update_mode, ()))
        assert persistent == trainer.plan.persistent_bytes


def test_a_command_with_every_aid_runs_on_a_card_as_on_the_cpu(here, monkeypatch):
    FakeCuda().install(monkeypatch)
    pictures_file(here / "many.npz", 120)
    options = [
        "--ema", 0.9, "--freeze", "layer_1", "--rate", "layer_5=2", "--layer-stats", "--sampling", "balanced",
        "--fraction", 0.8, "--validation-split", 0.45, "--class-weights", "auto", "--epochs", 2, "--quiet",
    ]  # fmt: skip
    for device in ("cpu", "cuda"):
        assert train("--out", device, "--device", device, *options, data="many.npz") == 0
    found = [checkpoint.load(here / device) for device in ("cpu", "cuda")]
    for name, array in found[0].arrays.items():
        assert_close(found[1].arrays[name], array, 1e-4, 1e-3)
    assert found[0].weights.keys() == found[1].weights.keys()
    one, other = (saved.meta["unknown"] for saved in found)
    assert one["temperature"] == pytest.approx(other["temperature"], rel=0.02)
    assert [k for k in one if k in ("margin", "energy", "energy_most")]
    assert "0 allocations since the start" in (here / "cuda" / "log.txt").read_text()
    for (a, b) in zip(*(saved.meta["progress"]["history"][-1]["layers"] for saved in found), strict=True):
        assert a["name"] == b["name"]
        assert a["std"] == pytest.approx(b["std"], rel=1e-2)
