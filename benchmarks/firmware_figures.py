"""Flash, RAM, stack and instructions a run of whole firmware images under emulation, for firmware_examples/*/README.md.

    python benchmarks/firmware_figures.py             # needs gcc-arm-none-eabi, qemu-system-arm, pyserial

The net has the shapes of TinyMaix's MNIST example. Instructions are counted as in chip_instructions.py.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from chip_instructions import COUNTED
from firmware import MACHINES, board, build, header, sizes
from firmware_nets import NETS


def main() -> int:
    print("| machine | type | flash | RAM | stack | instructions |\n| --- | --- | --: | --: | --: | --: |")
    with tempfile.TemporaryDirectory() as folder:
        models = {kind: header(NETS[f"tinymaix{tail}"](), Path(folder) / kind, "tinymaix")
                  for kind, tail in (("int8", "_int8"), ("float32", ""))}  # fmt: skip
        for machine in MACHINES:
            for kind, model in models.items():
                image = build(machine, model)
                flash, ram = sizes(image)
                with board(machine, image, "-icount", "shift=0", wait=30.0) as device:
                    device.run(bytes(device.info.input_bytes))
                    counted, stack = COUNTED * device.bench(1), device.memory()[1]
                print(f"| {machine} | {kind} | {flash:,} | {ram:,} | {stack:,} | {counted:,.0f} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
