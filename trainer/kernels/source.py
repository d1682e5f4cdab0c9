"""The text of a kernel file with its headers put in, as a compiler that reads no files wants it."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
INCLUDE = re.compile(r'^#include "(\w+\.cuh)"$')


@cache
def source(file: str) -> str:
    """The file with each of our headers once, where it is first included; errors keep naming file and line."""
    return "".join(_lines(file, set()))


def _lines(file: str, seen: set[str]) -> list[str]:
    out = [f'#line 1 "{file}"\n']
    for number, line in enumerate((FOLDER / file).read_text(encoding="utf-8").splitlines(), 1):
        found = INCLUDE.match(line)
        if found is None:
            out.append("\n" if line.strip() == "#pragma once" else line + "\n")
        elif found.group(1) not in seen:
            seen.add(found.group(1))
            out += [*_lines(found.group(1), seen), f'#line {number + 1} "{file}"\n']
        else:
            out.append("\n")
    return out
