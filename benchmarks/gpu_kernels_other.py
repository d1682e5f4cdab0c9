"""The kernels that are no matrix product, on this machine's NVIDIA card: are they right, and how near to its memory.

    python benchmarks/gpu_kernels_other.py [--only batchnorm] [--half]

Needs CuPy and PyTorch (for memory and graphs); the project need not be installed. Each kernel is first compared with
the NumPy definition in float64 on a small batch, then timed on a batch that does not fit in the card's cache and on
one of a small net: launches in one CUDA graph, median of 7 replays. GB/s counts the bytes the head of the .cu names
(each array once, twice where it says so); "copy" is that rate over the rate of a large copy on the same card. --half:
activations stored in half precision. With OUT set, all figures go to $OUT/gpu_kernels_other.json.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from math import prod
from pathlib import Path

import numpy as np
import torch
from gpu_kernels import compile_all, function, microseconds, ours

from litenet.trainer import rng
from litenet.trainer.kernels import calls_other, calls_step
from litenet.trainer.kernels.call import Call, Shapes
from litenet.trainer.ops import OPS, backward_needs, make_attrs, parameters

SMS = torch.cuda.get_device_properties(0).multi_processor_count
LARGE = 100_000_000  # bytes a tensor is given at least in the large runs
SEED, NODES = 1234, 5


def image(size, C, small, **attrs):
    return (size, size, C), small, attrs


OPERATORS = [  # operator, (x, batch of a small net, attributes)
    ("activation", image(32, 64, 64, activation="relu")),
    ("activation", image(32, 64, 64, activation="gelu")),
    ("add", image(32, 64, 128, activation="relu")),
    ("dropout", ((256,), 256, {"rate": 0.5})),
    ("softmax", ((10,), 256, {})),
    ("softmax", ((64, 64), 64, {})),
    ("softmax", ((1000,), 256, {})),
    ("softmax", ((5000,), 64, {})),
    ("layernorm", ((64,), 64, {})),
    ("layernorm", ((64, 64), 64, {})),
    ("layernorm", ((64, 512), 64, {})),
    ("layernorm", ((2048,), 64, {})),
    ("batchnorm", ((256,), 256, {"activation": "relu"})),
    ("batchnorm", image(32, 64, 128, activation="relu")),
    ("batchnorm", image(16, 128, 128, activation="relu")),
    ("batchnorm", image(8, 256, 128)),
    ("batchnorm", image(4, 512, 128)),
    ("batchnorm", image(32, 17, 64, activation="relu")),
    ("batchnorm_add", image(32, 64, 128, activation="relu")),
    ("batchnorm_add", image(16, 128, 128, activation="relu")),
    ("batchnorm_add", image(8, 256, 128, activation="relu")),
    ("batchnorm_add", image(4, 512, 128, activation="relu")),
    ("maxpool2d", image(32, 32, 256, kernel_size=2)),
    ("maxpool2d", image(32, 64, 64, kernel_size=3, stride=2, padding=1)),
    ("maxpool2d", image(28, 3, 64, kernel_size=2)),
    ("avgpool2d", image(32, 64, 64, kernel_size=2)),
    ("avgpool2d", image(32, 64, 64, kernel_size=3, stride=2, padding=1, count_include_pad=0)),
    ("global_avg_pool", image(4, 512, 128)),
    ("global_avg_pool", image(16, 128, 64)),
    ("depthwise_conv2d", image(32, 64, 64, kernel_size=3, padding=1, activation="relu6")),
    ("depthwise_conv2d", image(16, 256, 64, kernel_size=3, padding=1)),
    ("depthwise_conv2d", image(32, 96, 64, kernel_size=3, padding=1, stride=2, activation="relu6")),
    ("depthwise_conv2d", image(16, 64, 64, kernel_size=5, padding=2)),
    ("depthwise_conv2d", image(16, 64, 64, kernel_size=9, padding=4)),
]
PASSES = {  # how often the launches read the larger arrays, beyond once
    ("batchnorm", "train"): {"x": 2},
    ("batchnorm", "backward"): {"dy": 2, "x": 2},
    ("batchnorm_add", "train"): {"x": 2},
    ("batchnorm_add", "backward"): {"x": 2, "d:x2": 2},
    ("depthwise_conv2d", "backward"): {"dy": 2, "y": 2},
}
HALF = False  # whether activations are stored in half precision


def nan(shape, dtype=torch.float32) -> torch.Tensor:
    return torch.full((prod(shape) * dtype.itemsize,), 255, dtype=torch.uint8, device="cuda").view(dtype).view(shape)


def real() -> torch.dtype:
    return torch.float16 if HALF else torch.float32


def stored(array: np.ndarray) -> np.ndarray:
    """Activations as they are stored."""
    return array.astype(np.float16 if HALF else np.float32)


def device(array: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(array)).cuda()


def step(t=1, lr=0.1) -> torch.Tensor:
    s = np.zeros(1, calls_step.STEP)
    s["seed"][0, 0], s["t"], s["lr"], s["grad_scale"] = SEED, t, lr, 1
    return device(s.view(np.uint8))


class Draw:
    @staticmethod
    def uniform(shape):
        return rng.uniform(SEED, rng.DROPOUT, 3, shape)


def shapes_of(name, spec, N) -> Shapes:
    x, _, attrs = spec
    a = make_attrs(OPS[name].OP, attrs)
    y = OPS[name].out_shape(a, *[x] * len(OPS[name].OP.inputs))
    roles = {*OPS[name].OP.inputs, *(w.name for w in OPS[name].OP.weights if w.trainable)}
    if not getattr(a, "bias", 1):
        roles -= {"bias"}
    return Shapes(a, N, x, tuple(y), want=frozenset(roles), half=HALF, sms=SMS, node=3, nodes=NODES)


def error_of(got: torch.Tensor, want: np.ndarray) -> float:
    """Largest error beside the wanted value and all values' root mean square; NaN if anything was not written."""
    g, w = got.cpu().numpy().astype(np.float64), np.asarray(want, np.float64)
    return float(np.max(np.abs(g - w) / (np.abs(w) + max(np.sqrt(np.mean(w * w)), 1e-30))))


