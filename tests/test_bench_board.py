"""What edge-infer --bench tells of the board: a Raspberry Pi's files and command, faked."""

from __future__ import annotations

from pathlib import Path

import bins
import numpy as np
import pytest

from litenet.pyruntime import InferenceEngine, bench
from litenet.pyruntime.board import board, board_text

PI = "Raspberry Pi 4 Model B Rev 1.4"


def system(folder: Path, flags: str | None = None, model: str = PI) -> Path:
    files = {
        "firmware/devicetree/base/model": model + "\0",
        "devices/system/cpu/cpu0/cpufreq/scaling_cur_freq": "1800000\n",
        "class/thermal/thermal_zone0/temp": "61342\n",
    }
    if flags is not None:
        files["devices/platform/soc/soc:firmware/get_throttled"] = flags
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def vcgencmd(folder: Path, text: str) -> str:
    path = folder / "vcgencmd"
    path.write_text(f'#!/bin/sh\n[ "$1" = get_throttled ] && echo "{text}"\n')
    path.chmod(0o755)
    return str(path)


def test_a_cool_pi_is_not_held_back(tmp_path):
    found = board(system(tmp_path, "0\n"))
    assert found == {"board": PI, "clock_mhz": 1800, "temperature_c": 61.342, "throttled": [], "throttled_before": []}
    assert board_text(found) == f"{PI}, 1800 MHz, 61 C, not held back"


@pytest.mark.parametrize(
    ("flags", "now", "before"),
    [
        ("50005", ["under-voltage", "throttled"], ["under-voltage", "throttled"]),
        ("0xe0002", ["clock capped"], ["clock capped", "throttled", "soft temperature limit"]),
        ("80008\n", ["soft temperature limit"], ["soft temperature limit"]),
    ],
)
def test_each_flag_has_its_word(tmp_path, flags, now, before):
    found = board(system(tmp_path, flags))
    assert (found["throttled"], found["throttled_before"]) == (now, before)
    assert board_text(found).endswith(f"held back now: {', '.join(now)}, since its start: {', '.join(before)}")


def test_a_kernel_without_the_file_is_asked_through_the_firmwares_command(tmp_path):
    found = board(system(tmp_path), vcgencmd(tmp_path, "throttled=0x20000"))
    assert (found["throttled"], found["throttled_before"]) == ([], ["clock capped"])


@pytest.mark.parametrize("text", ["", "error", "throttled=", "throttled=0xZZ"])
def test_a_command_that_does_not_answer_is_passed_over(tmp_path, text):
    found = board(system(tmp_path), vcgencmd(tmp_path, text))
    assert "throttled" not in found and found["clock_mhz"] == 1800
    assert "throttled" not in board(system(tmp_path), str(tmp_path / "missing"))


def test_the_command_is_not_run_on_other_boards(tmp_path):
    ran = tmp_path / "ran"
    command = vcgencmd(tmp_path, f"$(touch {ran})")
    assert "throttled" not in board(system(tmp_path, model="Orange Pi 5"), command)
    assert not ran.exists()


def test_a_system_that_tells_nothing_gives_an_empty_line(tmp_path):
    assert board(tmp_path, "missing") == {}
    assert board_text({}) == ""


def test_the_benchmark_shows_the_board_and_warns_when_it_was_held_back(tmp_path, monkeypatch):
    monkeypatch.setattr(bench, "WARM_SECONDS", 0.01)
    engine = InferenceEngine(bins.mlp().bytes())
    x = np.zeros(engine.input_shape, np.float32)
    for flags, warned in (("0", False), ("4", True)):
        monkeypatch.setattr(bench, "board", lambda f=flags: board(system(tmp_path, f)))
        found = bench.bench(engine, 0.001, x)
        lines = bench.bench_text(found)
        assert any(line.startswith(f"board      {PI}, 1800 MHz, 61 C") for line in lines)
        assert ("held back (throttled)" in found["verdict"]) == warned
