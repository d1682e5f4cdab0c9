"""A net of zoo_bins.py as ncnn's pair of files, for the comparison with it.

Nets are chains of conv2d, depthwise_conv2d, maxpool2d, global_avg_pool and linear with relu or nothing after them; an
activation becomes part of its layer, as ncnn's own converters do it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from litenet.exporter import device
from litenet.exporter.source import Source


def chain(source: Source) -> list[tuple[Any, dict[str, np.ndarray], tuple[int, ...], tuple[int, ...]]]:
    """(node, its weights by role, shape of its input, shape of its output), in order; SystemExit for other nets."""
    made = device.prepare(source)
    graph, out, last = made.graph, [], made.graph.input
    for n in graph.nodes:
        if n.inputs != (last,) or getattr(n.attrs, "activation", "none") not in ("none", "relu"):
            raise SystemExit(f"{n.name}: only chains with relu are written here")
        last = n.output
        weights = {role: made.weights[name] for role, name in n.params.items()}
        out.append((n, weights, graph.shapes(n)[0], graph.tensors[n.output].shape))
    return out


def to_ncnn(source: Source) -> tuple[str, bytes]:
    """The text of .param and the contents of .bin, channels first; blobs in0 and out0."""
    layers, weights = chain(source), b""
    lines = [f"Input in0 0 1 in0 {sizes(layers[0][2])}"]
    blob = "in0"
    for i, (n, w, shape, _) in enumerate(layers):
        a, into = n.attrs, "out0" if i == len(layers) - 1 else f"b{i}"
        act = " 9=1" if getattr(a, "activation", "none") == "relu" else ""
        if n.op in ("conv2d", "depthwise_conv2d"):
            deep = n.op == "conv2d"
            kernel = w["weight"].transpose(0, 3, 1, 2) if deep else w["weight"].transpose(2, 0, 1)
            top, left, bottom, right = a.padding
            kind = "Convolution" if deep else "ConvolutionDepthWise"
            given = (
                f"0={len(w['bias'])} 1={a.kernel_size[1]} 11={a.kernel_size[0]} 3={a.stride[1]} 13={a.stride[0]} "
                f"4={left} 14={top} 15={right} 16={bottom} 5=1 6={kernel.size}{act}"
            )
            if not deep:
                given += f" 7={shape[2]}"
            weights += flat(kernel) + np.float32(w["bias"]).tobytes()
        elif n.op == "linear":
            kernel = w["weight"]
            if len(shape) == 3:  # rows of (H, W, C) become rows of (C, H, W)
                kernel = kernel.reshape(-1, *shape).transpose(0, 3, 1, 2).reshape(len(kernel), -1)
                lines.append(f"Flatten f{i} 1 1 {blob} f{i}")
                blob = f"f{i}"
            kind, given = "InnerProduct", f"0={len(kernel)} 1=1 2={kernel.size}{act}"
            weights += flat(kernel) + np.float32(w["bias"]).tobytes()
        elif n.op == "maxpool2d" and not any(a.padding):
            kind = "Pooling"
            given = f"0=0 1={a.kernel_size[1]} 11={a.kernel_size[0]} 2={a.stride[1]} 12={a.stride[0]} 5=1"
        elif n.op == "global_avg_pool":
            kind, given = "Pooling", "0=1 4=1"
        else:
            raise SystemExit(f"{n.name}: {n.op} is not written for ncnn here")
        lines.append(f"{kind} l{i} 1 1 {blob} {into} {given}")
        blob = into
    return "\n".join(["7767517", f"{len(lines)} {len(lines)}", *lines]) + "\n", weights


def sizes(shape: tuple[int, ...]) -> str:
    return f"0={shape[1]} 1={shape[0]} 2={shape[2]}" if len(shape) == 3 else f"0={shape[0]}"


def flat(kernel: np.ndarray) -> bytes:
    return bytes(4) + np.ascontiguousarray(kernel, np.float32).tobytes()  # four zeros: float32 follows
