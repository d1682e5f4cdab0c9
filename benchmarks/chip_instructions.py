"""Instructions a multiply-accumulate on the processors that qemu-system-arm emulates: exporter/boards.py predicts
times from these.

    python benchmarks/chip_instructions.py             # needs gcc-arm-none-eabi, qemu-system-arm, pyserial

float32 and int8; of int8, where a processor has short vectors (DSP, Helium), plain C beside them.

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
from int8_nets import Net

from litenet.exporter.format import write
from litenet.pyruntime.engine import InferenceEngine
from litenet.trainer.int8.scheme import Quant

LAYERS = {  # name: (shape of the input, attributes)
    "linear": ((256,), {"out_features": 64}),
    "conv2d": ((8, 8, 8), {"out_channels": 16, "kernel_size": 3, "padding": 1}),
    "depthwise_conv2d": ((8, 8, 16), {"kernel_size": 3, "padding": 1}),
    "embed_projection": ((8, 8, 3), {"embed_dim": 16, "keep_channels": 1}),
}
SHORT_VECTORS = ("cortex-m4f", "cortex-m7", "cortex-m55")  # of int8: what plain C takes there is shown, too
COUNTED = 1e9  # instructions a second of the emulated clock


def float32(op: str) -> bytes:
    shape, given = LAYERS[op]
    return Bin(shape).add(op, **given, **({} if op == "embed_projection" else {"activation": "relu"})).bytes(golden=0)


def int8(op: str) -> bytes:
    shape, given = LAYERS[op]
    net = Net(shape, Quant(1 / 16, -3))
    net.add(op, **given)
    return write(net.model())


def counted(machine: str, data: bytes, folder: Path, plain: bool) -> float:
    """Instructions a multiply-accumulate."""
    model = header(data, folder)
    with InferenceEngine(data) as engine:
        macs = sum(layer.macs for layer in engine.layers)
    with board(machine, build(machine, model, plain=plain), "-icount", "shift=0", wait=30.0) as device:
        return COUNTED * device.bench(1) / macs


def main() -> int:
    for machine, cpu in MACHINES.items():
        for kind, made in (("F32", float32), ("I8", int8)):
            for plain in (False, True) if kind == "I8" and cpu in SHORT_VECTORS else (False,):
                row = []
                for op in LAYERS:
                    with tempfile.TemporaryDirectory() as folder:
                        row.append(f'"{op} {kind}": {counted(machine, made(op), Path(folder), plain):.3g}')
                print(f'    "{cpu}": {{{", ".join(row)}}},{"  # plain C" if plain else ""}', flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
