"""From a blueprint to a graph: nodes with attributes, tensors with shapes, parameters. No arrays, no batch, no order
to decide: nodes stand in the order they run.

Shapes are without the batch and NHWC; a blueprint's [C, H, W] is turned here, once. Patterns (patterns.py) are
lowered to operators while building, so that nothing behind this file knows them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from .blueprint import Blueprint, Layer
from .errors import UserError
from .init import resolve as resolve_init
from .ops import OPS, Attrs, Shape, ShapeError, make_attrs
from .ops.windows import same_padding
from .patterns import PATTERNS

RESERVED = {"input": "what goes into the net", "target": "what the loss compares with"}  # by the planner
RESERVED |= dict.fromkeys(  # device_plan.py has them beside the net's values
    ("step", "order", "partials", "history", "bounds", "everywhere", "counters", "mean", "std", "scaling",
     "class_weights", "rate_starts", "rate_factors", "layer_sums", "before", "scales"), "what a step needs on a card",
)  # fmt: skip


@dataclass(frozen=True)
class Tensor:
    """A value between nodes. `shape` is without the batch."""

    name: str
    shape: Shape


@dataclass(frozen=True)
class Param:
    """A tensor a node owns: trained, or (trainable False) state such as running statistics."""

    name: str
    shape: Shape
    init: str
    fans: tuple[int, int]
    trainable: bool
    decay: bool
    layer: str
    frozen: bool = False  # nothing writes it, though it may be a weight or a statistic
    rate: float = 1.0  # what the learning rate is multiplied by


@dataclass(frozen=True)
class Node:
    """One operator at work. inputs and output index Graph.tensors; params maps the operator's roles to names."""

    name: str
    op: str
    attrs: Attrs
    inputs: tuple[int, ...]
    output: int
    params: dict[str, str]
    layer: str
    algorithm: str = "auto"
    moments: str = ""  # means and variances: "out", it leaves those of its output; "in", it is given those of its input
    scales: tuple[int, ...] = ()  # in whole numbers on a card: the places of its inputs' scales, and its output's


@dataclass(frozen=True)
class Graph:
    """The whole net. layers maps each blueprint layer's name to the tensor it puts out."""

    name: str
    tensors: tuple[Tensor, ...]
    nodes: tuple[Node, ...]
    params: dict[str, Param]
    input: int
    outputs: tuple[int, ...]
    layers: dict[str, int]

    def consumers(self, tensor: int) -> list[Node]:
        return [n for n in self.nodes if tensor in n.inputs]

    def shapes(self, node: Node) -> tuple[Shape, ...]:
        """Input shapes of a node."""
        return tuple(self.tensors[t].shape for t in node.inputs)

    def macs(self, node: Node) -> int:
        """Multiply-accumulates of one sample."""
        return OPS[node.op].macs(node.attrs, self.shapes(node)[0], self.tensors[node.output].shape)

    def needs_gradient(self) -> set[int]:
        """The tensors a gradient has to reach: those that some trained parameter lies before."""
        reached: set[int] = set()
        for n in self.nodes:
            if any(t in reached for t in n.inputs) or any(self.params[p].trainable for p in n.params.values()):
                reached.add(n.output)
        return reached

    @property
    def input_shape(self) -> Shape:
        return self.tensors[self.input].shape

    @property
    def output_shape(self) -> Shape:
        return self.tensors[self.outputs[0]].shape

    @property
    def trainable(self) -> list[Param]:
        return [p for p in self.params.values() if p.trainable]

    @property
    def statistics(self) -> list[Param]:
        """What forward launches of training write, such as running means."""
        return [p for p in self.params.values() if not (p.trainable or p.frozen)]


def build(blueprint: Blueprint) -> Graph:
    """The graph of a checked blueprint. Raises UserError that names the layer where shapes do not fit."""
    builder = Builder(blueprint)
    x = builder.tensor("input", nhwc(blueprint.input_shape))
    tensor = x
    for i, layer in enumerate(blueprint.layers):
        tensor = builder.layer(layer, tensor, layer.name or f"layer_{i}")
    graph = Graph(
        blueprint.name,
        tuple(builder.tensors),
        tuple(builder.nodes),
        builder.params,
        x,
        (tensor,),
        builder.layer_outputs,
    )
    if not graph.nodes:
        raise UserError(f"{blueprint.where}: no layer computes anything.\n  Add at least one, such as a linear.")
    if builder.layer_outputs.get("output", tensor) != tensor:
        raise UserError(
            f"{blueprint.where}: the name 'output' is that of what the net puts out, but another layer has it.\n"
            "  Give that layer another name."
        )
    return graph


