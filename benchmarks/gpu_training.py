"""Time a training step of our CUDA engine, and check it against the NumPy backend, on a machine with a CUDA card.

    python benchmarks/gpu_training.py [--lean] [--fp16] [--launches] [CASE ...]     CASE: such as mnist_mlp-64

Needs NumPy, CuPy and PyYAML; an installed litenet is not needed (the C runtime is not used). Prints a line a case:
median microseconds of a step over 11 rounds of 50 steps, TFLOP/s by the formulas (Winograd does fewer operations) and
their share of what the card's multipliers do at its highest clock, the arena, what the whole card then holds, and the
largest difference of a gradient from NumPy's. --lean: within half of what PyTorch's eager mode allocates at its peak
(PEAKS).
--launches: the time of each kernel of the step by itself.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import types
from functools import partial
from math import prod
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if "litenet" not in sys.modules:  # run from a checkout
    package = types.ModuleType("litenet")
    package.__path__ = []
    sys.modules["litenet"] = package
    for part in ("trainer", "exporter", "pyruntime"):
        sub = types.ModuleType(f"litenet.{part}")
        sub.__path__ = [str(ROOT / part)]
        sys.modules[f"litenet.{part}"] = sub
        setattr(package, part, sub)

import numpy as np  # noqa: E402

from litenet.trainer import blueprint as blueprints  # noqa: E402
from litenet.trainer.backends.cards import cores  # noqa: E402
from litenet.trainer.backends.cuda import CudaDevice  # noqa: E402
from litenet.trainer.backends.cuda_info import peak_flops  # noqa: E402
from litenet.trainer.backends.feed import set_bytes, staging_bytes  # noqa: E402
from litenet.trainer.data.dataset import Dataset  # noqa: E402
from litenet.trainer.device_budget import verdict  # noqa: E402
from litenet.trainer.device_trainer import DeviceTrainer  # noqa: E402
from litenet.trainer.ops import OPS  # noqa: E402
from litenet.trainer.settings import Settings, settings_for  # noqa: E402
from litenet.trainer.trainer import Trainer  # noqa: E402


def conv(out: int, **more: object) -> dict:
    return {"type": "conv2d", "out_channels": out, "kernel_size": 3, "padding": 1, "activation": "relu", **more}


def linear(out: int, **more: object) -> dict:
    return {"type": "linear", "out_features": out, **more}


POOL, GAP = {"type": "maxpool2d", "kernel_size": 2, "stride": 2}, {"type": "global_avg_pool"}


def basic(out: int, stride: int) -> dict:
    """ResNet's basic block."""
    first = [
        {"type": "conv2d", "out_channels": out, "kernel_size": 3, "padding": 1, "stride": stride, "bias": False},
        {"type": "batchnorm", "activation": "relu"},
        {"type": "conv2d", "out_channels": out, "kernel_size": 3, "padding": 1, "bias": False},
        {"type": "batchnorm"},
    ]
    shortcut = {"shortcut": "projection"} if stride > 1 else {}
    return {"type": "residual", "layers": first, "activation": "relu", **shortcut}


RESNET18 = [
    {"type": "conv2d", "out_channels": 64, "kernel_size": 3, "padding": 1, "bias": False},
    {"type": "batchnorm", "activation": "relu"},
    *[basic(out, stride if i == 0 else 1) for out, stride in ((64, 1), (128, 2), (256, 2), (512, 2)) for i in range(2)],
    GAP,
    linear(10),
]
NETS = {
    "mnist_mlp": ([784], [linear(256, activation="relu"), linear(128, activation="relu"), linear(10)]),
    "mnist_cnn": (
        [1, 28, 28],
        [conv(32), POOL, conv(64), POOL, {"type": "flatten"}, linear(128, activation="relu"), linear(10)],
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
        [*[layer for out in (32, 64, 128) for layer in (conv(out), conv(out), POOL)], GAP, linear(10)],
    ),
    "tomato_cnn": ([3, 128, 128], [conv(32), POOL, conv(64), POOL, conv(128), POOL, GAP, linear(4)]),
    "resnet18_cifar": ([3, 32, 32], RESNET18),
}
CASES = ["mnist_mlp-64", "mnist_mlp-256", "mnist_cnn-64", "mnist_cnn-256", "litenet_cifar-64", "cifar_cnn-64",
         "cifar_cnn-256", "tomato_cnn-16", "resnet18_cifar-64", "resnet18_cifar-128"]  # fmt: skip


