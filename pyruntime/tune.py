"""edge-infer --tune: the algorithms of a model's layers measured on this device, and the fastest remembered.

A cost model chooses an algorithm for each layer from sizes alone (runtime_c/src/fast_plan.c). Here every layer that has
a choice is timed with each, in its place in the net: one engine for each algorithm runs the whole net, in turn, round
after round. Where another than the chosen one is faster by more than the noise, it is taken; and the net with all that
is taken must then be faster as a whole, or nothing is.
"""

from __future__ import annotations

from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

from . import tuned
from ._litenet import lib
from .engine import InferenceEngine
from .errors import ModelError
from .report import table

ALGORITHMS = {"direct": lib.LN_DIRECT, "winograd 2x2": lib.LN_WINOGRAD_2, "winograd 4x4": lib.LN_WINOGRAD_4}
SECONDS, LEAST_ROUNDS, MOST_ROUNDS = 4.0, 10, 500  # of all engines together, twice
LEAST_GAIN = 0.03  # of a layer's time: less is noise


def tune(model: str, kernels: str | None = None, threads: int | None = None) -> dict[str, Any]:
    """Measure, and remember or forget. `kept`: whether the cost model's choice stays; `file`: what now holds another.

    Each row of `layers` has name, op, chosen and fastest (algorithms), chosen_us, fastest_us, and us of each algorithm.
    """
    chosen = InferenceEngine(model, kernels=kernels, threads=threads, tuned=False)
    x = chosen.random_input()
    rows = _layers(model, chosen, x)
    choices = bytearray(len(chosen.layers))
    for row in rows:
        if row["fastest_us"] < (1 - LEAST_GAIN) * row["chosen_us"]:
            choices[row["index"]] = ALGORITHMS[row["fastest"]]
    found = {"file": chosen.name, "kernels": chosen.kernels, "threads": chosen.threads, "layers": rows,
             "kept": True, "remembered": None}  # fmt: skip
    if any(choices):
        other = InferenceEngine(model, kernels=chosen.kernels, threads=chosen.threads, tuned=bytes(choices))
        before, after = _interleaved([_whole(chosen, x), _whole(other, x)])
        found |= {"chosen_us": round(before, 2), "tuned_us": round(after, 2), "kept": not after < before}
    place = chosen._model, chosen.kernels, chosen.threads
    try:
        if found["kept"]:
            tuned.forget(*place)
        else:
            path = tuned.remember(*place, bytes(choices))
            found["remembered"] = str(path) if path else None
    except OSError as error:
        raise ModelError(
            f"The algorithms cannot be remembered in {tuned.folder()} ({error.strerror or error}); "
            "name a folder that can be written in the environment variable LITENET_TUNE."
        ) from None
    return found


def _layers(model: str, chosen: InferenceEngine, x: np.ndarray) -> list[dict[str, Any]]:
    """A row for every layer that has a choice."""
    count = len(chosen.layers)
    bits = [lib.ln_fast_candidates(chosen._model, i) if chosen.kernels != "portable" else 0 for i in range(count)]
    names = [name for name, number in ALGORITHMS.items() if any(b >> number & 1 for b in bits)]
    engines = [
        InferenceEngine(model, kernels=chosen.kernels, threads=chosen.threads, tuned=bytes([ALGORITHMS[name]] * count))
        for name in names
    ]
    times: list[list[list[float]]] = [[] for _ in engines]
    for engine in engines:
        engine.layer_times(x)
    until = perf_counter() + SECONDS
    while engines and len(times[0]) < MOST_ROUNDS and (perf_counter() < until or len(times[0]) < LEAST_ROUNDS):
        for engine, kept in zip(engines, times, strict=True):
            kept.append(engine.layer_times(x))
    rows = []
    for i, layer in enumerate(chosen.layers):
        us = {
            name: round(median(run[i] for run in kept), 2)
            for name, kept in zip(names, times, strict=True)
            if bits[i] >> ALGORITHMS[name] & 1
        }
        if us:
            fastest, now = min(us, key=us.__getitem__), next(name for name in us if layer.algorithm.startswith(name))
            rows.append({"index": i, "name": layer.name, "op": layer.op, "chosen": now, "fastest": fastest,
                         "chosen_us": us[now], "fastest_us": us[fastest], "us": us})  # fmt: skip
    return rows


def _whole(engine: InferenceEngine, x: np.ndarray) -> Any:
    engine.predict(x)
    return lambda: engine.predict(x)


def _interleaved(calls: list[Any]) -> list[float]:
    """Microseconds of each, in the median."""
    times: list[list[float]] = [[] for _ in calls]
    until = perf_counter() + SECONDS
    while len(times[0]) < MOST_ROUNDS and (perf_counter() < until or len(times[0]) < LEAST_ROUNDS):
        for call, kept in zip(calls, times, strict=True):
            began = perf_counter()
            call()
            kept.append((perf_counter() - began) * 1e6)
    return [median(kept) for kept in times]


def tune_text(found: dict[str, Any]) -> list[str]:
    if not found["layers"]:
        return [f"{found['file']}: no layer has a choice with {found['kernels']} kernels; there is nothing to tune."]
    rows = [
        (row["name"], row["op"], row["chosen"], f"{row['chosen_us']:.1f}", row["fastest"], f"{row['fastest_us']:.1f}",
         f"{100 * (1 - row['fastest_us'] / max(row['chosen_us'], 1e-3)):.0f} %",
         ", ".join(f"{name} {us:.1f}" for name, us in row["us"].items() if name not in (row["chosen"], row["fastest"])))
        for row in found["layers"]
    ]  # fmt: skip
    header = ("layer", "op", "chosen by the cost model", "us", "fastest measured", "us", "gain", "others")
    lines = table(header, rows, "<<<><>><")
    whole = "the whole net"
    if "tuned_us" in found:
        whole += f" takes {found['chosen_us']:.1f} us as chosen, {found['tuned_us']:.1f} us with the fastest"
        end = "so the cost model's choice stays" if found["kept"] else ""
    else:
        end = f"gains less than {100 * LEAST_GAIN:.0f} % in every layer: the cost model's choice stays"
    if found["remembered"]:
        end = f"remembered in {found['remembered']} (--untuned ignores it)"
    elif not found["kept"]:
        end = "not remembered: LITENET_TUNE is off, or there is no cache folder"
    return [*lines, "", whole + ("; " if "tuned_us" in found else " ") + end]
