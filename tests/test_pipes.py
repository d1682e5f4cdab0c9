"""Every command ends quietly when nobody reads what it says, as in `edge-train evaluate ... | head`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
NET = "tests/data/format1/mlp.bin"
COMMANDS = {
    "edge-train plan": ("trainer.cli:main", "plan", "examples/digits_cnn.json"),
    "edge-check": ("trainer.check:main", "--device", "cpu", "--quick"),
    "edge-infer": ("pyruntime.cli:main", NET, "--info"),
    "edge-export": ("exporter.cli:main", NET, "-o", "net.h"),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_reader_that_goes_away_ends_the_command(command, tmp_path):
    entry, *arguments = COMMANDS[command]
    module, name = entry.split(":")
    arguments = [str(ROOT / a) if (ROOT / a).exists() else a for a in arguments]
    script = f"import sys; from litenet.{module} import {name}; sys.exit({name}({arguments!r}))"
    reader, writer = os.pipe()
    os.close(reader)
    env = os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    done = subprocess.run([sys.executable, "-c", script], stdout=writer, stderr=subprocess.PIPE, text=True,
                          cwd=tmp_path, env=env, timeout=60)  # fmt: skip
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, "")