def case(name: str) -> tuple[blueprints.Blueprint, int, Dataset]:
    net, batch = name.rsplit("-", 1)
    shape, layers = NETS[net]
    wishes = {"optimizer": {"type": "sgd", "momentum": 0.9}, "learning_rate": 0.01}
    blueprint = blueprints.parse(json.dumps({"name": net, "input_shape": shape, "layers": layers, **wishes}))
    rng = np.random.default_rng(0)
    n = 4 * int(batch)
    x = rng.integers(0, 256, (n, *(shape[1:] + shape[:1] if len(shape) == 3 else (28, 28, 1))), np.uint8)
    return blueprint, int(batch), Dataset(x, rng.integers(0, 4, n))


PEAKS = {  # MB, PyTorch 2.11 eager, max_memory_allocated of a step on an H200
    "mnist_mlp-64": 67.9, "mnist_mlp-256": 68.7, "mnist_cnn-64": 102, "mnist_cnn-256": 198, "litenet_cifar-64": 69,
    "cifar_cnn-64": 121, "cifar_cnn-256": 362, "tomato_cnn-16": 194, "resnet18_cifar-64": 510,
    "resnet18_cifar-128": 879,
}  # fmt: skip


def made(name: str, device: CudaDevice, options: argparse.Namespace) -> tuple[DeviceTrainer, Dataset, Settings]:
    blueprint, batch, data = case(name)
    settings = settings_for(blueprint, {"epochs": 1, "batch_size": batch})
    storage = "f16" if options.fp16 else "f32"
    budget = None
    if options.lean:  # the arena in half of PyTorch's peak; the data come on top, as they do there
        sample = prod(data.x.shape[1:])
        beside = staging_bytes(batch, sample, ((), "i32")) + set_bytes(len(data.x), sample, data.x.dtype, ((), "i32"))
        budget = int(PEAKS[name] * 1e6 / 2) + beside
    found = verdict(device, blueprint, settings, [data], True, budget, storage)
    channels = data.x.shape[-1]
    trainer = DeviceTrainer(
        device, blueprint, seed=1, mean=(120.0,) * channels, std=(70.0,) * channels, scheme=found.scheme,
        storage=storage, arena=found.arena, room=found.room,
    )  # fmt: skip
    assert found.scheme.batch == batch, "the batch was split: no step of this size fits"
    trainer.prepare(settings, [data])
    return trainer, data, settings


def measure(name: str, options: argparse.Namespace) -> dict:
    """Check the gradients of a small batch against NumPy, then time steps of the real one."""
    device, start = CudaDevice(), time.perf_counter()
    trainer, data, settings = made(name, device, options)
    index = np.arange(trainer.batch_size)
    trainer.run_batch(data, index, True, 1, settings)
    first = trainer.collect(True)[0]
    ready = time.perf_counter() - start
    times, last, taken = [], first, device.allocated
    for _ in range(11):
        device.synchronize()
        begin = time.perf_counter()
        for k in range(50):
            trainer.run_batch(data, (index + k * 7) % len(data.x), True, 1, settings)
        device.synchronize()
        times.append((time.perf_counter() - begin) / 50)
        last = trainer.collect(True)[-1]
    assert device.allocated == taken, "training allocated memory"
    free, total = device.cupy.cuda.runtime.memGetInfo()
    pieces = trainer.pieces(trainer.work(trainer.feed.hold(data.x, data.y), len(index), True, True, settings))
    us = sorted(times)[5] * 1e6
    tflops = operations(trainer) / us / 1e6
    peak = peak_flops(device.cupy, device.sms, cores(device.capability)) / 1e12
    row = {"case": name, "us": us, "tflops": tflops, "share": tflops / peak, "arena_mb": trainer.backend.bytes / 1e6,
           "kernels": sum(len(piece.bound) for piece in pieces), "device_mb": (total - free) / 1e6, "ready_s": ready,
           "first_loss": first["loss"], "last_loss": last["loss"], "again": len(trainer.plan.recomputed),
           "update": trainer.update_mode, "worst": compare(name, device, options)}  # fmt: skip
    if options.launches:
        launches(name, trainer, pieces, row["us"])
    return row


