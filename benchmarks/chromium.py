"""A headless Chromium spoken to through its pipe: nothing of a test driver runs in the pages that are timed.

    with served({"/": lambda: b"..."}, {"/files/": folder}) as home, Chromium() as browser:
        context, target, session = browser.open(home)
        browser.evaluate("1 + 1", session)
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

WASM = Path(__file__).resolve().parent.parent / "wasm"

FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
         "--disable-background-networking", "--disable-component-update", "--remote-debugging-pipe"]  # fmt: skip
NAMES = ("chromium", "chromium-browser", "google-chrome")


def installed() -> str | None:
    return next(filter(None, map(shutil.which, NAMES)), None)


@contextlib.contextmanager
def served(texts: Mapping[str, Callable[[], bytes]], files: Mapping[str, Path]) -> Iterator[str]:
    """The server of the demo page, and beside wasm/ these: texts by their path, files and folders by what their path
    begins with. Gives the address without the last slash."""
    sys.path.insert(0, str(WASM / "demo"))
    import serve

    class Handler(serve.Handler):
        extensions_map = {**serve.Handler.extensions_map, ".mjs": "text/javascript"}

        def do_GET(self) -> None:  # noqa: N802
            text = texts.get(self.path)
            if text is None:
                super().do_GET()
                return
            body = text()
            self.send_response(200)
            self.send_header("Content-Type", "text/javascript" if self.path.endswith(".js") else "text/html")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def translate_path(self, path: str) -> str:
            start = next((start for start in files if path.startswith(start)), None)
            return super().translate_path(path) if start is None else str(files[start] / path.removeprefix(start))

    server = serve.server(handler=Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        sys.path.remove(str(WASM / "demo"))


class Chromium:
    """One browser process with a profile of its own, which goes with it."""

    def __init__(self, path: str | None = None, flags: tuple[str, ...] = ()):
        path = path or installed()
        if path is None:
            raise SystemExit(f"none of {', '.join(NAMES)} is installed; install one, or give --browser.")
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()
        high = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in (theirs_in, theirs_out)]
        quiet = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in (0, 1, 2)]
        ends = [(os.POSIX_SPAWN_DUP2, end, fd) for end, fd in zip(high, (3, 4), strict=True)]
        command = [path, *FLAGS, *flags, f"--user-data-dir={self._profile.name}", "about:blank"]
        self.pid = os.posix_spawn(path, command, os.environ, file_actions=[*quiet, *ends], setpgroup=0)
        for end in (theirs_in, theirs_out, *high):
            os.close(end)
        self._calls, self._left, self._events = 0, b"", []

    def call(self, method: str, params: dict[str, Any] | None = None, session: str | None = None) -> dict[str, Any]:
        """What a method of the DevTools protocol gives; RuntimeError where it refuses."""
        self._calls += 1
        message = {"id": self._calls, "method": method, "params": params or {}}
        os.write(self._out, json.dumps(message | ({"sessionId": session} if session else {})).encode() + b"\0")
        while True:
            got = self._message()
            if got.get("id") == self._calls:
                if "error" in got:
                    raise RuntimeError(f"{method}: {got['error']['message']}")
                return got["result"]
            self._events.append(got)

    def wait(self, event: str) -> list[dict[str, Any]]:
        """All events up to this one."""
        while not any(got.get("method") == event for got in self._events):
            self._events.append(self._message())
        found, self._events = self._events, []
        return found

    def _message(self) -> dict[str, Any]:
        while b"\0" not in self._left:
            part = os.read(self._in, 1 << 20)
            if not part:
                raise RuntimeError("Chromium has ended.")
            self._left += part
        text, self._left = self._left.split(b"\0", 1)
        return json.loads(text)

    def open(self, address: str) -> tuple[str, str, str]:
        """A page in a context of its own, with an empty cache: context, target, session."""
        context = self.call("Target.createBrowserContext")["browserContextId"]
        target = self.call("Target.createTarget", {"url": address, "browserContextId": context})["targetId"]
        session = self.call("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
        return context, target, session

    def evaluate(self, program: str, session: str) -> Any:
        """What a program in a page gives, or what its promise does."""
        got = self.call(
            "Runtime.evaluate", {"expression": program, "awaitPromise": True, "returnByValue": True}, session
        )
        if "exceptionDetails" in got:
            details = got["exceptionDetails"]
            raise RuntimeError(details.get("exception", {}).get("description", details["text"]))
        return got["result"].get("value")

    def renderers(self) -> list[Path]:
        """/proc of the processes that render pages."""
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            try:
                ours = os.getpgid(int(process.name)) == self.pid
                line = (process / "cmdline").read_bytes()
            except OSError:
                continue
            if ours and b"--type=renderer" in line:
                found.append(process)
        return found

    def __enter__(self) -> Chromium:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(RuntimeError):
            self.call("Browser.close")
        os.close(self._out)
        os.close(self._in)
        os.waitpid(self.pid, 0)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._profile.cleanup()
