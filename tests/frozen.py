"""The golden files of each released format, frozen in tests/data: written once, never again."""

from __future__ import annotations

from pathlib import Path

FORMAT_1 = Path(__file__).resolve().parent / "data" / "format1"
FILES = sorted(FORMAT_1.glob("*.bin"))
