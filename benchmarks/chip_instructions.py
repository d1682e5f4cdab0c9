"""Instructions a multiply-accumulate on the processors that qemu-system-arm emulates: exporter/boards.py predicts
times from these.

    python benchmarks/chip_instructions.py             # needs gcc-arm-none-eabi, qemu-system-arm, pyserial

qemu runs with -icount shift=0: one instruction is one nanosecond of the emulated clock, so the board's own clock
counts instructions, 31 to 63 at a time. A chip takes more cycles than instructions where it waits for memory.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from bins import Bin
from firmware import MACHINES, board, build, header

from litenet.pyruntime.engine import InferenceEngine

NETS = {
    "linear": Bin((256,)).add("linear", out_features=64, activation="relu"),
    "conv2d": Bin((8, 8, 8)).add("conv2d", out_channels=16, kernel_size=3, padding=1, activation="relu"),
    "depthwise_conv2d": Bin((8, 8, 16)).add("depthwise_conv2d", kernel_size=3, padding=1, activation="relu"),
    "embed_projection": Bin((8, 8, 3)).add("embed_projection", embed_dim=16, keep_channels=1),
}
COUNTED = 1e9  # instructions a second of the emulated clock


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        models = {name: header(net.bytes(golden=0), Path(folder) / name) for name, net in NETS.items()}
        macs = {}
        for name, model in models.items():
            with InferenceEngine(model.with_suffix(".bin")) as engine:
                macs[name] = sum(layer.macs for layer in engine.layers)
        for machine, cpu in MACHINES.items():
            row = []
            for name, model in models.items():
                with board(machine, build(machine, model), "-icount", "shift=0", wait=30.0) as device:
                    row.append(f'"{name} F32": {COUNTED * device.bench(1) / macs[name]:.3g}')
            print(f'    "{cpu}": {{{", ".join(row)}}},', flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
