"""edge-infer --bench: how long a model takes to load and to run, layer by layer, beside what the processor can do.

The result comes as a dict for JSON, and bench_text makes lines of it.
"""

from __future__ import annotations

import sys
from time import perf_counter
from typing import Any

import numpy as np

from .board import board, board_text
from .engine import InferenceEngine
from .kernels import peak_gflops
from .report import table

WARM_SECONDS, WARM_RUNS = 1.0, 2000  # runs are repeated until one of them is reached, and at least 20 times
PEAK_SECONDS = 0.1


def bench(engine: InferenceEngine, load_seconds: float, x: np.ndarray | None) -> dict[str, Any]:
    """Run once, then again and again. x None: random input of the right shape."""
    if x is None:
        x = engine.random_input()
    first = perf_counter()
    engine.predict(x)
    times = [perf_counter() - first]
    until = perf_counter() + WARM_SECONDS
    while len(times) < WARM_RUNS and (perf_counter() < until or len(times) < 20):
        began = perf_counter()
        engine.predict(x)
        times.append(perf_counter() - began)
    runs = [engine.layer_times(x) for _ in range(min(100, len(times)))]
    warm = np.percentile(times[1:], [50, 95, 99]) * 1e6
    whole = any(layer.weight_dtype == "int8" for layer in engine.layers)  # which the peak of floats does not bound
    peak = None if whole else peak_gflops(engine.kernels, PEAK_SECONDS)
    found = {
        "file": engine.name,
        "kernels": engine.kernels,
        "threads": engine.threads,
        "load_ms": round(load_seconds * 1e3, 3),
        "first_run_us": round(times[0] * 1e6, 1),
        "runs": len(times) - 1,
        **{f"p{n}_us": round(float(v), 1) for n, v in zip((50, 95, 99), warm, strict=True)},
        "gflops": round(2e-3 * engine.info["macs"] / float(warm[0]), 3),
        "peak_gflops": round(peak, 1) if peak else None,
        "file_bytes": engine.info["file_bytes"],
        "arena_bytes": engine.info["arena_bytes"],
        "scratch_bytes": engine.scratch_bytes,
        "prepared_bytes": engine.prepared_bytes,
        "peak_process_bytes": _peak_bytes(),
        **board(),
        "layers": _layers(engine, np.median(runs, axis=0), peak),
    }
    return {**found, "verdict": _verdict(found)}


def _layers(engine: InferenceEngine, microseconds: np.ndarray, peak: float | None) -> list[dict[str, Any]]:
    total = max(float(microseconds.sum()), 1e-9)
    out = []
    for layer, us in zip(engine.layers, map(float, microseconds), strict=True):
        gflops = 2e-3 * layer.macs / max(us, 1e-3)
        out.append(
            {
                "name": layer.name,
                "op": layer.op,
                "algorithm": layer.algorithm,
                "macs": layer.macs,
                "us": round(us, 2),
                "share": round(us / total, 4),
                "gflops": round(gflops, 3),
                "of_peak": round(gflops / peak, 3) if peak and layer.macs else None,
            }
        )
    return out


def _verdict(found: dict[str, Any]) -> str:
    """One sentence: how near the processor's limit, and where the time goes."""
    slowest = max(found["layers"], key=lambda layer: layer["share"])
    text = f"{1e6 / max(found['p50_us'], 1e-3):,.0f} inferences a second"
    if found["peak_gflops"]:
        share = found["gflops"] / (found["peak_gflops"] * found["threads"])
        text += f", {100 * share:.0f} % of what the arithmetic of {found['threads']} core(s) can do"
        if any("winograd" in layer["algorithm"] for layer in found["layers"]):
            text += " (Winograd counts as the direct sum, so more than 100 % is possible)"
    elif all(layer["algorithm"] == "portable" for layer in found["layers"]):
        text += ", with portable kernels"
    text += f"; {slowest['name']} takes {100 * slowest['share']:.0f} % of the time"
    if found.get("throttled"):
        text += f"; the board was held back ({', '.join(found['throttled'])}), so this is not what it can do"
    return text


def bench_text(found: dict[str, Any]) -> list[str]:
    warm = ", ".join(f"p{n} {found[f'p{n}_us']:.1f} us" for n in (50, 95, 99))
    process = found["peak_process_bytes"]
    memory = f"{found['arena_bytes']:,} bytes of arena, {found['file_bytes']:,} bytes of file, mapped"
    if found["prepared_bytes"]:
        memory += f", {found['scratch_bytes']:,} of scratch, {found['prepared_bytes']:,} of plan and weights made anew"
    rows = [
        (
            layer["name"], layer["op"], layer["algorithm"], f"{layer['macs']:,}" if layer["macs"] else "",
            f"{layer['us']:.1f}", f"{100 * layer['share']:.1f} %", f"{layer['gflops']:.2f}" if layer["macs"] else "",
            f"{100 * layer['of_peak']:.0f} %" if layer["of_peak"] is not None else "",
        )
        for layer in found["layers"]
    ]  # fmt: skip
    peak = f", of {found['peak_gflops']:.0f} that a core can do" if found["peak_gflops"] else ""
    told = board_text(found)
    return [
        f"load       {found['load_ms']:.2f} ms (map the file, check all of it, prepare)",
        f"first run  {found['first_run_us']:.0f} us",
        f"warm run   {warm} ({found['runs']} runs, called from Python), {found['gflops']:.2f} GFLOP/s{peak}",
        f"memory     {memory}" + (f"; the whole process peaked at {process / 1e6:.0f} MB" if process else ""),
        f"kernels    {found['kernels']}, {found['threads']} thread(s)",
        *([f"board      {told}"] if told else []),
        f"verdict    {found['verdict']}",
        "",
        *table(("layer", "op", "algorithm", "MACs", "us", "share", "GFLOP/s", "of peak"), rows, "<<<>>>>>"),
        "",
        "Layers are timed one by one; in a warm run many go together: what follows a convolution is part of it.",
    ]


def _peak_bytes() -> int | None:
    """The most memory this process has had; None where the system does not tell (Windows)."""
    try:
        import resource
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
