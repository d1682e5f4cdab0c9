"""The dense kernels on this machine's NVIDIA card: are they right, how fast are they, and beside PyTorch (TF32 off).

    python benchmarks/gpu_kernels.py [--only conv2d] [--net cifar_cnn] [--all]
    python benchmarks/gpu_kernels.py --net winograd --all        # every form of Winograd's beside cuDNN

Needs CuPy and PyTorch; the project need not be installed. For each layer of the nets below, each part (forward; dgrad
and wgrad, or backward) is run in every variant that calls_gemm.parts lists: first compared with PyTorch in float64 and
at 64 places with sums by NumPy, then timed as 20 launches in one CUDA graph, median of 7 replays. PyTorch's time is
that of the same work in one graph: the better of both memory formats for convolutions, masks not counted.
"default" is what calls_gemm takes unasked, "best" the fastest. TFLOP/s counts the operations of the formula.
With OUT set, all figures go to $OUT/gpu_kernels.json.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import sys
import time
import types
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from math import prod
from pathlib import Path

import cupy
import numpy as np
import torch

ROOT = Path(__file__).resolve().parent.parent
if "litenet" not in sys.modules:
    package = types.ModuleType("litenet")
    package.__path__ = [str(ROOT)]
    sys.modules["litenet"] = package

from litenet.trainer.kernels import calls_gemm  # noqa: E402
from litenet.trainer.kernels.call import Float, Ref, Shapes  # noqa: E402
from litenet.trainer.kernels.tiles import COUNTERS  # noqa: E402
from litenet.trainer.ops import OPS, make_attrs  # noqa: E402

KERNELS = ROOT / "trainer" / "kernels"
ALL = frozenset({"x", "weight", "bias"})
POOL = ((2, 2), (2, 2), (0, 0), (1, 1), False)  # kernel, stride, padding, dilation, whether to round sizes up
REPEATS, REPLAYS = 20, 7
SECONDS = 270  # after which no further layer is begun


def conv(N, size, C, O, k=3, stride=1, act="relu", bias=1):
    a = {"out_channels": O, "kernel_size": k, "stride": stride, "padding": k // 2, "activation": act, "bias": bias}
    return "conv2d", N, (size, size, C), a


def pooled(N, size, C, O):
    """A convolution with its pool, as fuse.py joins them."""
    return "conv2d_pool", *conv(N, size, C, O)[1:]


def linear(N, I, O, act="relu"):
    return "linear", N, (I,), {"out_features": O, "activation": act}


def mlp(N):
    return [linear(N, 784, 256), linear(N, 256, 128), linear(N, 128, 10, "none")]


def mnist_cnn(N):
    return [pooled(N, 28, 1, 32), pooled(N, 14, 32, 64), linear(N, 3136, 128), linear(N, 128, 10, "none")]


def cifar_cnn(N):
    pairs = [((size, a, O), (size, O, O)) for size, a, O in ((32, 3, 32), (16, 32, 64), (8, 64, 128))]
    return [layer for one, two in pairs for layer in (conv(N, *one), pooled(N, *two))] + [linear(N, 128, 10, "none")]


def tomato(N):
    return [pooled(N, 128, 3, 32), pooled(N, 64, 32, 64), pooled(N, 32, 64, 128), linear(N, 128, 4, "none")]


def resnet(N):
    """Layers with how often they occur; batch normalisation follows, so no bias and no activation."""
    plain = {"act": "none", "bias": 0}
    found = [(conv(N, 32, 3, 64, **plain), 1), (conv(N, 32, 64, 64, **plain), 4)]
    for size, C in ((32, 64), (16, 128), (8, 256)):
        found += [(conv(N, size, C, 2 * C, 3, 2, **plain), 1), (conv(N, size, C, 2 * C, 1, 2, **plain), 1)]
        found += [(conv(N, size // 2, 2 * C, 2 * C, **plain), 3)]
    return [*found, (linear(N, 512, 10, "none"), 1)]


def litenet_cifar(N):
    embed = ("embed_projection", N, (32, 32, 3), {"embed_dim": 64})
    blocks = [(linear(N, I, O, "none"), 4) for I, O in ((64, 256), (256, 64), (64, 64))]
    return [(embed, 1), *blocks]


def winograd(N):
    """What Winograd's forms compete for: the plain 3 x 3 layers of ResNet-18 on CIFAR."""
    return [conv(N, size, C, C, act="none", bias=0) for size, C in ((32, 64), (16, 128), (8, 256), (4, 512))]


