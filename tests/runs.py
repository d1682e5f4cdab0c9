"""A small run of edge-train to look at: a folder with a net and pictures, and how the command is called in it."""

import json

from test_loop import LAYERS

from litenet.trainer.cli import main

NET = {
    "name": "small",
    "input_shape": [1, 8, 8],
    "layers": LAYERS,
    "optimizer": {"type": "sgd", "momentum": 0.9},
    "learning_rate": 0.05,
    "batch_size": 5,
    "epochs": 2,
    "seed": 3,
}


def changed(folder, name="net.json", **more):
    """Write the blueprint with some keys changed; its name."""
    (folder / name).write_text(json.dumps(NET | more))
    return name


def train(*more, blueprint="net.json", data="pictures.npz"):
    return main([blueprint, "--data", data, *map(str, more)])


def mistake(capsys, code, *arguments):
    """The one sentence that a command is answered with."""
    assert main(list(map(str, arguments))) == code == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("edge-train: ")
    assert err.endswith("\n")
    assert "Traceback" not in err
    return err[len("edge-train: ") :].rstrip("\n")
