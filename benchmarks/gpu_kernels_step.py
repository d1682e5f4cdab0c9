"""The kernels of a step that belong to no operator, on this machine's NVIDIA card: loss, update, load.

    python benchmarks/gpu_kernels_step.py

As gpu_kernels_other.py: compared with NumPy in float64, then timed in one CUDA graph. With OUT set, all figures go to
$OUT/gpu_kernels_step.json.
"""

from __future__ import annotations

import sys
from math import prod

import numpy as np
import torch
from gpu_kernels import microseconds, ours
from gpu_kernels_other import SMS, compiled, copy_rate, device, error_of, finish, nan, report, step

from litenet.trainer import losses, optimizers
from litenet.trainer.fields import Options
from litenet.trainer.kernels import calls_load, calls_step
from litenet.trainer.kernels.call import Call
from litenet.trainer.kernels.tiles import COUNTERS

LOSSES = [
    ("cross_entropy", {}, 64, 10), ("cross_entropy", {}, 256, 10), ("cross_entropy", {}, 1024, 10),
    ("cross_entropy", {"label_smoothing": 0.1}, 256, 10), ("cross_entropy", {}, 128, 100),
    ("cross_entropy", {}, 256, 1000), ("cross_entropy", {}, 100_000, 100), ("logit_margin", {}, 256, 10),
    ("mse", {}, 256, 10), ("bce", {}, 256, 10),
]  # fmt: skip
UPDATES = [
    ("sgd", {}), ("momentum", {"weight_decay": 5e-4}), ("adam", {}), ("adamw", {"weight_decay": 0.01}),
]  # fmt: skip


def counters() -> torch.Tensor:
    return torch.zeros(COUNTERS, dtype=torch.int32, device="cuda")


def run_loss(name, settings, N, C) -> tuple[dict, list[Call], dict]:
    bound = losses.make_loss(Options(name, {}))
    loss = losses.BoundLoss(name, settings, bound.classification)
    draw = np.random.default_rng(0)
    z, t = draw.standard_normal((N, C), np.float32), draw.integers(0, C, N).astype(np.int32)
    calls = calls_step.loss_calls(loss, N, (C,), True, 1)
    tensors = {
        "z": device(z), "target": device(t), "dz": nan((N, C)), "step": step(),
        "history": nan((1, calls_step.loss_blocks(N, (C,), True), 4)),
    }  # fmt: skip
    ours(calls, tensors)()
    torch.cuda.synchronize()
    want, dz = loss(z.astype(np.float64), t)
    right = int((loss.predictions(z, t) == t).sum())
    loss_found, right_found = calls_step.figures(tensors["history"].cpu().numpy())[0, :2]
    errors = {
        "loss": abs(loss_found / want - 1),
        "dz": error_of(tensors["dz"], dz),
        "correct": abs(right_found - right),
    }
    return errors, calls, tensors


def run_update(name, settings, n, clip) -> tuple[dict, list[Call], dict]:
    rule, draw = optimizers.make_optimizer(Options(name, settings)), np.random.default_rng(0)
    w, g = draw.standard_normal(n).astype(np.float32), draw.standard_normal(n).astype(np.float32)
    bounds = calls_step.decay_bounds([(0, n // 8 * 4, True)])
    S = calls_step.partial_count(n, SMS)
    calls = calls_step.update_calls(rule, n, len(bounds), clip_norm=clip, sms=SMS)
    tensors = {
        "weights": device(w), "gradients": device(g), "bounds": device(bounds), "step": step(),
        "partials": nan((S,), torch.float64), "counters": counters(),
        **{k: torch.zeros(n, device="cuda") for k in rule.states},
    }  # fmt: skip
    ours(calls, tensors)()
    torch.cuda.synchronize()
    norm = float(np.sqrt(np.sum(g.astype(np.float64) ** 2)))
    w64, g64 = w.astype(np.float64), g * min(1.0, clip / norm if clip else 1.0)
    state = {k: np.zeros(n) for k in rule.states}
    half = n // 8 * 4
    for part, decay in ((slice(0, half), True), (slice(half, n), False)):
        rule.apply(w64[part], g64[part], {k: v[part] for k, v in state.items()}, float(np.float32(0.1)), 1, decay)
    got = calls_step.norms(tensors["partials"].cpu().numpy())
    errors = {"weights": error_of(tensors["weights"], w64), "norm": abs(float(got) / norm - 1)}
    return errors, calls, tensors


def run_load(N, shape, count=10_000) -> tuple[dict, list[Call], dict]:
    draw, C = np.random.default_rng(0), shape[-1]
    data, labels = draw.integers(0, 256, (count, *shape)).astype(np.uint8), draw.integers(0, 10, count).astype(np.int32)
    order, mean, std = draw.permutation(count).astype(np.int32), np.full(C, 100.5), np.full(C, 60.25)
    calls = calls_load.load_calls("u8", N, N, count, prod(shape), C, sms=SMS)
    tensors = {
        "set": device(data), "labels": device(labels), "order": device(order), "mean": device(mean.astype(np.float32)),
        "std": device(std.astype(np.float32)), "step": step(), "x": nan((N, *shape)), "target": nan((N,), torch.int32),
    }  # fmt: skip
    ours(calls, tensors)()
    torch.cuda.synchronize()
    rows = data[order[:N]].astype(np.float32)
    want = (rows - mean.astype(np.float32)) / std.astype(np.float32)
    errors = {"x": error_of(tensors["x"], want), "target": error_of(tensors["target"], labels[order[:N]])}
    return errors, calls, tensors


def step_kernels(copy: float) -> None:
    for name, settings, N, C in LOSSES:
        errors, calls, tensors = run_loss(name, settings, N, C)
        moved = 2 * tensors["z"].nbytes
        label = f"{name} {N}x{C} {' '.join(settings)}"
        report(label, "loss", "", microseconds(ours(calls, tensors)), moved, len(calls), copy, errors)
    for name, settings in UPDATES:
        for n in (235_146, 11_173_962, 30_000_002):
            for clip in (0.0, 1.0):
                errors, calls, tensors = run_update(name, settings, n, clip)
                arrays = 3 + 2 * len(optimizers.make_optimizer(Options(name, settings)).states) + (clip > 0)
                label = f"{name} {n} weights{' clip_norm' if clip else ''}"
                us = microseconds(ours(calls, tensors))
                report(label, "update", "", us, 4 * n * arrays, len(calls), copy, errors)
    for N, shape in ((256, (28, 28, 1)), (256, (32, 32, 3)), (64, (32, 32, 3)), (10_000, (32, 32, 3))):
        errors, calls, tensors = run_load(N, shape)
        label = f"load {N} x {'x'.join(map(str, shape))} u8"
        us = microseconds(ours(calls, tensors))
        report(label, "load", "", us, 5 * N * prod(shape), len(calls), copy, errors)


def main() -> int:
    copy = copy_rate()
    calls = []
    for name, settings, N, C in LOSSES:
        loss = losses.BoundLoss(name, settings, True)
        calls += calls_step.loss_calls(loss, N, (C,), True, SMS)
    for name, settings in UPDATES:
        calls += calls_step.update_calls(optimizers.make_optimizer(Options(name, settings)), 4, 0, clip_norm=1)
    calls += calls_load.load_calls("u8", 1, 1, 1, 4, 1)
    if not compiled(calls):
        return 1
    step_kernels(copy)
    return finish("gpu_kernels_step.json", copy)


if __name__ == "__main__":
    sys.exit(main())
