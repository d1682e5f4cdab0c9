"""Readers of other people's model files: a graph of LiteNet operators with weights, NHWC, one input, batch 1.

    model = READERS[".onnx"](path, options)        # a Foreign; UserError names what cannot be taken

onnx.py and tflite.py read the formats, onnx_nodes.py, onnx_shapes.py and tflite_nodes.py take their operators one by
one, by the functions of layers.py; builder.py knows how a value of theirs lies in ours. tidy.py and patterns.py make
the graph small; check.py runs the source beside the result.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from .foreign import Foreign


def _onnx(path: Path, input_shape: tuple[int, ...] | None = None) -> Foreign:
    from . import onnx

    return onnx.read(path, input_shape)


def _tflite(path: Path, input_shape: tuple[int, ...] | None = None) -> Foreign:
    from . import tflite

    return tflite.read(path, input_shape)


READERS: dict[str, Callable[..., Foreign]] = {".onnx": _onnx, ".tflite": _tflite}
