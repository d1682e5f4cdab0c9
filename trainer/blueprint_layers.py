"""The layers of a blueprint: which keys each type takes, as the operators and the patterns have them.

Nothing is inferred here: the graph knows shapes, this module knows words.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import Any

from . import blueprint_words as words
from . import init
from .blueprint_text import Node, fail
from .fields import Field, check, check_all, entries_of, show, unknown
from .ops import OPS, Attr, activations
from .ops.spec import ALPHA

ALGORITHMS = ("auto", "direct", "implicit", "im2col", "winograd")
FEATURES, CHANNELS = 1 << 24, 1 << 20  # most of a layer


@dataclass(frozen=True)
class Layer:
    """One checked layer. `fields` is what was written, each value in its kind; patterns have their defaults.

    {"type": "relu"} has become an "activation". A residual has its body in `layers`, and a shortcut made of
    layers in `shortcut`; where the blueprint asks for a projection, fields["shortcut"] says so.
    """

    type: str
    where: str = field(compare=False)  # "mnist_cnn.json: layers[4] (linear), line 12"
    name: str | None
    fields: dict[str, Any]
    layers: tuple[Layer, ...] = ()
    shortcut: tuple[Layer, ...] | None = None
    line: int = field(default=0, compare=False)

    def plain(self) -> dict[str, Any]:
        """As JSON."""
        out = {"type": self.type} | ({} if self.name is None else {"name": self.name}) | self.fields
        if self.layers:
            out["layers"] = [layer.plain() for layer in self.layers]
        if self.shortcut is not None:
            out["shortcut"] = [layer.plain() for layer in self.shortcut]
        return out


def _field(attr: Attr) -> Field:
    """A Field that takes what make_attrs takes, and for a padding also "same" and "valid"."""
    flag = (attr.type, attr.lo, attr.hi) == ("u8", 0, 1)
    number = "number" if attr.type == "f32" else "whole"
    return Field(
        attr.name,
        "flag" if flag else number + "s" * (attr.count > 1),
        attr.lo,
        attr.hi,
        required=attr.default is None,
        words=("same", "valid") if attr.name == "padding" else (),
        counts=(1, 2, 4) if attr.count == 4 else (1, attr.count),
        doc=attr.doc,
    )


def _activation(default: str | None = None, required: bool = False) -> Field:
    return Field(
        "activation",
        "choice",
        default=default,
        required=required,
        words=tuple(activations.IDS),
        doc="the function each value goes through",
        foreign=words.ACTIVATION,
    )


_WEIGHT_INIT = Field("weight_init", "choice", words=init.KINDS, doc="how the weights start")
PATTERNS: dict[str, tuple[Field, ...]] = {
    "residual": (_activation("none"), _field(ALPHA)),
    "dual_path": (
        Field("hidden_features", "whole", 1, FEATURES, doc="values inside; 4 times the input if absent"),
        _activation("gelu"),
        Field("side", "choice", default="linear", words=("linear", "identity"), doc="the second path"),
        _WEIGHT_INIT,
    ),
    "inverted_residual": (
        Field("out_channels", "whole", 1, CHANNELS, required=True, doc="channels of y"),
        Field("expand", "whole", 1, 64, default=6, doc="channels inside for each channel of the input"),
        Field("kernel_size", "wholes", 1, 255, default=3, counts=(1, 2), doc="taps of the window"),
        Field("stride", "wholes", 1, 255, default=1, counts=(1, 2), doc="positions between windows"),
        _activation("relu6"),
        Field("batchnorm", "flag", default=True, doc="whether a batchnorm follows each convolution"),
    ),
}  # fmt: skip
SHORTHANDS = tuple(name for name in activations.IDS if name != "none")  # {"type": "relu"}
_ALONE = (name for name, module in OPS.items() if not (module.OP.fused or module.OP.imported))
_LAYERS = (name for name in _ALONE if len(OPS[name].OP.inputs) == 1)
TYPES = (*_LAYERS, *PATTERNS, *SHORTHANDS)


@cache
def layer_fields(kind: str) -> tuple[Field, ...]:
    """The keys of a layer type, without type and name, and without the nested layers of a residual."""
    if kind in PATTERNS:
        return PATTERNS[kind]
    if kind in SHORTHANDS:
        return (_field(ALPHA),) if kind == "leaky_relu" else ()
    op = OPS[kind].OP
    found = [_field(attr) for attr in op.attrs]
    for name, _axis in op.inferred:
        found.append(Field(name, "whole", 1, FEATURES, doc="may be left out: the layer before decides it"))
    if op.activation:
        found += [_activation(required=kind == "activation"), _field(ALPHA)]
    if any(weight.init == "auto" for weight in op.weights):
        found.append(_WEIGHT_INIT)
    if kind == "conv2d":
        found.append(Field("algorithm", "choice", words=ALGORITHMS, doc="how the convolution is computed"))
    return tuple(found)


def read_layers(node: Node, where: str, path: str, names: dict[str, str]) -> tuple[Layer, ...]:
    """The layers of a list. `path` is where the list stands, such as layers[3].shortcut; `names` are those
    given so far, with the path of their layer."""
    if not isinstance(node.value, list) or not node.value:
        sentence = f"{path} is {show(node.plain())}, but a list of layers is expected"
        fail(
            f"{where}, line {node.line}",
            sentence,
            'Write ["flatten", {"type": "linear", "out_features": 10}].',
        )
    return tuple(_layer(item, where, f"{path}[{i}]", names) for i, item in enumerate(node.value))


def _layer(node: Node, where: str, path: str, names: dict[str, str]) -> Layer:
    """One layer: a mapping with a type, or the type alone."""
    at = f"{where}: {path}, line {node.line}"
    entries = {"type": node} if isinstance(node.value, str) else entries_of(node, "the layer", at)
    kind = _kind(entries, at)
    at = f"{where}: {path} ({kind}), line {node.line}"
    name = _name(entries, at, path, names)
    if kind != "residual":
        fields = _fields(kind, entries, at)
        return Layer("activation" if kind in SHORTHANDS else kind, at, name, fields, line=node.line)
    body, side = entries.pop("layers", None), entries.pop("shortcut", None)
    fields = _fields(kind, entries, at)
    if body is None:
        fail(at, "layers is missing", 'Add "layers": [...], what the shortcut goes around.')
    layers, shortcut = read_layers(body, where, f"{path}.layers", names), None
    if side is not None and isinstance(side.value, str):
        fields["shortcut"] = check(Field("shortcut", "choice", words=("projection",)), side, at)
    elif side is not None:
        shortcut = read_layers(side, where, f"{path}.shortcut", names)
    return Layer(kind, at, name, fields, layers, shortcut, node.line)


def _kind(entries: dict[str, Node], at: str) -> str:
    """The type of a layer, taken out of its entries."""
    if "type" not in entries:
        first = next(iter(entries), "")
        near = words.suggest(first, TYPES, words.LAYER_TYPE) if first else None
        remedy = f'Write {{"type": "{near or "linear"}", ...}}. Types: {", ".join(TYPES)}.'
        fail(at, "the layer has no type", remedy)
    kind = check(Field("type", "text", doc="the name of a kind of layer"), entries.pop("type"), at)
    if kind in OPS and len(OPS[kind].OP.inputs) > 1:
        fail(
            at,
            f"{kind} joins two paths, but a list of layers is one path",
            'Write {"type": "residual", "layers": [...]}: it adds its input to what its layers give.',
        )
    if kind not in TYPES:
        unknown(at, "the type", kind, TYPES, words.LAYER_TYPE, "Types:")
    return kind


def _fields(kind: str, entries: dict[str, Node], at: str) -> dict[str, Any]:
    """The fields of a layer, checked. A shorthand gets its activation, a pattern its defaults."""
    if "activation" in entries and entries["activation"].value == "softmax":
        fail(
            at,
            "softmax is a layer of its own, not an activation",
            'Put {"type": "softmax"} after this layer, unless the loss is cross_entropy, which contains it.',
        )
    known = layer_fields(kind)
    also = ("layers", "shortcut") if kind == "residual" else ()
    values = {f.name: f.default for f in known if f.default is not None}
    if kind in SHORTHANDS:
        values["activation"] = kind
    values |= check_all(known, entries, at, kind, words.LAYER_KEY, ("type", "name", *also))
    activation = values.get("activation", "none")
    if "alpha" in values and activation != "leaky_relu":
        remedy = "alpha is the slope of leaky_relu below zero; other activations have none."
        fail(at, f"alpha is given, but the activation is {activation}", remedy)
    return values


def _name(entries: dict[str, Node], at: str, path: str, names: dict[str, str]) -> str | None:
    """The name of a layer, if it has one, taken out of its entries. No two are alike."""
    if "name" not in entries:
        return None
    name = check_name(entries.pop("name"), at, "_-")
    if name in names:
        fail(at, f"the name {show(name)} is already that of {names[name]}", "Give each layer its own name.")
    names[name] = path
    return name


def check_name(node: Node, at: str, signs: str) -> str:
    """A name of letters, digits and `signs`: it becomes part of a file name or of a key in an archive."""
    name = check(Field("name", "text"), node, at)
    if len(name) > 64 or not all(c.isalnum() or c in signs for c in name):
        fail(
            at,
            f"name is {show(name)}, but at most 64 letters, digits and {' '.join(signs)} are expected",
            "Put _ for other characters.",
        )
    return name
