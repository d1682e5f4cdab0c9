"""From the start of a cold page to its first answer, beside pages that do nothing.

    pip install litenet
    python benchmarks/cold_page.py MODEL.bin [--rounds N] [--browser PATH]

Every round visits three pages, one after another: one with a line of script, one with an empty module, and
wasm/demo/, which asks the model about the digit on its paper. The server is wasm/demo/serve.py on this machine. Each
visit is in a new browser context, without a cache, in a tab that is open already; the browser runs. Times are the
page's own, in milliseconds from the start of the navigation: prints the median and the best of each mark.

    code      the first line of the page's script
    answer    the label is in the page
    painted   the label is on the screen
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path

from chromium import Chromium, served

MARK = "performance.mark('code')"
EMPTY = {
    "a line of script": f"<!doctype html><title>empty</title><script>{MARK}</script>",
    "an empty module": "<!doctype html><title>empty</title><script type=module src=mark.js></script>",
}
PAUSE = 0.7  # seconds in which the browser gets over what was before, and in which a page is left alone
ENTRIES = """new Promise((done) => {
  let painted = NaN;
  new PerformanceObserver((list) => list.getEntries().forEach((e) => (painted ||= e.renderTime)))
    .observe({ type: "element", buffered: true });
  setTimeout(() => {
    const navigation = performance.getEntriesByType("navigation")[0];
    done([...performance.getEntriesByType("mark").map((m) => [m.name, m.startTime]),
      ...["requestStart", "responseStart", "responseEnd", "domInteractive"].map((k) => [k, navigation[k]]),
      ["first paint", performance.getEntriesByName("first-paint")[0]?.startTime ?? NaN], ["painted", painted],
      ...performance.getEntriesByType("resource").map((r) => [new URL(r.name).pathname, r.responseEnd])]);
  }, 50);
})"""


def visit(browser: Chromium, address: str, last: str) -> dict[str, float]:
    """The marks of a page, by name; `last` is the one that it ends with."""
    context, _, session = browser.open("about:blank")
    time.sleep(PAUSE)
    browser.call("Page.navigate", {"url": address}, session)
    for _ in range(50):
        time.sleep(PAUSE)
        found = dict(reversed(browser.evaluate(ENTRIES, session)))
        if last in found:
            break
    else:
        raise SystemExit(f"{address} has no mark {last!r} after {50 * PAUSE:.0f} s.")
    browser.call("Target.disposeBrowserContext", {"browserContextId": context})
    return {name: value for name, value in found.items() if value is not None}


def main() -> None:
    p = argparse.ArgumentParser(description="Time a cold page to its first answer.")
    p.add_argument("model", type=Path)
    p.add_argument("--rounds", type=int, default=15)
    p.add_argument("--browser")
    args = p.parse_args()
    empty = {f"/empty/{i}": text.encode for i, text in enumerate(EMPTY.values())} | {"/empty/mark.js": MARK.encode}
    found: dict[str, list[dict[str, float]]] = {}
    with served(empty, {"/demo/digits.bin": args.model}) as home, Chromium(args.browser) as browser:
        pages = {name: (f"{home}/empty/{i}", "code") for i, name in enumerate(EMPTY)}
        pages["the demo page"] = (f"{home}/demo/", "whole")
        for i in range(args.rounds + 1):
            for name, (address, last) in pages.items():
                marks = visit(browser, address, last)
                if i:  # the browser's own first visit is not counted
                    found.setdefault(name, []).append(marks)
    for name, rounds in found.items():
        print(f"{name}: {len(rounds)} visits, median and best in ms")
        times = {mark: [r[mark] for r in rounds if mark in r] for mark in rounds[0]}
        for mark in sorted(times, key=lambda mark: statistics.median(times[mark])):
            print(f"{statistics.median(times[mark]):9.1f} {min(times[mark]):7.1f}  {mark}")


if __name__ == "__main__":
    main()
