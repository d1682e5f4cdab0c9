"""Make the Arduino library for one model: python assemble.py mnist_cnn.h -o ~/Arduino/libraries/LiteNet

The folder gets the runtime's sources as they are, the device program, the model, and one header that sets the switches.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
RUNTIME = HERE.parent.parent / "runtime_c"
COMMON = HERE.parent / "common"
SWITCHES = """\
/* Written by assemble.py. */
#ifndef LN_ARDUINO_H
#define LN_ARDUINO_H
#define LN_SMALL
#define LN_TERSE
#define LN_OPS_HEADER "{file}"
#if defined(__AVR__)
#define LN_FRAME_PAYLOAD 64
#endif
#endif
"""


def assemble(model: Path, out: Path) -> None:
    """Write the library folder `out`; it is made anew where it is a LiteNet library."""
    if out.exists() and not (out / "library.properties").exists():
        raise SystemExit(f"assemble.py: {out} exists and is no Arduino library: give another folder.")
    if not model.is_file() or "LN_ASKS_FOR_OPS" not in model.read_text(encoding="utf-8"):
        raise SystemExit(f"assemble.py: {model} is no header of edge-export: `edge-export net.bin -o net.h` makes one.")
    shutil.rmtree(out, ignore_errors=True)
    source = out / "src"
    source.mkdir(parents=True)
    (source / "ln_arduino.h").write_text(SWITCHES.format(file=model.name))
    shutil.copy(model, source / model.name)
    for path in [*RUNTIME.glob("src/*.[ch]"), *RUNTIME.glob("src/*.def"), RUNTIME / "include" / "litenet.h",
                 *COMMON.glob("*.[ch]"), HERE / "LiteNet.h", HERE / "LiteNet.cpp"]:  # fmt: skip
        if path.name.startswith("fast_") or path.name in ("ln_file.c", "ln_threads.c", "small_mem.c"):
            continue
        text = path.read_text(encoding="utf-8")
        first = '#include "ln_arduino.h"\n' if path.suffix == ".c" else ""  # a sketch cannot give switches to a library
        (source / path.name).write_text(first + text, encoding="utf-8")
    shutil.copy(HERE / "library.properties", out)
    shutil.copytree(HERE / "examples", out / "examples")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path, help="the header that edge-export wrote")
    parser.add_argument("-o", "--out", type=Path, required=True, help="the library's folder")
    options = parser.parse_args(argv)
    assemble(options.model, options.out)
    print(f"{options.out}: LiteNet for {options.model.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
