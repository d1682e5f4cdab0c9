"""All weights (or all gradients) as one flat vector that also answers to the tensors' names."""

from __future__ import annotations

from typing import Any

import numpy as np

from .plan import Plan


class NamedVector(np.ndarray):
    """A flat float32 array over many tensors: v["layer_0.weight"] is a view, v += 1, np.linalg.norm(v) work.

    Tensors start at multiples of 16 bytes; the gaps hold zeros, so sums and norms over the vector are right.
    What has another shape (a slice, a reshape) is no longer the whole and knows no names.
    """

    places: dict[str, tuple[int, tuple[int, ...]]]
    activations: dict[str, np.ndarray]  # of Trainer.backward alone: the gradients of the layers' outputs

    def __new__(cls, flat: np.ndarray, places: dict[str, tuple[int, tuple[int, ...]]]) -> NamedVector:
        vector = np.asarray(flat).view(cls)
        vector.places = places
        return vector

    def __array_finalize__(self, obj: Any) -> None:
        self.places = getattr(obj, "places", {}) if self.shape == getattr(obj, "shape", None) else {}

    def __array_wrap__(self, array: np.ndarray, context: Any = None, return_scalar: bool = False) -> Any:
        """The result of a function of the vector: itself if changed in place, a plain number if it is one."""
        if array is self:
            return self
        if array.ndim == 0:
            return array[()]
        return NamedVector(array, self.places if array.shape == self.shape else {})

    def __getitem__(self, key: Any) -> Any:
        if not isinstance(key, str):
            return super().__getitem__(key)
        at, shape = self.places[key]
        return np.asarray(self)[at : at + int(np.prod(shape))].reshape(shape)

    def __setitem__(self, key: Any, value: Any) -> None:
        if isinstance(key, str):
            self[key][...] = value
        else:
            super().__setitem__(key, value)

    def names(self) -> list[str]:
        """The tensors, in memory order."""
        return list(self.places)

    def items(self) -> list[tuple[str, np.ndarray]]:
        """(name, view) of each tensor."""
        return [(name, self[name]) for name in self.places]


def places_of(plan: Plan, prefix: str = "") -> dict[str, tuple[int, tuple[int, ...]]]:
    """Where each trained tensor stands in a vector of the kind: name -> (index of its first element, shape)."""
    names = [p.name for p in plan.graph.trainable]
    if not names:
        return {}
    start = plan.view(prefix + names[0])[0]
    return {name: ((plan.view(prefix + name)[0] - start) // 4, plan.view(prefix + name)[1]) for name in names}
