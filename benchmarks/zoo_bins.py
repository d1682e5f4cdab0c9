"""Write the nets that the CPU rivals are measured on as .bin files, with untrained weights.

    python benchmarks/zoo_bins.py FOLDER [NET ...] [--half | --int8 | --store-winograd]

Weights are as training begins, so that activations keep their size from layer to layer; time does not depend on them.
There is no golden section: the files are for the clock.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from litenet.exporter import device, format, winograd
from litenet.exporter.int8 import ranges, write
from litenet.exporter.int8.graphs import separated, tied
from litenet.exporter.int8.lower import lower
from litenet.exporter.source import Source
from litenet.trainer import blueprint as blueprints
from litenet.trainer.fuse import for_inference
from litenet.trainer.graph import build
from litenet.trainer.init import fill
from litenet.trainer.int8.net import Net


def conv(out: int, kernel: int = 3, **more: Any) -> dict[str, Any]:
    return {"type": "conv2d", "out_channels": out, "kernel_size": kernel, "padding": kernel // 2, **more}


def relu(out: int, kernel: int = 3, **more: Any) -> dict[str, Any]:
    return conv(out, kernel, activation="relu", **more)


def linear(out: int, **more: Any) -> dict[str, Any]:
    return {"type": "linear", "out_features": out, **more}


POOL, GAP = {"type": "maxpool2d", "kernel_size": 2, "stride": 2}, {"type": "global_avg_pool"}


def basic(out: int, stride: int) -> dict[str, Any]:
    """ResNet's basic block, batch norm folded."""
    shortcut = {"shortcut": "projection"} if stride > 1 else {}
    return {"type": "residual", "layers": [relu(out, stride=stride), conv(out)], "activation": "relu", **shortcut}


def resnet18(stem: list[dict[str, Any]], classes: int) -> list[dict[str, Any]]:
    blocks = [
        basic(out, stride if i == 0 else 1) for out, stride in ((64, 1), (128, 2), (256, 2), (512, 2)) for i in range(2)
    ]
    return [*stem, *blocks, GAP, linear(classes)]


