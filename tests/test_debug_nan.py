"""--debug-nan: the first bad value of a run is named with its cause, on the CPU and by the kernels; no bit changes."""

import json
from dataclasses import replace
from math import inf, nan

import numpy as np
import pytest
from fake_cupy import FakeCuda
from nets import EVERYTHING, SMALL, net
from shim_device import ShimDevice

from litenet.trainer import checkpoint
from litenet.trainer import session as sessions
from litenet.trainer.backends import cuda
from litenet.trainer.budget import Scheme
from litenet.trainer.cli import main
from litenet.trainer.data.dataset import Dataset
from litenet.trainer.debug_nan import Watch, plain
from litenet.trainer.device_trainer import DeviceTrainer
from litenet.trainer.errors import UserError
from litenet.trainer.kernels import calls_step
from litenet.trainer.loop import Events, Progress, fit
from litenet.trainer.nan_causes import Bad, Case, Facts, cause, place, sentences, subject
from litenet.trainer.ops import OPS
from litenet.trainer.settings import settings_for
from litenet.trainer.trainer import Trainer

MLP = [{"type": "linear", "out_features": 6, "activation": "relu"}, {"type": "linear", "out_features": 3}]
NORMED = [
    {"type": "conv2d", "out_channels": 4, "kernel_size": 3, "padding": 1}, {"type": "batchnorm", "activation": "relu"},
    {"type": "flatten"}, {"type": "linear", "out_features": 3},
]  # fmt: skip


def pictures(n=14):
    x = np.random.default_rng(0).integers(0, 256, (n, 8, 8, 2), np.uint8)
    return Dataset(x, (x.reshape(n, -1).sum(1) % 3).astype(np.int64))


def rows(n=14, width=5):
    x = np.random.default_rng(1).standard_normal((n, width)).astype(np.float32)
    return Dataset(x, np.arange(n) % 3)


def made(device, layers=MLP, rate=0.01, given=None, shape=(5,), storage="f32", **more):
    """(trainer, settings) of a net, on the CPU or with kernels."""
    blueprint = net(layers, shape, batch_size=4, epochs=2, **more)
    settings = replace(settings_for(blueprint, given or {}), learning_rate=rate)
    scale = {"mean": (120.0,) * 2, "std": (70.0,) * 2} if len(shape) == 3 else {}
    if device == "cpu":
        return Trainer(blueprint, 4, update=settings.update, learning_rate=rate, **scale), settings
    scheme = Scheme(4, settings.accumulation, "end" if storage == "f16" else settings.update)
    trainer = DeviceTrainer(
        ShimDevice(), blueprint, scheme=scheme, learning_rate=rate, storage=storage, **scale
    )
    return trainer, settings


def watched(trainer, settings, data, folder=None, **events):
    """(the message of a run that meets a NaN, its progress)."""
    progress = Progress()
    with pytest.raises(UserError) as error:
        fit(trainer, data, None, settings, progress, Events(**events), watch=Watch(trainer, progress, folder))
    return str(error.value), progress


def strict(path):
    """JSON without Python's NaN and Infinity."""

    def refuse(word):
        raise AssertionError(word)

    return json.loads(path.read_text(), parse_constant=refuse)


def arrays_are_finite(arrays):
    return all(np.isfinite(array).all() for array in arrays.values())


BOTH = pytest.mark.parametrize("device", ["cpu", "kernels"])


# ---- what is found


@BOTH
@pytest.mark.parametrize(
    ("layers", "shape", "layer", "op"),
    [(MLP, (5,), "layer_1", "linear"), (NORMED, (2, 8, 8), "layer_1", "batchnorm")],
    ids=["mlp", "batchnorm"],
)
def test_a_rate_that_is_far_too_high_is_called_so_with_one_that_is_not(tmp_path, device, layers, shape, layer, op):
    trainer, settings = made(device, layers, 1e20, shape=shape)
    data = rows() if layers is MLP else pictures()
    text, progress = watched(trainer, settings, data, tmp_path)
    first, bad, read, why, remedy, kept = text.split("\n  ")
    assert first == "The loss became nan in epoch 1, batch 2 (update 2, learning rate 1e+20)."
    assert bad.startswith("First bad value: the ")
    assert f" of {layer} ({op}, forward) is " in bad
    assert read.startswith("It read x up to ")
    assert why.startswith("Likely cause: the learning rate is too high: 1 update took the norm of all weights from ")
    assert remedy == "Start a new run with --lr 0.01 --clip-norm 1, or with --warmup 1 as well."
    assert kept == f"All that is known: {tmp_path / 'nan.json'}. What was saved before is kept."
    report = strict(tmp_path / "nan.json")
    assert report["cause"]["rule"] == "learning rate"
    assert (report["epoch"], report["batch"], report["bad"]["layer"]) == (1, 2, layer)
    assert report["weights_now"] > 1e19 > 100 > report["weights_start"] > 0.1
    assert [len(step) for step in (report["recent"], report["batch_samples"])] == [1, 4]
    assert {row["name"] for row in report["layers"]} == {p.name for p in trainer.graph.trainable}
    assert progress.batch == 1  # the bad one does not count