def winograd_small():
    """And those of cifar_cnn (batch 256) and tomato_cnn (16)."""
    plain = [conv(256, size, C, 2 * C) for size, C in ((16, 32), (8, 64))]
    joined = [(256, 32, 32, 32), (256, 16, 64, 64), (256, 8, 128, 128), (16, 64, 32, 64), (16, 32, 64, 128)]
    return [*plain, *(pooled(*sizes) for sizes in joined)]


NETS = {
    "mnist_mlp 64": mlp(64),
    "mnist_mlp 256": mlp(256),
    "mnist_cnn 64": mnist_cnn(64),
    "mnist_cnn 256": mnist_cnn(256),
    "litenet_cifar 64": litenet_cifar(64),
    "cifar_cnn 64": cifar_cnn(64),
    "cifar_cnn 256": cifar_cnn(256),
    "tomato_cnn 16": tomato(16),
    "resnet18_cifar 128": resnet(128),
    "winograd 128": winograd(128),
    "winograd 64": winograd(64),
    "winograd small": winograd_small(),
    "square": [linear(4096, 4096, 4096, "none")],
}


# ---- kernels


@cache
def source(file: str) -> str:
    """The kernel file with what it includes put in its place."""
    seen: set[str] = set()

    def inline(name: str) -> str:
        if name in seen:
            return ""
        seen.add(name)
        text = (KERNELS / name).read_text().replace("#pragma once\n", "")
        return re.sub(r'^#include "(\S+)"\n', lambda m: inline(m[1]), text, flags=re.MULTILINE)

    return inline(file)


MODULES: dict = {}


def compile_all(kernels) -> None:
    def build(key):
        file, defines = key
        options = ("-std=c++17", *(f"-D{k}={v}" for k, v in defines))
        module = cupy.RawModule(code=source(file), options=options)
        try:
            module.compile()
        except Exception as error:  # the message of the compiler, which names the line
            return key, None, f"{file} {defines}: {str(error)[:600]}"
        return key, module, ""

    keys = sorted({(k.file, k.defines) for k in kernels} - MODULES.keys(), key=str)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for key, module, problem in pool.map(build, keys):
            MODULES[key] = module
            if problem:
                print("DOES NOT COMPILE", problem)


@cache
def function(kernel):
    module = MODULES[kernel.file, kernel.defines]
    return None if module is None else module.get_function(kernel.name)


def launch(calls, tensors, stream) -> None:
    with stream:
        for call in calls:
            args = []
            for arg in call.args:
                if isinstance(arg, Ref):
                    tensor = tensors.get(arg.role)
                    args.append(np.uint64(0 if tensor is None else tensor.data_ptr() + arg.offset))
                else:
                    args.append(np.float32(arg.value) if isinstance(arg, Float) else np.int32(arg.value))
            function(call.kernel)(call.grid, call.block, tuple(args), shared_mem=call.shared)


def ours(calls, tensors):
    """Run the calls on whatever stream PyTorch works on, which may be recording a graph."""
    return lambda: launch(calls, tensors, cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream))


def empty_launch() -> float:
    """Microseconds that a kernel of nothing takes in a graph: below that no launch can go."""
    nothing = cupy.RawModule(code='extern "C" __global__ void nothing() {}').get_function("nothing")

    def run():
        with cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream):
            nothing((1,), (32,), ())

    return microseconds(run)


