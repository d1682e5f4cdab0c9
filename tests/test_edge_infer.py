"""edge-infer as a user meets it: answers, sentences, exit codes, and pipes that close."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import bins
import cv2
import numpy as np
import pytest

from litenet.pyruntime import InferenceEngine, decode
from litenet.pyruntime.cli import main


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with models and pictures, and the working directory."""
    monkeypatch.chdir(tmp_path)
    labels = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
    (tmp_path / "digits.bin").write_bytes(bins.digits(labels).bytes())
    (tmp_path / "mlp.bin").write_bytes(bins.mlp().bytes())
    rng = np.random.default_rng(9)
    cv2.imwrite("seven.png", rng.integers(0, 256, (28, 28), np.uint8))
    cv2.imwrite("photo.jpg", rng.integers(0, 256, (60, 80, 3), np.uint8))
    return tmp_path


def run(capfd, *argv):
    """(exit code, lines on standard output, lines on standard error) of main, run here."""
    try:
        code = main(argv)
    except SystemExit as ended:
        code = ended.code
    out, err = capfd.readouterr()
    return code, out.splitlines(), err.splitlines()


def command(*argv, **options):
    """The same in a process of its own."""
    line = [sys.executable, "-m", "litenet.pyruntime", *argv]
    return subprocess.run(line, capture_output=True, check=False, **options)


def probabilities(model, picture):
    engine = InferenceEngine(model)
    y = engine.predict_image(*decode(picture)).astype(np.float64)
    e = np.exp(y - y.max())
    return engine.labels, e / e.sum()


# ---- answers


def test_the_answer_is_file_label_and_probability(place, capfd):
    labels, p = probabilities("digits.bin", "seven.png")
    code, out, err = run(capfd, "digits.bin", "seven.png")
    assert (code, err) == (0, [])
    assert out == [f"seven.png  {labels[p.argmax()]}  {100 * p.max():.1f} %"]


def test_top_shows_the_runners_up(place, capfd):
    labels, p = probabilities("digits.bin", "seven.png")
    code, out, _ = run(capfd, "digits.bin", "--top", "3", "seven.png")
    assert code == 0
    order = np.argsort(-p)[:3]
    assert [line.replace("seven.png", "").split() for line in out] == [
        [labels[i], f"{100 * p[i]:.1f}", "%"] for i in order
    ]
    assert len({line.index("%") for line in out}) == 1
    assert len(run(capfd, "digits.bin", "seven.png", "--top", "99")[1]) == 10


def test_json_has_the_documented_keys(place, capfd):
    labels, p = probabilities("digits.bin", "seven.png")
    code, out, err = run(capfd, "digits.bin", "seven.png", "photo.jpg", "--json")
    assert (code, err, len(out)) == (0, [], 2)
    first = json.loads(out[0])
    assert list(first) == ["file", "label", "index", "probability", "top", "microseconds"]
    assert first["file"] == "seven.png"
    assert first["label"] == labels[first["index"]]
    assert abs(first["probability"] - p.max()) <= 1e-6
    assert len(first["top"]) == 5
    assert list(first["top"][0]) == ["label", "index", "probability"]
    assert first["top"][0]["label"] == first["label"]
    assert len(json.loads(run(capfd, "digits.bin", "seven.png", "--json", "--top", "1")[1][0])["top"]) == 1


def test_a_softmax_in_the_net_is_not_applied_twice(place, capfd):
    (place / "colors.bin").write_bytes(bins.colors().bytes())
    y = InferenceEngine("colors.bin").predict_image(*decode("photo.jpg"))
    found = json.loads(run(capfd, "colors.bin", "photo.jpg", "--json")[1][0])
    assert found["label"] == str(y.argmax())
    assert abs(found["probability"] - y.max()) <= 1e-6


def picture_net(loss, outputs, activation="none", labels=None):
    meta = {"loss": loss, **({"labels": labels} if labels else {})}
    net = bins.Bin((28, 28, 1), bins.GRAY, metadata=meta).add("flatten")
    return net.add("linear", out_features=outputs, activation=activation)


def test_a_regression_net_gives_values(place, capfd):
    (place / "net.bin").write_bytes(picture_net("mse", 3).bytes())
    y = InferenceEngine("net.bin").predict_image(*decode("seven.png"))
    code, out, _ = run(capfd, "net.bin", "seven.png")
    assert code == 0
    assert out == ["seven.png  " + "  ".join(f"{v:.6g}" for v in y)]
    found = json.loads(run(capfd, "net.bin", "seven.png", "--json")[1][0])
    assert list(found) == ["file", "values", "microseconds"]
    assert np.abs(np.array(found["values"]) - y).max() <= 1e-6


def test_many_values_are_cut_in_text_and_whole_in_json(place, capfd):
    (place / "net.bin").write_bytes(picture_net("mse", 30).bytes())
    assert "(30 values; --json gives all)" in run(capfd, "net.bin", "seven.png")[1][0]
    assert len(json.loads(run(capfd, "net.bin", "seven.png", "--json")[1][0])["values"]) == 30