@BOTH
@pytest.mark.parametrize("value", [nan, inf, -inf])
def test_a_sample_that_holds_no_number_is_named_by_its_place_in_the_data(device, value):
    whole = rows(20)
    data = whole.take([n for n in range(20) if n % 4])  # a fourth is held out
    data.x.base[7, 3] = value  # after it was checked
    trainer, settings = made(device)
    text, _ = watched(trainer, settings, data)
    assert f"First bad value: the input is {value:g} at sample " in text
    assert f" (number {whole.take(range(20)).origin[data.origin[7]]} of the data, from 0), value 3; 1 of 20" in text
    assert "Likely cause: the data themselves hold it." in text


@BOTH
def test_a_sample_far_beyond_the_others_is_blamed_though_it_overflows_a_step_later(device):
    data = rows(200)
    data.x.base[133] *= 1e30
    trainer, settings = made(device)
    text, _ = watched(trainer, settings, data)
    assert "Likely cause: a bad sample: number 133 of the data (from 0) reaches " in text
    assert "\n  Repair it or leave it out" in text


def poisoned(original, at, name):
    """An operator's definition that puts NaN into one of its results, where three channels come out."""

    def forward(a, x, weight, bias):
        y = original(a, x, weight, bias)
        if a.out_features == 3:
            y[at] = nan
        return y

    def backward(a, dy, x, weight, y):
        grads = original(a, dy, x, weight, y)
        if a.out_features == 3:
            grads["weight"][at] = nan
        return grads

    return {"forward": forward, "backward": backward}[name]


def test_one_value_of_an_operator_on_the_cpu_is_found_where_it_is(monkeypatch):
    monkeypatch.setattr(OPS["linear"], "forward", poisoned(OPS["linear"].forward, (2, 1), "forward"))
    text, _ = watched(*made("cpu"), rows())
    assert "the output of layer_1 (linear, forward) is nan at sample 2 (number " in text
    assert "), value 1; 1 of 12 values is bad." in text
    assert "Likely cause: none that is known: what it read is ordinary, up to " in text


class Faulty(ShimDevice):
    """A card that puts NaN behind a value's address after each launch that was given it, so many times."""

    def __init__(self):
        super().__init__()
        self.address, self.times = None, 10**6

    def launch(self, call, addresses):
        super().launch(call, addresses)
        if self.address in addresses and call.kernel.file == "linear.cu" and self.times > 0:
            self.times -= 1
            self.upload(self.address + 28, np.array([nan], np.float32))


def faulty():
    """A trainer on it, whose output, (4, 3), is bad at (2, 1)."""
    blueprint = net(MLP, (5,), batch_size=4, epochs=2)
    trainer = DeviceTrainer(Faulty(), blueprint, 4)
    out = trainer.graph.tensors[trainer.graph.outputs[0]].name
    trainer.device.address = trainer.backend.address(trainer.plan, out)
    return trainer, settings_for(blueprint, {})


def test_a_kernel_that_is_wrong_is_told_from_numbers_that_are():
    trainer, settings = faulty()
    text, _ = watched(trainer, settings, rows())
    assert "the output of layer_1 (linear, forward) is nan at sample 2 (number " in text
    assert "), value 1; 1 of 12 values is bad." in text
    why = "\n  Likely cause: the kernel on the CPU: from the same inputs the operator's definition gives "
    assert why in text
    assert "\n  Run edge-check, " in text


def test_a_fault_that_does_not_come_again_is_called_so(tmp_path):
    trainer, settings = faulty()
    trainer.device.times = 1
    text, _ = watched(trainer, settings, rows(), tmp_path)
    assert "\n  Run again launch by launch, the same step stayed finite" in text
    assert strict(tmp_path / "nan.json")["what"] == "The loss became nan"


