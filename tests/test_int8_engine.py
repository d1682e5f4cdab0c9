"""int8 models through the Python engine and edge-infer: the same calls, the same answers as the definition."""

import json

import bins
import numpy as np
import pytest
from bins import RGB
from int8_nets import STEPS as X
from int8_nets import Net, picture_model, pictures

from litenet.exporter.format import write
from litenet.pyruntime import InferenceEngine
from litenet.pyruntime.answers import answer, unknown
from litenet.pyruntime.cli import main
from litenet.pyruntime.errors import ModelError
from litenet.pyruntime.explain import explainer
from litenet.pyruntime.kernels import KERNELS, lib
from litenet.trainer.int8 import ops
from litenet.trainer.int8.scheme import Numbers, Quant, picture

HERE = [name for name, number in KERNELS.items() if lib.ln_fast_has(number)]
META = {"labels": ["ant", "bee", "cat", "dog"], "loss": "cross_entropy", "name": "little"}


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("int8") / "little.bin"
    path.write_bytes(picture_model(pictures(), **META))
    return path


@pytest.fixture(scope="module")
def engine(path):
    return InferenceEngine(path)


def test_predict_takes_floats_or_steps_and_gives_floats_or_steps(engine):
    made, rng = pictures(), np.random.default_rng(2)
    x = rng.standard_normal((3, 12, 10, 3)).astype(np.float32) * 3
    q = ops.quantize(Numbers(), x, X)
    want = np.stack([made.values(one)[-1] for one in q])
    y = made.quants[-1]
    assert (engine.input_dtype, engine.output_dtypes) == ("int8", ["int8"])
    for given in (x, q, x.astype(np.float64)):
        got = engine.predict(given, raw=True)
        assert got.dtype == np.int8 and got.tobytes() == want.tobytes()
        real = engine.predict(given)
        assert real.dtype == np.float32 and real.tobytes() == ops.dequantize(want, y).tobytes()
    assert engine.predict(q[1]).tolist() == engine.predict(q)[1].tolist()
    assert engine.predict(np.empty((0, 12, 10, 3), np.float32), raw=True).shape == (0, 4)


def test_outputs_of_a_run_elsewhere_are_read_as_its_own(engine):
    made = pictures()
    x = made.input()
    y = made.values(x)[-1]
    assert engine.outputs_of(y.tobytes()).tobytes() == engine.predict(x).tobytes()
    assert engine.outputs_of(y.tobytes(), raw=True).tobytes() == y.tobytes()
    with pytest.raises(ModelError, match="its outputs take 4 bytes, not 8"):
        engine.outputs_of(bytes(8))


def test_values_that_no_step_stands_for_become_the_nearest(engine):
    x = np.zeros((12, 10, 3), np.float32)
    x[0, 0] = [1e-45, 3.4e38, -3.4e38]
    q = np.full((12, 10, 3), 3, np.int8)
    q[0, 0] = [3, 127, -128]
    assert engine.predict(x, raw=True).tolist() == engine.predict(q, raw=True).tolist()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_is_reported_and_not_rounded(engine, value):
    x = np.zeros((2, 12, 10, 3), np.float32)
    x[1, 11, 9, 2] = value
    for given in (x, x[1]):
        with pytest.raises(ModelError, match="^The input holds NaN or infinity, so there is no answer.$"):
            engine.predict(given)


@pytest.mark.parametrize("kernels", [*HERE, "portable"])
def test_floats_become_the_steps_of_the_definition_and_none_that_is_not_finite_is_missed(kernels):
    """Halves and what is next to them, ends, and lengths around the vectors."""
    halves = np.arange(-2200, 2200, dtype=np.float32) / 2
    rng, quant = np.random.default_rng(4), Quant(0.0625, -37)
    edges = np.float32([0, -0.0, 1e-45, 511.9, 512, -512, 1e4, -32768, 40000, 2.0**31, -(2.0**31), 3e38, -3e38]) / 16
    near = [np.nextafter(halves, np.float32(to)) for to in (-np.inf, np.inf)]
    every = np.concatenate([halves * np.float32(0.0625), *(n * np.float32(0.0625) for n in near), edges])
    for n in (1, 15, 16, 17, 63, 64, 65, 129, every.size):
        net = Net((n,), quant, seed=n)
        net.add("flatten")
        engine = InferenceEngine(write(net.model()), kernels=kernels)
        x = every if n == every.size else rng.permutation(every)[:n]
        assert engine.predict(x, raw=True).tobytes() == ops.quantize(Numbers(), x, quant).tobytes()
        for at in rng.integers(0, n, 5):
            for value in (np.nan, -np.nan, np.inf, -np.inf):
                wrong = x.copy()
                wrong[at] = value
                with pytest.raises(ModelError, match="holds NaN or infinity"):
                    engine.predict(wrong)


