"""A node of an ONNX model, as the functions that take it see it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .builder import Value
from .foreign import Place


@dataclass(frozen=True)
class OnnxNode:
    """A node with its inputs looked up: values, constants, or None where one is left out."""

    place: Place
    op: str
    domain: str
    inputs: list[Any]
    attrs: dict[str, Any]
    outputs: int
    opset: int

    def value(self, i: int = 0) -> Value:
        v = self.inputs[i] if i < len(self.inputs) else None
        if not isinstance(v, Value):
            self.place.refuse(f"its input {i} is a constant; a value that hangs on the model's input is expected")
        return v

    def constant(self, i: int, what: str = "") -> np.ndarray:
        v = self.optional(i, what)
        if v is None:
            self.place.refuse(f"its input {i}{' (' + what + ')' if what else ''} is missing")
        return v

    def optional(self, i: int, what: str = "") -> np.ndarray | None:
        v = self.inputs[i] if i < len(self.inputs) else None
        if isinstance(v, Value):
            self.place.refuse(
                f"its input {i}{' (' + what + ')' if what else ''} is calculated while the net runs",
                "Only constants can stand there.",
            )
        return v

    def ints(self, name: str, i: int | None = None) -> list[int] | None:
        """A list that older opsets have as an attribute and newer ones as input i."""
        if name in self.attrs:
            return [int(k) for k in self.attrs[name]]
        found = self.optional(i, name) if i is not None else None
        return None if found is None else [int(k) for k in found.reshape(-1)]