@pytest.mark.parametrize("activation", ["none", "sigmoid"])
def test_a_single_bce_output_decides_between_two_classes(place, capfd, activation):
    (place / "net.bin").write_bytes(picture_net("bce", 1, activation, ["cat", "dog"]).bytes())
    y = float(InferenceEngine("net.bin").predict_image(*decode("seven.png"))[0])
    p = y if activation == "sigmoid" else 1 / (1 + np.exp(-y))
    found = json.loads(run(capfd, "net.bin", "seven.png", "--json")[1][0])
    assert found["label"] == ("dog" if p > 0.5 else "cat")
    assert abs(found["probability"] - max(p, 1 - p)) <= 1e-5


def test_a_folder_gives_all_its_pictures_sorted(place, capfd):
    inner = place / "many" / "b"
    inner.mkdir(parents=True)
    for name in ("many/2.png", "many/1.PNG", "many/b/0.png"):
        (place / name).write_bytes((place / "seven.png").read_bytes())
    (place / "many" / "notes.txt").write_text("not a picture")
    code, out, err = run(capfd, "digits.bin", "many")
    assert (code, err) == (0, [])
    assert [line.split()[0] for line in out] == [
        os.path.join("many", "1.PNG"),  # noqa: PTH118
        os.path.join("many", "2.png"),  # noqa: PTH118
        os.path.join("many", "b", "0.png"),  # noqa: PTH118
    ]


def test_standard_input_is_a_picture(place):
    done = command("digits.bin", "-", input=(place / "seven.png").read_bytes())
    assert done.returncode == 0
    assert done.stdout.decode().startswith("-  ")
    assert done.stdout.split()[1:] == command("digits.bin", "seven.png").stdout.split()[1:]
    done = command("digits.bin", "-", input=b"")
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr.decode().startswith("edge-infer: standard input is empty")


