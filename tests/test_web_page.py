"""The demo page in a real browser: strokes of a real mouse, the keyboard, wrong files, a narrow screen."""

from __future__ import annotations

import base64
import gzip
import json
import math
import struct

import bins
import numpy as np
import pytest
from demo_page import NEEDS, ROOT, STROKES, Page, browsing, serving, trained, trained_on_digits

from litenet.pyruntime import InferenceEngine

pytestmark = NEEDS


def arc(x, y, across, down, begin, end, points=16):
    """Points on an ellipse around (x, y); angles in degrees, clockwise from the right."""
    angles = [math.radians(begin + (end - begin) * i / points) for i in range(points + 1)]
    return [(x + across * math.cos(a), y + down * math.sin(a)) for a in angles]


# All ten, as people write them: for a net that has learnt from people.
HANDWRITTEN = {
    "0": [arc(0.5, 0.5, 0.2, 0.34, -90, 270)],
    "1": [[(0.42, 0.28), (0.53, 0.15), (0.53, 0.86)]],
    "2": [arc(0.5, 0.34, 0.2, 0.19, 180, 400) + [(0.3, 0.85), (0.74, 0.85)]],
    "3": [arc(0.48, 0.32, 0.18, 0.17, -150, 90) + arc(0.48, 0.67, 0.21, 0.18, -90, 150)],
    "4": [[(0.36, 0.14), (0.3, 0.5), (0.72, 0.5)], [(0.66, 0.14), (0.62, 0.88)]],
    "5": [[(0.7, 0.15), (0.38, 0.15), (0.34, 0.45), *arc(0.47, 0.64, 0.22, 0.21, -110, 150)]],
    "6": [[(0.6, 0.14), (0.46, 0.28), (0.37, 0.45), (0.33, 0.62), *arc(0.5, 0.68, 0.17, 0.17, 180, -180)]],
    "7": [[(0.26, 0.2), (0.72, 0.18), (0.6, 0.42), (0.46, 0.88)]],
    "8": [arc(0.5, 0.33, 0.16, 0.17, 90, -270) + arc(0.5, 0.68, 0.19, 0.18, -90, 270)],
    "9": [[*arc(0.48, 0.35, 0.18, 0.19, 0, -360), (0.66, 0.35), (0.64, 0.88)]],
}
MNIST = ROOT.parent / "shared" / "data" / "mnist"
TRAINING, TEST = 24_000, 500  # pictures of MNIST: seconds of training
NET = {
    "name": "mnist_small",
    "input_shape": [1, 28, 28],
    "layers": [
        {"type": "conv2d", "out_channels": 12, "kernel_size": 3, "padding": 1, "activation": "relu"},
        {"type": "maxpool2d", "kernel_size": 2, "stride": 2},
        {"type": "conv2d", "out_channels": 24, "kernel_size": 3, "padding": 1, "activation": "relu"},
        {"type": "maxpool2d", "kernel_size": 2, "stride": 2},
        {"type": "flatten"},
        {"type": "linear", "out_features": 10},
    ],
    "loss": "cross_entropy",
    "optimizer": {"type": "adam"},
    "learning_rate": 0.005,
    "schedule": "one_cycle",
    "batch_size": 32,
    "epochs": 1,
    "preprocessing": {"invert": "auto"},
}


address = pytest.fixture(scope="module")(serving)
digits = pytest.fixture(scope="module")(trained_on_digits)


@pytest.fixture(scope="module")
def browser():
    yield from browsing()


@pytest.fixture(scope="module")
def mnist(tmp_path_factory):
    """A .bin trained on a part of MNIST."""
    if not MNIST.is_dir():
        pytest.skip("MNIST is not in ../shared/data")
    folder = tmp_path_factory.mktemp("mnist")
    for kind, count in (("train", TRAINING), ("t10k", TEST)):
        for name, head, each in (("images-idx3", 16, 784), ("labels-idx1", 8, 1)):
            whole = gzip.decompress((MNIST / f"{kind}-{name}-ubyte.gz").read_bytes())
            part = whole[:4] + struct.pack(">I", count) + whole[8 : head + count * each]
            (folder / f"{kind}-{name}-ubyte").write_bytes(part)
    (folder / "net.json").write_text(json.dumps(NET))
    return trained(str(folder / "net.json"), str(folder), folder)


@pytest.fixture
def page(browser, address, digits):
    page = Page(browser, address, digits)
    yield page
    page.close()


@pytest.mark.parametrize("digit", STROKES)
def test_a_drawn_digit_is_recognised(page, digit):
    page.draw(STROKES[digit])
    assert page.text("answer").startswith(f"{digit},"), page.text("answer")
    assert page.text("trouble") == ""


def test_handwritten_digits_are_recognised_by_a_net_that_learnt_mnist(browser, address, mnist):
    page = Page(browser, address, mnist)
    answers = {}
    for digit, strokes in HANDWRITTEN.items():
        page.page.locator("#clear").click()
        page.draw(strokes, steps=2)
        answers[digit] = page.text("answer")
    assert [digit for digit, answer in answers.items() if not answer.startswith(f"{digit},")] == [], answers
    page.close()


def test_the_keyboard_draws_too(page):
    page.page.locator("#paper").focus()
    for key in ["ArrowUp"] * 13 + [" "] + ["ArrowDown"] * 25 + [" "]:
        page.page.keyboard.press(key)
    page.frame()
    assert page.text("answer").startswith("1,"), page.text("answer")
    page.page.keyboard.press("Delete")
    page.frame()
    assert page.text("answer") == "Draw something."


