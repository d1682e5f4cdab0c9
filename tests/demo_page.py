"""The demo page in Chromium, as a person sees it: what its tests share."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
NEEDS = [
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not here"),
    pytest.mark.skipif(not shutil.which("clang"), reason="clang is not here"),
]
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync"]  # fmt: skip

# A digit as strokes in a square of 1: what a mouse draws.
STROKES = {
    "0": [[(0.5, 0.15), (0.3, 0.3), (0.27, 0.5), (0.3, 0.7), (0.5, 0.85), (0.7, 0.7), (0.73, 0.5), (0.7, 0.3),
           (0.5, 0.15)]],
    "1": [[(0.4, 0.25), (0.52, 0.12), (0.52, 0.88)]],
    "2": [[(0.28, 0.3), (0.4, 0.15), (0.62, 0.18), (0.68, 0.35), (0.5, 0.6), (0.28, 0.85), (0.75, 0.85)]],
    "7": [[(0.28, 0.15), (0.72, 0.15), (0.45, 0.88)]],
}  # fmt: skip


def serving() -> Iterator[str]:
    """The address of the page, with the modules as they are now."""
    done = subprocess.run(["make", "-s", "wasm"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    sys.path.insert(0, str(ROOT / "wasm" / "demo"))
    import serve

    server = serve.server()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}/demo/"
    server.shutdown()
    sys.path.remove(str(ROOT / "wasm" / "demo"))


def browsing(*flags: str) -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=[*FLAGS, *flags])
        yield browser
        browser.close()


def trained_on_digits(tmp_path_factory: Any) -> Path:
    """A .bin trained on the digits that come with LiteNet."""
    return trained("examples/digits_cnn.json", "digits", tmp_path_factory.mktemp("digits"))


def trained(blueprint: str, data: str, folder: Path) -> Path:
    for module, arguments in (
        ("trainer", [blueprint, "--data", data, "--out", str(folder / "run"), "--quiet", "--no-report"]),
        ("exporter", [str(folder / "run"), "-o", str(folder / "net.bin")]),
    ):
        command = [sys.executable, "-m", f"litenet.{module}", *arguments]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    return folder / "net.bin"


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

    def draw(self, strokes, steps=8) -> None:
        box = self.page.locator("#paper").bounding_box()
        for stroke in strokes:
            points = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in stroke]
            self.page.mouse.move(*points[0])
            self.page.mouse.down()
            for point in points[1:]:
                self.page.mouse.move(*point, steps=steps)
            self.page.mouse.up()
        self.frame()

    def frame(self) -> None:
        """Until what changed has been answered."""
        self.page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        self.page.wait_for_selector("#maps:not([aria-busy=true])", state="attached")

    def close(self) -> None:
        self.context.close()
        assert not self.errors
