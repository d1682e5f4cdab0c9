"""What the page and predict can be given: a finger, files, a camera, pictures of every kind, five hundred models."""

from __future__ import annotations

import base64
from pathlib import Path

import bins
import cv2
import int8_nets
import numpy as np
import pytest
from demo_page import NEEDS, ROOT, STROKES, Page, browsing, serving, trained_on_digits

from litenet.pyruntime import InferenceEngine
from litenet.pyruntime.image import decode

pytestmark = NEEDS
SIDE = 320  # of the camera's picture

address = pytest.fixture(scope="module")(serving)
digits = pytest.fixture(scope="module")(trained_on_digits)


@pytest.fixture(scope="module")
def film(tmp_path_factory):
    """What the browser's false camera sees: a 7."""
    picture = np.full((SIDE, SIDE), 255, np.uint8)
    points = [np.array([(round(SIDE * x), round(SIDE * y)) for x, y in stroke]) for stroke in STROKES["7"]]
    cv2.polylines(picture, points, False, 0, SIDE // 14)
    colours = np.full(SIDE * SIDE // 2, 128, np.uint8)
    path = tmp_path_factory.mktemp("film") / "seven.y4m"
    head = f"YUV4MPEG2 W{SIDE} H{SIDE} F30:1 Ip A1:1 C420jpeg\n".encode()
    path.write_bytes(head + 2 * (b"FRAME\n" + picture.tobytes() + colours.tobytes()))
    return path


@pytest.fixture(scope="module")
def browser(film):
    camera = ("--use-fake-device-for-media-stream", f"--use-file-for-fake-video-capture={film}")
    yield from browsing(*camera)


@pytest.fixture
def page(browser, address, digits):
    page = Page(browser, address, digits)
    yield page
    page.close()


def test_the_page_opens_with_an_example_that_the_first_stroke_replaces(page):
    assert page.text("answer").startswith("2,"), page.text("answer")
    assert page.page.locator("#maps .layer").count() > 0 and page.text("step")
    page.draw(STROKES["7"])
    assert page.text("answer").startswith("7,"), page.text("answer")
    page.page.locator("#clear").click()
    page.frame()
    assert page.text("answer") == "Draw something."


def test_a_finger_draws(browser, address, digits):
    page = Page(browser, address, digits, has_touch=True)
    box = page.page.locator("#paper").bounding_box()
    touch = page.context.new_cdp_session(page.page)
    (points,) = STROKES["7"]
    legs = zip(np.array(points[:-1]), np.array(points[1:]), strict=True)
    near = [a + (b - a) * step / 6 for a, b in legs for step in range(7)]
    for kind, point in [("touchStart", near[0]), *(("touchMove", p) for p in near), ("touchEnd", None)]:
        at = [] if point is None else [
            {"x": box["x"] + point[0] * box["width"], "y": box["y"] + point[1] * box["height"]}
        ]  # fmt: skip
        touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": at})
    page.frame()
    assert page.text("answer").startswith("7,"), page.text("answer")
    page.close()


def test_a_picture_that_is_picked_gets_the_answer_of_the_command(page, digits):
    engine = InferenceEngine(digits)
    for picture in sorted((ROOT / "examples" / "pictures").glob("*.png"))[:4]:
        want = int(np.argmax(engine.predict_image(*decode(picture))))
        page.page.locator("#picture").set_input_files(str(picture))
        page.frame()
        page.page.wait_for_function(f"document.getElementById('answer').textContent.startsWith('{want},')")
    assert page.text("trouble") == ""


def drop(page, name, kind, content):
    page.page.evaluate(
        """([name, type, content]) => {
             const data = new DataTransfer();
             data.items.add(new File([Uint8Array.from(atob(content), (c) => c.charCodeAt(0))], name, { type }));
             document.body.dispatchEvent(new DragEvent("drop", { dataTransfer: data, bubbles: true }));
           }""",
        [name, kind, base64.b64encode(content).decode()],
    )


def test_models_and_pictures_are_dropped_on_the_page(page):
    net = bins.colors()
    net.metadata["labels"] = [f"colour {i}" for i in range(10)]
    drop(page, "colors.bin", "", net.bytes())
    page.page.wait_for_function("document.getElementById('answer').textContent.startsWith('colour ')")
    pixels = np.random.default_rng(0).integers(0, 256, (30, 40, 3), np.uint8)
    engine = InferenceEngine(net.bytes())
    want = int(np.argmax(engine.predict_image(pixels, "rgb")))
    drop(page, "noise.png", "image/png", cv2.imencode(".png", pixels[..., ::-1])[1].tobytes())
    page.page.wait_for_function(f"document.getElementById('answer').textContent.startsWith('colour {want},')")
    drop(page, "wrong.png", "image/png", b"no picture")
    page.page.wait_for_function("document.getElementById('trouble').textContent.startsWith('wrong.png is no picture')")


def test_the_camera_is_seen_and_let_go_of(browser, address, digits):
    page = Page(browser, address, digits, permissions=["camera"])
    page.page.locator("#film").click()
    page.page.wait_for_function("document.getElementById('answer').textContent.startsWith('7,')")
    assert page.page.locator("#film").get_attribute("aria-pressed") == "true"
    assert page.page.locator("#camera").is_visible()
    page.page.locator("#clear").click()
    page.page.wait_for_function("document.getElementById('answer').textContent === 'Draw something.'")
    assert page.page.locator("#film").get_attribute("aria-pressed") == "false"
    assert not page.page.locator("#camera").is_visible()
    page.close()


def test_a_camera_that_is_not_allowed_gets_a_sentence(page):
    page.page.locator("#film").click()
    page.page.wait_for_function("document.getElementById('trouble').textContent !== ''")
    assert page.text("trouble").startswith("There is no picture from a camera (Permission")
    assert page.text("trouble").endswith("); allow it, or open a picture.")
    assert page.page.locator("#film").get_attribute("aria-pressed") == "false"


def test_every_kind_of_picture_gives_the_bits_of_its_pixels(page):
    pixels = np.random.default_rng(1).integers(0, 256, (37, 53, 3), np.uint8)
    net = bins.colors().bytes()
    found = page.page.evaluate(
        """async ([net, png, raw]) => {
             const { LiteNet } = await import("/litenet.js");
             const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
             const model = await LiteNet.load(bytes(net));
             const image = new Image();
             image.src = "data:image/png;base64," + png;
             await image.decode();
             const canvas = Object.assign(document.createElement("canvas"), { width: 53, height: 37 });
             canvas.getContext("2d").drawImage(image, 0, 0);
             const off = new OffscreenCanvas(53, 37);
             off.getContext("2d").drawImage(image, 0, 0);
             const kinds = {
               image, canvas, off,
               data: canvas.getContext("2d").getImageData(0, 0, 53, 37),
               bitmap: await createImageBitmap(image),
               frame: new VideoFrame(canvas, { timestamp: 0 }),
               bytes: { data: bytes(raw), width: 53, height: 37 },
             };
             const text = (array) => btoa(String.fromCharCode(...new Uint8Array(array.buffer)));
             const found = ([kind, one]) => [kind, text(model.prepare(one)), model.predict(one).index];
             return Object.entries(kinds).map(found);
           }""",
        [base64.b64encode(part).decode() for part in (net, cv2.imencode(".png", pixels[..., ::-1])[1], pixels)],
    )
    want = np.ravel(InferenceEngine(net).prepare(pixels, "rgb"))
    assert len(found) == 7 and len({index for _, _, index in found}) == 1
    for kind, values, _ in found:
        np.testing.assert_array_equal(np.frombuffer(base64.b64decode(values), np.float32), want, kind)


@pytest.mark.parametrize("net", ["mlp", "digits", "colors", "int8"])
def test_the_browser_gives_the_bits_of_the_portable_kernels(page, net):
    file = int8_nets.picture_model(int8_nets.pictures()) if net == "int8" else getattr(bins, net)().bytes()
    engine = InferenceEngine(file, kernels="portable")
    x = np.random.default_rng(3).standard_normal(engine.input_shape).astype(np.float32)
    plain, best = page.page.evaluate(
        """async ([file, x]) => {
             const { LiteNet } = await import("/litenet.js");
             const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
             const values = async () => [...(await LiteNet.load(bytes(file))).run(new Float32Array(bytes(x).buffer))];
             const best = await values();
             await LiteNet.useModule(new URL("/litenet.wasm", location.href));
             return [await values(), best];
           }""",
        [base64.b64encode(part).decode() for part in (file, x)],
    )
    want = np.ravel(engine.predict(x))
    np.testing.assert_array_equal(np.array(plain, np.float32), want)
    np.testing.assert_allclose(best, want, 0 if net == "int8" else 1e-5, 0 if net == "int8" else 1e-5)


def test_five_hundred_models_come_and_go_in_a_page(browser, page):
    session = browser.new_browser_cdp_session()

    def resident() -> int:
        """Memory of the processes that render, in bytes."""
        processes = session.send("SystemInfo.getProcessInfo")["processInfo"]
        files = [Path(f"/proc/{p['id']}/statm") for p in processes if p["type"] == "renderer"]
        return 4096 * sum(int(file.read_text().split()[1]) for file in files)

    def lives(times: int) -> int:
        return page.page.evaluate(
            """async (times) => {
                 const { LiteNet } = await import("/litenet.js");
                 const file = new Uint8Array(await (await fetch("digits.bin")).arrayBuffer());
                 let most = 0;
                 for (let i = 0; i < times; i++) {
                   const model = await LiteNet.load(file);
                   most = Math.max(most, model.info.memoryBytes);
                   model.run(new Float32Array(model.info.inputElements));
                   model.dispose();
                 }
                 return most;
               }""",
            times,
        )

    few = lives(20)
    before = resident()
    assert lives(500) == few
    assert resident() - before <= 30e6
