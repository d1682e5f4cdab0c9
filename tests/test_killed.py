"""Killed at any moment of looking at photos, decoding, training or exporting: nothing half-written, and what is started
again ends with the bits of a run that nobody killed."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from photos import folder as photo_folder

from litenet.pyruntime import InferenceEngine
from litenet.trainer import checkpoint

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not hasattr(os, "killpg"), reason="this system has no groups of processes"),
]
RUNS, EXPORTS = 5, 8
NET = {
    "name": "net",
    "input_shape": [3, 24, 24],
    "layers": [
        {"type": "conv2d", "out_channels": 8, "kernel_size": 3, "stride": 2, "padding": 1, "bias": False},
        {"type": "batchnorm", "activation": "relu"},
        {"type": "global_avg_pool"},
        {"type": "dropout", "rate": 0.2},
        {"type": "linear", "out_features": 2},
    ],
    "optimizer": "adamw",
    "batch_size": 8,
    "epochs": 30,
    "ema": 0.99,
    "augmentation": {"flip": "both", "rotate": 180, "scale": 0.2, "tint": 0.2, "cutmix": 1.0},
}


def command(module, *words, cwd):
    """A process, and those it starts, in a group of their own."""
    return subprocess.Popen(
        [sys.executable, "-m", f"litenet.{module}", *map(str, words)], cwd=cwd, start_new_session=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def finished(module, *words, cwd):
    """Seconds that it took."""
    began, process = time.monotonic(), command(module, *words, cwd=cwd)
    said = process.communicate()[1]
    assert process.returncode == 0, said
    return time.monotonic() - began


def killed(module, *words, cwd, once=".", after=0.0):
    """Whether it was still at work so many seconds after a file was there, and is dead now, with all its helpers."""
    process = command(module, *words, cwd=cwd)
    while process.poll() is None and not (cwd / once).exists():
        time.sleep(0.001)
    try:
        said = process.communicate(timeout=after)[1]
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return True
    assert process.returncode == 0, said
    return False


def training(folder, name):
    """How the run goes on: from its last checkpoint, or from the start."""
    if (folder / name / "last.npz").exists():
        return ("--resume", name, "--quiet")
    return ("net.json", "--data", "photos", "--cache", f"{name}-cache", "--out", name, "--quiet", "--save-every", 1)


def every_file_is_whole(folder):
    for path in Path(folder).rglob("*"):
        if path.is_dir() or path.suffix == ".tmp":  # beside what it would have become
            continue
        if path.suffix == ".npz":
            assert checkpoint.load(path).arrays
        elif path.suffix == ".npy":
            assert len(np.load(path, mmap_mode="r")) == 120
        elif path.suffix == ".json":
            json.loads(path.read_text())
        elif path.name == "metrics.jsonl":
            assert all(json.loads(line)["epoch"] for line in path.read_text().splitlines())
        elif path.suffix == ".html":
            assert path.read_text().endswith("</html>\n")
        elif path.suffix == ".bin":
            InferenceEngine(path).close()  # checks its sums


def outcome(run):
    """All that counts: weights, optimizer and averages bit by bit, and figures."""
    found = {}
    for which in ("best", "last"):
        saved = checkpoint.load(run / f"{which}.npz")
        found |= {f"{which} {name}": (array.dtype.str, array.tobytes()) for name, array in saved.arrays.items()}
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return found, [{k: v for k, v in row.items() if k != "seconds"} for row in rows], (run / "test.json").read_text()


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with photos, a blueprint, and a run and a .bin that nobody killed."""
    folder = tmp_path_factory.mktemp("killed")
    photo_folder(folder / "photos", each=60, suffix=".jpg", size=(300, 400))
    (folder / "net.json").write_text(json.dumps(NET))
    (folder / "took.json").write_text(json.dumps({
        "train": finished("trainer", *training(folder, "whole"), cwd=folder),
        "export": finished("exporter", "whole", "-o", "whole.bin", cwd=folder),
    }))  # fmt: skip
    return folder


@pytest.mark.parametrize("n", range(RUNS))
def test_a_run_on_photos_that_is_killed_again_and_again_ends_with_the_same_bits(place, n):
    chance, name = random.Random(n), f"run{n}"
    took, hits = json.loads((place / "took.json").read_text())["train"], 0
    for begun in (".", f"{name}-cache", name, f"{name}/last.npz", f"{name}/best.npz"):
        after = chance.uniform(0, took if begun == "." else 0.5)
        hits += killed("trainer", *training(place, name), cwd=place, once=begun, after=after)
        every_file_is_whole(place)
    assert hits
    finished("trainer", *training(place, name), cwd=place)
    every_file_is_whole(place)
    assert outcome(place / name) == outcome(place / "whole")
    frames = [next((place / f"{which}-cache").glob("*.npy")).read_bytes() for which in (name, "whole")]
    assert frames[0] == frames[1]


def test_a_bin_is_there_as_a_whole_or_not_at_all(place):
    chance, hits = random.Random(99), 0
    took = json.loads((place / "took.json").read_text())["export"]
    with InferenceEngine(place / "whole.bin") as engine:
        want = engine.predict(np.zeros(engine.input_shape, np.float32))
    for _ in range(EXPORTS):
        hits += killed("exporter", "whole", "-o", "net.bin", cwd=place, after=chance.uniform(0, 1.1 * took))
        every_file_is_whole(place)
    assert hits
    finished("exporter", "whole", "-o", "net.bin", cwd=place)
    with InferenceEngine(place / "net.bin") as engine:
        assert np.array_equal(engine.predict(np.zeros(engine.input_shape, np.float32)), want)
