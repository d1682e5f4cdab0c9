"""Blueprints: JSON and YAML as people write them, what they become, and the files they are in."""

import json
from pathlib import Path

import pytest
import yaml

from litenet.trainer import blueprint as blueprints
from litenet.trainer.blueprint import load, parse, train_settings
from litenet.trainer.blueprint_layers import TYPES, layer_fields
from litenet.trainer.blueprint_text import read
from litenet.trainer.errors import UserError
from litenet.trainer.fields import Options, check
from litenet.trainer.ops import OPS, activations, make_attrs
from litenet.trainer.patterns import PATTERNS

CNN = """{
  "name": "mnist_cnn",            // the net of the article, with its second pool
  "input_shape": [1, 28, 28],
  "layers": [
    { "type": "conv2d", "in_channels": 1, "out_channels": 32, "kernel_size": 3, "stride": 1, "padding": 1,
      "activation": "relu", "algorithm": "winograd" // chosen by hand
    },
    { "type": "maxpool2d", "kernel_size": 2, "stride": 2 },   # a comment of the other kind
    { "type": "conv2d", "in_channels": 32, "out_channels": 64, "kernel_size": 3, "padding": "same",
      "activation": "relu" /* and one
      over two lines */ },
    { "type": "maxpool2d", "kernel_size": [2, 2], "stride": 2 },
    { "type": "flatten" },
    { "type": "linear", "in_features": 64*7*7, "out_features": 128, "activation": "relu" },
    { "type": "linear", "in_features": "64 * 2", "out_features": 10, "activation": "none", },
  ],
}
"""
EVERYTHING = """{
  "name": "everything", "description": "All keys // in one \\u00e9\\ud83d\\ude00",
  "input_shape": [3, 32, 32],
  "preprocessing": {"resize": "area", "fit": "letterbox", "color": "rgb", "invert": true, "mean": [125, 123, 114],
                    "std": 64, "pad": 128},
  "labels": ["cat", "dog", 3],
  "layers": [
    "flatten", "relu",
    {"type": "leaky_relu", "alpha": 0.2, "name": "leak"},
    {"type": "activation", "activation": "gelu"},
    {"type": "residual", "layers": [{"type": "linear", "out_features": 8, "bias": false, "name": "inside"}],
     "shortcut": "projection", "activation": "leaky_relu", "alpha": 0.1},
    {"type": "residual", "layers": ["relu"], "shortcut": ["tanh"]},
    {"type": "dual_path", "hidden_features": 12, "side": "identity", "weight_init": "xavier"},
    {"type": "inverted_residual", "out_channels": 24, "expand": 4, "stride": [1, 2], "batchnorm": 0},
    {"type": "dropout", "rate": 1e-1}
  ],
  "loss": {"type": "cross_entropy", "label_smoothing": 0.1, "class_weights": [1, 2, 3]},
  "optimizer": {"type": "sgd", "nesterov": true, "learning_rate": 5e-2}, "momentum": 0.9, "weight_decay": 1e-4,
  "schedule": {"type": "step", "milestones": [0.5, 0.75], "factor": 0.2},
  "early_stopping": {"patience": 3, "monitor": "accuracy"},
  "epochs": 20, "batch_size": 128, "warmup": 1, "clip_norm": 5, "clip_value": 0.5, "accumulation": 2,
  "validation_split": 0.2, "seed": 18446744073709551615
}
"""


def one_layer(text, **more):
    """A blueprint with one layer, as JSON."""
    tail = "".join(f', "{key}": {value}' for key, value in more.items())
    return '{"input_shape": [4],\n "layers": [\n' + text + "]" + tail + "}"


def layer(text):
    return parse(one_layer(text)).layers[0]


# ---- what is read


def test_json_with_comments_products_and_trailing_commas_is_read():
    blueprint = parse(CNN, "mnist_cnn.json")
    assert blueprint.name == "mnist_cnn"
    assert blueprint.input_shape == (1, 28, 28)
    assert [l.type for l in blueprint.layers] == [
        *("conv2d", "maxpool2d", "conv2d", "maxpool2d", "flatten", "linear", "linear")
    ]
    assert blueprint.layers[0].fields == {
        **{"in_channels": 1, "out_channels": 32, "kernel_size": 3, "stride": 1, "padding": 1},
        **{"activation": "relu", "algorithm": "winograd"},
    }
    assert blueprint.layers[2].fields["padding"] == "same"
    assert blueprint.layers[3].fields["kernel_size"] == [2, 2]
    assert blueprint.layers[5].fields["in_features"] == 3136
    assert blueprint.layers[6].fields["in_features"] == 128
    assert [l.line for l in blueprint.layers] == [5, 8, 9, 12, 13, 14, 15]
    assert blueprint.layers[5].where == "mnist_cnn.json: layers[5] (linear), line 14"
    assert (blueprint.loss, blueprint.optimizer, blueprint.train) == (Options("cross_entropy"), Options("sgd"), {})


