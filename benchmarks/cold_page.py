"""From the start of a cold page to its first answer: a model that is fetched with it, a digit that waits on its paper.

    pip install litenet playwright
    python benchmarks/cold_page.py MODEL.bin [--rounds N] [--browser PATH]

The server is wasm/demo/serve.py on this machine. Each round is a new browser context, without a cache; the browser
itself runs already. Times are the page's own, in milliseconds from the start of the navigation: prints the median and
the best of each mark that main.js leaves, and of the end of each fetch.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import threading
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

DEMO = Path(__file__).resolve().parent.parent / "wasm" / "demo"
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
# A stroke as a mouse makes it, as soon as the page listens to the paper.
DRAW = """
addEventListener("DOMContentLoaded", () => {
  const paper = document.getElementById("paper"), box = paper.getBoundingClientRect();
  const at = (type, x, y) => paper.dispatchEvent(new PointerEvent(type, {
    clientX: box.left + x * box.width, clientY: box.top + y * box.height, pointerId: 1, button: 0, bubbles: true }));
  paper.setPointerCapture = () => {};
  paper.hasPointerCapture = () => true;
  for (const move of [["pointerdown", 0.28, 0.15], ["pointermove", 0.72, 0.15], ["pointermove", 0.45, 0.88],
                      ["pointerup", 0.45, 0.88]]) at(...move);
});
"""


def visit(browser: Any, address: str) -> dict[str, float]:
    context = browser.new_context()
    page = context.new_page()
    page.add_init_script(DRAW)
    page.goto(address, wait_until="commit")
    page.wait_for_function("performance.getEntriesByName('answer').length")
    entries = page.evaluate(
        """() => [...performance.getEntriesByType("mark").map((m) => [m.name, m.startTime]),
          ...["requestStart", "responseEnd", "domInteractive"].map((k) =>
            [k, performance.getEntriesByType("navigation")[0][k]]),
          ["first paint", performance.getEntriesByName("first-paint")[0]?.startTime ?? NaN],
          ...performance.getEntriesByType("resource").map((r) => [new URL(r.name).pathname, r.responseEnd])]"""
    )
    context.close()
    return dict(reversed(entries))


def main() -> None:
    p = argparse.ArgumentParser(description="Time a cold page to its first answer.")
    p.add_argument("model", type=Path)
    p.add_argument("--rounds", type=int, default=15)
    p.add_argument("--browser", default=shutil.which("chromium") or shutil.which("google-chrome"))
    args = p.parse_args()
    sys.path.insert(0, str(DEMO))
    import serve

    handler = type("Handler", (serve.Handler,), {"models": {"digits.bin": args.model}})
    server = serve.server(handler=handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_address[1]}/demo/"
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=args.browser, args=FLAGS)
        visit(browser, address)
        rounds = [visit(browser, address) for _ in range(args.rounds)]
        browser.close()
    server.shutdown()
    for name in sorted(rounds[0], key=lambda name: statistics.median(r.get(name, 0.0) for r in rounds)):
        times = [r[name] for r in rounds if name in r]
        print(f"{statistics.median(times):7.1f} {min(times):7.1f}  {name}")


if __name__ == "__main__":
    main()
