"""Blueprints that several tests use, and random ones."""

import json

import numpy as np

from litenet.trainer import blueprint as blueprints
from litenet.trainer.graph import build
from litenet.trainer.ops import OPS, parameters


def net(layers, input_shape=(1, 8, 8), **more):
    """A checked blueprint from plain Python."""
    spec = {"name": "net", "input_shape": list(input_shape), "layers": layers, **more}
    return blueprints.parse(json.dumps(spec), "net.json")


def graph_of(layers, input_shape=(1, 8, 8), **more):
    return build(net(layers, input_shape, **more))


def evaluate64(graph, arrays, x, training=False, draw=None, given=None):
    """Every tensor of a graph in float64, operator by operator from the definitions: no plan, no arena, no fusing.

    arrays: parameters by name. draw: node name -> random numbers. given: values that stand instead of what the
    operators before them would give, by tensor number.
    """
    values = {graph.input: np.asarray(x, np.float64), **(given or {})}
    for n in graph.nodes:
        if n.output in values:
            continue
        module = OPS[n.op]
        env = dict(zip(module.OP.inputs, (values[t] for t in n.inputs), strict=True))
        env |= {role: np.asarray(arrays[name], np.float64) for role, name in n.params.items()}
        env["rng"] = draw(n.name) if draw else None
        call = module.forward_train if training and hasattr(module, "forward_train") else module.forward
        y = call(n.attrs, *(env.get(p) for p in parameters(call)))
        values[n.output] = y[0] if isinstance(y, tuple) else y
    return values


CONV = {"type": "conv2d", "out_channels": 4, "kernel_size": 3, "padding": 1, "activation": "relu"}
POOL = {"type": "maxpool2d", "kernel_size": 2, "stride": 2}
SMALL = [CONV, POOL, {"type": "flatten"}, {"type": "linear", "out_features": 3}]

RESIDUAL = [
    {"type": "conv2d", "out_channels": 3, "kernel_size": 3, "padding": 1, "activation": "tanh"},
    {"type": "residual", "name": "block", "activation": "sigmoid", "layers": [
        {"type": "conv2d", "out_channels": 3, "kernel_size": 3, "padding": 1, "name": "inner"}]},
    {"type": "residual", "name": "plain", "layers": [{"type": "conv2d", "out_channels": 3, "kernel_size": 1}]},
    {"type": "avgpool2d", "kernel_size": 2},
    {"type": "flatten"},
    {"type": "linear", "out_features": 3},
]  # fmt: skip

NESTED = [  # a tensor that several paths pass their gradients on to, with and without a launch between
    {"type": "conv2d", "out_channels": 2, "kernel_size": 1},
    {"type": "residual", "layers": [
        {"type": "residual", "layers": [{"type": "conv2d", "out_channels": 2, "kernel_size": 1, "activation": "tanh"}]},
        {"type": "residual", "activation": "relu", "layers": [
            {"type": "residual", "layers": [{"type": "depthwise_conv2d", "kernel_size": 3, "padding": 1}]}]}]},
    {"type": "flatten"},
    {"type": "linear", "out_features": 5},
    {"type": "residual", "layers": [{"type": "flatten"}]},
    {"type": "residual", "layers": [{"type": "residual", "layers": [{"type": "dropout", "rate": 0.2}]}]},
    {"type": "linear", "out_features": 3},
]  # fmt: skip

EVERYTHING = [
    {"type": "conv2d", "out_channels": 6, "kernel_size": 3, "padding": "same"},
    {"type": "batchnorm", "activation": "relu"},
    {"type": "depthwise_conv2d", "kernel_size": 3, "padding": 1, "activation": "relu6"},
    {"type": "residual", "activation": "relu", "layers": [
        {"type": "conv2d", "out_channels": 6, "kernel_size": 3, "padding": 1, "activation": "silu"},
        {"type": "conv2d", "out_channels": 6, "kernel_size": 1}]},
    {"type": "inverted_residual", "out_channels": 6, "expand": 2},
    {"type": "residual", "shortcut": "projection", "layers": [
        {"type": "conv2d", "out_channels": 8, "kernel_size": 3, "padding": 1, "stride": 2},
        {"type": "batchnorm"}]},
    {"type": "gelu"},
    {"type": "avgpool2d", "kernel_size": 2, "stride": 2},
    {"type": "dropout", "rate": 0.2},
    {"type": "global_avg_pool"},
    {"type": "dual_path"},
    {"type": "layernorm"},
    {"type": "linear", "out_features": 5, "activation": "tanh"},
    {"type": "dropout", "rate": 0.1},
    {"type": "linear", "out_features": 3},
    {"type": "softmax"},
]  # fmt: skip


def random_layers(rng: np.random.Generator, depth: int) -> list[dict]:
    """A random chain of image layers with residuals, ended by a classifier of three classes."""
    layers: list[dict] = []
    for _ in range(depth):
        act = str(rng.choice(["none", "relu", "gelu", "sigmoid", "hard_swish"]))
        kind = rng.integers(0, 6)
        channels = int(rng.integers(1, 7))
        if kind == 0:
            window = {"out_channels": channels, "kernel_size": 3, "padding": 1}
            layers.append({"type": "conv2d", **window, "activation": act})
        elif kind == 1:
            layers.append({"type": "batchnorm", "activation": act})
        elif kind == 2:
            layers.append({"type": "depthwise_conv2d", "kernel_size": 3, "padding": "same", "activation": act})
        elif kind == 3:
            layers.append({"type": "dropout", "rate": 0.2})
        elif kind == 4:
            inner = [{"type": "depthwise_conv2d", "kernel_size": 1, "activation": act}, {"type": "batchnorm"}]
            layers.append({"type": "residual", "layers": inner[: int(rng.integers(1, 3))], "activation": act})
        else:
            inner = [{"type": "conv2d", "out_channels": channels, "kernel_size": 1, "activation": act}]
            layers.append({"type": "residual", "layers": inner, "shortcut": "projection"})
    return [*layers, {"type": "flatten"}, {"type": "linear", "out_features": 3}]


def lowered(graph):
    """Each node as text: what it puts out = operator(what it reads)."""
    name = [t.name for t in graph.tensors]
    return [f"{name[n.output]} = {n.op}({', '.join(name[t] for t in n.inputs)})" for n in graph.nodes]
