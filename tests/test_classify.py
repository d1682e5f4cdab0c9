"""runtime_c/examples/classify.c says about a picture what edge-infer says, and in a sentence what is wrong with one."""

from __future__ import annotations

import os
import struct
import subprocess
from pathlib import Path

import bins
import cbuild
import cv2
import int8_nets
import numpy as np
import pytest
from test_open import repaired

from litenet.pyruntime import InferenceEngine, ModelError
from litenet.pyruntime.cli import main as edge_infer

EXAMPLE = cbuild.ROOT / "runtime_c" / "examples" / "classify.c"


@pytest.fixture(scope="module", params=cbuild.COMPILERS)
def classify(request, tmp_path_factory) -> Path:
    """The program: itself with strict warnings and sanitizers, the library without."""
    compiler = request.param
    own = cbuild.objects([EXAMPLE], compiler)
    library = [*cbuild.core(), *cbuild.fast(), cbuild.SRC / "ln_file.c"]
    built = cbuild.objects(library, "gcc", sanitize=False, flags=("-O2",))
    out = tmp_path_factory.mktemp(compiler) / "classify"
    subprocess.run([compiler, *cbuild.SANITIZE, *own, *built, "-o", out, "-lm"], check=True)
    return out


@pytest.fixture
def place(tmp_path, monkeypatch) -> Path:
    """The working directory, with models and pictures."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(3)
    labels = ["ten", 'a "b"\\', "é", "x", "y", "z", "u", "v", "w", "[,]{"]
    Path("digits.bin").write_bytes(bins.digits(labels, metadata={"a": {"labels": ["no"]}}).bytes())
    Path("colors.bin").write_bytes(bins.colors().bytes())
    Path("int8.bin").write_bytes(int8_nets.picture_model(int8_nets.pictures(), loss="cross_entropy"))
    Path("one.bin").write_bytes(bins.Bin((4, 4, 1), bins.GRAY, {"loss": "bce"}).add("flatten")
                                .add("linear", out_features=1).bytes())  # fmt: skip
    Path("values.bin").write_bytes(bins.Bin((4, 4, 1), bins.GRAY, {"loss": "mse"}).add("flatten")
                                   .add("linear", out_features=12).bytes())  # fmt: skip
    for i in range(6):
        cv2.imwrite(f"{i}.pgm", rng.integers(0, 256, (40, 50 + i), np.uint8))
        cv2.imwrite(f"{i}.ppm", rng.integers(0, 256, (40, 50 + i, 3), np.uint8))
    return tmp_path


def run_bytes(*command: object) -> tuple[int, bytes, bytes]:
    here = {**os.environ, "ASAN_OPTIONS": "detect_leaks=0"}  # its memory lives as long as the program
    done = subprocess.run([str(c) for c in command], capture_output=True, check=False, env=here)
    return done.returncode, done.stdout, done.stderr


def run(*command: object) -> tuple[int, str, str]:
    code, out, err = run_bytes(*command)
    return code, out.decode(), err.decode()


@pytest.mark.parametrize("model", ["digits.bin", "colors.bin", "one.bin", "int8.bin"])
def test_its_line_is_that_of_edge_infer(classify, place, model, capsys):
    pictures = sorted(p.name for p in place.glob("*.p?m"))
    assert edge_infer([model, *pictures]) == 0
    assert run(classify, model, *pictures) == (0, capsys.readouterr().out, "")


def test_values_are_printed_as_edge_infer_prints_them(classify, place, capsys):
    assert edge_infer(["values.bin", "0.pgm"]) == 0
    wanted = [float(v) for v in capsys.readouterr().out.split()[1:9]]
    code, line, _ = run(classify, "values.bin", "0.pgm")
    assert code == 0 and line.endswith("  ... (12 values)\n")
    np.testing.assert_allclose([float(v) for v in line.split()[1:9]], wanted, rtol=1e-5, atol=1e-5)


def test_every_label_is_read_as_the_exporter_wrote_it(classify, tmp_path):
    """A net that answers with the brightest of its pixels."""
    labels = ["plain", 'quote " and \\', "é ü 日本", "[a], {b}: 1", "", "tab\tand\x01end", "last"]
    net = bins.Bin((1, 7, 1), bins.writer.Preprocessing("area", "stretch", "gray", "never", (0.0,), (1.0,)),
                   {"name": "labels", "parity": {"labels": ["x"]}, "labels": labels})  # fmt: skip
    (tmp_path / "net.bin").write_bytes(net.add("flatten").add("softmax").bytes(golden=0))
    for i, label in enumerate(labels):
        (tmp_path / "frame").write_bytes(bytes(200 * (k == i) for k in range(7)))
        code, line, _ = run(classify, tmp_path / "net.bin", tmp_path / "frame")
        shown = label.replace("\t", "?").replace("\x01", "?")
        assert (code, line) == (0, f"{tmp_path / 'frame'}  {shown}  100.0 %\n")


def test_it_tests_a_model_on_itself(classify, place):
    code, lines, _ = run(classify, "digits.bin")
    assert code == 0 and lines.startswith("digits.bin  self-test passed, portable kernels\n")
    data = bytearray(Path("digits.bin").read_bytes())
    data[200] ^= 1
    Path("bad.bin").write_bytes(data)
    code, _, why = run(classify, "bad.bin")
    assert code == 1 and why.startswith("classify: bad.bin: ")


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "neither PGM nor PPM"),
        (b"P5", "neither PGM nor PPM"),
        (b"P2 2 2 255 1 2 3 4", "neither PGM nor PPM"),
        (b"P5\n", "header is damaged"),
        (b"P5 2 # two\n 2", "header is damaged"),
        (b"P5 -1 2 255 ", "header is damaged"),
        (b"P5 2 2 255", "header is damaged"),
        (b"P5 2 2 65535 " + bytes(8), "do not go up to 255"),
        (b"P5 2 2 255 abc", "ends before its last row"),
        (b"P6 2 2 255 " + bytes(11), "ends before its last row"),
        (b"P5 99999999999 99999999999 255 abc", "ends before its last row"),
        (b"P5 0 2 255 ", "1 to 65535 rows"),
    ],
)
def test_a_picture_that_is_none_is_refused_with_the_reason(classify, place, data, why):
    Path("bad").write_bytes(data)
    code, line, said = run(classify, "digits.bin", "bad", "0.pgm")
    assert code == 1 and said.startswith("classify: bad: ") and why in said
    assert line.startswith("0.pgm  ")  # the others are answered all the same


def test_a_model_for_numbers_takes_float32_values(classify, tmp_path):
    (tmp_path / "mlp.bin").write_bytes(bins.mlp(metadata={"loss": "mse"}).bytes())
    x = np.array([1, -2, 0.5, 3], np.float32)
    (tmp_path / "x").write_bytes(x.tobytes())
    code, line, _ = run(classify, tmp_path / "mlp.bin", tmp_path / "x")
    wanted = bins.mlp(metadata={"loss": "mse"}).definition(x)
    np.testing.assert_allclose([float(v) for v in line.split()[1:]], wanted, rtol=1e-4, atol=1e-5)
    (tmp_path / "x").write_bytes(b"P5 1 1 255 a")
    code, _, why = run(classify, tmp_path / "mlp.bin", tmp_path / "x")
    assert code == 1 and "no picture" in why


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_values_that_are_no_numbers_are_reported(classify, tmp_path, value):
    whole = int8_nets.Net((4,), int8_nets.STEPS)
    whole.add("linear", out_features=3)
    x = np.array([1, -2, value, 3], np.float32)
    (tmp_path / "x").write_bytes(x.tobytes())
    for data in (bins.mlp(metadata={"loss": "mse"}).bytes(), int8_nets.writer.write(whole.model())):
        (tmp_path / "net.bin").write_bytes(data)
        code, line, why = run(classify, tmp_path / "net.bin", tmp_path / "x")
        assert (code, line) == (1, "") and "the input holds NaN or infinity, so there is no answer" in why


def test_a_bad_command_line_is_told_what_is_expected(classify):
    assert run(classify) == (2, "", "usage: classify model.bin [picture ...]\n")
    assert run(classify, "--help")[0] == 2
    code, _, why = run(classify, "absent.bin")
    assert (code, why) == (1, "classify: absent.bin: the file does not exist\n")


METADATA = [
    b'{"labels": ["ten", "ele',  # unterminated
    b'{"labels": ["ten", "eleven"',
    b'{"labels": ["ten\\',
    b'{"labels": ["\xff\xfe", "\xc3"]}',  # no UTF-8
    b'{"labels": "ten"}',
    b'{"labels": [',
    b'{"labels',
    b'{"labels": {"a": ["b"',
    b"\0" * 9,
    b'["labels"]',
]


def with_metadata(data: bytes, text: bytes) -> bytes:
    """The model with these bytes as its metadata, and no golden section."""
    at = struct.unpack_from("<I", data, 72)[0]
    out = bytearray(data[:at] + text)
    struct.pack_into("<IIII", out, 72, at, len(text), 0, 0)
    return repaired(bytes(out))


@pytest.mark.parametrize("text", METADATA)
def test_labels_that_do_not_end_or_are_no_text_do_no_harm(classify, place, text):
    data = with_metadata(bins.digits().bytes(), text)
    Path("odd.bin").write_bytes(data)
    code, line, said = run_bytes(classify, "odd.bin", "0.pgm")
    assert (code, said) == (0, b"") and line.startswith(b"0.pgm  ") and line.endswith(b" %\n")
    with pytest.raises(ModelError, match="^model: the metadata at byte [0-9]+ .*; export it again.$"):
        _ = InferenceEngine(data).labels
