"""What a board tells of itself while a benchmark runs: its name, clock, temperature, and whether it was held back.

A small computer that is hot, or whose power supply is weak, lowers its clock: times measured then say nothing of the
model. Raspberry Pi firmware keeps flags of that; other systems give a clock and a temperature at best.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

FLAGS = ("under-voltage", "clock capped", "throttled", "soft temperature limit")  # bits 0 to 3; since start: 16 to 19


def board(system: Path = Path("/sys"), command: str = "vcgencmd") -> dict[str, Any]:
    """Keys only for what is told: board (its model), clock_mhz, temperature_c, throttled (what holds it back now),
    throttled_before (and since it was started). system: where the kernel's files are; command: of the firmware."""
    found: dict[str, Any] = {}
    model = _text(system / "firmware/devicetree/base/model").strip("\0")
    clock = _number(_text(system / "devices/system/cpu/cpu0/cpufreq/scaling_cur_freq"))
    heat = _number(_text(system / "class/thermal/thermal_zone0/temp"))
    flags = _flags(system, command, "Raspberry" in model)
    if model:
        found["board"] = model
    if clock is not None:
        found["clock_mhz"] = clock // 1000
    if heat is not None:
        found["temperature_c"] = heat / 1000
    if flags is not None:
        found["throttled"] = [word for bit, word in enumerate(FLAGS) if flags >> bit & 1]
        found["throttled_before"] = [word for bit, word in enumerate(FLAGS, 16) if flags >> bit & 1]
    return found


def board_text(found: dict[str, Any]) -> str:
    """One line; empty where nothing is known."""
    parts = [found["board"]] if "board" in found else []
    if "clock_mhz" in found:
        parts.append(f"{found['clock_mhz']} MHz")
    if "temperature_c" in found:
        parts.append(f"{found['temperature_c']:.0f} C")
    if "throttled" in found:
        now, before = found["throttled"], found["throttled_before"]
        parts.append(f"held back now: {', '.join(now)}" if now else "not held back")
        if before:
            parts.append(f"since its start: {', '.join(before)}")
    return ", ".join(parts)


def _flags(system: Path, command: str, raspberry: bool) -> int | None:
    """The firmware's flags, from the kernel, or on a Raspberry Pi from its command."""
    text = _text(system / "devices/platform/soc/soc:firmware/get_throttled")
    if not text and raspberry:
        import subprocess

        try:
            done = subprocess.run([command, "get_throttled"], capture_output=True, text=True, timeout=2, check=False)
            text = done.stdout.strip().removeprefix("throttled=")
        except (OSError, subprocess.TimeoutExpired):
            return None
    return _number(text, 16)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _number(text: str, base: int = 10) -> int | None:
    try:
        return int(text, base)
    except ValueError:
        return None
