"""edge-export --int8: what it writes, what it says, and when it refuses."""

import json
from pathlib import Path

import numpy as np
import pytest
from nets import EVERYTHING, net
from test_export import trained

from litenet.exporter import cli
from litenet.exporter.int8 import calibration, judge
from litenet.exporter.int8.calibration import Samples
from litenet.exporter.stored import load
from litenet.pyruntime import InferenceEngine
from litenet.pyruntime.cli import main as infer
from litenet.trainer.cli import main as edge_train
from litenet.trainer.data.digits import read_digits

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """A run of the digits that come with LiteNet, trained for a few epochs, and its float file."""
    run = tmp_path_factory.mktemp("int8") / "digits"
    given = [str(ROOT / "examples" / "digits_cnn.json"), "--data", "digits", "--epochs", "4", "--out", str(run)]
    assert edge_train([*given, "--quiet", "--no-report"]) == 0
    assert cli.main([str(run), "-o", str(run / "float.bin")]) == 0
    return run


@pytest.fixture(scope="module")
def exported(digits):
    out = digits / "int8.bin"
    assert cli.main([str(digits), "-o", str(out), "--int8"]) == 0
    return out


def refused(capsys, *arguments):
    """The message of a command that must fail, and write nothing."""
    assert cli.main([str(a) for a in arguments]) == 1
    out = next((Path(a) for k, a in zip(arguments, arguments[1:], strict=False) if str(k) == "-o"), None)
    assert out is None or not out.exists()
    text = capsys.readouterr().err
    assert text.startswith("edge-export: ") and "Traceback" not in text
    return text


def test_the_file_is_whole_numbers_as_right_as_float_and_a_quarter_of_the_size(digits, exported):
    with InferenceEngine(digits / "float.bin") as one, InferenceEngine(exported) as two:
        assert two.input_dtype == "int8" and two.output_dtypes == ["int8"]
        assert {layer.weight_dtype for layer in two.layers} == {"", "int8"}
        two.selftest()
        test = read_digits(tuple("0123456789")).test
        right = []
        for engine in (one, two):
            said = [engine.predict_image(x).argmax() for x in test.x]
            right.append(int((np.array(said) == test.y).sum()))
        assert right[0] > 300 and abs(right[1] - right[0]) <= 3
        found = two.metadata["int8"]
        assert found["accuracy"] == [round(r / len(test.y), 5) for r in right]
        assert two.metadata["parity"]["same_bytes"] is True
        assert two.metadata["layers"] == one.metadata["layers"]
        big, small = (sum(layer.weights_bytes for layer in engine.layers) for engine in (one, two))
        assert small < 0.27 * big
        assert two.info["arena_bytes"] * 4 == one.info["arena_bytes"]


def test_the_same_samples_give_the_same_bytes_from_a_run_or_its_file(digits, exported, tmp_path, capsys):
    assert cli.main(["--int8", str(digits), "-o", str(tmp_path / "again.bin")]) == 0  # the run right behind --int8
    assert (tmp_path / "again.bin").read_bytes() == exported.read_bytes()
    said = capsys.readouterr().out
    for part in ("calibrating with 512 samples of digits", "alone", "so far", "float32 ", "int8 ", "times as fast",
                 "the bytes of the definition", "% of float32's"):  # fmt: skip
        assert part in said
    assert cli.main([str(digits / "float.bin"), "-o", str(tmp_path / "other.bin"), "--int8", "--calibrate", "digits",
                     "--max-loss", "1.5"]) == 0  # fmt: skip
    with InferenceEngine(tmp_path / "other.bin") as a, InferenceEngine(exported) as b:
        x = read_digits(tuple("0123456789")).test.x[3]
        np.testing.assert_array_equal(a.predict_image(x), b.predict_image(x))


def test_edge_infer_takes_it(exported, capsys):
    assert infer([str(exported), "--selftest"]) == 0
    assert infer([str(exported), "--info"]) == 0
    assert "int8" in capsys.readouterr().out


def test_what_another_device_wrote_is_read_as_predict_gives_it(exported):
    with InferenceEngine(exported) as engine:
        q = engine.prepare(read_digits(tuple("0123456789")).test.x[5])
        written = engine.predict(q, raw=True)
        assert written.dtype == np.int8 and written.nbytes % 4  # filled up to a word
        np.testing.assert_array_equal(engine.outputs_of(written.tobytes()), engine.predict(q))


def test_too_great_a_loss_writes_nothing_unless_forced(digits, tmp_path, capsys):
    out = tmp_path / "lossy.bin"
    said = refused(capsys, digits, "-o", out, "--int8", "all", "--max-loss", "-50")
    assert "int8 loses" in said and "--max-loss -50" in said and "nothing was written" in said
    assert cli.main([str(digits), "-o", str(out), "--int8", "all", "--max-loss", "-50", "--force"]) == 0
    assert out.exists()


def samples(x, y=None, what="60 samples of set"):
    x = np.asarray(x)
    return Samples(x.astype(np.float32), x if x.dtype == np.uint8 else None, y, what)


