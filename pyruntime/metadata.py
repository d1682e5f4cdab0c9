"""The metadata of a model, checked: whoever wrote the file, its values have the types that FORMAT.md gives them."""

from __future__ import annotations

import json
from collections.abc import Callable
from math import isfinite
from typing import Any


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _is_number(value: Any) -> bool:
    """One that float64 holds."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e300


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)


def _are_numbers(value: Any) -> bool:
    return isinstance(value, dict) and all(_is_number(v) for v in value.values())


def _is_rule(value: Any) -> bool:
    used = ("margin", "energy", "energy_most", "temperature")
    return isinstance(value, dict) and (
        _are_numbers({k: value[k] for k in used if k in value}) and value.get("temperature", 1) > 0
    )


def _is_answer(value: Any) -> bool:
    return value in ("classes", "values", "embedding")


RULES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "name": (_is_text, "a text"),
    "loss": (_is_text, "a text"),
    "created": (_is_text, "a text"),
    "litenet": (_is_text, "a text"),
    "labels": (_are_texts, "a list of texts"),
    "layers": (_are_texts, "a list of texts"),
    "outputs": (_are_texts, "a list of texts"),
    "answer": (_is_answer, '"classes", "values" or "embedding"'),
    "embedding": (_are_numbers, "an object of numbers"),
    "unknown": (_is_rule, "an object of numbers, its temperature above 0,"),
    "accuracy": (_is_number, "a number"),
    "dataset": (_is_object, "an object"),
    "source": (_is_object, "an object"),
    "parity": (_is_object, "an object"),
    "blueprint": (_is_object, "an object"),
}


def _number(text: str) -> float:
    value = float(text)
    if not isfinite(value):
        raise ValueError(text)
    return value


def read(text: bytes) -> tuple[dict[str, Any], str | None]:
    """The section, and what is wrong with it, as the end of a sentence. Keys that are null count as absent."""
    try:
        found = json.loads(text, parse_constant=_number, parse_float=_number) if text else {}
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        return {}, "is no JSON object"
    found = {key: value for key, value in found.items() if value is not None or key not in RULES}
    for key, (holds, expected) in RULES.items():
        if key in found and not holds(found[key]):
            shown = json.dumps(found[key], ensure_ascii=False)
            return {}, f"says {key} is {shown if len(shown) < 60 else shown[:57] + '...'}; {expected} is expected"
    return found, None