def nhwc(shape: Sequence[int]) -> Shape:
    """[C, H, W] as written in a blueprint to (H, W, C); other ranks stay."""
    return (shape[1], shape[2], shape[0]) if len(shape) == 3 else tuple(shape)


class Builder:
    """Adds layers one by one. Ends its life as the fields of a Graph."""

    def __init__(self, blueprint: Blueprint):
        self.where = blueprint.where
        self.tensors: list[Tensor] = []
        self.nodes: list[Node] = []
        self.params: dict[str, Param] = {}
        self.layer_outputs: dict[str, int] = {}
        self.producer: dict[int, Layer] = {}

    def tensor(self, name: str, shape: Shape) -> int:
        self.tensors.append(Tensor(name, shape))
        return len(self.tensors) - 1

    def shape(self, tensor: int) -> Shape:
        return self.tensors[tensor].shape

    def layer(self, layer: Layer, x: int, name: str) -> int:
        """Add one blueprint layer, an operator or a pattern; returns the tensor it puts out."""
        if name in RESERVED:
            raise UserError(f"{layer.where}: the name {name!r} is kept for {RESERVED[name]}.\n  Give it another name.")
        if name in self.layer_outputs:
            raise UserError(f"{layer.where}: the name {name!r} is taken by an earlier layer.\n  Give it another name.")
        pattern = PATTERNS.get(layer.type)
        y = pattern(self, layer, x, name) if pattern else self.operator(layer, layer.type, layer.fields, (x,), name)
        self.layer_outputs[name] = y
        self.producer[y] = layer
        return y

    def chain(self, layers: Sequence[Layer], x: int, prefix: str) -> int:
        for i, layer in enumerate(layers):
            x = self.layer(layer, x, layer.name or f"{prefix}.{i}")
        return x

    def operator(self, layer: Layer, op_name: str, fields: dict[str, Any], inputs: tuple[int, ...], name: str) -> int:
        """Add one operator, and behind it its activation as a node of its own (fuse.py joins them)."""
        module, x = OPS[op_name], self.shape(inputs[0])
        given = {k: v for k, v in fields.items() if k not in ("activation", "alpha", "padding")}
        if op_name == "activation":
            given.update({k: fields[k] for k in ("activation", "alpha") if k in fields})
        given |= self.padding(op_name, fields, x)
        try:
            attrs = make_attrs(module.OP, given)
            y = tuple(module.out_shape(attrs, *(self.shape(t) for t in inputs)))
        except ShapeError as error:
            sentence, _, remedy = str(error).partition("\n")
            raise UserError(f"{layer.where}: {sentence}" + (f"\n  {remedy}" if remedy else "")) from None
        except ValueError as error:
            raise UserError(f"{layer.where}: {error}.") from None
        self.check_inferred(layer, module.OP, fields, inputs[0])
        self.check_algorithm(layer, attrs, fields)
        activation = fields.get("activation", "none") if op_name != "activation" else "none"
        params = self.add_params(layer, module.OP, attrs, x, name, activation, fields)
        out = self.tensor(name, y)
        self.nodes.append(
            Node(name, op_name, attrs, inputs, out, params, name.split(".")[0], fields.get("algorithm", "auto"))
        )
        if activation == "none":
            return out
        act = make_attrs(OPS["activation"].OP, {"activation": activation, "alpha": fields.get("alpha", 0.01)})
        self.tensors[out] = Tensor(f"{name}.linear", y)
        after = self.tensor(name, y)
        self.nodes.append(Node(f"{name}.{activation}", "activation", act, (out,), after, {}, name.split(".")[0]))
        return after

    @staticmethod
    def check_algorithm(layer: Layer, attrs: Attrs, fields: dict[str, Any]) -> None:
        """Winograd's formulas exist for 3 x 3 taps side by side."""
        if fields.get("algorithm") != "winograd":
            return
        found = (tuple(attrs.kernel_size), tuple(attrs.stride), tuple(attrs.dilation), attrs.groups)
        if found != ((3, 3), (1, 1), (1, 1), 1):
            (kh, kw), (sh, sw), (dh, dw), groups = found
            raise UserError(
                f"{layer.where}: algorithm is winograd, which needs a 3 x 3 kernel with stride, dilation and groups 1, "
                f"not {kh} x {kw} with stride {sh} x {sw}, dilation {dh} x {dw}, groups {groups}.\n"
                '  Write "algorithm": "auto", or leave it out.'
            )

    @staticmethod
    def padding(op_name: str, fields: dict[str, Any], x: Shape) -> dict[str, Any]:
        """padding as numbers: "same" keeps ceil(size / stride) positions, "valid" adds nothing."""
        padding = fields.get("padding")
        if padding is None:
            return {}
        if padding == "valid":
            return {"padding": 0}
        if padding != "same" or len(x) != 3:
            return {"padding": 0 if padding == "same" else padding}

        def pair(key: str, default: int) -> list[int]:
            value = fields.get(key, default)
            items = list(value) if isinstance(value, (list, tuple)) else [value]
            return items * 2 if len(items) == 1 else items

        kernel, dilation = pair("kernel_size", 1), pair("dilation", 1)
        stride = pair("stride", 1) if "stride" in fields or "pool" not in op_name else kernel
        (top, bottom), (left, right) = (
            same_padding(x[i], kernel[i], stride[i], dilation[i]) for i in (0, 1)
        )
        return {"padding": [top, left, bottom, right]}

    def add_params(
        self, layer: Layer, op: Any, attrs: Attrs, x: Shape, name: str, activation: str, fields: dict[str, Any]
    ) -> dict[str, str]:
        roles = {}
        for w in op.weights:
            if w.needs and not getattr(attrs, w.needs):
                continue
            shape = tuple(w.shape(attrs, x))
            init = resolve_init(fields.get("weight_init", "auto"), activation) if w.init == "auto" else w.init
            param = Param(
                f"{name}.{w.name}",
                shape,
                init,
                w.fans(attrs, x) if w.fans else (prod(shape), prod(shape)),
                w.trainable,
                w.decay,
                name.split(".")[0],
            )
            self.params[param.name] = param
            roles[w.name] = param.name
        return roles

    def check_inferred(self, layer: Layer, op: Any, fields: dict[str, Any], x: int) -> None:
        """in_features and the like may be left out; where given they must be what the layer before puts out."""
        for key, axis in op.inferred:
            found, given = self.shape(x)[axis], fields.get(key)
            if given is None or given == found:
                continue
            before = self.producer.get(x)
            source = f"{_place(before)} gives" if before else "the input has"
            flat = self.flattened(before, x)
            detail = f" ({'*'.join(map(str, flat))})" if flat else ""
            hint = self.remedy(given, flat) or f"Write {found}, or leave {key} out: it is inferred."
            raise UserError(f"{layer.where}: {key} is {given}, but {source} {found}{detail}.\n  {hint}")

    def flattened(self, before: Layer | None, x: int) -> tuple[int, ...] | None:
        """(C, H, W) of the image that a flatten right before this layer turned into a row."""
        if before is None or before.type != "flatten":
            return None
        source = next(n for n in self.nodes if n.output == x).inputs[0]
        shape = self.shape(source)
        return (shape[2], shape[0], shape[1]) if len(shape) == 3 else None

    def remedy(self, wanted: int, flat: tuple[int, ...] | None) -> str | None:
        """What would make the numbers meet: another pool before the flatten, or one pool less."""
        if flat is None:
            return None
        C, H, W = flat
        pools = sum(n.op == "maxpool2d" for n in self.nodes)
        for more in (1, 2, 3):
            h, w = H >> more, W >> more
            if h and w and wanted == C * h * w:
                which = {0: "a", 1: "a second", 2: "a third"}.get(pools, "another") if more == 1 else f"{more} more"
                return f"{wanted} is {C}*{h}*{w}: {which} maxpool2d with stride 2 before the flatten would give it."
        if wanted == C:
            return f"{wanted} is the channels alone: a global_avg_pool instead of the flatten would give it."
        if pools and wanted == C * 4 * H * W:
            return f"{wanted} is {C}*{2 * H}*{2 * W}: one maxpool2d less would give it."
        return None


def _place(layer: Layer) -> str:
    """ "layers[3] (flatten)" of a layer's full address."""
    found = re.search(r"layers\[.*\)", layer.where)
    return found.group(0) if found else layer.type
