"""Writes docs/blueprint.md from what the blueprint reader checks with, so that page and reader cannot differ.

python -m litenet.trainer.reference DOCS/blueprint.md [--check]
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from math import inf
from pathlib import Path
from typing import Any

from . import losses, optimizers, schedules
from .blueprint import EARLY_STOPPING, EMBEDDING, PREPROCESSING, TRAIN
from .blueprint_layers import PATTERNS, SHORTHANDS, TYPES, layer_fields
from .data import augment
from .fields import Field
from .init import KINDS
from .ops import OPS, activations
from .ops.spec import ALPHA

INTRO = """# The blueprint

A JSON or YAML text that is the whole net and how to train it. This page is made from the tables the reader checks with.

```json
{
  "name": "mnist_mlp",
  "input_shape": [784],                     // [channels, height, width], [steps, values] or [values]
  "layers": [
    {"type": "linear", "out_features": 256, "activation": "relu"},
    {"type": "linear", "out_features": 10}
  ],
  "loss": "cross_entropy",                  // a name, or {"type": ..., its settings}
  "optimizer": {"type": "sgd", "momentum": 0.9},
  "learning_rate": 0.05, "epochs": 5, "batch_size": 64
}
```

Comments (`//`, `/* */`, `#`), trailing commas and products such as `64*7*7` are understood. What a layer takes in is
inferred; `in_features`, `in_channels` are checked where they are given. Sizes are one number or a list: 3 or `[3, 5]`
(height, width); `padding` is one number, `[height, width]`, `[top, left, bottom, right]`, `"same"` (as many
positions as ceil(size / stride)) or `"valid"` (none). A key whose value is null counts as not written. Further keys of
the blueprint: `name`, `description`, `labels` (names of the classes).
"""

NOTES = {
    "residual": "y = activation(layers(x) + shortcut(x)). `layers`: a list; `shortcut`: absent (x itself), "
    '`"projection"` (a 1x1 convolution that fits, with a batchnorm if the layers have one) or a list of layers.',
    "dual_path": "y = layernorm(W2 act(W1 x + b1) + b2 + side(x)).",
    "inverted_residual": "1x1 to expand times the channels, depthwise, 1x1 back; x is added where the shapes allow it.",
}


LINKS = {"activation": "[an activation](#activations)", "weight_init": "[a way to start](#weights)"}


def page() -> str:
    """The whole page."""
    parts = [INTRO, "## Layers\n"]
    for kind in (t for t in TYPES if t not in SHORTHANDS):
        note = NOTES[kind] if kind in PATTERNS else f"`{OPS[kind].OP.summary}`"
        own = {} if kind in PATTERNS else {attr.name: attr.default for attr in (*OPS[kind].OP.attrs, ALPHA)}
        parts.append(f"### {kind}\n\n{note}\n\n{_table(layer_fields(kind), own)}")
    names = ", ".join(activations.IDS)
    parts.append(
        f"### Activations\n\n{names}.\n\nThey are the field `activation` of the layers that have one; "
        '`{"type": "relu"}` is a layer of its own. Formulas: `trainer/ops/activations.py`.\n'
    )
    kinds = ", ".join(f"`{kind}`" for kind in KINDS)
    parts.append(
        f"### Weights\n\n{kinds}.\n\n`auto` is `kaiming` before a relu and its like, `xavier` elsewhere; `kaiming` is "
        "`kaiming_normal`, `xavier` is `xavier_uniform`. Formulas: `trainer/init.py`.\n"
    )
    for title, table in (("Losses", losses.FIELDS), ("Optimizers", optimizers.FIELDS), ("Schedules", schedules.FIELDS)):
        parts.append(f"## {title}\n")
        parts += [f"**{name}**\n\n{_table(fields)}" if fields else f"**{name}**\n" for name, fields in table.items()]
    parts.append(f"## Training\n\nThe command line overrules these.\n\n{_table(TRAIN)}")
    parts.append(
        "**early_stopping**: a patience, `true`, or a mapping\n\n" + _table(EARLY_STOPPING)
        + "\n**freeze**: names of layers whose weights stay as they are, with `*` and `?` as in file names; a name "
        "that begins with `!` is taken out again: `[\"*\", \"!head\"]`\n"
        "\n**rates**: a mapping from such a name to what the layers' learning rate is multiplied by; the last that "
        "fits counts: `{\"*\": 0.1, \"head\": 1}`\n"
        + "\n**embedding**: a layer's name, or a mapping; the net then learns how like two pictures are\n\n"
        + _table(EMBEDDING)
        + "\n**augmentation**: what happens to the pictures of a batch, anew each time\n\n" + _table(augment.FIELDS)
        + f"\n## preprocessing\n\nHow a picture becomes the input, here and on the device.\n\n{_table(PREPROCESSING)}"
    )  # fmt: skip
    return "\n".join(parts)


def _table(fields: Iterable[Field], defaults: dict[str, Any] | None = None) -> str:
    rows = [f"| `{f.name}` | {_kind(f)} | {_default(f, defaults or {})} | {f.doc} |" for f in fields]
    return "\n".join(["| key | value | default | |", "|---|---|---|---|", *rows]) + "\n" if rows else "No keys.\n"


def _kind(f: Field) -> str:
    words = LINKS.get(f.name) or ", ".join(f"`{w}`" for w in f.words)
    if f.kind in ("choice", "flag", "text"):
        return words or {"flag": "true or false", "text": "text"}[f.kind]
    what = {"whole": "whole number", "wholes": "whole numbers", "number": "number", "numbers": "numbers"}[f.kind]
    limits = [f"from {_number(f.lo)}" if f.lo > -inf else "", f"to {_number(f.hi)}" if f.hi < inf else ""]
    return " ".join([what, *(part for part in limits if part)]) + (f", or {words}" if words else "")


def _number(value: float) -> str:
    return f"{int(value):,}" if value == int(value) and abs(value) < 1e15 else f"{value:g}"


def _default(f: Field, defaults: dict[str, Any]) -> str:
    if f.required:
        return "must be given"
    value = defaults.get(f.name) if f.default is None else f.default
    if f.kind == "flag" and value is not None:
        return "true" if value else "false"
    return "" if value is None else str(value)


def main(argv: list[str] | None = None) -> int:
    arguments = list(sys.argv[1:] if argv is None else argv)
    path, check = Path(arguments[0]), "--check" in arguments
    fresh = path.exists() and path.read_text(encoding="utf-8") == page()
    if check:
        print(f"{path} is {'fresh' if fresh else 'stale: run make gen'}")
        return 0 if fresh else 1
    path.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