def test_labels_the_terminal_cannot_show_do_not_end_the_run(place):
    (place / "net.bin").write_bytes(bins.digits(labels=["\u732b"] * 10).bytes())
    done = command("net.bin", "seven.png", env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0
    assert b"\\u732b" in done.stdout


# ---- reports


def test_info_shows_sizes_preprocessing_layers_and_origin(place, capfd):
    more = {"accuracy": 0.9912, "dataset": {"name": "mnist", "samples": 60000}, "parity": {"samples": 256}}
    net = bins.digits(metadata=more)
    (place / "net.bin").write_bytes(net.bytes())
    code, out, err = run(capfd, "net.bin", "--info")
    text = "\n".join(out)
    assert (code, err) == (0, [])
    for part in ("28 x 28 x 1", f"{len(net.bytes()):,} bytes", "gray, stretch, area", "(pixel - 33) / 78", "99.12 %"):
        assert part in text
    for part in ("name mnist, samples 60000", "samples 256", "conv2d0", "14 x 14 x 4", "28,224", "float32"):
        assert part in text
    found = json.loads(run(capfd, "net.bin", "--info", "--json")[1][0])["info"]
    assert found["file_bytes"] == len(net.bytes())
    assert found["preprocessing"]["color"] == "gray"
    assert [layer["op"] for layer in found["layers"]] == ["conv2d", "maxpool2d", "flatten", "linear"]
    assert run(capfd, "mlp.bin", "--info")[0] == 0


def test_selftest_passes_or_fails_with_the_exit_code(place, capfd):
    assert run(capfd, "digits.bin", "--selftest") == (0, ["self-test passed"], [])
    assert json.loads(run(capfd, "digits.bin", "--selftest", "--json")[1][0]) == {"selftest": "passed"}
    (place / "bare.bin").write_bytes(bins.mlp().bytes(golden=0))
    code, out, err = run(capfd, "bare.bin", "--selftest")
    assert (code, out, len(err)) == (1, [], 1)


def test_bench_measures_with_or_without_a_picture(place, capfd, monkeypatch):
    from litenet.pyruntime import bench

    monkeypatch.setattr(bench, "WARM_SECONDS", 0.01)
    code, out, err = run(capfd, "mlp.bin", "--bench")
    assert (code, err) == (0, [])
    words = [line.split()[0] for line in out if line]
    assert words[:5] == ["load", "first", "warm", "memory", "kernels"]
    assert words[words.index("verdict") + 1] == "layer"
    found = json.loads(run(capfd, "digits.bin", "seven.png", "--bench", "--json")[1][0])["bench"]
    assert found["p50_us"] <= found["p95_us"] <= found["p99_us"]
    assert abs(sum(layer["share"] for layer in found["layers"]) - 1) <= 1e-3
    assert found["runs"] >= 19
    portable = json.loads(run(capfd, "digits.bin", "--bench", "--json", "--kernels", "portable")[1][0])["bench"]
    assert portable["kernels"] == "portable" and portable["peak_gflops"] is None
    assert {layer["algorithm"] for layer in portable["layers"]} == {"portable"}
    assert run(capfd, "digits.bin", "--bench", "--kernels", "mmx")[0] == 1


def test_trace_shows_each_layer(place, capfd):
    code, out, _ = run(capfd, "digits.bin", "--trace", "seven.png")
    assert code == 0
    assert [line.split()[0] for line in out[1:]] == ["layer", "conv2d0", "maxpool2d1", "flatten2", "linear3"]
    found = json.loads(run(capfd, "digits.bin", "seven.png", "--trace", "--json")[1][0])
    assert found["layers"][1]["shape"] == [14, 14, 4]


# ---- what goes wrong


def wrong_inputs(place):
    good = (place / "digits.bin").read_bytes()
    (place / "note.jpg").write_text("just a text file, named .jpg\n")
    (place / "empty.png").write_bytes(b"")
    (place / "cut.png").write_bytes((place / "seven.png").read_bytes()[:200])
    (place / "cut.jpg").write_bytes((place / "photo.jpg").read_bytes()[:2000])
    (place / "torn.png").write_bytes((place / "seven.png").read_bytes().replace(b"IDAT", b"IDAT\xff", 1))
    (place / "cut.bin").write_bytes(good[:1000])
    (place / "empty.bin").write_bytes(b"")
    (place / "net.onnx").write_bytes(b"\x08\x07\x12\x07pytorch\x1a\x032.0" + bytes(500))
    (place / "folder").mkdir()
    return [
        ("digits.bin", "none.png"), ("digits.bin", "note.jpg"), ("digits.bin", "empty.png"), ("digits.bin", "cut.png"),
        ("digits.bin", "cut.jpg"), ("digits.bin", "torn.png"), ("digits.bin", "folder"), ("digits.bin", "digits.bin"),
        ("none.bin", "seven.png"), ("cut.bin", "seven.png"), ("empty.bin", "seven.png"), ("net.onnx", "seven.png"),
        ("folder", "seven.png"), ("seven.png", "digits.bin"), ("mlp.bin", "seven.png"), ("note.jpg", "seven.png"),
    ]  # fmt: skip


def test_a_wrong_input_gets_one_line_and_exit_code_1(place, capfd):
    for argv in wrong_inputs(place):
        code, out, err = run(capfd, *argv)
        assert (code, out) == (1, []), argv
        assert len(err) == 1, err
        assert err[0].startswith("edge-infer: ") and err[0].endswith("."), err
        assert "Traceback" not in err[0] and "Error" not in err[0], err


def test_the_codecs_own_complaints_are_not_shown(place):
    """libpng writes to file descriptor 2 itself; one sentence is enough."""
    wrong_inputs(place)
    done = command("digits.bin", "torn.png")
    assert done.returncode == 1
    assert done.stderr.count(b"\n") == 1
    assert b"libpng" not in done.stderr


def test_one_bad_picture_among_many_is_told_and_passed_over(place, capfd):
    wrong_inputs(place)
    code, out, err = run(capfd, "digits.bin", "seven.png", "cut.png", "photo.jpg", "folder", "seven.png")
    assert code == 1
    assert [line.split()[0] for line in out] == ["seven.png", "photo.jpg", "seven.png"]
    assert len(err) == 2


def test_bad_usage_exits_with_2(place, capfd):
    for argv in ((), ("digits.bin",), ("digits.bin", "--trace"), ("digits.bin", "seven.png", "--top", "0"),
                 ("digits.bin", "seven.png", "--top", "x"), ("digits.bin", "--unknown")):  # fmt: skip
        code, out, err = run(capfd, *argv)
        assert (code, out) == (2, []), argv
        assert err


def test_an_answer_that_is_not_a_number_is_not_shown_as_one(place, capfd):
    net = picture_net("cross_entropy", 3)
    net.steps[-1][2]["weight"][:] = 3e38
    (place / "net.bin").write_bytes(net.bytes(golden=0))
    code, out, err = run(capfd, "net.bin", "seven.png")
    assert (code, out, len(err)) == (1, [], 1)
    assert "not a finite number" in err[0]


@pytest.mark.skipif(os.name == "nt", reason="POSIX pipes")
def test_a_closed_pipe_is_no_error(place):
    line = [sys.executable, "-m", "litenet.pyruntime", "digits.bin", *["seven.png"] * 50]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.readline()
        process.stdout.close()
        err = process.stderr.read()
        process.wait(30)
    assert err == b""


@pytest.mark.skipif(os.name == "nt", reason="POSIX signals")
def test_ctrl_c_ends_quietly(place):
    line = [sys.executable, "-m", "litenet.pyruntime", "digits.bin", *["seven.png"] * 5000]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err == b""


def test_help_loads_neither_numpy_nor_opencv():
    code = (
        "import sys\nfrom litenet.pyruntime.cli import main\n"
        "try: main(['--help'])\nexcept SystemExit as end: code = end.code\n"
        "print(code, [m for m in ('numpy', 'cv2', '_cffi_backend') if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "0 []"
    assert "edge-infer" in done.stdout


def test_selftest_and_info_do_not_load_opencv(place):
    code = (
        "import sys\nfrom litenet.pyruntime.cli import main\n"
        "main(['digits.bin', '--info', '--selftest'])\nprint('cv2' in sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "False"