@pytest.mark.parametrize("given", [{}, {"clip_norm": 1.0}, {"accumulation": 3}], ids=["at once", "norm", "accumulated"])
def test_what_goes_wrong_in_backward_alone_is_found_in_its_own_micro_batch(monkeypatch, given):
    trainer, settings = made("cpu", given=given)
    original, calls = OPS["linear"].backward, []

    def later(a, dy, x, weight, y):
        calls.append(a.out_features)
        bad = calls.count(3) >= 2
        return (poisoned(original, (0, 4), "backward") if bad else original)(a, dy, x, weight, y)

    monkeypatch.setattr(OPS["linear"], "backward", later)
    text, progress = watched(trainer, settings, rows())
    assert "in epoch 1, batch 2 (" in text
    assert "the gradient of weight of layer_1 (linear, backward) is nan at output 0, input 4; 1 of 18 values" in text
    assert text.startswith("Weights, gradients or" if "accumulation" in given else "The norm of the gradients")
    assert progress.batch == 1


@pytest.mark.parametrize(("given", "layer"), [({}, 1), ({"accumulation": 2}, 0)], ids=["at once", "at the end"])
def test_squares_that_overflow_in_the_optimizers_state_are_found_before_they_spoil_a_weight(given, layer):
    trainer, settings = made("cpu", optimizer="adam", given=given)
    usual = trainer.loss

    class Loss:
        name, classification, predictions = usual.name, usual.classification, staticmethod(usual.predictions)

        def __call__(self, z, t):
            value, dz = usual(z, t)
            return value, dz * np.float32(1e25)

    trainer.loss = Loss()
    text, _ = watched(trainer, settings, rows())
    assert text.startswith("Weights, gradients or the optimizer's state became infinite or nan in epoch 1, batch ")
    assert f"First bad value: v:layer_{layer}.weight of layer_{layer} after the update is inf at output 0, " in text
    assert "whose squares adam keeps: they overflow.\n  Start a new run with --lr 0.001 --clip-norm 1" in text


@BOTH
def test_weights_that_were_bad_before_the_step_are_called_so(device):
    trainer, settings = made(device)
    arrays = trainer.state_arrays()
    arrays["weights/layer_0.bias"][2] = nan
    trainer.load_arrays(arrays, "test")
    text, _ = watched(trainer, settings, rows())
    assert "First bad value: layer_0.bias, before the step, is nan at channel 2; 1 of 6 values is bad." in text
    assert "Likely cause: the weights or the optimizer's state were bad when the run was taken up." in text


def test_activations_beyond_half_precision_are_told_from_those_beyond_float32(tmp_path):
    trainer, settings = made("kernels", storage="f16")
    trainer.set_weights(trainer.model.weights * np.float32(1e3))
    text, _ = watched(trainer, settings, rows(), tmp_path)
    assert "of layer_1 (linear, forward) is " in text
    assert "and half precision ends at 65,504." in text
    assert "\n  Train without --fp16, or " in text
    assert abs(strict(tmp_path / "nan.json")["bad"]["expected"]) > 65504


def test_a_loss_scale_that_is_too_high_ends_no_run():
    trainer, settings = made("kernels", storage="f16")
    scaling = calls_step.scaling()
    scaling["scale"] = 2.0**24
    trainer.write(trainer.plan, "scaling", scaling.view(np.int32))
    progress, seen = Progress(), []
    events = Events(step=lambda progress, metrics: seen.append("grad_norm" in metrics))
    assert fit(trainer, rows(60), None, settings, progress, events, watch=Watch(trainer, progress)) == "done"
    assert seen[0] is False  # skipped
    assert seen[-1] is True
    assert arrays_are_finite(trainer.state_arrays())


def test_a_norm_beyond_float32_of_values_within_it_is_no_fault_of_the_machine():
    trainer, settings = made("kernels", [{"type": "linear", "out_features": 3}], shape=(64,))
    data = rows(width=64)
    data.x.base[:] = 3e38  # value by value, the gradient of the weights is a share of it
    arrays = trainer.state_arrays()
    arrays["weights/layer_0.weight"][...] = 0.0
    trainer.load_arrays(arrays, "test")
    text, _ = watched(trainer, settings, data)
    assert text.startswith("The norm of the gradients became inf in epoch 1, batch 1 (")
    assert "\n  Every value that the step wrote is finite, but " in text


