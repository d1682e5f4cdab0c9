"""The reports of edge-infer: what a model is (--info), and what each layer gave (--trace). bench.py has --bench.

Each comes as a dict for JSON, and its `..._text` makes lines of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from .engine import PROVENANCE, InferenceEngine


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
    transformed = sum(layer["stored_bytes"] for layer in found["layers"])
    facts = [
        ("model", f"{found['name'] or found['file']} (format {found['format']})"),
        ("input", _shape(found["input_shape"]) + " (H x W x C)" * (len(found["input_shape"]) == 3)
         + _type(found["input_dtype"])),
        ("output", ", ".join(
            _shape(s) + f" ({n})" * (len(found["outputs"]) > 1) + _type(t)
            for (n, s), t in zip(found["outputs"].items(), found["output_dtypes"], strict=True))),
        ("file", f"{found['file_bytes']:,} bytes"),
        ("weights", f"{found['weights_bytes']:,} bytes" + (
            f", {transformed:,} of them transformed for Winograd's algorithm" if transformed else "")),
        ("arena", f"{found['arena_bytes']:,} bytes of working memory a run"),
        ("work", f"{found['macs']:,} multiply-accumulates a run"),
    ]  # fmt: skip
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
    return [*(f"{name:<{width}}  {text}" for name, text in facts), "", *table(header, rows, "<<<<><>")]


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
    return table(("layer", "op", "output", "min", "mean", "max", "zeros", "us"), rows, "<<<>>>>>")


def table(header: Sequence[str], rows: Iterable[Sequence[str]], sides: str) -> list[str]:
    """Aligned columns; sides has a < or > for each."""
    lines = [header, *rows]
    widths = [max(len(line[c]) for line in lines) for c in range(len(header))]
    layout = "  ".join(f"{{:{side}{width}}}" for side, width in zip(sides, widths, strict=True))
    return [layout.format(*line).rstrip() for line in lines]


def _shape(shape: Sequence[int]) -> str:
    return " x ".join(map(str, shape))


def _type(dtype: str) -> str:
    return "" if dtype == "float32" else f", {dtype}"


def _plain(value: Any) -> str:
    """A value of the metadata in a line: {"name": "mnist", "n": 60000} becomes name mnist, n 60000."""
    if isinstance(value, dict):
        return ", ".join(f"{key} {_plain(v)}" for key, v in value.items())
    return f"{value:g}" if isinstance(value, float) else str(value)


def _shorten(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 4] + " ..."