def microseconds(run) -> float:
    """Of one run, from CUDA graphs of many; fewer where one takes long."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        begin, end = torch.cuda.Event(True), torch.cuda.Event(True)
        run()
        begin.record()
        run()
        end.record()
    side.synchronize()
    torch.cuda.current_stream().wait_stream(side)
    repeats = max(1, min(REPEATS, int(20.0 / max(begin.elapsed_time(end), 1e-3))))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(repeats):
            run()
    graph.replay()
    times = []
    for _ in range(REPLAYS):
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / repeats * 1e3)
    return statistics.median(times)


# ---- one layer


def reference(op, a, x, w, b, dy):
    """(h before activation, y, gradients by role) by PyTorch in the precision of its arguments, NHWC."""
    if op == "linear":
        h = torch.nn.functional.linear(x, w, b)
    elif op == "embed_projection":
        h = x.sum(-1).flatten(1) @ w
    else:
        top, left, _, _ = a.padding
        chw = [t.permute(0, 3, 1, 2) for t in (x, w)]
        h = torch.nn.functional.conv2d(*chw, b, a.stride, (top, left), a.dilation).permute(0, 2, 3, 1)
    y = torch.relu(h) if a.activation == "relu" else h
    if op == "conv2d_pool":
        y = torch.nn.functional.max_pool2d(y.permute(0, 3, 1, 2), 2).permute(0, 2, 3, 1)
    leaves = {"x": x, "weight": w} | ({} if b is None else {"bias": b})
    return y, dict(zip(leaves, torch.autograd.grad(y, list(leaves.values()), dy), strict=True))


def winners(a, x, w, b):
    """Which sum of each 2 x 2 window is the largest, as one byte."""
    top, left, _, _ = a.padding
    h = torch.nn.functional.conv2d(x.permute(0, 3, 1, 2), w.permute(0, 3, 1, 2), b, a.stride, (top, left), a.dilation)
    N, O, H, W = h.shape
    windows = h.view(N, O, H // 2, 2, W // 2, 2).permute(0, 2, 4, 1, 3, 5).reshape(N, H // 2, W // 2, O, 4)
    return windows.argmax(-1).byte().contiguous()


def peer_times(op, a, x, w, b, dy) -> dict[str, float]:
    """PyTorch in float32 by part; dy stands for the masked gradient, whose mask is not counted. Of conv2d_pool each
    gradient's time includes the pool's own."""
    F, act = torch.nn.functional, torch.relu if a.activation == "relu" else (lambda h: h)
    if op == "linear":

        def backward():
            dy @ w, dy.t() @ x, dy.sum(0)

        return {"forward": microseconds(lambda: act(F.linear(x, w, b))), "backward": microseconds(backward)}
    if op == "embed_projection":
        rows = x.sum(-1).flatten(1)

        def embed_backward():
            rows.t() @ dy, dy @ w.t()

        return {"forward": microseconds(lambda: x.sum(-1).flatten(1) @ w), "backward": microseconds(embed_backward)}
    top, left, _, _ = a.padding
    window = (a.stride, (top, left), a.dilation)
    best: dict[str, float] = {}
    for layout in (torch.contiguous_format, torch.channels_last):
        xs, ws, ds = (t.permute(0, 3, 1, 2).contiguous(memory_format=layout) for t in (x, w, dy))

        full = act(F.conv2d(xs, ws, b, *window))
        places = torch.ops.aten.max_pool2d_with_indices(full, *POOL[:4])[1]

        def back(mask, xs=xs, ws=ws, ds=ds, full=full, places=places):
            if op == "conv2d_pool":
                ds = torch.ops.aten.max_pool2d_with_indices_backward(ds, full, *POOL, places)
            sizes = None if b is None else [ws.shape[0]]
            return torch.ops.aten.convolution_backward(ds, xs, ws, sizes, *window, False, (0, 0), 1, mask)

        def forward(xs=xs, ws=ws):
            y = act(F.conv2d(xs, ws, b, *window))
            return torch.ops.aten.max_pool2d_with_indices(y, *POOL[:4]) if op == "conv2d_pool" else y

        runs = {
            "forward": forward,
            "dgrad": lambda back=back: back([True, False, False]),
            "wgrad": lambda back=back: back([False, True, b is not None]),
        }
        for part, run in runs.items():
            best[part] = min(best.get(part, 1e30), microseconds(run))
    return best


def spot_check(op, a, x, w, b, y) -> float:
    """Largest error of 64 outputs before the activation's zeros, summed by NumPy in float64."""
    rng, worst = np.random.default_rng(0), 0.0
    N = min(4, x.shape[0])
    want = OPS[op].forward(a, *(t.cpu().numpy().astype(np.float64) for t in (x[:N], w)), *(
        [] if op == "embed_projection" else [None if b is None else b.cpu().numpy().astype(np.float64)]
    ))
    got = y[:N].cpu().numpy()
    for place in rng.integers(0, got.size, 64):
        worst = max(worst, abs(got.flat[place] - want.flat[place]))
    return worst


