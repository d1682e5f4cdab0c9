"""edge-infer and the engine in hard circumstances: all kinds of pictures, odd paths, thousands of files, numbers at the
edge of what float32 holds."""

from __future__ import annotations

import io
import json
import os
import shutil
import struct
import subprocess
import sys
import tarfile
from pathlib import Path

import bins
import cv2
import numpy as np
import pytest
from frozen import FILES
from test_image import DATA, needs_samples
from test_open import repaired

from litenet.pyruntime import InferenceEngine, ModelError
from litenet.pyruntime.answers import answer, probabilities
from litenet.pyruntime.kernels import KERNELS, lib

MEGABYTE = 1 << 20
ODD = ["two words.bin", "模型 早疫病.bin", "🍅 é.bin", "-dash.bin", "quote'\"$HOME;.bin"]


def infer(*argv, **options):
    """(exit code, lines, complaints, most memory in bytes) of edge-infer in a process of its own."""
    script = (
        "import pathlib, resource, sys; from litenet.pyruntime.cli import main; code = main(sys.argv[1:]); "
        "status = pathlib.Path('/proc/self/status'); "  # what getrusage says there is at least the parent's
        "text = status.read_text() if status.exists() else ''; "
        "print(text.split('VmHWM:')[1].split()[0] if text else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss); "
        "sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *map(str, argv)], capture_output=True, check=False, timeout=600, **options
    )
    *lines, most = done.stdout.decode("utf-8", "surrogateescape").splitlines()
    unit = 1 if sys.platform == "darwin" else 1024
    return done.returncode, lines, done.stderr.decode("utf-8", "surrogateescape").splitlines(), int(most) * unit


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "digits.bin"
    path.write_bytes(bins.digits().bytes())
    return path


@pytest.fixture
def picture(tmp_path):
    path = tmp_path / "seven.png"
    cv2.imwrite(str(path), np.random.default_rng(1).integers(0, 256, (28, 28), np.uint8))
    return path


# ---------------------------------------------------------------- pictures


@needs_samples
def test_all_sample_pictures_in_one_process_are_answered_or_refused_within_512_megabytes(model, tmp_path):
    """Corrupt, cut off, CMYK, 16 bits, turned, bombs: one line each, on one stream or the other."""
    with tarfile.open(DATA / "test_images.tar") as tar:
        names = [m.name for m in tar if m.isfile()]
        for name in names:
            path = tmp_path / "samples" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(tar.extractfile(name).read())
    code, lines, complaints, most = infer(model, *(tmp_path / "samples" / name for name in names), "--json")
    assert code == 1 and len(names) == 332
    answered = [Path(json.loads(line)["file"]) for line in lines]
    assert len(answered) + len(complaints) == len(names)
    assert all(line.startswith("edge-infer: ") and line.endswith(".") for line in complaints)
    assert len(answered) > 200
    assert most < 512 * MEGABYTE, f"{most / MEGABYTE:.0f} MB"


# ---------------------------------------------------------------- paths


@pytest.mark.parametrize("name", ODD)
def test_odd_names_of_models_and_pictures(model, picture, tmp_path, name):
    place = tmp_path / name.removesuffix(".bin")
    place.mkdir()
    shutil.copy(model, place / name)
    shutil.copy(picture, place / f"{name}.png")
    code, lines, complaints, _ = infer(place / name, place / f"{name}.png", "--json")
    assert (code, complaints) == (0, [])
    assert json.loads(lines[0])["file"] == str(place / f"{name}.png")
    absent = place / f"absent {name}"
    code, _, complaints, _ = infer(absent, place / f"{name}.png")
    assert code == 1 and complaints == [f"edge-infer: {absent} does not exist; check the path of the model."]


def test_a_name_that_is_no_text_at_all(model, picture, tmp_path):
    odd = os.fsencode(tmp_path) + b"/caf\xe9.png"
    try:
        with open(odd, "wb") as file:  # noqa: PTH123
            file.write(picture.read_bytes())
    except OSError:
        pytest.skip("the file system takes UTF-8 names only")
    code, lines, complaints, _ = infer(model, os.fsdecode(odd))
    assert (code, len(lines), complaints) == (0, 1, [])


def test_a_model_that_is_read_only_or_a_link_or_in_a_read_only_folder(model, picture, tmp_path):
    link = tmp_path / "link.bin"
    link.symlink_to(model)
    model.chmod(0o444)
    assert infer(link, picture)[0] == 0
    dangling = tmp_path / "dangling.bin"
    dangling.symlink_to(tmp_path / "absent")
    code, _, complaints, _ = infer(dangling, picture)
    assert code == 1 and complaints == [f"edge-infer: {dangling} does not exist; check the path of the model."]


def test_a_picture_from_standard_input(model, picture):
    code, lines, _, _ = infer(model, "-", input=picture.read_bytes())
    assert code == 0 and len(lines) == 1
    for given, sentence in ((b"", "is empty"), (b"GIF8", "standard input")):
        code, lines, complaints, _ = infer(model, "-", input=given)
        assert code == 1 and len(complaints) == 1 and sentence in complaints[0]


