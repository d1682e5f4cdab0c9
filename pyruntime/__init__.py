"""LiteNet's runtime for Python: InferenceEngine runs a .bin model, decode reads picture files.

    from litenet.pyruntime import InferenceEngine, decode

    engine = InferenceEngine("model.bin")
    scores = engine.predict_image(*decode("seven.png"))

Names are loaded when first used, so that `edge-infer --help` waits for neither NumPy nor OpenCV.
"""

from __future__ import annotations

TYPE_CHECKING = False  # as typing has it, without loading typing
if TYPE_CHECKING:
    from .engine import InferenceEngine
    from .errors import ImageError, ModelError
    from .image import Picture, decode
    from .preprocess import Preprocessing

__all__ = ["ImageError", "InferenceEngine", "ModelError", "Picture", "Preprocessing", "decode"]

_HOMES = {
    "ImageError": "errors", "ModelError": "errors", "InferenceEngine": "engine", "Picture": "image",
    "decode": "image", "Preprocessing": "preprocess",
}  # fmt: skip


def __getattr__(name: str):
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