def error_of(got, want) -> float:
    """Largest error in units of the wanted values' root mean square; NaN if anything was not written."""
    scale = want.square().mean().sqrt().clamp_min(1e-30)
    return ((got.double() - want).abs().max() / scale).item()


def prepare(spec):
    op, N, x, attrs = spec
    a = make_attrs(OPS[op].OP, attrs)
    y = OPS[op].out_shape(a, x)
    sms = torch.cuda.get_device_properties(0).multi_processor_count
    s = Shapes(a, N, x, y, sms=sms, want=ALL if "conv2d" not in op or x[-1] > 3 else ALL - {"x"})
    found = {**calls_gemm.parts(op, "train", s), **calls_gemm.parts(op, "backward", s)}
    return a, s, found


def measure(spec) -> dict:
    op, N, x_shape, _ = spec
    a, s, found = prepare(spec)
    torch.manual_seed(0)
    x = torch.randn(N, *x_shape, device="cuda")
    shapes = {w.name: w.shape(a, x_shape) for w in OPS[op].OP.weights if not (w.needs and not getattr(a, w.needs))}
    weights = {k: torch.randn(v, device="cuda") * prod(v[1:]) ** -0.5 for k, v in shapes.items()}
    w, b = weights["weight"], weights.get("bias")
    dy = torch.randn(N, *s.y, device="cuda")
    double = [None if t is None else t.double().requires_grad_() for t in (x, w, b)]
    y64, grads64 = reference(op, a, *double, dy.double())
    tensors = {"x": x, **weights, "y": y64.detach().float().contiguous(), "dy": dy}
    if op == "conv2d_pool":
        with torch.no_grad():
            tensors["index"] = winners(a, *(None if t is None else t.double() for t in (x, w, b)))
    masked = dy * (tensors["y"] > 0) if a.activation == "relu" else dy
    flops = 2 * OPS[op].macs(a, x_shape, s.y) * N
    peers = peer_times(op, a, x, w, b, masked)
    result: dict = {"op": op, "N": N, "x": x_shape, "y": s.y, "kernel": getattr(a, "kernel_size", None), "parts": {}}
    for part, options in found.items():
        rows = []
        for v in options:
            if any(function(c.kernel) is None for c in v.calls):
                rows.append({"name": v.name, "us": None, "error": None})
                continue
            mine = dict(tensors)
            outputs = {"forward": ["y"], "dgrad": ["x"], "wgrad": list(weights)}.get(part, ["x", *weights])
            for role in outputs:
                like = tensors["y"] if role == "y" else x if role == "x" else weights[role]
                mine[role if role == "y" else f"d:{role}"] = torch.full_like(like, float("nan"))
            if part == "forward" and "index" in tensors:
                mine["index"] = torch.empty_like(tensors["index"])
            mine["scratch"] = torch.full((v.scratch // 4 + 1,), float("nan"), device="cuda")
            mine["counters"] = torch.zeros(COUNTERS, dtype=torch.int32, device="cuda")
            run = ours(v.calls, mine)
            run()
            torch.cuda.synchronize()
            if part == "forward":
                error = error_of(mine["y"], y64)
                spot = spot_check(op, a, x, w, b, mine["y"]) if v is options[0] else 0.0
                error = max(error, spot) if spot == spot else spot
            else:
                error = max((error_of(mine[f"d:{r}"], grads64[r]) for r in outputs), key=lambda e: (e != e, e))
            registers = [function(c.kernel).num_regs for c in v.calls]
            local = sum(function(c.kernel).local_size_bytes for c in v.calls)
            row = {"name": v.name, "us": microseconds(run), "error": error, "registers": registers, "local": local}
            rows.append(row | {"scratch": v.scratch})
        work = flops * (2 if part == "backward" and "x" in s.want else 1)
        result["parts"][part] = {"peer_us": peers[part], "flops": work, "variants": rows}
    return result


# ---- the report


def report(spec, result, every: bool) -> None:
    op, N, x, _ = spec
    title = f"{op} N{N} {'x'.join(map(str, x))}->{result['y'][-1]}"
    if op == "conv2d":
        title += f" k{result['kernel'][0]}" + (f" s{x[0] // result['y'][0]}" if x[0] != result["y"][0] else "")
    for part, p in result["parts"].items():
        ok = [v for v in p["variants"] if v["us"] is not None and v["error"] < 2e-4]
        wrong = [f"{v['name']} ({v['error']})" for v in p["variants"] if v not in ok]
        if not ok:
            print(f"{title:38s} {part:8s} NOTHING RIGHT: {wrong}")
            continue
        best, default = min(ok, key=lambda v: v["us"]), p["variants"][0]
        rate, ratio = p["flops"] / best["us"] / 1e6, p["peer_us"] / best["us"]
        print(
            f"{title:38s} {part:8s} torch {p['peer_us']:8.1f} | default {default['us'] or 0:8.1f} {default['name']:16s}"
            f" best {best['us']:8.1f} {best['name']:16s} {rate:5.1f} TF  torch/best {ratio:5.2f}"
            f"  error {max(v['error'] for v in ok):.0e}" + (f"  WRONG: {wrong}" if wrong else ""),
            flush=True,
        )
        if every:
            for v in sorted(ok, key=lambda v: v["us"]):
                used = f"registers {v['registers']} local {v['local']} scratch {v['scratch'] / 1e6:.1f} MB"
                print(f"      {v['us']:8.1f} us  {v['name']:18s} {used}")


def main(argv=None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="operators whose name contains this")
    parser.add_argument("--net", default="", help="nets whose name contains this")
    parser.add_argument("--all", action="store_true", help="print every variant, not only default and best")
    options = parser.parse_args(argv)
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    started = time.time()
    torch.zeros(1, device="cuda")  # PyTorch opens the context; CuPy joins it
    print(torch.cuda.get_device_name(), "| torch", torch.__version__, "| CuPy", cupy.__version__)
    nets = {
        name: [layer if isinstance(layer[0], tuple) else (layer, 1) for layer in layers]
        for name, layers in NETS.items()
        if options.net in name
    }
    nets = {name: [(spec, n) for spec, n in layers if options.only in spec[0]] for name, layers in nets.items()}
    specs = [spec for layers in nets.values() for spec, _ in layers]
    kernels = {c.kernel for spec in specs for vs in prepare(spec)[2].values() for v in vs for c in v.calls}
    compile_all(kernels)
    print(f"{len(MODULES)} kernels compiled in {time.time() - started:.0f} s", flush=True)
    print(f"an empty launch in a graph: {empty_launch():.2f} us", flush=True)

    results: dict = {}
    totals = []
    for net, layers in nets.items():
        print(f"\n{net}")
        sums = np.zeros(3)  # PyTorch, default, best
        for spec, count in layers:
            key = str(spec)
            if key not in results:
                if time.time() - started > SECONDS:
                    print(f"left out, {SECONDS} s are over: {key}")
                    sums += np.nan
                    continue
                results[key] = measure(spec)
            report(spec, results[key], options.all)
            for p in results[key]["parts"].values():
                us = [v["us"] for v in p["variants"] if v["us"] is not None]
                sums += count * np.array([p["peer_us"], p["variants"][0]["us"] or np.nan, min(us, default=np.nan)])
        totals.append((net, *sums))
    print("\nsums of the layers above, us:          torch   default      best   torch/best")
    for net, peer, default, best in totals:
        print(f"{net:35s} {peer:9.1f} {default:9.1f} {best:9.1f} {peer / best:9.2f}")
    out = os.environ.get("OUT")
    if out:
        text = json.dumps({"device": torch.cuda.get_device_name(), "layers": list(results.values()), "sums": totals})
        (Path(out) / "gpu_kernels.json").write_text(text)
    print(f"{time.time() - started:.0f} s in all")
    return 0


if __name__ == "__main__":
    sys.exit(main())
