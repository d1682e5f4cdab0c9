"""Write the npm package into a folder: modules and types as they are, JavaScript without comments and indentation.

    python wasm/npm_package.py FOLDER
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

WASM = Path(__file__).resolve().parent


def lean(text: str, name: str) -> str:
    """JavaScript without the lines that are comments, and without indentation. ValueError where a template goes over
    lines: what looks like indentation there is not."""
    lines, comment = [], False
    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        if line.count("`") % 2:
            raise ValueError(f"{name}, line {number}: a template goes over lines; write it in one.")
        comment = comment or line.startswith("/*")
        if line and not comment and not line.startswith("//"):
            lines.append(line)
        comment = comment and not line.endswith("*/")
    return "\n".join(lines) + "\n"


def write(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    files = json.loads((WASM / "package.json").read_text())["files"]
    for name in ["package.json", *files]:
        if name.endswith(".js"):
            (folder / name).write_text(lean((WASM / name).read_text(), name))
        else:
            shutil.copyfile(WASM / name, folder / name)
    shutil.copyfile(WASM.parent / "LICENSE", folder / "LICENSE")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
