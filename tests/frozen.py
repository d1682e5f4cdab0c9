"""The golden files of each released format, frozen in tests/data: written once, never again."""

from __future__ import annotations

from pathlib import Path

FORMAT_1 = Path(__file__).resolve().parent / "data" / "format1"
ALL = sorted(FORMAT_1.glob("*.bin"))
INT8 = [path for path in ALL if path.name.startswith("int8-")]  # whole numbers, if only in part
FILES = [path for path in ALL if path not in INT8]  # floats alone
