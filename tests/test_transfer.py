"""--from: weights of an earlier run, a checkpoint or a .bin, layer by layer; what does not fit is explained."""

import json

import numpy as np
import pytest
from nets import net
from runs import changed, mistake, train

from litenet.exporter.cli import main as edge_export
from litenet.trainer import checkpoint, transfer
from litenet.trainer.errors import UserError
from litenet.trainer.trainer import Trainer

BODY = [
    {"type": "conv2d", "out_channels": 4, "kernel_size": 3, "padding": 1, "activation": "relu", "name": "first"},
    {"type": "flatten"},
]
HEAD = {"type": "linear", "out_features": 3, "name": "head"}


def trainer(layers=None, **more):
    return Trainer(net(layers or [*BODY, HEAD], (1, 8, 8), **more), 4)


def origin(weights, **more):
    return transfer.Origin("old.npz", transfer._by_layer(weights), **more)


def weights_of(given, prefix="weights/"):
    return {k.removeprefix(prefix): v for k, v in given.state_arrays().items() if k.startswith(prefix)}


def test_layers_of_the_same_name_and_shapes_are_taken():
    old, new = trainer(seed=1), Trainer(net([*BODY, HEAD], (1, 8, 8), ema=0.9), 4, 7)
    assert transfer.transfer(new, origin(weights_of(old))) == ["old.npz: weights of 2 of 2 layers taken over"]
    for name, array in weights_of(old).items():
        assert weights_of(new)[name].tobytes() == array.tobytes()
        assert weights_of(new, "average/")[name].tobytes() == array.tobytes()


def test_a_new_head_starts_anew_and_the_reason_is_given():
    new = trainer([*BODY, HEAD | {"out_features": 5}, {"type": "linear", "out_features": 2, "name": "more"}])
    fresh = weights_of(new)
    lines = transfer.transfer(new, origin(weights_of(trainer(seed=1))))
    assert lines == [
        "old.npz: weights of 1 of 3 layers taken over",
        "  head (linear) starts anew: its weight is (3, 256) there, and (5, 256) here",
        "  more (linear) starts anew: there is no such layer there",
    ]
    assert weights_of(new)["head.weight"].tobytes() == fresh["head.weight"].tobytes()


def test_what_is_not_used_is_named():
    lines = transfer.transfer(trainer([*BODY, HEAD | {"name": "other"}]), origin(weights_of(trainer())))
    assert lines[1:] == ["  other (linear) starts anew: there is no such layer there", "  not used from there: head"]


def test_layers_of_unknown_names_are_taken_in_their_order():
    old = {f"Conv_{n}": a for n, a in weights_of(trainer(seed=1)).items()}
    new = trainer()
    lines = transfer.transfer(new, origin(old))
    assert lines == ["old.npz: weights of 2 of 2 layers taken over, by their order and shapes: no name is known there"]
    assert weights_of(new)["head.weight"].tobytes() == old["Conv_head.weight"].tobytes()


def test_weights_that_fit_nowhere_are_refused():
    with pytest.raises(UserError) as found:
        transfer.transfer(trainer(), origin({"a.weight": np.zeros((2, 2), np.float32)}))
    assert str(found.value).splitlines() == [
        "--from old.npz: no layer fits this net.",
        "  first (conv2d) starts anew: there is no such layer there",
        "  head (linear) starts anew: there is no such layer there",
        "  Give layers the names and sizes they have there: a.",
    ]


def test_fine_tuning_a_run_keeps_its_pixels_and_its_frozen_layers(here, capsys):
    assert train("--out", "old", "--quiet", "--epochs", 1) == 0
    changed(here, "new.json", seed=8)
    brighter = {k: v if k.startswith("y") else np.minimum(v, 200) for k, v in np.load("pictures.npz").items()}
    np.savez("other.npz", **brighter)
    frozen = ["--freeze", "layer_0", "--freeze", "layer_1"]
    assert train("--out", "new", "--from", "old", *frozen, blueprint="new.json", data="other.npz") == 0
    err = capsys.readouterr().err
    assert "old/best.npz: weights of 3 of 3 layers taken over" in err
    old, new = checkpoint.load(here / "old"), checkpoint.load(here / "new" / "last.npz")
    for name, array in old.arrays.items():
        if name.startswith(("weights/layer_0", "weights/layer_1")):
            assert new.arrays[name].tobytes() == array.tobytes(), name
    assert (new.arrays["weights/layer_5.weight"] != old.arrays["weights/layer_5.weight"]).any()
    assert new.meta["data"]["mean"] == old.meta["data"]["mean"]
    assert new.meta["data"]["weights_from"] == "old/best.npz"
    assert new.meta["settings"]["freeze"] == ["layer_0", "layer_1"]


def test_a_bin_gives_its_weights_and_says_what_was_folded(here, capsys):
    assert train("--out", "old", "--quiet", "--epochs", 1) == 0
    assert edge_export(["old", "-o", "old.bin"]) == 0
    capsys.readouterr()
    assert train("--out", "new", "--from", "old.bin", "--epochs", 1) == 0
    err = capsys.readouterr().err
    assert "old.bin: weights of 2 of 3 layers taken over" in err
    assert "layer_1 (batchnorm) starts anew: there is no such layer there" in err
    want, found = (json.loads((here / name / "config.json").read_text())["data"]["mean"] for name in ("old", "new"))
    assert found == pytest.approx(want)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("gone.bin", "gone.bin: there is no such file"),
        ("net.json", "net.json is not a checkpoint"),
        ("model.onnx", "--from model.onnx: import the model first: edge-export model.onnx -o model.bin"),
    ],
)
def test_what_holds_no_weights_is_refused(here, capsys, name, said):
    assert mistake(capsys, 1, "net.json", "--data", "pictures.npz", "--from", name).startswith(said)


def test_a_run_that_goes_on_takes_no_other_weights(here, capsys):
    assert train("--out", "old", "--quiet", "--epochs", 1) == 0
    with pytest.raises(SystemExit):
        from litenet.trainer.cli import main

        main(["--resume", "old", "--from", "old"])
    assert "--resume goes on with the run's own weights" in capsys.readouterr().err
