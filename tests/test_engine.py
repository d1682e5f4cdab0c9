"""InferenceEngine: the numbers, the refusals, the reports, and several threads at once."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import bins
import numpy as np
import preprocess_twin
import pytest

from litenet.exporter import format as writer
from litenet.pyruntime import ImageError, InferenceEngine, ModelError, Preprocessing


@pytest.fixture(scope="module")
def digits():
    net = bins.digits()
    return net, InferenceEngine(net.bytes())


def inputs(shape, *batch, seed=0):
    return np.random.default_rng(seed).standard_normal((*batch, *shape)).astype(np.float32)


def assert_close(got, want, tolerance=1e-4):
    """Written as 'within', so a NaN fails."""
    assert got.shape == want.shape
    assert np.abs(got - want).max() <= tolerance


# ---- predict


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("make", [bins.mlp, bins.digits, bins.colors])
def test_predict_gives_what_the_definition_gives(make, half):
    net = make(half=half)
    engine = InferenceEngine(net.bytes())
    x = inputs(net.shape)
    assert_close(engine.predict(x), net.definition(x))


def test_a_batch_gives_the_bits_of_its_single_inputs(digits):
    net, engine = digits
    x = inputs(net.shape, 5)
    y = engine.predict(x)
    assert y.shape == (5, 10)
    for n in range(5):
        np.testing.assert_array_equal(y[n], engine.predict(x[n]))


def test_an_empty_batch_gives_an_empty_answer(digits):
    net, engine = digits
    assert engine.predict(np.empty((0, *net.shape), np.float32)).shape == (0, 10)


def test_the_answer_is_the_callers_to_keep(digits):
    net, engine = digits
    first = engine.predict(inputs(net.shape, seed=1))
    kept = first.copy()
    engine.predict(inputs(net.shape, seed=2))
    np.testing.assert_array_equal(first, kept)


def test_other_number_types_and_strides_are_converted():
    engine = InferenceEngine(bins.mlp().bytes())
    x = inputs((4,))
    want = engine.predict(x)
    np.testing.assert_array_equal(engine.predict(x.tolist()), want)
    np.testing.assert_array_equal(engine.predict(x.astype(np.float64)), want)
    np.testing.assert_array_equal(engine.predict(np.stack([x, x], axis=1)[:, 0]), want)
    np.testing.assert_array_equal(engine.predict([1, 0, 2, 3]), engine.predict([1.0, 0.0, 2.0, 3.0]))
    x.setflags(write=False)
    np.testing.assert_array_equal(engine.predict(x), want)


def test_a_grey_picture_may_come_without_its_channel_axis(digits):
    net, engine = digits
    x = inputs(net.shape, 3)
    np.testing.assert_array_equal(engine.predict(x[0, :, :, 0]), engine.predict(x[0]))
    np.testing.assert_array_equal(engine.predict(x[..., 0]), engine.predict(x))


def refusal(call, error=ModelError):
    """The sentence of a refusal: one line, ended by a full stop."""
    with pytest.raises(error) as caught:
        call()
    text = str(caught.value)
    assert "\n" not in text and text.endswith("."), text
    return text


def test_a_wrong_shape_is_told_with_what_was_expected(digits):
    _, engine = digits
    text = refusal(lambda: engine.predict(np.zeros((27, 28, 1), np.float32)))
    assert "(27, 28, 1)" in text and "(28, 28, 1)" in text and "(height, width, channels)" in text
    assert "(784,)" in refusal(lambda: engine.predict(np.zeros(784, np.float32)))
    refusal(lambda: engine.predict(np.float32(3)))
    refusal(lambda: engine.predict(np.zeros((2, 2, 28, 28, 1), np.float32)))


def test_channels_first_is_told_how_to_turn():
    engine = InferenceEngine(bins.colors().bytes())
    x = inputs((3, 16, 16))
    assert "np.moveaxis(x, -3, -1)" in refusal(lambda: engine.predict(x))
    assert engine.predict(np.moveaxis(x, -3, -1)).shape == (4,)


def test_pixels_and_other_things_are_not_taken_for_inputs(digits):
    net, engine = digits
    assert "predict_image" in refusal(lambda: engine.predict(np.zeros(net.shape, np.uint8)))
    for thing in (None, "text", [[1, 2], [3]], {"a": 1}, object()):
        refusal(lambda thing=thing: engine.predict(thing))


def test_several_outputs_come_as_a_tuple():
    tensors = [
        writer.TensorRec((4,), input=True),
        writer.TensorRec((4,), output=True),
        writer.TensorRec((4,), output=True),
    ]
    attrs = bins.make_attrs(bins.OPS["activation"].OP, {"activation": "relu"})
    ops = [writer.OpRec("activation", (0,), 1, attrs), writer.OpRec("softmax", (1,), 2)]
    engine = InferenceEngine(writer.write(writer.Model(tensors, ops)))
    x = np.array([-1, 0, 1, 2], np.float32)
    relu, softmax = engine.predict(x)
    np.testing.assert_array_equal(relu, [0, 0, 1, 2])
    assert abs(softmax.sum() - 1) <= 1e-6
    many = engine.predict(np.stack([x, x, x]))
    assert [part.shape for part in many] == [(3, 4), (3, 4)]
    np.testing.assert_array_equal(many[1][2], softmax)


# ---- pictures


@pytest.mark.parametrize("layout", ["gray", "gray_alpha", "rgb", "rgba", "bgr", "bgra"])
@pytest.mark.parametrize("make", [bins.digits, bins.colors])
def test_a_picture_is_prepared_as_the_definition_says(make, layout):
    net = make()
    engine = InferenceEngine(net.bytes())
    code = 1 + ["gray", "gray_alpha", "rgb", "rgba", "bgr", "bgra"].index(layout)
    pixels = np.random.default_rng(4).integers(0, 256, (37, 53, preprocess_twin.CHANNELS[code]), np.uint8)
    p, (H, W) = net.preprocessing, net.shape[:2]
    rules = (writer.RESIZE[p.resize], writer.FIT[p.fit], writer.COLOR[p.color], writer.INVERT[p.invert], p.pad)
    frame = preprocess_twin.frame(rules, pixels, code, H, W)
    want = (frame.astype(np.float32) - np.float32(p.mean)) / np.float32(p.std)
    got = engine.prepare(pixels, layout)
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(engine.predict_image(pixels, layout), engine.predict(want))
    own = Preprocessing(p.resize, p.fit, p.color, p.invert, p.pad, tuple(p.mean), tuple(p.std))
    np.testing.assert_array_equal(own.frame(pixels, H, W, layout), frame)
    np.testing.assert_array_equal(own.normalize(frame), want)
    assert engine.preprocessing == own


def test_without_a_layout_pixels_are_opencvs():
    engine = InferenceEngine(bins.colors().bytes())
    pixels = np.random.default_rng(4).integers(0, 256, (20, 20, 4), np.uint8)
    for channels, layout in ((1, "gray"), (2, "gray_alpha"), (3, "bgr"), (4, "bgra")):
        part = pixels[..., :channels]  # not contiguous: copied
        np.testing.assert_array_equal(engine.prepare(part), engine.prepare(part.copy(), layout))
    np.testing.assert_array_equal(engine.prepare(pixels[..., 0]), engine.prepare(pixels[..., :1]))


def test_things_that_are_no_pictures_are_refused(digits):
    _, engine = digits
    for thing in (np.zeros((4, 4), np.float32), np.zeros(5, np.uint8), "a.png", np.zeros((4, 4, 5), np.uint8)):
        refusal(lambda thing=thing: engine.predict_image(thing), ImageError)
    assert "'hsv'" in refusal(lambda: engine.predict_image(np.zeros((4, 4, 3), np.uint8), "hsv"), ImageError)
    assert "has 4" in refusal(lambda: engine.predict_image(np.zeros((4, 4, 3), np.uint8), "rgba"), ImageError)
    for shape in ((0, 4, 3), (1, 70_000, 1)):
        assert "65535" in refusal(lambda shape=shape: engine.predict_image(np.zeros(shape, np.uint8)), ImageError)


def test_a_net_of_plain_values_takes_no_picture():
    engine = InferenceEngine(bins.mlp().bytes())
    assert engine.preprocessing is None
    assert "4 values" in refusal(lambda: engine.predict_image(np.zeros((4, 4, 3), np.uint8)))


def test_preprocessing_words_are_checked():
    assert "'cubic'" in refusal(lambda: Preprocessing(resize="cubic"))
    refusal(lambda: Preprocessing(color="rgb", mean=(1.0, 2.0)))
    refusal(lambda: Preprocessing().frame(np.zeros((2, 2, 3), np.uint8), 0, 5))


# ---- opening and closing


def test_a_file_is_used_in_place_and_gives_the_same_as_its_bytes(tmp_path, digits):
    net, engine = digits
    path = tmp_path / "digits.bin"
    path.write_bytes(net.bytes())
    x = inputs(net.shape)
    with InferenceEngine(path) as mapped:
        np.testing.assert_array_equal(mapped.predict(x), InferenceEngine(net.bytes()).predict(x))
    for kind in (bytearray, memoryview):
        assert InferenceEngine(kind(net.bytes())).predict(x).shape == (10,)


def test_a_closed_engine_says_so(tmp_path):
    path = tmp_path / "m.bin"
    path.write_bytes(bins.mlp().bytes())
    engine = InferenceEngine(path)
    engine.close()
    engine.close()
    assert "closed" in refusal(lambda: engine.predict(inputs((4,))))
    assert "closed" in refusal(lambda: engine.labels)
    refusal(engine.selftest)
    path.unlink()


def test_files_that_are_no_models_are_refused_in_a_sentence(tmp_path):
    good = bins.mlp().bytes()
    cases = {
        "empty.bin": b"",
        "cut.bin": good[: len(good) // 2],
        "longer.bin": good + b"x",
        "page.bin": b"<!DOCTYPE html><html></html>",
        "net.onnx": b"\x08\x07\x12\x07pytorch" + bytes(200),
        "flipped.bin": good[:300] + bytes([good[300] ^ 1]) + good[301:],
    }
    for name, data in cases.items():
        path = tmp_path / name
        path.write_bytes(data)
        with pytest.raises(ModelError) as caught:
            InferenceEngine(path)
        text = str(caught.value)
        assert text.startswith(str(path)) and text.endswith(".") and "\n" not in text
        assert caught.value.status not in (None, 0)
    assert "does not exist" in refusal(lambda: InferenceEngine(tmp_path / "none.bin"))
    assert "folder" in refusal(lambda: InferenceEngine(tmp_path))


def test_only_the_cpu_and_whole_thread_counts_are_known():
    model = bins.mlp().bytes()
    assert "'cuda'" in refusal(lambda: InferenceEngine(model, device="cuda"))
    for threads in (0, -1, 1.5, True, "4"):
        refusal(lambda threads=threads: InferenceEngine(model, threads=threads))
    assert InferenceEngine(model, device="cpu", threads=4).predict(inputs((4,))).shape == (3,)


# ---- what it tells


def test_the_engine_tells_what_the_file_says():
    net = bins.digits(metadata={"accuracy": 0.99, "dataset": {"name": "mnist"}, "created": "2025-01-01"})
    engine = InferenceEngine(net.bytes())
    assert engine.input_shape == (28, 28, 1)
    assert engine.output_shape == (10,)
    assert engine.labels == list("0123456789")
    assert engine.metadata["name"] == "digits"
    assert [layer.op for layer in engine.layers] == ["conv2d", "maxpool2d", "flatten", "linear"]
    assert [layer.name for layer in engine.layers] == ["conv2d0", "maxpool2d1", "flatten2", "linear3"]
    assert engine.layers[0].activation == "relu"
    assert engine.layers[0].macs == 28 * 28 * 9 * 4
    assert engine.layers[3].weights_bytes == (784 + 1) * 12 * 4  # ten channels stand in a panel of twelve
    info = engine.info
    assert info["file_bytes"] == len(net.bytes())
    assert info["macs"] == 28 * 28 * 9 * 4 + 784 * 10
    assert info["accuracy"] == 0.99
    assert info["classes"] == 10


def test_a_file_without_metadata_works():
    net = bins.mlp()
    tensors = [writer.TensorRec((4,), input=True), writer.TensorRec((4,), output=True)]
    engine = InferenceEngine(writer.write(writer.Model(tensors, [writer.OpRec("softmax", (0,), 1)])))
    assert engine.labels is None
    assert engine.metadata == {}
    assert [layer.name for layer in engine.layers] == ["softmax0"]
    assert net.metadata == {}


def test_trace_gives_every_layer_and_the_last_is_the_answer(digits):
    net, engine = digits
    x = inputs(net.shape)
    found = engine.trace(x)
    assert [t.name for t in found] == [layer.name for layer in engine.layers]
    for t, want in zip(found, net.values(x), strict=True):
        assert t.shape == t.array.shape
        assert t.microseconds >= 0
        assert_close(t.array, want)
    np.testing.assert_array_equal(found[-1].array, engine.predict(x))
    refusal(lambda: engine.trace(inputs(net.shape, 2)))
    assert len(engine.layer_times(x)) == 4


def test_an_exception_while_tracing_reaches_the_caller(digits):
    net, engine = digits

    def interrupt(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        engine._run_each(inputs(net.shape), interrupt)
    assert engine.predict(inputs(net.shape)).shape == (10,)


def test_the_selftest_passes_on_what_was_written_and_names_the_operator_otherwise():
    net = bins.digits()
    InferenceEngine(net.bytes()).selftest()
    with pytest.raises(ModelError) as caught:
        InferenceEngine(net.bytes(golden=0)).selftest()
    assert caught.value.status
    true = net._golden(1)
    sums = [list(true.checksums[0])]
    sums[0][1] = (sums[0][1][0] * 1.5, sums[0][1][1])
    net._golden = lambda count: writer.Golden("f32", true.inputs, true.outputs, sums)
    text = refusal(InferenceEngine(net.bytes()).selftest)
    assert "maxpool2d" in text


def test_null_pointers_and_foreign_codes_are_refused_by_the_c_code(digits):
    from litenet.pyruntime._litenet import ffi, lib

    _, engine = digits
    model, x, pixels = engine._model, ffi.new("float[]", 784), ffi.new("uint8_t[]", 12)
    assert lib.ln_preprocess(ffi.NULL, pixels, 2, 2, lib.LN_RGB, x) == lib.LN_NULL_POINTER
    assert lib.ln_preprocess(model, ffi.NULL, 2, 2, lib.LN_RGB, x) == lib.LN_NULL_POINTER
    assert lib.ln_preprocess(model, pixels, 2, 2, lib.LN_RGB, ffi.NULL) == lib.LN_NULL_POINTER
    assert lib.ln_preprocess(model, pixels, 2, 2, 7, x) == lib.LN_BAD_CHANNELS
    assert lib.ln_preprocess(model, pixels, 0, 2, lib.LN_RGB, x) == lib.LN_BAD_IMAGE_SIZE
    assert lib.ln_preprocess(model, pixels, 2, 2, lib.LN_RGB, x) == lib.LN_OK


# ---- threads


def test_threads_share_one_engine():
    net = bins.digits()
    engine = InferenceEngine(net.bytes())
    xs = [inputs(net.shape, seed=n) for n in range(64)]
    want = [engine.predict(x) for x in xs]
    with ThreadPoolExecutor(8) as pool:
        for _ in range(3):
            for got, expected in zip(pool.map(engine.predict, xs), want, strict=True):
                np.testing.assert_array_equal(got, expected)
    assert len(engine._arenas) <= 8


def test_closing_while_another_thread_predicts_is_safe(tmp_path):
    net = bins.digits()
    path = tmp_path / "m.bin"
    path.write_bytes(net.bytes())
    x = inputs(net.shape, 200)

    def work(engine):
        try:
            return engine.predict(x).shape
        except ModelError as error:
            return str(error)

    for _ in range(5):
        engine = InferenceEngine(path)
        with ThreadPoolExecutor(4) as pool:
            jobs = [pool.submit(work, engine) for _ in range(4)]
            engine.close()
        for job in jobs:
            assert job.result() == (200, 10) or "closed" in job.result()


def test_importing_the_package_loads_neither_numpy_nor_the_binding():
    code = (
        "import sys, litenet.pyruntime, litenet.pyruntime.cli\n"
        "print([m for m in ('numpy', 'cv2', 'litenet.pyruntime._litenet') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("labels", 5, "a list of texts"),
        ("labels", ["a", 1, "c"], "a list of texts"),
        ("outputs", "y", "a list of texts"),
        ("answer", "maybe", '"classes", "values" or "embedding"'),
        ("accuracy", True, "a number"),
        ("unknown", {"temperature": 0}, "an object of numbers, its temperature above 0,"),
        ("unknown", {"margin": "much"}, "an object of numbers, its temperature above 0,"),
        ("dataset", [], "an object"),
    ],
)
def test_metadata_of_other_types_than_the_format_has_are_refused(key, value, expected):
    engine = InferenceEngine(bins.mlp(metadata={key: value}).bytes())
    with pytest.raises(ModelError) as error:
        _ = engine.info
    shown = json.dumps(value)
    assert f" says {key} is {shown}; {expected} is expected; export it again." in str(error.value)
