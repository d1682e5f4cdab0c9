"""A net of convolutions as a TinyMaix file of float32, for the comparison with it.

A header of 64 bytes, then each layer with its own head, places of input and output in one buffer, and weights. Nets are
chains of conv2d and linear; an activation becomes part of the convolution in front of it.
"""

from __future__ import annotations

import struct

import numpy as np
from to_ncnn import chain

from litenet.exporter.source import Source

FLOAT32, CONV2D, FULLY_CONNECTED, HEAD = 2, 0, 2, 48


def to_tinymaix(source: Source) -> bytes:
    """SystemExit for a net that TinyMaix has no operators for."""
    layers, body, at = chain(source), b"", 0
    for i, (n, w, shape, out) in enumerate(layers):
        kernel, bias = np.float32(w["weight"]), np.float32(w["bias"])
        relu = getattr(n.attrs, "activation", "none") == "relu"
        if n.op == "conv2d":
            a = n.attrs
            top, left, bottom, right = a.padding
            kernel = kernel.transpose(0, 3, 1, 2)
            window = (*a.kernel_size[::-1], *a.stride[::-1], 1, 1)
            own = struct.pack("<6BH4B2I", *window, relu, top, bottom, left, right, 0, 0)
        elif n.op == "linear" and not relu:
            own = b""
        else:
            raise SystemExit(f"{n.name}: {n.op} is not written for TinyMaix here")
        start = HEAD + len(own) + 12 + 4 * (n.op == "linear")
        weights = np.ascontiguousarray(kernel).tobytes()
        places = struct.pack("<3I", start, start, start + len(weights))
        rest = places + bytes(4) * (n.op == "linear") + weights + bias.tobytes()
        size = HEAD + len(own) + len(rest)
        given = (1, int(np.prod(shape))) if n.op == "linear" else shape
        after = at + 4 * int(np.prod(shape))
        kind = CONV2D if n.op == "conv2d" else FULLY_CONNECTED
        head = struct.pack("<2H3I", kind, i == len(layers) - 1, size + -size % 8, at, after) + _dims(given) + _dims(out)
        body += head + struct.pack("<4f", 1, 0, 1, 0) + own + rest + bytes(-size % 8)
        at = after
    whole = at + 4 * int(np.prod(layers[-1][3]))
    front = struct.pack("<4s2B3H2I", b"MAIX", FLOAT32, 0, 1, 1, len(layers), whole, 0)
    return front + _dims(layers[0][2]) + _dims(layers[-1][3]) + bytes(28) + body


def _dims(shape: tuple[int, ...]) -> bytes:
    return struct.pack("<4H", len(shape), *(1,) * (3 - len(shape)), *shape)
