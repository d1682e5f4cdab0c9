"""The demo page in a real browser: strokes of a real mouse, the keyboard, wrong files, a narrow screen."""

from __future__ import annotations

import base64
import gzip
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import bins
import numpy as np
import pytest

from litenet.pyruntime import InferenceEngine

ROOT = Path(__file__).resolve().parent.parent
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not here"),
    pytest.mark.skipif(not shutil.which("clang"), reason="clang is not here"),
]
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync"]  # fmt: skip

# A digit as strokes in a square of 1: what a mouse draws.
STROKES = {
    "0": [
        [
            (0.5, 0.15),
            (0.3, 0.3),
            (0.27, 0.5),
            (0.3, 0.7),
            (0.5, 0.85),
            (0.7, 0.7),
            (0.73, 0.5),
            (0.7, 0.3),
            (0.5, 0.15),
        ]
    ],
    "1": [[(0.4, 0.25), (0.52, 0.12), (0.52, 0.88)]],
    "2": [[(0.28, 0.3), (0.4, 0.15), (0.62, 0.18), (0.68, 0.35), (0.5, 0.6), (0.28, 0.85), (0.75, 0.85)]],
    "7": [[(0.28, 0.15), (0.72, 0.15), (0.45, 0.88)]],
}


@pytest.fixture(scope="module")
def address():
    done = subprocess.run(["make", "-s", "wasm"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    sys.path.insert(0, str(ROOT / "wasm" / "demo"))
    import serve

    server = serve.server()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}/demo/"
    server.shutdown()
    sys.path.remove(str(ROOT / "wasm" / "demo"))


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """A .bin trained on the digits that come with LiteNet."""
    folder = tmp_path_factory.mktemp("digits")
    for module, arguments in (
        ("trainer", ["examples/digits_cnn.json", "--data", "digits", "--out", str(folder / "run"), "--quiet"]),
        ("exporter", [str(folder / "run"), "-o", str(folder / "digits.bin")]),
    ):
        command = [sys.executable, "-m", f"litenet.{module}", *arguments]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    return folder / "digits.bin"


class Page:
    """The demo page with `model` in it, as a person sees it."""

    def __init__(self, browser, address, model: Path | bytes | None, name="digits.bin", **look):
        self.context = browser.new_context(**look)
        self.page = self.context.new_page()
        self.errors: list[str] = []
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        content = model.read_bytes() if isinstance(model, Path) else model
        if content is not None:
            self.page.route(
                "**/digits.bin", lambda route: route.fulfill(body=content, content_type="application/octet-stream")
            )
        self.page.goto(address)
        self.page.wait_for_function("performance.getEntriesByName('whole').length")

    def text(self, name: str) -> str:
        return self.page.locator(f"#{name}").text_content()

    def draw(self, strokes) -> None:
        box = self.page.locator("#paper").bounding_box()
        for stroke in strokes:
            points = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in stroke]
            self.page.mouse.move(*points[0])
            self.page.mouse.down()
            for point in points[1:]:
                self.page.mouse.move(*point, steps=8)
            self.page.mouse.up()
        self.frame()

    def frame(self) -> None:
        """Until what changed has been answered."""
        self.page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def close(self) -> None:
        self.context.close()
        assert not self.errors


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
        for name in ("index.html", "style.css", "main.js", "paper.js", "maps.js", "steps.js", "inside.js")
    ]
    assert sum(len(gzip.compress(file.read_bytes())) for file in files) <= 12_000
