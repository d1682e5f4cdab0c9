"""A net of zoo_bins.py as ONNX, for the comparison with runtimes that read it."""

from __future__ import annotations

from litenet.exporter import device, format, onnx_out
from litenet.exporter.source import Source
from litenet.exporter.stored import Stored


def to_onnx(source: Source) -> bytes:
    """The net as `edge-export -o net.onnx` writes it, for a batch of one; `input` and `output` are its ends."""
    prepared = device.prepare(source)
    made = onnx_out.model(Stored(prepared.graph, prepared.weights, format.Preprocessing(), {}))
    for port in (*made.graph.input, *made.graph.output):
        port.type.tensor_type.shape.dim[0].dim_value = 1
    return made.SerializeToString()
