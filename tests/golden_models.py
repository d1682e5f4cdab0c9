"""Models with golden answers by the definitions, for machines that have no Python to compare with: the two that use
what the format has, some nets, and one of each operator that takes one input."""

from __future__ import annotations

from pathlib import Path

import bins
from bins import RGB, Bin
from everything import everything

from litenet.exporter.format import write
from litenet.trainer.ops import OPS


def blocks(**more) -> Bin:
    """3 x 3 convolutions wide enough for Winograd's algorithm, and a depthwise block."""
    net = Bin((18, 14, 3), RGB, **more)
    net.add("conv2d", out_channels=16, kernel_size=3, padding=1, activation="relu")
    net.add("conv2d", out_channels=40, kernel_size=3, padding=1, activation="relu6").add("maxpool2d", kernel_size=2)
    net.add("depthwise_conv2d", kernel_size=3, padding=1, activation="silu")
    return net.add("conv2d", out_channels=24, kernel_size=1).add("global_avg_pool").add("linear", out_features=10)


def golden_models(folder: Path) -> list[Path]:
    """The files, written into `folder`; the first is for pictures of digits."""
    files = {"digits": bins.digits().bytes()}
    for half in (False, True):
        more = {"half": half}
        nets = {"mlp": bins.mlp(**more), "colors": bins.colors(**more), "blocks": blocks(**more)}
        for name, module in OPS.items():
            if module.OP.in_files and module.CASES and len(module.OP.inputs) == 1:
                case = dict(module.CASES[0])
                nets[name] = Bin(tuple(case.pop("x")), **more).add(name, **case)
        files |= {f"{name}{'-half' * half}": net.bytes() for name, net in nets.items()}
        files[f"everything{'-half' * half}"] = write(everything(half)[0])
    for name, data in files.items():
        (folder / f"{name}.bin").write_bytes(data)
    return [folder / f"{name}.bin" for name in files]