def test_yaml_says_the_same():
    text = """
# the same net, in YAML
name: mnist_cnn
input_shape: [1, 28, 28]
layers:
  - {type: conv2d, in_channels: 1, out_channels: 32, kernel_size: 3, stride: 1, padding: 1, activation: relu,
     algorithm: winograd}
  - type: maxpool2d
    kernel_size: 2
    stride: 2
  - {type: conv2d, in_channels: 32, out_channels: 64, kernel_size: 3, padding: same, activation: relu}
  - {type: maxpool2d, kernel_size: [2, 2], stride: 2}
  - flatten
  - {type: linear, in_features: 64*7*7, out_features: 128, activation: relu}
  - type: linear
    in_features: 64 * 2
    out_features: 10
    activation: none
"""
    blueprint = parse(text, "mnist_cnn.yaml")
    assert blueprint == parse(CNN)
    assert [l.line for l in blueprint.layers] == [6, 8, 11, 12, 13, 14, 15]


def test_every_key_is_read():
    blueprint = parse(EVERYTHING)
    assert blueprint.resolved["description"] == "All keys // in one é😀"
    assert blueprint.labels == ("cat", "dog", "3")
    assert blueprint.preprocessing == {
        **{"resize": "area", "fit": "letterbox", "color": "rgb", "invert": "always"},
        **{"mean": [125.0, 123.0, 114.0], "std": 64.0, "pad": 128},
    }
    assert blueprint.loss == Options("cross_entropy", {"label_smoothing": 0.1, "class_weights": [1.0, 2.0, 3.0]})
    assert blueprint.optimizer == Options("sgd", {"nesterov": True, "momentum": 0.9, "weight_decay": 1e-4})
    assert blueprint.train == {
        **{"epochs": 20, "batch_size": 128, "learning_rate": 0.05, "warmup": 1.0, "clip_norm": 5.0},
        **{"clip_value": 0.5, "accumulation": 2, "validation_split": 0.2, "seed": 2**64 - 1},
        "schedule": Options("step", {"factor": 0.2, "milestones": [0.5, 0.75]}),
        "early_stopping": {"patience": 3, "min_delta": 0.0, "monitor": "accuracy"},
    }


def test_layers_become_what_the_graph_builds_from():
    found = parse(EVERYTHING).layers
    assert [l.type for l in found[:4]] == ["flatten", "activation", "activation", "activation"]
    assert [l.fields for l in found[1:4]] == [
        {"activation": "relu"},
        {"activation": "leaky_relu", "alpha": 0.2},
        {"activation": "gelu"},
    ]
    assert found[2].name == "leak"
    assert found[4].fields == {"activation": "leaky_relu", "alpha": 0.1, "shortcut": "projection"}
    assert found[4].layers[0].fields == {"out_features": 8, "bias": False}
    assert found[4].layers[0].where == "blueprint: layers[4].layers[0] (linear), line 11"
    assert found[4].shortcut is None
    assert found[5].fields == {"activation": "none"}
    assert [l.fields for l in found[5].shortcut] == [{"activation": "tanh"}]
    assert found[5].shortcut[0].where == "blueprint: layers[5].shortcut[0] (tanh), line 13"
    assert found[6].fields == {
        **{"hidden_features": 12, "activation": "gelu", "side": "identity", "weight_init": "xavier"}
    }
    assert found[7].fields == {
        **{"out_channels": 24, "expand": 4, "kernel_size": 3, "stride": [1, 2]},
        **{"activation": "relu6", "batchnorm": False},
    }
    assert found[8].fields == {"rate": 0.1}


@pytest.mark.parametrize("text", [CNN, EVERYTHING, one_layer('"relu"')])
def test_the_resolved_blueprint_is_json_and_says_the_same(text):
    blueprint = parse(text)
    again = parse(json.dumps(blueprint.resolved), "elsewhere.json")
    assert again == blueprint
    assert json.dumps(again.resolved) == json.dumps(blueprint.resolved)
    assert parse(yaml.safe_dump(blueprint.resolved)) == blueprint


def test_words_mean_the_same_in_json_and_yaml():
    words = ["a: 1e-3", "b: 010", "c: no", 'd: "true"', "e: True", "f: ~", "g: null", "h: 2*3*4", "i: -.5", "j: 1_0"]
    words += ["k: .inf", 'l: "\\ud83d\\ude00\\/"']
    want = {"a": 1e-3, "b": 10, "c": "no", "d": "true", "e": True, "f": None, "g": None, "h": 24, "i": -0.5}
    want |= {"j": "1_0", "k": ".inf", "l": "😀/"}
    assert read("\n".join(words), "").plain() == want
    assert read("{" + ", ".join(words) + "}", "").plain() == want


def test_null_counts_as_not_written():
    blueprint = parse(
        '{"input_shape": [4], "layers": [{"type": "linear", "out_features": 2, "activation": null, "name": null}], '
        '"loss": null, "labels": null, "clip_norm": null, "early_stopping": null, "optimizer": null}'
    )
    assert blueprint == parse('{"input_shape": 4, "layers": [{"type": "linear", "out_features": 2}]}')