@pytest.mark.parametrize("room", [None, 700], ids=["resident", "sent batch by batch"])
def test_a_sample_is_named_also_where_the_data_stay_with_the_host(room):
    blueprint, data = net(SMALL, (2, 8, 8), batch_size=4, epochs=2), pictures()
    data = Dataset(data.x.astype(np.float32) / 255, data.y)
    data.x.base[9, 3, 1, 1] = inf
    settings = settings_for(blueprint, {})
    trainer = DeviceTrainer(ShimDevice(), blueprint, 4, room=room)
    trainer.prepare(settings, [data])
    assert trainer.feed.held(data.x) is (room is None)
    text, _ = watched(trainer, settings, data)
    assert "the input is inf at sample " in text
    assert " (number 9 of the data, from 0), row 3, column 1, channel 1; 1 of 512 values is bad." in text


# ---- what stays as it was


@BOTH
@pytest.mark.parametrize(
    ("layers", "given"),
    [(SMALL, {}), (SMALL, {"accumulation": 2, "clip_norm": 0.5}), (EVERYTHING, {})],
    ids=["at once", "accumulated", "every operator"],
)
def test_a_run_that_stays_finite_ends_with_the_same_bits(device, layers, given):
    ends = []
    for watching in (False, True):
        trainer, settings = made(device, layers, given=given, shape=(2, 8, 8), optimizer="adam")
        progress, losses = Progress(), []
        events = Events(step=lambda progress, metrics, into=losses: into.append(metrics))
        watch = Watch(trainer, progress) if watching else None
        assert fit(trainer, pictures(), None, settings, progress, events, watch=watch) == "done"
        arrays = {name: array.tobytes() for name, array in trainer.state_arrays().items()}
        known = progress.as_dict() | {"seconds": 0, "history": [row | {"seconds": 0} for row in progress.history]}
        ends.append((arrays, known, losses, trainer.optimizer.t, trainer.micro_step))
    assert ends[0] == ends[1]


@BOTH
def test_the_trainer_is_left_as_it_was_before_the_bad_step(device):
    (trainer, settings), (other, _) = (made(device, rate=1e20, optimizer="adam") for _ in range(2))
    _, progress = watched(trainer, settings, rows())
    assert progress.updates == 1
    again = Progress()
    stop = Events(stop=lambda: True)
    assert fit(other, rows(), None, settings, again, stop) == "stopped"
    for name, array in other.state_arrays().items():
        assert array.tobytes() == trainer.state_arrays()[name].tobytes(), name
    assert (trainer.micro_step, trainer.optimizer.t) == (other.micro_step, other.optimizer.t) == (1, 1)
    assert trainer.observer is None


def test_a_watch_takes_its_memory_at_once_and_never_more():
    trainer, settings = made("kernels")
    progress = Progress()
    watch = Watch(trainer, progress)
    trainer.run_batch(rows(), np.arange(4), True, 1, settings)
    held = len(trainer.device.held)
    fit(trainer, rows(), None, settings, progress, Events(), watch=watch)
    assert len(trainer.device.held) <= held + 1  # the other rows


def test_a_card_copies_from_place_to_place(monkeypatch):
    FakeCuda().install(monkeypatch)
    device = cuda.CudaDevice()
    one, two = device.allocate(64), device.allocate(64)
    device.upload(one, np.arange(16, dtype=np.float32))
    device.copy(one, two, 64)
    out = np.zeros(16, np.float32)
    device.download(two, out)
    assert out.tolist() == list(range(16))