def scratch_of(name, direction, s) -> torch.Tensor:
    return nan((calls_other.SCRATCH.get(name, lambda *_: 0)(direction, s) // 4 + 1,))


def check_operator(name, spec) -> dict[str, float]:
    """Errors of y, the auxiliaries and each gradient against float64, on 8 images or 1030 vectors; "again": whether the
    forward pass done again gives other bits than the first."""
    N = 8 if len(spec[0]) > 1 else 1030
    s, module, draw = shapes_of(name, spec, N), OPS[name], np.random.default_rng(0)
    env = {role: stored(draw.standard_normal((N, *s.x), np.float32)) for role in module.OP.inputs}
    for w in module.OP.weights:
        if not (w.needs and not getattr(s.a, w.needs)):
            value = draw.standard_normal(w.shape(s.a, s.x), np.float32)
            env[w.name] = abs(value) + 0.5 if w.name == "running_var" else value
    dy = stored(draw.standard_normal((N, *s.y), np.float32))
    wide = {k: v.astype(np.float64) for k, v in env.items()} | {"rng": Draw}
    forward = getattr(module, "forward_train", module.forward)
    result = forward(s.a, *(wide.get(p) for p in parameters(forward)))
    y, aux = result if isinstance(result, tuple) else (result, {})
    tensors = {k: device(v) for k, v in env.items()} | {"step": step(), "y": nan(y.shape, real())}
    tensors |= {
        k: nan(v.shape, torch.uint8 if v.dtype == np.uint8 else torch.float32) for k, v in aux.items() if k not in env
    }
    ours(calls_other.CALLS[name]("train", s), tensors | {"scratch": scratch_of(name, "train", s)})()
    torch.cuda.synchronize()
    errors = {"y": error_of(tensors["y"], y)} | {k: error_of(tensors[k], v) for k, v in aux.items()}
    asked = parameters(getattr(module, "forward_again", module.forward))
    again = {k: v for k, v in tensors.items() if k in asked or k == "step"} | {"y": nan(y.shape, real())}
    ours(calls_other.CALLS[name]("again", s), again)()
    torch.cuda.synchronize()
    errors["again"] = float(not torch.equal(again["y"].view(torch.uint8), tensors["y"].view(torch.uint8)))
    if name != "activation" and s.a.activation not in ("none", "relu", "relu6"):
        return errors
    known = wide | aux | {"y": y, "dy": dy.astype(np.float64), "x_shape": (N, *s.x), "want": s.want}
    want = module.backward(s.a, *(known.get(p) for p in parameters(module.backward)))
    needed = {k: device(as_kept(k, known[k], module)) for k in needs(name, s)}
    grads = {f"d:{k}": nan(v.shape, real() if k in module.OP.inputs else torch.float32) for k, v in want.items()}
    grads = {k: v for k, v in grads.items() if k[2:] in s.want}
    memory = {"dy": device(dy), "step": tensors["step"], "scratch": scratch_of(name, "backward", s)}
    ours(calls_other.CALLS[name]("backward", s), needed | grads | memory)()
    torch.cuda.synchronize()
    return errors | {k: error_of(v, want[k[2:]]) for k, v in grads.items()}


def as_kept(role, value, module) -> np.ndarray:
    if role == "index":
        return value
    return stored(value) if role in (*module.OP.inputs, "y") else np.asarray(value, np.float32)


def needs(name, s):
    return [k for k in backward_needs(name, s.a) if k != "bias" or s.a.bias]


def time_operator(name, spec, N) -> dict[str, dict[str, float]]:
    """us and bytes of each direction."""
    s, module, out = shapes_of(name, spec, N), OPS[name], {}
    tensors = {role: torch.randn(N, *s.x, device="cuda").to(real()) for role in module.OP.inputs}
    tensors |= {w.name: torch.rand(w.shape(s.a, s.x), device="cuda") + 0.5 for w in module.OP.weights}
    y, dy = torch.rand(N, *s.y, device="cuda"), torch.randn(N, *s.y, device="cuda")
    tensors |= {"y": y.to(real()), "dy": dy.to(real()), "step": step()}
    for aux in module.OP.aux:
        shape = aux.shape(s.a, s.x, s.y)
        shape = (N, *shape) if aux.batched else shape
        tensors[aux.name] = nan(shape, torch.uint8) if aux.dtype == "u8" else torch.rand(shape, device="cuda")
    tensors |= {f"d:{k}": torch.empty_like(tensors[k]) for k in s.want if k in tensors}
    inputs = {*module.OP.inputs, *(w.name for w in module.OP.weights)}
    touched = {
        "forward": {*inputs, "y"},
        "train": {*inputs, "y", *(aux.name for aux in module.OP.aux)},
        "backward": {"dy", *needs(name, s), *(f"d:{k}" for k in s.want)},
    }
    if hasattr(module, "forward_again"):
        touched["again"] = {*parameters(module.forward_again), "y"}
    for direction, roles in touched.items():
        calls = calls_other.CALLS[name](direction, s)
        more = PASSES.get((name, direction), {})
        moved = sum(tensors[k].nbytes * more.get(k, 1) for k in roles if k in tensors)
        memory = tensors | {"scratch": scratch_of(name, direction, s)}
        out[direction] = {"us": microseconds(ours(calls, memory)), "bytes": moved, "launches": len(calls)}
    return out


def copy_rate() -> float:
    """GB/s of a copy of 1 GB, read and written."""
    a = torch.zeros(1 << 28, device="cuda")
    b = torch.empty_like(a)
    return 2 * a.nbytes / microseconds(lambda: b.copy_(a)) / 1e3


ROWS: list[dict] = []


def allowed() -> float:
    return 5e-3 if HALF else 2e-5


def report(title, direction, size, us, moved, launches, copy, errors=None) -> None:
    rate = moved / us / 1e3
    row = {"kernel": title, "direction": direction, "size": size, "us": us, "GB/s": rate, "copy": rate / copy}
    ROWS.append(row | {"launches": launches, "errors": errors})
    wrong = [f"{k} {v:.1e}" for k, v in (errors or {}).items() if not v < allowed()]
    figures = f"{launches} launches {us:9.2f} us {rate:8.1f} GB/s {rate / copy:5.2f} of copy"
    print(f"{title:46s} {direction:9s} {size:6s} {figures}" + (f"  WRONG {wrong}" if wrong else ""), flush=True)


def everything(only: str) -> list[Call]:
    """All calls of the run, so that they can be compiled at once."""
    calls = []
    for name, spec in OPERATORS:
        for N in (8, spec[1]):
            for direction in ("forward", "train", "again", "backward") if only in name else ():
                calls += calls_other.CALLS[name](direction, shapes_of(name, spec, N))
    return calls


def operators(only: str, copy: float) -> None:
    for name, spec in OPERATORS:
        if only not in name:
            continue
        x, small, attrs = spec
        title = f"{name} {'x'.join(map(str, x))} " + " ".join(str(v) for v in attrs.values())
        errors = check_operator(name, spec)
        large = max(small, LARGE // (4 * prod(x)))
        for size, N in (("large", large), ("small", small)):
            for direction, found in time_operator(name, spec, N).items():
                shown = errors if size == "large" and direction == "train" else None
                report(title, direction, size, found["us"], found["bytes"], found["launches"], copy, shown)


def compiled(calls: list[Call]) -> bool:
    """Compile all kernels of the calls; name those that spill. False if one does not compile."""
    started, kernels = time.time(), {c.kernel for c in calls}
    compile_all(kernels)
    card, took = torch.cuda.get_device_name(), time.time() - started
    print(f"{card} | {SMS} multiprocessors | compiled in {took:.0f} s", flush=True)
    for k in sorted(kernels, key=str):
        f = function(k)
        if f is None:
            return False
        if f.local_size_bytes:
            print(f"{k.name} {dict(k.defines)}: {f.num_regs} registers, {f.local_size_bytes} bytes of local memory")
    return True


def finish(name: str, copy: float) -> int:
    """The figures to $OUT; 1 if anything was wrong."""
    wrong = [r for r in ROWS if any(not v < allowed() for v in (r["errors"] or {}).values())]
    print(f"{len(ROWS)} timings, {len(wrong)} wrong; copy {copy:.0f} GB/s")
    if out := os.environ.get("OUT"):
        text = json.dumps({"device": torch.cuda.get_device_name(), "copy": copy, "half": HALF, "rows": ROWS})
        (Path(out) / name).write_text(text)
    return 1 if wrong else 0


def main(argv=None) -> int:
    global HALF
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="operators whose name contains this")
    parser.add_argument("--half", action="store_true", help="activations stored in half precision")
    given = parser.parse_args(argv)
    HALF = given.half
    copy = copy_rate()
    if not compiled(everything(given.only)):
        return 1
    operators(given.only, copy)
    return finish("gpu_kernels_other_half.json" if HALF else "gpu_kernels_other.json", copy)


if __name__ == "__main__":
    sys.exit(main())
