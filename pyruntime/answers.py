"""What the numbers of a net mean: classes with probabilities, or plain values; as a dict and as text."""

from __future__ import annotations

from typing import Any

import numpy as np

from .engine import InferenceEngine
from .errors import ModelError

UNKNOWN = "unknown"
TINY = 1e-30  # the least probability that has a logarithm here
SHOWN_VALUES = 8  # of a net that gives values, in text; JSON has them all


def answer(
    engine: InferenceEngine, file: str, y: Any, microseconds: float, top: int, guess: bool = False
) -> dict[str, Any]:
    """The answer to one picture. guess: never unknown.

    Classes: {file, label, index, probability, top: [{label, index, probability}, ...], microseconds}; of a model that
             may not know {..., unknown: true or false}, and the label is then "unknown", index and top are the guesses
    Values:  {file, values: [...], microseconds}
    Several outputs: {file, outputs: [{name, shape, values: [...]}, ...], microseconds}
    """
    values = np.concatenate([np.ravel(part) for part in (y if isinstance(y, tuple) else (y,))])
    if not np.isfinite(values).all():
        raise ModelError(f"{file}: the net's answer is not a finite number; run `edge-infer --selftest`.")
    found: dict[str, Any] = {"file": file}
    p = None if isinstance(y, tuple) else probabilities(engine, values)
    if isinstance(y, tuple):
        found["outputs"] = [
            {"name": name, "shape": list(part.shape), "values": np.ravel(part).tolist()}
            for name, part in zip(engine.outputs, y, strict=True)
        ]
    elif p is None:
        found["values"] = [float(v) for v in values]
    else:
        doubt = None if guess else unknown(engine, values)
        order = np.argsort(-p, kind="stable")[: max(top, 2) if doubt else top]
        best = [{"label": label(engine, int(i)), "index": int(i), "probability": round(float(p[i]), 6)} for i in order]
        found |= {**best[0], "top": best}
        if doubt is not None:
            found |= {"label": UNKNOWN if doubt else found["label"], "unknown": doubt}
    found["microseconds"] = round(microseconds, 1)
    return found


def probabilities(engine: InferenceEngine, y: np.ndarray) -> np.ndarray | None:
    """y as class probabilities; None if the net gives values (it says so, was trained with mse, has one output or an
    image)."""
    loss = engine.metadata.get("loss")
    last = engine.layers[-1]
    if engine.metadata.get("answer") in ("values", "embedding"):
        return None
    if loss == "mse" or len(engine.output_shape) != 1 or y.size != engine.output_shape[0]:
        return None
    p = y.astype(np.float64)
    if loss == "bce":  # each output is a probability of its own; a single one decides between two classes
        if "sigmoid" not in (last.op, last.activation):
            p = 1 / (1 + np.exp(-np.clip(p, -700, 700)))
        return p if p.size > 1 else np.array([1 - p[0], p[0]])
    if y.size == 1:
        return None
    if "sigmoid" in (last.op, last.activation):
        return p
    rule = engine.metadata.get("unknown") or {}
    if last.op == "softmax":
        if not rule:
            return p
        p = np.log(np.maximum(p, TINY))
    p /= rule.get("temperature", 1.0)
    e = np.exp(p - p.max())
    return e / e.sum()


def unknown(engine: InferenceEngine, y: np.ndarray) -> bool | None:
    """Whether the answer is too uncertain to be given; None if the model has no threshold. y: its outputs.

    The lead of the first over the second, or log sum e^y, is beyond a threshold that was fitted on held-out samples.
    """
    rule = engine.metadata.get("unknown")
    if not rule:
        return None
    z = np.log(np.maximum(y.astype(np.float64), TINY)) if engine.layers[-1].op == "softmax" else y.astype(np.float64)
    second, first = np.sort(z)[-2:]
    energy = first + np.log(np.exp(z - first).sum())
    least, most = rule.get("energy", -np.inf), rule.get("energy_most", np.inf)
    return bool(first - second < rule.get("margin", -np.inf) or not least <= energy <= most)


def embedding(engine: InferenceEngine, y: Any) -> np.ndarray:
    """y as a row of length one, float64. ModelError where the model is no encoder."""
    if engine.metadata.get("answer") != "embedding":
        raise ModelError(
            f"{engine.name} is no encoder, so it has no embedding of a picture; train one whose blueprint has "
            '"embedding", such as examples/face_embedding.json.'
        )
    row = np.ravel(y).astype(np.float64)
    length = np.linalg.norm(row)
    if not np.isfinite(length) or length == 0:
        raise ModelError(f"{engine.name}: the embedding has no length; run `edge-infer --selftest`.")
    return row / length


def compared(engine: InferenceEngine, files: tuple[str, str], rows: tuple[np.ndarray, np.ndarray]) -> dict[str, Any]:
    """How like two pictures are: {compare: [a, b], cosine, distance, threshold, same}; the last two null where the
    model has no threshold."""
    cosine = float(np.clip(rows[0] @ rows[1], -1.0, 1.0))
    threshold = engine.metadata.get("embedding", {}).get("threshold")
    return {
        "compare": list(files),
        "cosine": round(cosine, 6),
        "distance": round(float(np.sqrt(2 - 2 * cosine)), 6),
        "threshold": threshold,
        "same": None if threshold is None else cosine >= threshold,
    }


def compared_text(found: dict[str, Any]) -> list[str]:
    """One line."""
    said = {True: "same", False: "different", None: "like"}[found["same"]]
    limit = "" if found["threshold"] is None else f", same from {found['threshold']:.3f} on"
    return [f"{' and '.join(found['compare'])}  {said} (cosine {found['cosine']:.3f}{limit})"]


def label(engine: InferenceEngine, index: int) -> str:
    """The name of a class, or its number where the model has no name for it."""
    labels = engine.labels or []
    return str(labels[index]) if index < len(labels) else str(index)


def text(found: dict[str, Any]) -> list[str]:
    """One line for the answer, and one more for each runner-up."""
    if "values" in found:
        return [f"{found['file']}  {_numbers(found['values'])}"]
    if "outputs" in found:
        shown = [(o["name"], " x ".join(map(str, o["shape"])), _numbers(o["values"])) for o in found["outputs"]]
        return [f"{found['file']}  {name} ({shape})  {line}" for name, shape, line in shown]
    if found.get("unknown"):
        guesses = ", ".join(f"{entry['label']} {100 * entry['probability']:.1f} %" for entry in found["top"])
        return [f"{found['file']}  {UNKNOWN} ({guesses})"]
    width = max(len(entry["label"]) for entry in found["top"])
    names = [found["file"]] + [" " * len(found["file"])] * (len(found["top"]) - 1)
    return [
        f"{name}  {entry['label']:<{width}}  {100 * entry['probability']:.1f} %"
        for name, entry in zip(names, found["top"], strict=True)
    ]


def _numbers(values: list[float]) -> str:
    line = "  ".join(f"{v:.6g}" for v in values[:SHOWN_VALUES])
    return line + f"  ... ({len(values)} values; --json gives all)" * (len(values) > SHOWN_VALUES)
