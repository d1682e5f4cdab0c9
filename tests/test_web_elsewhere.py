"""litenet.js in other engines than Node and Chromium: Firefox, by a page that reports what it found, and Deno."""

from __future__ import annotations

import json
import os
import queue
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
FIREFOX = shutil.which("firefox-esr") or shutil.which("firefox")
DENO = shutil.which("deno")
pytestmark = pytest.mark.skipif(not shutil.which("clang"), reason="clang is not here")

# What both do: a model loads, tests itself, and answers; a wrong file gets its sentence.
PROGRAM = """
  const { LiteNet } = await import(where);
  const model = await LiteNet.load(net);
  await model.selfTest();
  const x = new Float32Array(model.info.inputElements).map((_, i) => Math.sin(i));
  const found = { values: [...model.run(x)], kernels: model.info.kernels, layers: model.trace(x).length };
  found.wrong = await LiteNet.load(new Uint8Array(200)).then(() => "", (error) => error.name + " " + error.message);
"""


@pytest.fixture(scope="module")
def net(tmp_path_factory):
    done = subprocess.run(["make", "-s", "wasm"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    file = tmp_path_factory.mktemp("net") / "net.bin"
    file.write_bytes(bins.digits().bytes())
    return file


def check(found, net):
    x = np.sin(np.arange(784, dtype=np.float64)).astype(np.float32)
    engine = InferenceEngine(net)
    np.testing.assert_allclose(found["values"], np.ravel(engine.predict(x.reshape(engine.input_shape))), 1e-4, 1e-4)
    assert found["kernels"] in ("wasm", "wasm relaxed")
    assert found["wrong"].startswith("LiteNetError model: ") and "LiteNet model" in found["wrong"]


@pytest.mark.skipif(not DENO, reason="deno is not here")
def test_deno_runs_a_model(net, tmp_path):
    program = f'const where = "{ROOT}/wasm/litenet.js", net = "{net}";{PROGRAM}console.log(JSON.stringify(found));'
    (tmp_path / "use.mjs").write_text(program)
    command = [DENO, "run", "--allow-read", "--no-lock", str(tmp_path / "use.mjs")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    check(json.loads(done.stdout), net)


@pytest.mark.skipif(not FIREFOX, reason="firefox is not here")
def test_firefox_runs_a_model_and_the_demo_page(net, tmp_path):
    sys.path.insert(0, str(ROOT / "wasm" / "demo"))
    import serve

    reports: queue.Queue[dict] = queue.Queue()
    # The demo page in a frame, a stroke on its paper, and its answer beside the program's.
    page = f"""<!doctype html><title>test</title><iframe id="demo" src="/demo/"></iframe><script type="module">
      const where = "/litenet.js", net = "/demo/digits.bin";
      try {{
        {PROGRAM}
        const demo = document.getElementById("demo");
        const until = async (ready) => {{ while (!ready()) await new Promise((done) => setTimeout(done, 20)); }};
        await until(() => demo.contentWindow.performance.getEntriesByName("whole").length);
        const inside = demo.contentDocument, paper = inside.getElementById("paper");
        const box = paper.getBoundingClientRect();
        paper.setPointerCapture = () => {{}};
        paper.hasPointerCapture = () => true;
        const pen = (type, x, y) => paper.dispatchEvent(new demo.contentWindow.PointerEvent(type, {{
          clientX: box.left + x * box.width, clientY: box.top + y * box.height, pointerId: 1, button: 0 }}));
        pen("pointerdown", 0.3, 0.2); pen("pointermove", 0.7, 0.2); pen("pointerup", 0.5, 0.9);
        await until(() => inside.querySelectorAll("#maps .layer").length);
        found.bars = inside.querySelectorAll("#scores li").length;
        found.trouble = inside.getElementById("trouble").textContent;
        await fetch("/report", {{ method: "POST", body: JSON.stringify(found) }});
      }} catch (error) {{
        await fetch("/report", {{ method: "POST", body: JSON.stringify({{ error: String(error) }}) }});
      }}
    </script>"""  # fmt: skip

    class Handler(serve.Handler):
        models = {"digits.bin": net, "test.html": tmp_path / "test.html"}

        def do_POST(self):  # noqa: N802
            reports.put(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(204)
            self.end_headers()

    (tmp_path / "test.html").write_text(page)
    server = serve.server(handler=Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_address[1]}/demo/test.html"
    profile = tmp_path / "profile"
    profile.mkdir()
    browser = subprocess.Popen(
        [FIREFOX, "--headless", "--no-remote", "--profile", str(profile), address],
        env={**os.environ, "HOME": str(tmp_path), "MOZ_DISABLE_CONTENT_SANDBOX": "1"},
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        found = reports.get(timeout=150)
    finally:
        browser.terminate()
        browser.wait(30)
        server.shutdown()
        sys.path.remove(str(ROOT / "wasm" / "demo"))
    assert "error" not in found, found
    check(found, net)
    assert found["bars"] == 10 and found["trouble"] == ""