def depthwise(kernel: int = 3, **more: Any) -> dict[str, Any]:
    sizes = {"kernel_size": kernel, "padding": kernel // 2}
    return {"type": "depthwise_conv2d", **sizes, "activation": "relu", **more}


def mobilenet_v1() -> list[dict[str, Any]]:
    steps = ((16, 1), (32, 2), (32, 1), (64, 2), (64, 1), (128, 2), *[(128, 1)] * 5, (256, 2), (256, 1))
    pairs = [layer for out, stride in steps for layer in (depthwise(stride=stride), relu(out, 1))]
    return [relu(8, stride=2), *pairs, GAP, linear(2)]


def mobilenet_v2() -> list[dict[str, Any]]:
    layers: list[dict[str, Any]] = [conv(32, stride=2, activation="relu6")]
    for expand, out, count, stride in (
        (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1),
    ):  # fmt: skip
        for i in range(count):
            inverted = {"type": "inverted_residual", "out_channels": out, "expand": expand, "activation": "relu6"}
            layers.append({**inverted, "stride": stride if i == 0 else 1, "batchnorm": False})
    return [*layers, conv(1280, 1, activation="relu6"), GAP, linear(1000)]


def mobilenet_v3() -> list[dict[str, Any]]:
    """The small one's layers without squeeze-and-excitation and sums, relu for every activation."""
    layers = [relu(16, stride=2)]
    for wide, out, kernel, stride in (
        (16, 16, 3, 2), (72, 24, 3, 2), (88, 24, 3, 1), (96, 40, 5, 2), *[(240, 40, 5, 1)] * 2, (120, 48, 5, 1),
        (144, 48, 5, 1), (288, 96, 5, 2), *[(576, 96, 5, 1)] * 2,
    ):  # fmt: skip
        layers += [relu(wide, 1), depthwise(kernel, stride=stride), conv(out, 1)]
    return [*layers, relu(576, 1), GAP, linear(1000)]


Made = tuple[list[int], list[dict[str, Any]]]  # input shape, layers
NETS: dict[str, Made] = {
    "mnist_mlp": ([784], [linear(256, activation="relu"), linear(128, activation="relu"), linear(10)]),
    "mnist_cnn": (
        [1, 28, 28],
        [relu(32), POOL, relu(64), POOL, {"type": "flatten"}, linear(128, activation="relu"), linear(10)],
    ),
    "litenet_cifar": (
        [3, 32, 32],
        [
            {"type": "embed_projection", "embed_dim": 64},
            *[{"type": "dual_path", "hidden_features": 256, "activation": "gelu_tanh"}] * 4,
            linear(10),
        ],
    ),
    "cifar_cnn": (
        [3, 32, 32],
        [*[layer for out in (32, 64, 128) for layer in (relu(out), relu(out), POOL)], GAP, linear(10)],
    ),
    "tomato_cnn": ([3, 128, 128], [relu(32), POOL, relu(64), POOL, relu(128), POOL, GAP, linear(4)]),
    "resnet18_cifar": ([3, 32, 32], resnet18([relu(64)], 10)),
    "resnet18_224": (
        [3, 224, 224],
        resnet18(
            [relu(64, 7, stride=2), {"type": "maxpool2d", "kernel_size": 3, "stride": 2, "padding": 1}], 1000
        ),
    ),
    "resnet8": ([3, 32, 32], [relu(16), basic(16, 1), basic(32, 2), basic(64, 2), GAP, linear(10)]),
    "mbv1_025_96": ([3, 96, 96], mobilenet_v1()),
    "dscnn_kws": (
        [1, 49, 10],
        [
            {"type": "conv2d", "out_channels": 64, "kernel_size": [10, 4], "stride": 2, "padding": [5, 1, 5, 1],
             "activation": "relu"},
            *[layer for _ in range(4) for layer in (depthwise(), relu(64, 1))],
            GAP,
            linear(12),
        ],
    ),
    "mbv2_224": ([3, 224, 224], mobilenet_v2()),
}  # fmt: skip


# What docs/performance.md says of single kinds of layers; not written unless named.
LAYERS: dict[str, Made] = {
    **{f"dw5_{c}x{h}": ([c, h, h], [depthwise(5)] * 4) for c, h in ((64, 56), (120, 28), (240, 14), (672, 7))},
    **{f"dw5_{c}x{h}_s2": ([c, h, h], [depthwise(5, stride=2)]) for c, h in ((72, 56), (240, 28), (672, 14))},
    **{
        f"first3_{c}to{o}_s{stride}": ([c, 112, 112], [relu(o, stride=stride)])
        for c in (1, 3, 4) for o in (16, 32, 64) for stride in (1, 2)
    },
    **{f"first5_{c}to32": ([c, 56, 56], [relu(32, 5)]) for c in (1, 3)},
    "first7_3to64": ([3, 224, 224], [relu(64, 7, stride=2)]),
    "mbv3_small_224": ([3, 224, 224], mobilenet_v3()),
}  # fmt: skip

FACENET = "facenet_112"  # not in NETS: it needs the importer, as a blueprint has no prelu


def facenet() -> Source:
    """The MobileFaceNet of tests/onnx_zoo.py, through the importer."""
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
    import onnx_zoo

    from litenet.exporter.importers import READERS
    from litenet.exporter.importers.tidy import tidy

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{FACENET}.onnx"
        path.write_bytes(onnx_zoo.facenet().SerializeToString())
        foreign = READERS[".onnx"](path)
    none = blueprints.parse(json.dumps({"name": FACENET, "input_shape": [1], "layers": [linear(1)]}))
    return Source(*tidy(foreign.graph, foreign.weights), none)


def source_of(name: str) -> Source:
    """The net with the weights that training begins with."""
    if name == FACENET:
        return facenet()
    shape, layers = {**NETS, **LAYERS}[name]
    blueprint = blueprints.parse(json.dumps({"name": name, "input_shape": shape, "layers": layers}))
    graph = build(blueprint)
    weights = {
        p.name: fill(p.shape, p.init, p.fans, 1, i)
        for i, p in enumerate(graph.params.values())
    }
    return Source(for_inference(graph), weights, blueprint)


def binary(name: str, half: bool = False, stored: bool = False) -> bytes:
    source = source_of(name)
    prepared = device.prepare(source)
    meta = {"name": name, "layers": [n.name for n in prepared.graph.nodes]}
    model = device.model(prepared, format.Preprocessing(), half, meta, None)
    return format.write(winograd.store(model, math.inf)[0] if stored else model)


def whole(name: str) -> Net:
    """The net in whole numbers, with ranges from two inputs of noise: time does not depend on them either."""
    source = source_of(name)
    prepared = device.prepare(source)
    graph, rng = separated(prepared.graph), np.random.default_rng(1)
    x = rng.uniform(-1, 1, (2, *graph.tensors[graph.input].shape)).astype(np.float32)
    groups = tied(graph, ())
    ends = {r: ranges.minmax(h) for r, h in ranges.observe(graph, prepared.weights, x, groups).items()}
    return lower(graph, prepared.weights, ranges.assign(graph, prepared.weights, ends, (), {}))


def quantised(name: str) -> bytes:
    net = whole(name)
    return format.write(write.model(net, write.plan(net), format.Preprocessing(), {"name": name}))


def main() -> None:
    p = argparse.ArgumentParser(description="Write the benchmark nets as .bin files.")
    p.add_argument("folder", type=Path)
    p.add_argument("nets", nargs="*", metavar="NET")
    kinds = p.add_mutually_exclusive_group()
    kinds.add_argument("--half", action="store_true", help="float16 weights")
    kinds.add_argument("--int8", action="store_true", help="whole numbers")
    kinds.add_argument("--store-winograd", action="store_true", help="Winograd's weights, too")
    args = p.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    for name in args.nets or NETS:
        kind = ".half" if args.half else ".int8" if args.int8 else ".stored" if args.store_winograd else ""
        path = args.folder / f"{name}{kind}.bin"
        path.write_bytes(quantised(name) if args.int8 else binary(name, args.half, args.store_winograd))
        print(f"{path}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
