"""The reports of edge-infer: what a model is (--info), how fast (--bench), what each layer gave (--trace).

Each comes as a dict for JSON, and its `..._text` makes lines of it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from time import perf_counter
from typing import Any

import numpy as np

from .engine import PROVENANCE, InferenceEngine

WARM_SECONDS, WARM_RUNS = 1.0, 2000  # --bench repeats until one of them is reached, and at least 20 times


def info(engine: InferenceEngine) -> dict[str, Any]:
    rules = engine.preprocessing
    return {
        **engine.info,
        "file": engine.name,
        "preprocessing": asdict(rules) if rules else None,
        "labels": engine.labels,
        "layers": [asdict(layer) for layer in engine.layers],
    }


def info_text(found: dict[str, Any]) -> list[str]:
    facts = [
        ("model", f"{found['name'] or found['file']} (format {found['format']})"),
        ("input", _shape(found["input_shape"]) + " (H x W x C)" * (len(found["input_shape"]) == 3)),
        ("output", _shape(found["output_shape"])),
        ("file", f"{found['file_bytes']:,} bytes"),
        ("weights", f"{found['weights_bytes']:,} bytes"),
        ("arena", f"{found['arena_bytes']:,} bytes of working memory a run"),
        ("work", f"{found['macs']:,} multiply-accumulates a run"),
    ]
    rules = found["preprocessing"]
    if rules:
        numbers = (" ".join(f"{v:g}" for v in rules[key]) for key in ("mean", "std"))
        scale = "(pixel - {}) / {}".format(*numbers)
        parts = [f"{rules['color']}, {rules['fit']}, {rules['resize']}, invert {rules['invert']}, {scale}"]
        if rules["fit"] == "letterbox":
            parts.append(f"bars of {rules['pad']}")
        facts.append(("picture", ", ".join(parts)))
    if found["labels"]:
        facts.append(("labels", _shorten(", ".join(map(str, found["labels"])), 100)))
    for key in PROVENANCE:
        if found[key] is not None:
            percent = key == "accuracy" and isinstance(found[key], (int, float))
            facts.append((key, f"{100 * found[key]:.2f} %" if percent else _shorten(_plain(found[key]), 100)))
    width = max(len(name) for name, _ in facts)
    rows = [
        (
            layer["name"], layer["op"], layer["activation"].replace("none", ""), _shape(layer["shape"]),
            f"{layer['weights_bytes']:,}" if layer["weights_bytes"] else "", layer["weight_dtype"],
            f"{layer['macs']:,}" if layer["macs"] else "",
        )
        for layer in found["layers"]
    ]  # fmt: skip
    header = ("layer", "op", "activation", "output", "weight bytes", "type", "MACs")
    return [*(f"{name:<{width}}  {text}" for name, text in facts), "", *_table(header, rows, "<<<<><>")]


def bench(engine: InferenceEngine, load_seconds: float, x: np.ndarray | None) -> dict[str, Any]:
    """Run once, then again and again. x None: random input of the right shape."""
    if x is None:
        x = np.random.default_rng(0).standard_normal(engine.input_shape, np.float32)
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
    by_layer = np.median(runs, axis=0)
    return {
        "file": engine.name,
        "load_ms": round(load_seconds * 1e3, 3),
        "first_run_us": round(times[0] * 1e6, 1),
        "runs": len(times) - 1,
        **{f"p{n}_us": round(float(v), 1) for n, v in zip((50, 95, 99), warm, strict=True)},
        "gflops": round(2e-3 * engine.info["macs"] / float(warm[0]), 3),
        "file_bytes": engine.info["file_bytes"],
        "arena_bytes": engine.info["arena_bytes"],
        "peak_process_bytes": _peak_bytes(),
        "layers": [
            {
                "name": layer.name,
                "op": layer.op,
                "macs": layer.macs,
                "us": round(float(us), 2),
                "share": round(float(us / max(by_layer.sum(), 1e-9)), 4),
                "gflops": round(2e-3 * layer.macs / max(float(us), 1e-3), 3),
            }
            for layer, us in zip(engine.layers, by_layer, strict=True)
        ],
    }


def bench_text(found: dict[str, Any]) -> list[str]:
    warm = ", ".join(f"p{n} {found[f'p{n}_us']:.1f} us" for n in (50, 95, 99))
    peak = found["peak_process_bytes"]
    memory = f"{found['arena_bytes']:,} bytes of arena, {found['file_bytes']:,} bytes of file, mapped"
    rows = [
        (
            layer["name"], layer["op"], f"{layer['macs']:,}" if layer["macs"] else "", f"{layer['us']:.1f}",
            f"{100 * layer['share']:.1f} %", f"{layer['gflops']:.2f}" if layer["macs"] else "",
        )
        for layer in found["layers"]
    ]  # fmt: skip
    return [
        f"load       {found['load_ms']:.2f} ms (map the file, check all of it)",
        f"first run  {found['first_run_us']:.0f} us",
        f"warm run   {warm} ({found['runs']} runs, called from Python), {found['gflops']:.2f} GFLOP/s",
        f"memory     {memory}" + (f"; the whole process peaked at {peak / 1e6:.0f} MB" if peak else ""),
        "",
        *_table(("layer", "op", "MACs", "us", "share", "GFLOP/s"), rows, "<<>>>>"),
    ]


def trace(engine: InferenceEngine, x: np.ndarray) -> list[dict[str, Any]]:
    """What each operator gave for one input, in a few numbers."""
    return [
        {
            "name": t.name,
            "op": t.op,
            "shape": t.shape,
            "min": float(t.array.min()),
            "mean": float(t.array.mean(dtype=np.float64)),
            "max": float(t.array.max()),
            "zeros": round(float(np.mean(t.array == 0)), 4),
            "microseconds": round(t.microseconds, 1),
        }
        for t in engine.trace(x)
    ]


def trace_text(found: list[dict[str, Any]]) -> list[str]:
    rows = [
        (
            t["name"], t["op"], _shape(t["shape"]), f"{t['min']:.4g}", f"{t['mean']:.4g}", f"{t['max']:.4g}",
            f"{100 * t['zeros']:.0f} %", f"{t['microseconds']:.1f}",
        )
        for t in found
    ]  # fmt: skip
    return _table(("layer", "op", "output", "min", "mean", "max", "zeros", "us"), rows, "<<<>>>>>")


def _peak_bytes() -> int | None:
    """The most memory this process has had; None where the system does not tell (Windows)."""
    try:
        import resource
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _table(header: Sequence[str], rows: Iterable[Sequence[str]], sides: str) -> list[str]:
    """Aligned columns; sides has a < or > for each."""
    lines = [header, *rows]
    widths = [max(len(line[c]) for line in lines) for c in range(len(header))]
    layout = "  ".join(f"{{:{side}{width}}}" for side, width in zip(sides, widths, strict=True))
    return [layout.format(*line).rstrip() for line in lines]


def _shape(shape: Sequence[int]) -> str:
    return " x ".join(map(str, shape))


def _plain(value: Any) -> str:
    """A value of the metadata in a line: {"name": "mnist", "n": 60000} becomes name mnist, n 60000."""
    if isinstance(value, dict):
        return ", ".join(f"{key} {_plain(v)}" for key, v in value.items())
    return f"{value:g}" if isinstance(value, float) else str(value)


def _shorten(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 4] + " ..."
