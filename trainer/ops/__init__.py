"""The operators. A module of this folder that holds an `OP` is an operator; nothing is registered by hand.

`OPS["conv2d"]` is the module: OPS["conv2d"].forward, .OP, .CASES (spec.py says what a module holds).
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from functools import cache
from types import ModuleType
from typing import Any

from . import activations
from .spec import ALPHA, Attr, Attrs, Op, Shape, ShapeError

__all__ = ["OPS", "Attr", "Attrs", "Op", "Shape", "ShapeError", "activations", "backward_needs", "make_attrs"]


def _discover() -> dict[str, ModuleType]:
    modules = [importlib.import_module(f"{__name__}.{info.name}") for info in pkgutil.iter_modules(__path__)]
    found = sorted((m for m in modules if hasattr(m, "OP")), key=lambda m: (m.OP.fused, abs(m.OP.id)))
    for m in found:
        for part in ("out_shape", "macs", "forward", "backward", "CASES"):
            if not hasattr(m, part):
                raise ImportError(f"operator {m.OP.name} ({m.__name__}) has no {part}; ops/spec.py lists the parts")
    ids = [m.OP.id for m in found]
    if len(set(ids)) != len(ids):
        raise ImportError(f"two operators share a number: {sorted(ids)}")
    return {m.OP.name: m for m in found}


OPS = _discover()
NOT_ARRAYS = ("dy", "rng", "x_shape", "want")  # parameters of backward that keep no array alive


def make_attrs(op: Op, given: dict[str, Any]) -> Attrs:
    """Checked attributes of one node, defaults filled in. Raises ValueError with one sentence."""
    values: dict[str, Any] = {"activation": given.get("activation", "none")}
    if values["activation"] not in activations.IDS:
        raise ValueError(f"activation is {values['activation']!r}; it can be {', '.join(activations.IDS)}")
    for attr in (*op.attrs, *((ALPHA,) if op.activation else ())):
        if attr.name not in given and attr.default is None:
            raise ValueError(f"{attr.name} is missing")
        default = values[attr.default] if isinstance(attr.default, str) else attr.default
        values[attr.name] = _value(attr, given.get(attr.name, default))
    return Attrs(**values)


def _value(attr: Attr, given: Any) -> Any:
    """One number, or a tuple of attr.count numbers: (h, w) or (top, left, bottom, right)."""
    items = list(given) if isinstance(given, (list, tuple)) else [given]
    if attr.count == 4 and len(items) == 2:  # padding [h, w]: h above and below, w left and right
        items = [items[0], items[1], items[0], items[1]]
    if len(items) == 1:
        items *= attr.count
    if len(items) != attr.count:
        raise ValueError(f"{attr.name} is {given!r}; give one number" + (f" or {attr.count}" if attr.count > 1 else ""))
    kind = "a number" if attr.type == "f32" else "a whole number"
    out: list[float | int] = []
    for item in items:
        number = int(item) if isinstance(item, bool) else item
        if not isinstance(number, (int, float)) or (attr.type != "f32" and number != int(number)):
            raise ValueError(f"{attr.name} is {given!r}; {kind} from {attr.lo} to {attr.hi} is expected")
        if not attr.lo <= number <= attr.hi:
            raise ValueError(f"{attr.name} is {number}; {kind} from {attr.lo} to {attr.hi} is expected")
        out.append(float(number) if attr.type == "f32" else int(number))
    return tuple(out) if attr.count > 1 else out[0]


@cache
def parameters(function: Any) -> tuple[str, ...]:
    """The names a definition asks for, without the attributes."""
    return tuple(inspect.signature(function).parameters)[1:]


def backward_needs(name: str, a: Attrs) -> tuple[str, ...]:
    """What backward reads besides dy: inputs, weights, y, auxiliaries. The planner keeps these alive."""
    module = OPS[name]
    asked = [p for p in parameters(module.backward) if p not in NOT_ARRAYS]
    if hasattr(module, "needs"):
        keep = module.needs(a)
        return tuple(p for p in asked if p not in ("x", "x2", "y") or p in keep)
    if a.activation == "none" and module.OP.activation:
        asked = [p for p in asked if p != "y"]  # the mask of "none" is all ones
    return tuple(asked)
