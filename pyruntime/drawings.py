"""The files of edge-infer --explain: where they go, and that they are whole."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from .answers import label
from .cli import DRAWN
from .engine import InferenceEngine
from .errors import ImageError, ModelError
from .explain import explainer
from .image import Picture
from .overlay import overlay


class Drawer:
    """Draws for one model. out: a folder, or a file that ends in .png; None: beside each picture."""

    def __init__(self, engine: InferenceEngine, out: str | None):
        self.engine, self.out = engine, None if out is None else Path(out)
        if engine.preprocessing is None:
            raise ModelError(f"{engine.name}: --explain draws on pictures, but this model takes values.")
        if engine.metadata.get("answer") == "values" or engine.metadata.get("loss") == "mse":
            raise ModelError(f"{engine.name}: --explain tells what spoke for a class, but this model gives values.")
        self.map = explainer(engine)
        self.drawn: set[Path] = set()

    def draw(self, name: str, picture: Picture, x: np.ndarray, k: int) -> dict[str, Any]:
        """name: the picture's file, or "-"; x: the same, prepared; k: the class. Returns {file, label, layer}."""
        path = self._path(name)
        data = overlay(self.engine, *picture, self.map.of(x, k))
        temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary.write_bytes(data)
            temporary.replace(path)
        except OSError as error:
            with suppress(OSError):
                temporary.unlink()
            raise ImageError(
                f"{path} could not be written ({error.strerror}); name a folder by --explain-out."
            ) from None
        self.drawn.add(path)
        return {"file": str(path), "label": label(self.engine, k), "layer": self.map.layer}

    def _path(self, name: str) -> Path:
        if self.out is not None and self.out.suffix.lower() == ".png":
            if self.drawn:
                raise ImageError(f"{name}: {self.out} has been drawn for another picture; give --explain-out a folder.")
            return self.out
        own = Path("picture" if name == "-" else name)
        if self.out is None:
            return own.with_name(own.name + DRAWN)
        n, path = 1, self.out / (own.name + DRAWN)
        while path in self.drawn:  # pictures of several folders may bear one name
            n += 1
            path = self.out / f"{own.name}-{n}{DRAWN}"
        return path