def test_each_layer_is_shown_and_one_value_is_its_sum(page):
    page.draw(STROKES["7"])
    assert page.page.locator("#maps .layer").count() == 5
    for _ in range(3):
        page.page.locator("#next").click()
    page.page.locator("#which").fill("5")
    step = page.text("step")
    assert "layer_4 (linear)" in step and "513 products" not in step and "512 products" in step
    value, total = (
        float(step.split(mark, 1)[1].split(end, 1)[0]) for mark, end in (("Value 5 is ", ".It"), ("makes it ", ". The"))
    )
    assert abs(value - total) <= 1e-3 * max(abs(total), 1e-3) if total else value == 0


def test_a_click_on_a_value_shows_how_it_comes_about(page):
    """The third layer is a pool: its value is the largest of four of the second."""
    page.draw(STROKES["7"])
    page.page.locator("#maps .layer").nth(2).locator("canvas").nth(3).click()
    step = page.text("step")
    assert "layer_2 (maxpool2d)" in step and "channel 3)" in step and "It is the largest of these 4:" in step
    value = float(step.split(") is ", 1)[1].split(".It", 1)[0])
    first = page.page.locator("#step td").nth(1)
    assert float(first.text_content()) == value


def test_a_wrong_file_gets_one_sentence(page, tmp_path):
    wrong = tmp_path / "wrong.bin"
    wrong.write_bytes(b"PK\x03\x04" + bytes(100))
    page.page.locator("#bin").set_input_files(str(wrong))
    page.page.wait_for_function("document.getElementById('trouble').textContent !== ''")
    assert page.text("trouble").startswith("wrong.bin: ") and page.text("trouble").endswith(".")
    page.draw(STROKES["7"])
    assert page.text("answer").startswith("7,"), "the model before is still there"


def test_a_missing_model_says_so(browser, address):
    page = Page(browser, address + "?model=nowhere.bin", None)
    assert "the server answers 404" in page.text("trouble")
    page.close()


def test_the_self_test_passes_in_this_browser(page):
    page.page.locator("#selftest").click()
    assert page.text("trouble").startswith("The self-test passes")


def test_a_net_with_global_average_pooling_shows_where(browser, address):
    net = bins.colors()
    page = Page(browser, address, net.bytes())
    page.page.locator("#show-heat").check()
    page.draw(STROKES["7"])
    painted = page.page.evaluate(
        "document.getElementById('heat').getContext('2d').getImageData(0, 0, 280, 280).data.some((v) => v > 0)"
    )
    assert painted or "keeps no map" in page.text("trouble")
    page.close()


@pytest.mark.parametrize("width,scheme", [(390, "dark"), (1200, "light")])
def test_the_page_fits_phones_and_desks(browser, address, digits, width, scheme):
    page = Page(browser, address, digits, viewport={"width": width, "height": 844}, color_scheme=scheme)
    page.draw(STROKES["2"])
    assert page.page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    back = page.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (back == "rgb(22, 23, 26)") == (scheme == "dark")
    page.close()


def test_everything_on_the_page_has_a_name(page):
    nameless = page.page.evaluate(
        """[...document.querySelectorAll("button, input, canvas, progress, video")].filter((e) =>
             !(e.textContent.trim() || e.getAttribute("aria-label") || e.closest("label")?.textContent.trim()
               || e.getAttribute("aria-hidden"))).map((e) => e.outerHTML)"""
    )
    assert nameless == []


def test_a_model_runs_in_a_worker_and_twenty_in_a_page(browser, address, digits):
    page = Page(browser, address, digits)
    found = page.page.evaluate(
        """async () => {
             const { LiteNet } = await import("/litenet.js");
             const { WorkerModel } = await import("/litenet-worker.js");
             const x = new Float32Array(64).fill(0.5);
             const models = await Promise.all(Array.from({ length: 20 }, () => LiteNet.load("digits.bin")));
             const answers = models.map((model) => model.predict(x).index);
             const far = await WorkerModel.load("digits.bin");
             const there = await far.predict(x);
             const canvas = await far.predict(document.getElementById("paper"));
             let refused = "";
             try {
               await far.predict(new Float32Array(3));
             } catch (error) {
               refused = error.name + " " + error.message;
             }
             far.dispose();
             return { answers, there: there.index, canvas: canvas.top.length, refused, labels: far.info.operators };
           }"""
    )
    assert len(set(found["answers"])) == 1 and found["there"] == found["answers"][0]
    assert found["canvas"] == 5 and found["refused"].startswith("LiteNetError ") and "has 3 values" in found["refused"]
    page.close()


def test_a_canvas_and_the_command_see_the_same_bits(browser, address, digits):
    """What predict makes of a canvas is what edge-infer makes of its pixels."""
    page = Page(browser, address, digits)
    page.draw(STROKES["2"])
    found = page.page.evaluate(
        """async () => {
             const { LiteNet } = await import("/litenet.js");
             const model = await LiteNet.load("digits.bin");
             const canvas = document.getElementById("paper");
             const pixels = canvas.getContext("2d").getImageData(0, 0, 280, 280).data;
             const char = (byte) => String.fromCharCode(byte);
             const text = (array) => btoa(Array.from(new Uint8Array(array.buffer), char).join(""));
             return { pixels: text(pixels), x: text(model.prepare(canvas)) };
           }"""
    )
    pixels = np.frombuffer(base64.b64decode(found["pixels"]), np.uint8).reshape(280, 280, 4)
    x = np.frombuffer(base64.b64decode(found["x"]), np.float32)
    np.testing.assert_array_equal(x, np.ravel(InferenceEngine(str(digits)).prepare(pixels, "rgba")))
    page.close()


def test_a_page_fetches_little(address):
    files = [
        ROOT / "wasm" / "demo" / name
        for name in ("index.html", "main.js", "paper.js", "inside.js")
    ]
    assert sum(len(gzip.compress(file.read_bytes())) for file in files) <= 12_000