# ---- runs and their folders


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder to stand in, with line.json, whose rate is fine, and line.npz."""
    monkeypatch.chdir(tmp_path)
    x = np.random.default_rng(0).standard_normal((60, 3)).astype(np.float32)
    np.savez("line.npz", x=x, y=x[:, :1])
    spec = {"name": "line", "input_shape": [3], "layers": [{"type": "linear", "out_features": 1}], "loss": "mse",
            "batch_size": 5, "epochs": 2}  # fmt: skip
    (tmp_path / "line.json").write_text(json.dumps(spec))
    return tmp_path


def train(*more):
    return main(["line.json", "--data", "line.npz", "--out", "run", *map(str, more)])


def test_the_command_ends_with_1_six_lines_and_a_report(here, capsys):
    assert train("--lr", 1000, "--debug-nan", "--quiet") == 1
    out, err = capsys.readouterr()
    assert out == ""
    lines = err.splitlines()
    assert len(lines) == 6
    assert lines[0].startswith("edge-train: ")
    assert " in epoch 1, batch " in lines[0]
    assert lines[3].startswith("  Likely cause: the learning rate is too high")
    assert lines[4] == "  Start a new run with --lr 0.01 --clip-norm 1, or with --warmup 1 as well."
    assert lines[5] == "  All that is known: run/nan.json. What was saved before is kept.".replace(
        "run/nan.json", str(sessions.Path("run") / "nan.json")
    )
    assert strict(here / "run" / "nan.json")["message"][0] == lines[0][len("edge-train: ") :]
    log = (here / "run" / "log.txt").read_text()
    assert "--debug-nan keeps a copy of 256 bytes beside the arena\n" in log
    assert f"end: {lines[0][len('edge-train: ') :]}\n" in log
    assert sorted(path.name for path in (here / "run").iterdir()) == [
        ".lock", "config.json", "environment.json", "log.txt", "nan.json"]  # fmt: skip


class Card(ShimDevice):
    capability, table = (7, 5), None

    def __init__(self):
        super().__init__()
        self.allocations, self.allocated = 0, 0

    def free_bytes(self):
        return 1 << 30


def test_the_command_reports_from_a_card_as_well(here, capsys, monkeypatch):
    monkeypatch.setattr(cuda, "CudaDevice", Card)
    assert train("--lr", 1000, "--debug-nan", "--quiet", "--device", "cuda") == 1
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 6
    assert lines[3].startswith("  Likely cause: the learning rate is too high")
    assert strict(here / "run" / "nan.json")["device"] == "the CPU"  # as this one calls itself


def test_a_good_run_with_the_option_leaves_no_report_and_the_files_of_one_without(here):
    ends = []
    for more in ((), ("--debug-nan",)):
        assert main(["line.json", "--data", "line.npz", "--out", f"run{len(more)}", "--quiet", *more]) == 0
        assert not (here / f"run{len(more)}" / "nan.json").exists()
        saved = checkpoint.load(here / f"run{len(more)}" / "last.npz")
        ends.append({name: array.tobytes() for name, array in saved.arrays.items()})
    assert ends[0] == ends[1]


@pytest.mark.parametrize("more", [(), ("--debug-nan",)], ids=["without", "with"])
def test_what_is_saved_on_the_way_to_a_nan_is_finite_and_can_be_taken_up(here, capsys, more):
    assert train("--lr", 30, "--save-every", 1, *more) == 1
    saved = checkpoint.load(here / "run" / "last.npz")
    assert arrays_are_finite(saved.arrays)
    updates = saved.meta["progress"]["updates"]
    assert updates > 3
    place = f"in epoch {updates // 10 + 1}, batch {updates % 10 + 1}"  # the next one
    assert place in capsys.readouterr().err
    assert main(["--resume", "run", *more]) == 1
    assert place in capsys.readouterr().err


def test_weights_that_overflow_while_the_loss_is_finite_are_not_saved(here):
    session = sessions.start(sessions.blueprints.load("line.json"), "line.npz", {}, here / "run")
    kept = []

    def spoil(progress, metrics):
        if progress.updates == 2:
            session.trainer.model.weights[0] = inf

    with pytest.raises(UserError) as error:
        session.run(sessions.loop.Events(step=spoil, save=kept.append), save_every=1)
    assert str(error.value) == (
        "weights/layer_0.weight became inf by update 2, so nothing was saved.\n"
        "  Lower the learning rate, or add --clip-norm 1; --debug-nan tells more. What was saved before is kept."
    )
    assert kept == ["last"]
    saved = checkpoint.load(here / "run" / "last.npz")
    assert saved.meta["progress"]["updates"] == 1
    assert arrays_are_finite(saved.arrays)


@pytest.mark.parametrize("save_every", [1, 2])
def test_a_device_that_tells_late_is_asked_before_each_save(save_every):
    trainer, settings = made("kernels", rate=1e20)
    saved = []
    with pytest.raises(UserError, match=r"^The loss became nan in epoch 1, batch 2\."):
        events = Events(save=lambda which: saved.append(arrays_are_finite(trainer.state_arrays())))
        fit(trainer, rows(), None, settings, Progress(), events, save_every)
    assert saved == [True] * (save_every == 1)


# ---- the rules by themselves


def facts(largest, shape=(4, 3), name="x"):
    return Facts(name, shape, largest, largest, 1, 0)


def case(bad=None, **more):
    """A linear layer's output is nan, for no reason yet."""
    settings = settings_for(net(MLP, (5,)), {})
    bad = bad or Bad("forward", "layer_1", "linear", "y", (2, 1), nan, facts(1.0), True, 7)
    given = {"inputs": {"x": facts(1.0)}, "raw": True, "usual": 1.0, "odd": (), "updates": 5, "weights_start": 1.0,
             "weights_now": 2.0, "rate": 0.01, "settings": settings, "optimizer": "sgd", "default_rate": 0.01,
             "storage": "f32", "device": "a card", "recent": ()}  # fmt: skip
    return Case(bad, **given | more)


