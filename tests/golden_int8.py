"""Models of whole numbers with golden answers by the definitions: one of each operator, and nets that use what the
format has. tests/data/format1 holds what this wrote once; to write new ones for another format:

    python tests/golden_int8.py FOLDER
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
from bins import RGB
from int8_nets import STEPS, Net, picture_model, pictures

from litenet.exporter import format as writer
from litenet.exporter import pack
from litenet.pyruntime import chip_file
from litenet.trainer.int8 import ops as definition
from litenet.trainer.int8.scheme import Quant, picture
from litenet.trainer.ops import OPS

BOUNDS = ("none", "relu", "relu6")  # activations that an int8 operator can carry
CASE = {"conv2d": 3, "depthwise_conv2d": 3, "linear": 3, "maxpool2d": 4, "avgpool2d": 4, "resize": 5, "activation": 6,
        "pad": 2, "slice": 4, "transpose": 2}  # fmt: skip


def one(name: str) -> bytes:
    """A model of one operator, with one of its own cases."""
    module = OPS[name]
    case = dict(module.CASES[CASE.get(name, 1)]) if module.CASES else {"x": (17,)}
    shape = tuple(case.pop("x"))
    if name != "activation" and case.get("activation", "none") not in BOUNDS:
        del case["activation"]
    net = Net(shape, None if name == "quantize" else STEPS, seed=module.OP.id, fine=False)
    net.add(name, *[0] * len(module.OP.inputs), **case)
    return writer.write(net.model(golden=1))


def branches() -> bytes:
    """Residuals, a squeeze and excitation, branches joined, two outputs."""
    net = Net((9, 7, 5), Quant(1 / 16, -20), seed=2, fine=False)
    a = net.add("conv2d", out_channels=20, kernel_size=3, padding=1, activation="relu")
    b = net.add("depthwise_conv2d", a, kernel_size=3, padding=1, activation="relu6")
    c = net.add("add", a, b)
    d = net.add("global_avg_pool", c)
    e = net.add("activation", net.add("linear", d, out_features=20), activation="sigmoid")
    f = net.add("mul", c, e)
    g = net.add("maxpool2d", net.add("concat", f, b, axis=2), kernel_size=2, stride=2)
    h = net.add("conv2d", g, out_channels=6, kernel_size=1, groups=2)
    i = net.add("softmax", net.add("linear", net.add("flatten", h), out_features=4))
    return writer.write(net.model((d, i), golden=2))


def mixed() -> bytes:
    """Whole numbers, float32, float16 and whole numbers again."""
    net = Net((6, 4, 3), STEPS, seed=3, fine=False)
    net.add("conv2d", out_channels=8, kernel_size=3, activation="relu")
    net.add("dequantize")
    net.add("layernorm")
    net.add("flatten")
    half = net.add("linear", out_features=6)
    net.add("quantize")
    net.add("linear", out_features=3)
    op, inputs, a, n, roles = net.nodes[half - 1]
    roles = {k: v.astype(np.float16).astype(np.float32) for k, v in roles.items()}
    net.nodes[half - 1] = (op, inputs, a, n, roles)
    model = net.model(golden=2)
    stored = replace(model.ops[half - 1], weights=pack.pack(op, a, roles, "f16"), weight_dtype="f16")
    return writer.write(replace(model, ops=[*model.ops[: half - 1], stored, *model.ops[half:]]))


def made() -> bytes:
    """Pictures whose golden inputs are seeds."""
    net = pictures(fine=False)
    plain = net.model(frame=RGB)
    P, Q = picture(RGB.mean, RGB.std, STEPS)
    seeds = (0, 4_000_000_000)
    frames = [chip_file.made(seed, 12 * 10 * 3).reshape(12, 10, 3) for seed in seeds]
    runs = [net.values(definition.frame(frame[None], P, Q)[0]) for frame in frames]
    sums = [writer.checksums(plain, v[1:]) for v in runs]
    return writer.write(replace(plain, golden=writer.Golden("made", seeds, [(v[-1],) for v in runs], sums)))


def short() -> bytes:
    """Exponentials that fall to zero within the table."""
    net = Net((3, 7), Quant(0.25, 3), seed=6)
    net.add("softmax")
    return writer.write(net.model(golden=1))


def fine() -> bytes:
    """Requantisations with a shift: every operator that has one."""
    net = Net((9, 7, 5), Quant(1 / 16, -20), seed=14)
    a = net.add("conv2d", out_channels=20, kernel_size=3, padding=1, numbers={"shift": 7})
    b = net.add("depthwise_conv2d", a, kernel_size=3, padding=1, numbers={"shift": 4})
    c = net.add("global_avg_pool", b)
    net.add("mul", b, net.add("linear", c, out_features=20, numbers={"shift": 1}))
    net.add("embed_projection", embed_dim=6, numbers={"shift": 6})
    return writer.write(net.model(golden=2))


def golden_int8(folder: Path) -> list[Path]:
    """The files, written into `folder`."""
    files = {name: one(name) for name, m in OPS.items() if m.OP.in_files and (m.OP.int8 is not None or m.OP.crosses)}
    files |= {"branches": branches(), "mixed": mixed(), "made": made(), "short": short(), "fine": fine()}
    files["pictures"] = picture_model(pictures(fine=False))
    for name, data in files.items():
        (folder / f"int8-{name}.bin").write_bytes(data)
    return [folder / f"int8-{name}.bin" for name in files]


if __name__ == "__main__":
    print(*golden_int8(Path(sys.argv[1])))
