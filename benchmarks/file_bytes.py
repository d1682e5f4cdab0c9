"""Where the bytes of a .bin are: python benchmarks/file_bytes.py FILE ...

Columns: the file; weights alone; biases and multipliers of channels; tables of activations and softmax; what only fills
up panels, and bytes up to the next multiple of 64; header and program; metadata; golden section.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

import reader

NAMES = ("file", "weights", "channels", "tables", "fill", "program", "metadata", "golden")


def parts(data: bytes) -> dict[str, int]:
    """Bytes of each part; they add up to "file"."""
    f = reader.read(data)
    found = dict.fromkeys(NAMES, 0) | {"file": len(data), "metadata": len(f.metadata_text)}
    found["golden"] = struct.unpack_from("<I", data, 84)[0]
    found["program"] = 128 + struct.unpack_from("<I", data, 68)[0]
    blocks, program = {}, struct.unpack_from("<I", data, 64)[0] + 32 * len(f.tensors)
    for i, op in enumerate(f.ops):
        at = struct.unpack_from("<I", data, program + 64 * i + 16)[0]
        blocks[at] = (op, f.tensors[op.inputs[0]].shape, f.tensors[op.output].shape)
    for op, x, y in (block for at, block in blocks.items() if at):
        weights, channels = sizes(op, x, y)
        each = 1 if op.i8 else 2 if op.half else 4
        if not channels:
            found["tables"] += len(op.weights)
            continue
        found["weights"] += each * weights
        found["channels"] += (8 if op.i8 else each) * channels
    found["fill"] = 2 * len(data) - sum(found.values())
    return found


def sizes(op: reader.Operator, x: tuple[int, ...], y: tuple[int, ...]) -> tuple[int, int]:
    """(weights, output channels) of one operator; (0, 0) for a table."""
    a, O = op.attrs, y[-1]
    if op.name == "conv2d":
        return a["kernel_size"][0] * a["kernel_size"][1] * x[2] // a["groups"] * O, O
    if op.name == "depthwise_conv2d":
        return a["kernel_size"][0] * a["kernel_size"][1] * O, O
    if op.name == "linear":
        rows = y[0] if len(y) == 2 else 1
        return reader.math.prod(x) // rows * O, O
    if op.name == "embed_projection":
        return x[0] * x[1] * a["embed_dim"], a["embed_dim"]
    return 0, 0


def rows(paths: list[str]) -> Iterator[str]:
    wide = max(map(len, paths))
    yield " " * wide + "".join(f"{name:>10}" for name in NAMES)
    for path in paths:
        found = parts(Path(path).read_bytes())
        yield f"{path:<{wide}}" + "".join(f"{found[name]:>10,}" for name in NAMES)


if __name__ == "__main__":
    print(*rows(sys.argv[1:]), sep="\n")