@pytest.mark.parametrize(
    ("written", "want"),
    [("4", 4), ("true", 5), ("false", None), ('{"patience": 7}', 7), ("{}", 5)],
)
def test_early_stopping_may_be_a_patience_alone(written, want):
    found = parse(one_layer('"relu"', early_stopping=written)).train.get("early_stopping")
    assert (found and found["patience"]) == want


def test_settings_come_from_the_command_line_then_the_blueprint_then_the_defaults():
    blueprint = parse(one_layer('"relu"', epochs=3, batch_size=8, optimizer='"adam"', schedule='"cosine"'))
    settings = train_settings(blueprint, {"epochs": 5, "seed": None})
    assert (settings["epochs"], settings["batch_size"], settings["accumulation"]) == (5, 8, 1)
    assert settings["learning_rate"] == 0.001
    assert settings["schedule"] == Options("cosine")
    assert settings["clip_norm"] is settings["early_stopping"] is None
    assert train_settings(parse(one_layer('"relu"', learning_rate=0.5)))["learning_rate"] == 0.5


def test_command_line_values_are_checked_as_those_of_the_blueprint():
    assert blueprints.check_train("epochs", 5, "--epochs") == 5
    with pytest.raises(UserError, match="--epochs: epochs is 0, but a whole number from 1 to 1000000 is expected"):
        blueprints.check_train("epochs", 0, "--epochs")


# ---- layers and operators fit together


@pytest.mark.parametrize("name", [name for name in OPS if name in TYPES])
def test_every_case_of_an_operator_can_be_written_as_a_layer(name):
    for case in OPS[name].CASES:
        given = {key: value for key, value in case.items() if key != "x"}
        if name == "activation":
            given.setdefault("activation", "none")
        if given.get("alpha") and given.get("activation") != "leaky_relu":
            continue
        found = layer(json.dumps({"type": name, **given}))
        assert make_attrs(OPS[name].OP, found.fields) == make_attrs(OPS[name].OP, given)


@pytest.mark.parametrize("name", [name for name in OPS if name in TYPES])
def test_the_blueprint_refuses_what_the_operator_refuses(name):
    fields = {f.name: f for f in layer_fields(name)}
    for attr in OPS[name].OP.attrs:
        for value in (attr.lo, attr.hi):
            assert check(fields[attr.name], value, "") == value
        for value in (attr.lo - 1, attr.hi + 1, "many", [1] * 9, [], None):
            with pytest.raises(UserError):
                check(fields[attr.name], value, "")


def test_types_are_operators_of_one_input_patterns_and_activations():
    assert set(PATTERNS) < set(TYPES)
    assert set(activations.IDS) - {"none"} < set(TYPES)
    imported = {name for name, module in OPS.items() if module.OP.imported}
    assert {name for name in OPS if name not in TYPES} == {"add", "conv2d_pool", "batchnorm_add"} | imported


# ---- files


def test_a_file_is_read_and_gives_its_name(tmp_path):
    path = tmp_path / "my net (2).json"
    path.write_text(one_layer('"relu"'), encoding="utf-8")
    blueprint = load(path)
    assert blueprint.name == "my_net__2_"
    assert blueprint.where == "my net (2).json"
    assert blueprint.layers[0].where == "my net (2).json: layers[0] (relu), line 3"
    assert load(str(path)) == blueprint


def test_files_saved_by_windows_are_read(tmp_path):
    path = tmp_path / "net.json"
    for encoding in ("utf-8-sig", "utf-16"):
        path.write_bytes(one_layer('{"type": "relu", "name": "é"}').replace("\n", "\r\n").encode(encoding))
        assert load(path).layers[0].name == "é"


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"", "net.json: the blueprint is empty"),
        (b"LNET\1\0", "this is a LiteNet model, not a blueprint"),
        (b"PK\3\4...", "this is an archive, such as .npz, not a blueprint"),
        (b"\x89PNG\r\n", "this is a picture, not a blueprint"),
        (b"{\n'caf\xe9'", "net.json, line 2: the text is not UTF-8"),
        (b"{}\0\0", "the file holds zero bytes"),
        (b" " * (blueprints.MAX_BYTES + 1), "the file is larger than 256 KiB"),
    ],
)
def test_a_file_that_is_no_blueprint_is_refused(tmp_path, data, sentence):
    path = tmp_path / "net.json"
    path.write_bytes(data)
    with pytest.raises(UserError) as error:
        load(path)
    assert sentence in str(error.value)


def test_a_missing_file_is_refused_with_the_one_meant(tmp_path):
    (tmp_path / "mnist_cnn.json").write_text("{}")
    for name, remedy in (("mnist_cmn.json", "Did you mean"), ("zzz.json", "Check the path"), ("no/net.json", "folder")):
        with pytest.raises(UserError, match="there is no such file") as error:
            load(tmp_path / name)
        assert remedy in str(error.value)


def test_folders_and_impossible_paths_are_refused(tmp_path):
    with pytest.raises(UserError, match="this is a folder"):
        load(tmp_path)
    (tmp_path / "file").write_text("{}")
    with pytest.raises(UserError, match="the file cannot be read"):
        load(tmp_path / "file" / "net.json")
    with pytest.raises(UserError, match="the file cannot be read"):
        load(Path("net\0.json"))
