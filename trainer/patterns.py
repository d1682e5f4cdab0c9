"""Blueprint layers that are several operators: residual, dual_path, inverted_residual.

A pattern is a function (builder, layer, x, name) -> tensor that adds operators to the builder of graph.py. A new
pattern is one function and one row of PATTERNS; the blueprint reader knows which keys it takes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .errors import UserError
from .ops.spec import shape_text

if TYPE_CHECKING:
    from .blueprint import Layer
    from .graph import Builder


def _residual(b: Builder, layer: Layer, x: int, name: str) -> int:
    """y = activation(layers(x) + shortcut(x)); the shortcut is x itself, a 1x1 convolution, or layers of its own."""
    main = b.chain(layer.layers, x, f"{name}.main")
    side = x
    if layer.shortcut:
        side = b.chain(layer.shortcut, x, f"{name}.shortcut")
    elif layer.fields.get("shortcut") == "projection":
        side = _projection(b, layer, x, main, f"{name}.shortcut")
    if b.shape(main) != b.shape(side):
        remedy = 'Write "shortcut": "projection" for a 1x1 convolution that fits.'
        if layer.fields.get("shortcut") == "projection":
            remedy = 'No 1x1 convolution fits: write "padding": "same" in its layers, or a shortcut of layers.'
        raise UserError(
            f"{layer.where}: its layers give {shape_text(b.shape(main))}, the shortcut {shape_text(b.shape(side))}; "
            f"they are added, so both must be equal.\n  {remedy}"
        )
    return b.operator(layer, "add", _activation(layer.fields), (main, side), name)


def _projection(b: Builder, layer: Layer, x: int, main: int, name: str) -> int:
    """A 1x1 convolution from x's shape to that of main, with a batchnorm where the main path ends with one."""
    source, target = b.shape(x), b.shape(main)
    if len(source) != 3 or len(target) != 3:
        fields: dict[str, Any] = {"out_features": target[-1]}
        return b.operator(layer, "linear", fields, (x,), name)
    stride = [max(1, -(-source[i] // target[i])) for i in (0, 1)]
    ops = {n.output: n for n in b.nodes}
    last = ops[main] if ops[main].op != "activation" else ops.get(ops[main].inputs[0], ops[main])
    normed = last.op == "batchnorm"
    fields = {"out_channels": target[2], "kernel_size": 1, "stride": stride, "bias": int(not normed)}
    y = b.operator(layer, "conv2d", fields, (x,), name)
    return b.operator(layer, "batchnorm", {}, (y,), f"{name}.norm") if normed else y


def _dual_path(b: Builder, layer: Layer, x: int, name: str) -> int:
    """y = layernorm(W2 act(W1 x + b1) + b2 + side(x)); side is a linear layer or x itself."""
    shape = b.shape(x)
    if len(shape) > 2:
        raise UserError(
            f"{layer.where}: it needs a row of values, but its input is {shape_text(shape)}.\n"
            "  Put a flatten, a global_avg_pool or an embed_projection before it."
        )
    width = shape[-1]
    hidden = layer.fields.get("hidden_features") or 4 * width
    inits = {k: v for k, v in layer.fields.items() if k == "weight_init"}
    act = {"activation": layer.fields.get("activation", "gelu")}
    up = b.operator(layer, "linear", {"out_features": hidden, **act, **inits}, (x,), f"{name}.up")
    down = b.operator(layer, "linear", {"out_features": width, **inits}, (up,), f"{name}.down")
    side = x
    if layer.fields.get("side", "linear") == "linear":
        side = b.operator(layer, "linear", {"out_features": width, **inits}, (x,), f"{name}.side")
    joined = b.operator(layer, "add", {}, (down, side), f"{name}.add")
    return b.operator(layer, "layernorm", {}, (joined,), name)


def _inverted_residual(b: Builder, layer: Layer, x: int, name: str) -> int:
    """1x1 to expand*C channels, a depthwise convolution, 1x1 back; x is added where the shapes allow it."""
    shape = b.shape(x)
    if len(shape) != 3:
        raise UserError(f"{layer.where}: it needs an image, but its input is {shape_text(shape)}.")
    f = layer.fields
    expand, out, stride = f.get("expand", 6), f["out_channels"], f.get("stride", 1)
    normed, act = bool(f.get("batchnorm", True)), {"activation": f.get("activation", "relu6")}
    hidden = shape[2] * expand

    def step(op: str, fields: dict[str, Any], t: int, part: str, activation: dict[str, Any]) -> int:
        if not normed:
            return b.operator(layer, op, fields | activation, (t,), f"{name}.{part}")
        t = b.operator(layer, op, fields | {"bias": 0}, (t,), f"{name}.{part}")
        return b.operator(layer, "batchnorm", activation, (t,), f"{name}.{part}.norm")

    y = x
    if expand != 1:
        y = step("conv2d", {"out_channels": hidden, "kernel_size": 1}, y, "expand", act)
    window = {"kernel_size": f.get("kernel_size", 3), "stride": stride, "padding": "same"}
    y = step("depthwise_conv2d", window, y, "depthwise", act)
    y = step("conv2d", {"out_channels": out, "kernel_size": 1}, y, "project", {})
    return b.operator(layer, "add", {}, (y, x), name) if b.shape(y) == shape else y


def _activation(fields: dict[str, Any]) -> dict[str, Any]:
    return {k: fields[k] for k in ("activation", "alpha") if k in fields}


PATTERNS = {"residual": _residual, "dual_path": _dual_path, "inverted_residual": _inverted_residual}