def test_a_model_that_is_cut_short_while_it_runs_ends_with_a_sentence(model, picture):
    """The second picture comes when the file has lost its weights."""
    large = bins.Bin((28, 28, 1), bins.GRAY, metadata={"labels": list("0123456789")})
    model.write_bytes(large.add("flatten").add("linear", out_features=4096).add("linear", out_features=10).bytes())
    script = (
        "import os, sys; from litenet.pyruntime import cli; plain = cli._answer\n"
        "def cut(*a):\n    status = plain(*a)\n    os.truncate(sys.argv[1], 4096)\n    return status\n"
        "cli._answer = cut; sys.exit(cli.main(sys.argv[1:]))"
    )
    argv = [sys.executable, "-c", script, model, picture, picture, "--kernels", "portable"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and len(done.stdout.splitlines()) == 1
    assert done.stderr == (
        f"edge-infer: {model} was cut short while it was in use; run again. To replace a model, write the new one "
        "beside it and rename it.\n"
    )


def many(model, picture, folder, count):
    """Most memory of one call on so many pictures."""
    folder.mkdir()
    for n in range(count):
        os.link(picture, folder / f"{n:05}.png")
    code, lines, complaints, most = infer(model, folder)
    assert (code, len(lines), complaints) == (0, count, [])
    return most


@pytest.mark.parametrize("count", [1000, pytest.param(10_000, marks=pytest.mark.slow)])
def test_thousands_of_pictures_take_the_memory_of_a_few(model, picture, tmp_path, count):
    few = many(model, picture, tmp_path / "few", 20)
    assert many(model, picture, tmp_path / "many", count) < few + 8 * MEGABYTE


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads /proc/self/statm")
def test_a_small_file_that_asks_for_gigabytes_takes_what_it_uses():
    data = bytearray(bins.mlp().bytes())
    struct.pack_into("<I", data, 92, 0xF0000000)
    code = (
        "import sys, numpy as np; from pathlib import Path; from litenet.pyruntime import InferenceEngine; "
        "pages = lambda: int(Path('/proc/self/statm').read_text().split()[1]); before = pages(); "
        "engine = InferenceEngine(sys.stdin.buffer.read()); engine.predict(np.zeros(engine.input_shape, np.float32)); "
        "print(pages() - before)"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, input=repaired(data), capture_output=True, check=False)
    if b"are not to be had here" in done.stderr:
        pytest.skip("this system has not even the addresses")
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) * os.sysconf("SC_PAGE_SIZE") < 64 * MEGABYTE


def test_a_model_that_needs_more_memory_than_there_is_says_so(monkeypatch):
    def refuse(*_, **__):
        raise OSError(12, "Cannot allocate memory")

    data = bins.mlp().bytes()
    monkeypatch.setattr("litenet.pyruntime.kernels.mmap.mmap", refuse)
    with pytest.raises(ModelError, match="^The model needs [0-9,]+ bytes of memory, which are not to be had here.$"):
        InferenceEngine(data, kernels="portable")


# ---------------------------------------------------------------- numbers


HERE = ["portable", *(name for name, number in KERNELS.items() if lib.ln_fast_has(number))]
NOT_FINITE = [np.nan, np.inf, -np.inf]


@pytest.mark.parametrize("value", NOT_FINITE)
@pytest.mark.parametrize("kernels", HERE)
def test_an_input_that_is_no_number_is_reported_and_not_classified(kernels, value):
    for path in FILES:
        engine = InferenceEngine(path, kernels=kernels)
        x = np.zeros(engine.input_shape, np.float32)
        for place in (0, x.size // 2, x.size - 1):
            x.flat[place] = value
            for given in (x, np.stack([np.zeros_like(x), x])):
                with pytest.raises(ModelError, match="^The input holds NaN or infinity, so there is no answer.$"):
                    engine.predict(given)
            x.flat[place] = 0
        engine.predict(x)


@pytest.mark.parametrize("kernels", HERE)
def test_denormal_and_largest_inputs_give_numbers_or_say_so(kernels):
    for path in FILES:
        engine = InferenceEngine(path, kernels=kernels)
        for value in (1e-45, -1e-40, 1.1754944e-38):
            y = engine.predict(np.full(engine.input_shape, value, np.float32))
            for part in y if isinstance(y, tuple) else (y,):
                if path.stem != "unary":
                    assert np.isfinite(part).all(), path.name


LOGITS = {
    "all equal": [3.0] * 4,
    "all zero": [0.0] * 4,
    "one extreme": [1e30, 0, 0, 0],
    "both extremes": [1e30, -1e30, 1e30, 0],
    "all largest": [3.4e38] * 4,
    "all smallest": [-3.4e38] * 4,
    "denormal": [1e-45, 0, -1e-45, 0],
}


@pytest.mark.parametrize("name", LOGITS)
def test_extreme_logits_give_finite_probabilities_that_add_up(name):
    z = np.array(LOGITS[name], np.float32)
    plain = bins.Bin((4,), metadata={"loss": "cross_entropy"}).add("linear", out_features=4)
    softmax = bins.Bin((4,), metadata={"loss": "cross_entropy"}).add("softmax")
    rule = {"margin": 0.5, "energy": -1.0, "temperature": 1.7}
    for net, y in ((plain, z), (softmax, None)):
        for more in ({}, {"unknown": rule}):
            net.metadata |= more
            for kernels in HERE:
                engine = InferenceEngine(net.bytes(), kernels=kernels)
                p = probabilities(engine, engine.predict(z) if y is None else y)
                assert np.isfinite(p).all() and p.sum() == pytest.approx(1, abs=1e-6)
                said = answer(engine, "x", engine.predict(z) if y is None else y, 0.0, 4)
                json.dumps(said, allow_nan=False)


def test_an_answer_that_overflowed_is_reported_and_not_classified():
    net = bins.Bin((4,), metadata={"loss": "cross_entropy"}).add("linear", out_features=4)
    engine = InferenceEngine(net.bytes(golden=0))
    y = engine.predict(np.full(4, 3.4e38, np.float32))
    assert not np.isfinite(y).all()
    with pytest.raises(ModelError, match="the net's answer is not a finite number"):
        answer(engine, "x.png", y, 0.0, 1)


def test_a_file_object_is_not_taken_for_a_model():
    with pytest.raises((ModelError, TypeError)):
        InferenceEngine(io.BytesIO(b"LNET"))
