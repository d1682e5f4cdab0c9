"""Serve the demo page on this machine: python wasm/demo/serve.py [PORT]. Prints the address; Ctrl-C ends it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

WASM = Path(__file__).resolve().parent.parent


class Handler(SimpleHTTPRequestHandler):
    """Types that every browser accepts, whatever the machine's own table says; no line for each request; connections
    that serve many requests; models that lie elsewhere."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    models: Mapping[str, Path] = {}  # by name, as if they lay beside the page

    extensions_map = {
        **SimpleHTTPRequestHandler.extensions_map,
        ".wasm": "application/wasm", ".js": "text/javascript", ".bin": "application/octet-stream",
    }  # fmt: skip

    def translate_path(self, path: str) -> str:
        model = self.models.get(path.removeprefix("/demo/"))
        return str(model) if model else super().translate_path(path)

    def log_message(self, format: str, *args: object) -> None:
        pass


def server(port: int = 0, handler: type[Handler] = Handler) -> ThreadingHTTPServer:
    """A server of wasm/ on this machine only; port 0: any free one."""
    return ThreadingHTTPServer(("127.0.0.1", port), partial(handler, directory=str(WASM)))


if __name__ == "__main__":
    with server(int(sys.argv[1]) if len(sys.argv) > 1 else 8000) as serving:
        print(f"http://127.0.0.1:{serving.server_address[1]}/demo/   (Ctrl-C ends it)", flush=True)
        try:
            serving.serve_forever()
        except KeyboardInterrupt:
            print()
