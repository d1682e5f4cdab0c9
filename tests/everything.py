"""A tiny model that uses what the format has: two outputs, a residual, in-place operators, a flatten whose input
lives on, a picture as input, golden frames. The arena, drawn out (bytes down, operators across):

              conv act  dw  add pool flat lin  gap norm soft
     0 .. 320  t1   t1/t2 t2  t2  t5   t5/t6 t6  t5  .    .
   320 .. 640  .    .    t3  t3/t4 t4  .    .    .    .    .
    64 ..  80  .    .    .   .    .    .    .    t8  t8/t9 t9
"""

from __future__ import annotations

from typing import Any

import numpy as np

from litenet.exporter.format import Golden, Model, OpRec, Preprocessing, TensorRec, op_checksum
from litenet.exporter.pack import pack, packed_type
from litenet.trainer.ops import OPS, Attrs, make_attrs

STEPS: list[tuple[str, tuple[int, ...], int, dict[str, Any]]] = [
    ("conv2d", (0,), 1, {"out_channels": 4, "kernel_size": 3, "padding": 1, "activation": "relu"}),
    ("activation", (1,), 2, {"activation": "silu"}),
    ("depthwise_conv2d", (2,), 3, {"kernel_size": 3, "padding": 1}),
    ("add", (3, 2), 4, {"activation": "leaky_relu", "alpha": 0.25}),
    ("maxpool2d", (4,), 5, {"kernel_size": 2, "stride": 2}),
    ("flatten", (5,), 6, {}),
    ("linear", (6,), 7, {"out_features": 3}),
    ("global_avg_pool", (5,), 8, {}),
    ("layernorm", (8,), 9, {}),
    ("softmax", (9,), 10, {}),
]
OFFSETS = {1: 0, 2: 0, 3: 320, 4: 320, 5: 0, 6: 0, 8: 64, 9: 64}
INPUT = (5, 4, 1)
PICTURE = Preprocessing("area", "letterbox", "gray", "auto", mean=(33.5,), std=(78.25,), pad=7)


def weights_of(op: str, a: Attrs, x: tuple[int, ...], rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Random weights of one operator, float32, as training would hand them over."""
    out = {}
    for w in OPS[op].OP.weights:
        if w.needs is None or getattr(a, w.needs):
            values = rng.standard_normal(w.shape(a, x)).astype(np.float32)
            out[w.name] = np.abs(values) + np.float32(0.5) if w.name == "running_var" else values
    return out


def everything(half: bool = False, seed: int = 1) -> tuple[Model, dict[str, Any]]:
    """The model, and its tensors' values by definition for its first golden input."""
    rng = np.random.default_rng(seed)
    frames = [rng.integers(0, 256, INPUT, np.uint8) for _ in range(2)]
    shapes, ops, weights = {0: INPUT}, [], []
    for op, inputs, output, given in STEPS:
        a = make_attrs(OPS[op].OP, given)
        kind = packed_type(OPS[op].OP, "f16" if half else "f32")
        w = weights_of(op, a, shapes[inputs[0]], rng)
        ops.append(OpRec(op, inputs, output, a, pack(op, a, w, kind), kind))
        weights.append(w)
        shapes[output] = tuple(OPS[op].out_shape(a, *(shapes[i] for i in inputs)))
    tensors = [
        TensorRec(shapes[i], offset=OFFSETS.get(i, 0), input=i == 0, output=i in (7, 10)) for i in range(len(shapes))
    ]
    runs = [definition(ops, weights, frame, half) for frame in frames]
    golden = Golden(
        "frame",
        frames,
        [np.concatenate([values[7], values[10]]) for values in runs],
        [[op_checksum(values[op.output]) for op in ops] for values in runs],
    )
    meta = {"name": "everything", "labels": ["é", "b", "c"], "layers": [f"{op}{i}" for i, (op, *_) in enumerate(STEPS)]}
    return Model(tensors, ops, PICTURE, meta, golden), runs[0]


def definition(ops, weights, frame, half) -> dict[int, np.ndarray]:
    """Every tensor for one frame, in float64."""
    values = {0: (frame.astype(np.float64) - PICTURE.mean[0]) / PICTURE.std[0]}
    for op, given in zip(ops, weights, strict=True):
        spec = OPS[op.op]
        present = [given.get(w.name) for w in spec.OP.weights]
        if half and packed_type(spec.OP, "f16") == "f16":
            present = [None if w is None else w.astype(np.float16) for w in present]
        present = [None if w is None else w.astype(np.float64) for w in present]
        values[op.output] = spec.forward(op.attrs, *(values[i][None] for i in op.inputs), *present)[0]
    return values
