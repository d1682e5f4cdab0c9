"""Time a training step of our CUDA engine, and check it against the NumPy backend, on a machine with a CUDA card.

    python benchmarks/gpu_training.py [CASE ...]        CASE: a name of CASES, such as mnist_mlp-64

Needs NumPy, CuPy and PyYAML; an installed litenet is not needed (the C runtime is not used). Prints a table: median
microseconds of a step over 11 rounds of 50 steps, the arena, and what the whole process holds on the card.
"""

from __future__ import annotations

import json
import os
import sys
import time
import types
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
from litenet.trainer.backends.cuda import CudaDevice  # noqa: E402
from litenet.trainer.data.dataset import Dataset  # noqa: E402
from litenet.trainer.device_trainer import DeviceTrainer  # noqa: E402
from litenet.trainer.settings import settings_for  # noqa: E402
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


def measure(name: str) -> dict:
    """Check three steps against NumPy on a small batch, then time the real one."""
    blueprint, batch, data = case(name)
    device = CudaDevice()
    start = time.perf_counter()
    channels = data.x.shape[-1]
    trainer = DeviceTrainer(device, blueprint, batch, 1, (120.0,) * channels, (70.0,) * channels)
    settings = settings_for(blueprint, {"epochs": 1, "batch_size": batch})
    index = np.arange(batch)
    trainer.run_batch(data, index, True, 1, settings)
    first = trainer.collect(True)[0]
    ready = time.perf_counter() - start
    worst = compare(blueprint, data, device)
    times = []
    for _ in range(11):
        device.synchronize()
        begin = time.perf_counter()
        for k in range(50):
            trainer.run_batch(data, (index + k * 7) % len(data.x), True, 1, settings)
        device.synchronize()
        times.append((time.perf_counter() - begin) / 50)
        last = trainer.collect(True)[-1]
    free, total = device.cupy.cuda.runtime.memGetInfo()
    kernels = len(trainer._step(False, True, (0.0, 0.0)))
    return {"case": name, "us": sorted(times)[5] * 1e6, "arena_mb": trainer.backend.bytes / 1e6, "kernels": kernels,
            "device_mb": (total - free) / 1e6, "ready_s": ready, "first_loss": first["loss"], "last_loss": last["loss"],
            "worst": worst}  # fmt: skip


def compare(blueprint: blueprints.Blueprint, data: Dataset, device: CudaDevice) -> float:
    """Largest difference of a gradient from NumPy's, over the largest gradient of its tensor, batch 2."""
    channels = data.x.shape[-1]
    results = []
    for make in (Trainer, lambda *a: DeviceTrainer(device, *a)):
        trainer = make(blueprint, 2, 1, (120.0,) * channels, (70.0,) * channels)
        activations = trainer.forward(data.x[:2])
        results.append(trainer.backward(trainer.criterion(activations["output"], data.y[:2]), activations))
    want, got = results
    return max(float(np.abs(got[n] - want[n]).max() / (np.abs(want[n]).max() + 1e-9)) for n in want.names())


def main(names: list[str]) -> None:
    rows = []
    for name in names or CASES:
        try:
            row = measure(name)
        except Exception as error:
            print(f"{name}: {type(error).__name__}: {error}", flush=True)
            continue
        rows.append(row)
        print("  ".join(f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in row.items()), flush=True)
    if "OUT" in os.environ:
        (Path(os.environ["OUT"]) / "gpu_training.json").write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main(sys.argv[1:])