def test_a_picture_becomes_the_input_in_whole_numbers(engine):
    pixels = np.random.default_rng(3).integers(0, 256, (37, 41, 3), np.uint8)
    frame = engine.preprocessing.frame(pixels, 12, 10, "rgb")
    P, Q = picture(RGB.mean, RGB.std, X)
    x = engine.prepare(pixels, "rgb")
    assert x.dtype == np.int8 and x.tobytes() == ops.frame(frame[None], P, Q)[0].tobytes()
    near = ops.quantize(Numbers(), engine.preprocessing.normalize(frame), X)
    assert np.abs(near.astype(int) - x).max() <= 1 and (near != x).mean() < 0.05
    assert np.allclose(engine.preprocessing.mean, RGB.mean, atol=0.02)
    assert np.allclose(engine.preprocessing.std, RGB.std, atol=0.01)
    assert engine.predict_image(pixels, "rgb").tolist() == engine.predict(x).tolist()


@pytest.mark.parametrize("kernels", [None, "portable"])
def test_every_set_of_kernels_passes_the_self_test(path, kernels):
    InferenceEngine(path, kernels=kernels).selftest()


def test_trace_gives_what_the_numbers_stand_for(engine):
    made = pictures()
    x = made.input()
    for t, q, value in zip(engine.trace(x), made.quants[1:], made.values(x)[1:], strict=True):
        assert t.array.tobytes() == ops.dequantize(value, q).tobytes()
    assert [layer.dtype for layer in engine.layers] == ["int8"] * 3
    assert [layer.weight_dtype for layer in engine.layers] == ["int8", "", "int8"]


def test_one_wrong_golden_value_fails_the_self_test(path):
    data = bytearray(path.read_bytes())
    made = InferenceEngine(bytes(data))
    assert made._model.golden_at
    from test_open import repaired

    data[-8] ^= 1
    with pytest.raises(ModelError, match="the checksum of y is"):
        InferenceEngine(repaired(bytes(data))).selftest()


def test_a_margin_is_taken_between_the_numbers_that_steps_stand_for():
    made = pictures()
    step = made.quants[-1].scale
    y = np.array([0, 3 * step, step, 0], np.float32)
    for margin, want in ((1.9 * step, False), (2.1 * step, True)):
        e = InferenceEngine(picture_model(made, **META, unknown={"margin": margin}))
        assert unknown(e, y) is want
        assert answer(e, "x", y, 0.0, 2)["label"] == ("unknown" if want else "bee")


def test_int8_and_floats_side_by_side_are_outputs_of_their_own():
    made = Net((5,), Quant(0.125, 0), seed=9)
    a = made.add("linear", out_features=3)
    b = made.add("dequantize", a)
    c = made.add("linear", a, out_features=6)
    e = InferenceEngine(write(made.model((a, b, c), golden=2)))
    e.selftest()
    x = made.input()
    values, raw = made.values(x), e.predict(x, raw=True)
    assert [r.dtype.name for r in raw] == ["int8", "float32", "int8"]
    assert all(r.tobytes() == values[t].tobytes() for r, t in zip(raw, (a, b, c), strict=True))
    real = e.predict(np.stack([x, x]))
    assert [r.shape for r in real] == [(2, 3), (2, 3), (2, 6)]
    assert real[0][1].tobytes() == values[b].tobytes()


@pytest.mark.parametrize("flag", ["--info", "--selftest", "--bench", "--trace", "--explain-out"])
def test_every_command_takes_int8_models(flag, path, tmp_path, capsys):
    import cv2

    picture = tmp_path / "p.png"
    cv2.imwrite(str(picture), np.random.default_rng(0).integers(0, 256, (30, 30, 3), np.uint8))
    more = [str(tmp_path)] if flag == "--explain-out" else []
    assert main([str(path), "--json", flag, *more, str(picture)]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    if flag == "--info":
        assert (lines[0]["info"]["input_dtype"], lines[0]["info"]["output_dtypes"]) == ("int8", ["int8"])
    assert flag == "--bench" or lines[-1]["label"] in META["labels"]
    assert main([str(path), "--info"]) == 0
    assert "12 x 10 x 3 (H x W x C), int8" in capsys.readouterr().out


def test_explain_follows_int8_weights_back(engine):
    """The map of a net and of the floats it stands for are near."""
    x = pictures().input()
    heat = explainer(engine).of(x, 1)
    weights = engine.trace(x)
    W = _linear_as_floats()
    features = weights[0].array
    raw = np.maximum(features @ W[1], 0)
    assert np.allclose(heat, raw / raw.max(), atol=1e-5)


def _linear_as_floats():
    made = pictures()
    roles, x, y = made.nodes[2][4], made.quants[2], made.quants[3]
    return roles["weight"] * (roles["multiplier"][:, None] * y.scale / x.scale / 2**31)


def test_a_net_that_begins_with_an_embedding_cannot_be_explained_in_int8():
    made = Net((4, 4, 1), X, seed=1)
    made.add("embed_projection", embed_dim=5)
    made.add("linear", out_features=2)
    with pytest.raises(ModelError, match="ask the float model"):
        explainer(InferenceEngine(write(made.model())))


def test_float_models_have_float_types():
    e = InferenceEngine(bins.mlp().bytes())
    assert (e.input_dtype, e.output_dtypes, e.layers[0].dtype) == ("float32", ["float32"], "float32")
    assert e.predict(np.ones(4, np.int8)).tolist() == e.predict(np.ones(4)).tolist()
    assert e.predict(np.ones(4), raw=True).tolist() == e.predict(np.ones(4)).tolist()