def test_bad_samples_are_recognised(digits):
    made = load(digits / "float.bin")
    test = read_digits(tuple("0123456789")).test
    x, y = np.ascontiguousarray(test.x[:60]), test.y[:60]

    def fault(x, y=None, right=None):
        return calibration.fault(samples(x, y), made, None, 10, right)

    assert fault(x, y, 0.97) is None
    assert "too few" in fault(x[:20])
    assert "one single value each" in fault(np.full((60, 8, 8, 1), 7, np.uint8))
    assert "all are equal" in fault(np.repeat(x[:1], 60, 0))
    assert "all are of one class (4)" in fault(x, np.full(60, 4))
    assert "run from 0 to 1 only" in fault((x > 100).astype(np.uint8))
    assert "right on only 11.0 %" in fault(x, y, 0.11)


def test_bad_samples_stop_the_export(digits, tmp_path, capsys):
    test, out = read_digits(tuple("0123456789")).test, tmp_path / "bad.bin"
    threes = test.x[test.y == 3]
    cases = {
        "few": (test.x[:10], test.y[:10], "too few"),
        "class": (np.repeat(threes, 3, 0), np.full(3 * len(threes), 3), "all are of one class (3)"),
        "floats": (test.x.astype(np.float32) / 255, test.y, "this net takes pictures: bytes from 0 to 255"),
        "inverted": (255 - test.x, (test.y + 5) % 10, "the float net itself is right on only"),
    }
    for name, (x, y, text) in cases.items():
        np.savez(tmp_path / f"{name}.npz", x=x, y=y)
        given = (digits / "float.bin", "-o", out, "--int8", "--calibrate", tmp_path / f"{name}.npz")
        assert text in refused(capsys, *given)
    assert cli.main([str(digits / "float.bin"), "-o", str(out), "--int8", "--force", "--max-loss", "100",
                     "--calibrate", str(tmp_path / "class.npz")]) == 0  # fmt: skip
    assert "; forced" in capsys.readouterr().out


def test_layernorm_stays_float_and_all_refuses_it(tmp_path, capsys):
    path = trained(tmp_path, net(EVERYTHING, (3, 8, 8)))
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "d.npz", x=rng.integers(0, 256, (120, 8, 8, 3), np.uint8), y=rng.integers(0, 3, 120))
    given = (path, "-o", tmp_path / "mixed.bin", "--int8", "--calibrate", tmp_path / "d.npz", "--force")
    assert cli.main([str(a) for a in given]) == 0
    capsys.readouterr()
    with InferenceEngine(tmp_path / "mixed.bin") as engine:
        engine.selftest()
        ops = [layer.op for layer in engine.layers]
        assert "layernorm" in ops and "quantize" in ops and "dequantize" in ops
        assert any(name.endswith("layernorm") or "layer" in name for name in engine.metadata["int8"]["float"])
        assert engine.metadata["parity"]["same_bytes"] is False
    said = refused(capsys, path, "-o", tmp_path / "all.bin", "--int8", "all", "--calibrate", tmp_path / "d.npz")
    assert "(layernorm) has no form in whole numbers" in said


def test_commands_that_do_not_go_together(digits, exported, tmp_path, capsys):
    out = tmp_path / "x.bin"
    assert "only with --int8" in refused(capsys, digits, "-o", out, "--calibrate", "digits")
    assert "no --fp16" in refused(capsys, digits, "-o", out, "--int8", "--fp16")
    assert "not to ONNX" in refused(capsys, digits, "-o", tmp_path / "x.onnx", "--int8")
    assert "--calibrate DATA" in refused(capsys, digits / "float.bin", "-o", out, "--int8")
    assert "int8 already" in refused(capsys, exported, "-o", out, "--int8", "--calibrate", "digits")
    assert "int8 already" in refused(capsys, exported, "-o", tmp_path / "x.onnx")
    with pytest.raises(SystemExit):
        cli.main([str(digits), "-o", str(out), "--int8", "some"])


def test_what_is_lost():
    want = np.eye(10)[np.arange(10)]
    got = want.copy()
    got[0] = want[1]
    one = samples(np.zeros((10, 1)), np.arange(10))
    assert judge.judged(one, want, got, 10).lost == pytest.approx(10.0)
    unlabelled = samples(np.zeros((10, 1)))
    assert judge.judged(unlabelled, want, got, 10).same == 9
    assert judge.judged(unlabelled, want, got, 10).lost == pytest.approx(10.0)
    values = judge.judged(unlabelled, want, want * 0.9, 0)
    assert values.lost == pytest.approx(1.0) and values.decibels == pytest.approx(20.0)
    assert not judge.judged(unlabelled, want, want * np.nan, 0).lost <= 1.0


def test_metadata_says_how_it_was_made(exported):
    with InferenceEngine(exported) as engine:
        found = engine.metadata["int8"]
    assert found["calibration"] == "512 samples of digits" and found["decibels"] > 20
    assert json.dumps(found)