def norm_backward(spread):
    bad = Bad("backward", "layer_1", "batchnorm", "x", (0, 0), inf, facts(1.0), True)
    return case(bad, inputs={"dy": facts(1e20), "inv_std": facts(spread)})


@pytest.mark.parametrize(
    ("found", "rule", "words"),
    [
        (case(), "unknown", "what it read is ordinary, up to 1"),
        (case(inputs={"x": facts(1e30)}), "overflow", "sums and products overflow: what it read reaches 1e+30"),
        (case(inputs={"x": facts(1e30)}, updates=0), "overflow", "sums and products overflow"),
        (case(usual=7e4), "scale", "the data are not scaled: samples reach 7e+04"),
        (case(usual=7e4, weights_now=1e9), "learning rate", "5 updates took the norm of all weights from 1 to 1e+09"),
        (case(Bad("update", "layer_1", "sgd", "layer_1.weight", (0, 1), inf, facts(1.0), False), inputs={}), "kernel",
         "wrote outside of its own arrays"),
        (norm_backward(1e5), "variance", "a channel or row hardly varies: 1 / standard deviation reaches 1e+05"),
        (norm_backward(10.0), "overflow", "gradients grow from layer to layer: what it read reaches 1e+20"),
        (case(Bad("load", "load", "", "x", (0, 1), inf, facts(1.0), True), storage="f16"), "half", "pass 65,504"),
        (case(Bad("load", "load", "", "x", (0, 1), inf, facts(1.0), True)), "normalisation", "a std of 0"),
        (case(Bad("update", "layer_1", "sgd", "layer_1.weight", (0, 1), inf, facts(1.0, name="layer_1.weight"), False),
              inputs={"gradient": facts(1e38)}, rate=1e3), "learning rate", "1000 times a gradient of 1e+38 overflows"),
    ],
)  # fmt: skip
def test_each_rule_speaks_where_it_should(found, rule, words):
    why = cause(found)
    assert why.rule == rule
    assert words in why.text
    assert len(sentences(found, why)) == 4
    assert all("\n" not in line for line in sentences(found, why))


def test_before_the_first_update_no_rate_is_blamed():
    assert "--lr" not in cause(case(inputs={"x": facts(1e30)}, updates=0)).remedy


def test_a_remedy_names_only_what_is_not_in_use_yet():
    used = settings_for(net(MLP, (5,)), {"clip_norm": 1.0, "warmup": 1.0, "learning_rate": 0.003})
    why = cause(case(settings=used, weights_now=1e9))
    assert why.remedy == "Start a new run with --lr 0.0003."


def test_places_and_subjects_read_as_people_say_them():
    bad = Bad("forward", "conv1", "conv2d", "y", (3, 5, 2, 7), nan, facts(1.0, (4, 8, 8, 9)), True, 12)
    assert subject(bad) + place(bad) == (
        "the output of conv1 (conv2d, forward) at sample 3 (number 12 of the data, from 0), row 5, column 2, channel 7"
    )
    weight = Bad("backward", "conv1", "conv2d", "weight", (1, 0, 2, 3), nan, facts(1.0, (4, 3, 3, 9)), False)
    assert subject(weight) + place(weight) == (
        "the gradient of weight of conv1 (conv2d, backward) at output channel 1, kernel row 0, kernel column 2, "
        "input channel 3"
    )
    loss = Bad("loss", "loss", "mse", "loss", (0,), inf, facts(1.0, (1,)), False)
    assert subject(loss) + place(loss) == "the loss (mse)"


def test_a_report_holds_words_where_json_knows_no_number():
    assert plain({"a": (nan, 1.0), "b": [inf, {"c": -inf}], "d": "text"}) == {
        "a": ["nan", 1.0], "b": ["inf", {"c": "-inf"}], "d": "text",
    }  # fmt: skip
