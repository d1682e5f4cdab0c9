"""Real models of others (MLPerf Tiny, TinyMaix, the ONNX zoo, UltraFace): imported, they give what their own runtimes
give, and score what they are known to score."""

from pathlib import Path

import numpy as np
import pytest

from litenet.exporter import cli
from litenet.pyruntime import InferenceEngine
from litenet.trainer.data import open_source

SHARED = Path(__file__).resolve().parents[2] / "shared"
MODELS = SHARED / "models"
FLOAT = {  # file: (operators left, allowed difference from the source as a share of the largest output)
    "mlperf_tiny_resnet8_cifar10_f32.tflite": (15, 2e-5),
    "mlperf_tiny_vww96_mobilenetv1_025_f32.tflite": (30, 2e-5),
    "mlperf_tiny_kws_dscnn_f32.tflite": (12, 2e-2),  # int8 weights: LiteRT rounds what it multiplies with them
    "mlperf_tiny_ad01_autoencoder_f32.tflite": (10, 2e-5),
    "tflm_hello_world_f32.tflite": (3, 2e-5),
    "tinymaix_mnist_valid_f32.tflite": (6, 2e-5),
    "tinymaix_mnist_resnet_f32.tflite": (7, 2e-5),
    "tinymaix_cifar10_f32.tflite": (5, 2e-5),
    "tinymaix_mobilenetv1_025_96_f32.tflite": (30, 2e-5),
    "onnx_mnist-8.onnx": (5, 2e-5),
    "ultraface_version-RFB-320.onnx": (90, 2e-5),
}


def model(name):
    if name.endswith(".onnx"):
        pytest.importorskip("onnx", reason="the package onnx is not installed (extra: import)")
    if not (MODELS / name).is_file():
        pytest.skip(f"the model {name} is not here")
    return MODELS / name


def imported(name, out, *options):
    assert cli.main([str(model(name)), "-o", str(out), *options]) == 0
    return InferenceEngine(out)


@pytest.mark.parametrize("name", FLOAT)
def test_a_float_model_gives_what_its_source_gives(name, tmp_path):
    operators, allowed = FLOAT[name]
    with imported(name, tmp_path / "net.bin") as engine:
        assert len(engine.layers) <= operators
        assert max(engine.metadata["parity"]["relative"].values()) <= allowed
        engine.selftest()


def test_ultraface_finds_the_face_and_puts_out_scores_and_boxes(tmp_path):
    with imported("ultraface_version-RFB-320.onnx", tmp_path / "net.bin", "--mean", "127", "--std", "128") as engine:
        assert engine.outputs == {"scores": (4420, 2), "boxes": (4420, 4)}
        portrait = picture("bmp/hopper.bmp")
        scores, boxes = engine.predict_image(portrait)
        best = boxes[scores[:, 1].argmax()]
        assert scores[:, 1].max() > 0.99
        assert (best >= 0).all() and (best <= 1).all() and (best[2:] > best[:2]).all()
        gray = engine.predict_image(np.full((90, 120, 3), 128, np.uint8))[0]
        assert gray[:, 1].max() < 0.5


def picture(name):
    """One of the test images, as OpenCV reads it."""
    import tarfile

    import cv2

    archive = SHARED / "data" / "images" / "test_images.tar"
    if not archive.is_file():
        pytest.skip("the test images are not here")
    with tarfile.open(archive) as tar:
        data = np.frombuffer(tar.extractfile(name).read(), np.uint8)
    return cv2.imdecode(data, cv2.IMREAD_COLOR)


def score(engine, x, y, divisor):
    right = 0
    for i in range(0, len(x), 500):
        values = (x[i : i + 500].reshape(-1, *engine.input_shape) / np.float32(divisor)).astype(np.float32)
        right += int((engine.predict(values).reshape(len(values), -1).argmax(1) == y[i : i + 500]).sum())
    return right


def mnist():
    if not (SHARED / "data" / "mnist").is_dir():
        pytest.skip("MNIST is not here")
    return open_source(str(SHARED / "data" / "mnist")).test


def cifar10():
    """The 10,000 test pictures, RGB: a mosaic of 100 x 100."""
    import cv2

    folder = SHARED / "data" / "cifar10"
    if not (folder / "test_batch.webp").is_file():
        pytest.skip("CIFAR-10 is not here")
    mosaic = cv2.imread(str(folder / "test_batch.webp"), cv2.IMREAD_COLOR)[..., ::-1]
    x = mosaic.reshape(100, 32, 100, 32, 3).transpose(0, 2, 1, 3, 4).reshape(-1, 32, 32, 3)
    return x, np.fromfile(folder / "test_batch.labels", np.uint8)


@pytest.mark.parametrize(
    ("name", "divisor", "right"),
    [
        ("onnx_mnist-8.onnx", 1, 9891),
        ("tinymaix_mnist_valid_f32.tflite", 255, 9654),
        ("tinymaix_mnist_resnet_f32.tflite", 255, 9825),
    ],
)
def test_mnist_scores_are_those_of_the_source(name, divisor, right, tmp_path):
    data = mnist()
    with imported(name, tmp_path / "net.bin") as engine:
        assert score(engine, data.x, data.y, divisor) == right


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "divisor", "right"),
    [("mlperf_tiny_resnet8_cifar10_f32.tflite", 1, 8719), ("tinymaix_cifar10_f32.tflite", 255, 7494)],
)
def test_cifar10_scores_are_those_of_the_source(name, divisor, right, tmp_path):
    x, y = cifar10()
    with imported(name, tmp_path / "net.bin") as engine:
        assert score(engine, x, y, divisor) == right