def operations(trainer: DeviceTrainer) -> int:
    """Of a step: two for each multiply-add forward, as many for the weights' gradient and for the input's."""
    graph, total = trainer.graph, 0
    wanted = graph.needs_gradient()
    for n in graph.nodes:
        macs = OPS[n.op].macs(n.attrs, graph.shapes(n)[0], graph.tensors[n.output].shape)
        total += 2 * macs * trainer.batch_size * (1 + (n.output in wanted) + (n.inputs[0] in wanted))
    return total


def launches(name: str, trainer: DeviceTrainer, pieces: list, us: float) -> None:
    """Each kernel of the step, repeated by itself."""
    lines, total = [], 0.0
    for piece in pieces:
        node = piece.launch.node if piece.launch else None
        for call, addresses in piece.bound:
            time_us = trainer.device.measure([(call, addresses)] * 10) * 1e5
            total += time_us
            rate = ""
            if node is not None:
                macs = OPS[node.op].macs(
                    node.attrs, trainer.graph.shapes(node)[0], trainer.graph.tensors[node.output].shape
                )
                rate = f"{2 * macs * trainer.batch_size / time_us / 1e6:7.1f} TFLOP/s" if macs else ""
            tile = dict(call.kernel.defines).get("TILE", "")
            shape = f"{call.grid} x {call.block[0]} {tile}"
            lines.append(f"{time_us:9.2f} us  {piece.name:32s} {call.kernel.name:34s} {shape} {rate}")
    print(f"{name}: {us:.1f} us a step, kernels by themselves {total:.1f} us\n" + "\n".join(lines))


def compare(name: str, device: CudaDevice, options: argparse.Namespace) -> float:
    """Largest difference of a gradient from NumPy's, over the largest gradient of its tensor, batch 8.

    With tanh for relu: at relu's edge a change of a weight in its last place turns whole gradients over (in ResNet-18
    with 4 x 4 maps by a third of the largest, in NumPy itself), which would say nothing about a kernel."""
    blueprint, _, data = case(name)
    smooth = json.dumps(blueprint.resolved).replace('"relu"', '"tanh"')
    blueprint = blueprints.parse(smooth)
    channels, results = data.x.shape[-1], []
    storage = "f16" if options.fp16 else "f32"
    for make in (Trainer, partial(DeviceTrainer, device, storage=storage)):
        trainer = make(blueprint, 8, 1, (120.0,) * channels, (70.0,) * channels)
        activations = trainer.forward(data.x[:8])
        results.append(trainer.backward(trainer.criterion(activations["output"], data.y[:8]), activations))
    want, got = results
    return max(float(np.abs(got[n] - want[n]).max() / (np.abs(want[n]).max() + 1e-9)) for n in want.names())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE")
    for name in ("lean", "fp16", "launches"):
        parser.add_argument(f"--{name}", action="store_true")
    options = parser.parse_args()
    rows = []
    for name in options.cases or CASES:
        try:
            row = measure(name, options)
        except Exception as error:
            print(f"{name}: {type(error).__name__}: {error}", flush=True)
            continue
        rows.append(row)
        print("  ".join(f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in row.items()), flush=True)
    if "OUT" in os.environ:
        (Path(os.environ["OUT"]) / "gpu_training.json").write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
