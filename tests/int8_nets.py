"""Nets of int8 operators with random numbers, as files and as their NumPy definition (trainer/int8)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from bins import RGB

from litenet.exporter import format as writer
from litenet.exporter import pack, pack_int8
from litenet.trainer.int8 import ops as definition
from litenet.trainer.int8.scheme import FINE, ONE, PROBABILITIES, Numbers, Quant, picture
from litenet.trainer.ops import OPS, Attrs, make_attrs, parameters

SUMS = ("linear", "conv2d", "depthwise_conv2d", "embed_projection")


class Net:
    """add() operators; tensor 0 is the input. quant None: a float32 tensor. fine: half of the operators that requantise
    have a shift."""

    def __init__(self, shape: tuple[int, ...], quant: Quant | None, seed: int = 0, fine: bool = True):
        self.rng, self.shifts = np.random.default_rng(seed), np.random.default_rng([seed, 1]) if fine else None
        self.shapes, self.quants = [tuple(shape)], [quant]
        self.nodes: list[tuple[str, list[int], Attrs, Numbers | None, dict[str, np.ndarray]]] = []

    def quant(self) -> Quant:
        """Any scale and zero point."""
        return Quant(float(np.float32(self.rng.uniform(0.01, 0.1))), int(self.rng.integers(-128, 128)))

    def add(self, op: str, *inputs: int, numbers: dict[str, int] | None = None, **given: Any) -> int:
        """Append an operator on these tensors, or the last one; returns the tensor it writes."""
        at = list(inputs) or [len(self.shapes) - 1]
        a = make_attrs(OPS[op].OP, given)
        shapes = [self.shapes[i] for i in at]
        self.shapes.append(tuple(OPS[op].out_shape(a, *shapes)))
        x = self.quants[at[0]]
        if op == "quantize":
            y: Quant | None = self.quant()
        elif x is None or op == "dequantize":
            y = None
        else:
            y = x if "same" in OPS[op].OP.int8 else PROBABILITIES if op == "softmax" else self.quant()
        self.quants.append(y)
        n = None if y is None else self._numbers(op, numbers or {}, shapes[0])
        self.nodes.append((op, at, a, n, self._roles(op, a, shapes[0], n)))
        return len(self.shapes) - 1

    def _numbers(self, op: str, given: dict[str, int], x: tuple[int, ...]) -> Numbers:
        rng, uses = self.rng, OPS[op].OP.int8
        found: dict[str, int] = {}
        if "bounds" in uses and rng.random() < 0.25:
            found["lo"], found["hi"] = sorted(int(v) for v in rng.integers(-128, 128, 2))
        if "shift" in uses:
            found["shift"] = S = int(rng.integers(1, 25))
            most = min(1 << 21, 1 << S)
            found |= {k: int(rng.integers(-most, most + 1)) for k in ("m1", "m2") if k in uses}
        if "fine" in uses and self.shifts is not None:
            found["shift"] = max(0, int(self.shifts.integers(-FINE, FINE + 1)))
        if "requant" in uses:
            most = 1 << 23 if op == "mul" else min((1 << 31) - 1, (1 << 33) // (x[0] * x[1]))
            found["m1"] = int(rng.integers(0, most))
        if "border" in uses:
            found["border"] = int(rng.integers(-128, 128))
        return Numbers(**(found | given))

    def _roles(self, op: str, a: Attrs, x: tuple[int, ...], n: Numbers | None) -> dict[str, np.ndarray]:
        rng, spec = self.rng, OPS[op].OP
        if n is None:
            return {
                w.name: (np.abs(v) + 0.5 if w.name == "running_var" else v).astype(np.float32)
                for w in spec.weights
                if w.needs is None or getattr(a, w.needs)
                for v in [rng.standard_normal(w.shape(a, x)) / 4]
            }
        if op in SUMS:
            w = rng.integers(-127, 128, spec.weights[0].shape(a, x)).astype(np.int8)
            if op in ("linear", "conv2d"):
                O, K = len(w), w[0].size
            else:
                O, K = w.shape[-1], w.size // w.shape[-1]
            spread = 74 * 74 * np.sqrt(K) * (x[2] if op == "embed_projection" else 1)
            M = (2.0 ** (31 + n.shift) * 10 ** rng.uniform(0, 2, O) / spread).clip(0, ONE).astype(np.int64)
            B = (rng.standard_normal(O) * spread).clip(-(2**30) + 1, 2**30 - 1).astype(np.int64)
            return {"weight": w, "bias": B.astype(np.int32), "multiplier": M.astype(np.int32)}
        if op in ("batchnorm", "prelu"):
            most = min(1 << 21, 2 << n.shift)
            M = rng.integers(-most, most + 1, x[-1]).astype(np.int32)
            far = min(100 << n.shift, (1 << 30) - 1)
            B = rng.integers(-far, far + 1, x[-1]).astype(np.int32)
            return {"multiplier": M} | ({"bias": B} if op == "batchnorm" else {})
        if op == "softmax":
            return {"table": definition.softmax_table(self.quants[-2])}
        if spec.int8_layout == "table":
            return {"table": rng.integers(-128, 128, 256).astype(np.int8)}
        return {}

    def factor(self, m: float) -> None:
        """Every channel of the last operator has this factor, below 1, or the largest that its shift allows."""
        _, _, _, n, roles = self.nodes[-1]
        roles["multiplier"][:] = min(ONE, int(m * 2.0 ** (31 + n.shift)))

    def values(self, x: np.ndarray) -> list[np.ndarray]:
        """Every tensor for one input, by definition, in its own type."""
        found = [x]
        for k, (op, inputs, a, n, roles) in enumerate(self.nodes):
            xs = [found[i][None] for i in inputs]
            y = self.quants[k + 1]
            if op == "linear":
                xs = [xs[0].reshape(1, *self.shapes[k + 1][:-1], -1)]
            if y is None and op != "dequantize":
                names = [p for p in parameters(OPS[op].forward) if p not in ("x", "x2")]
                out = OPS[op].forward(a, *xs, *(roles.get(p) for p in names))
            else:
                quants = [self.quants[i] for i in inputs]
                out = definition.forward(op, a, n or Numbers(), xs, quants, y, roles)
            found.append(np.ascontiguousarray(out[0].reshape(self.shapes[k + 1])))
        return found

    def input(self) -> np.ndarray:
        if self.quants[0] is None:
            return self.rng.standard_normal(self.shapes[0]).astype(np.float32)
        return self.rng.integers(-128, 128, self.shapes[0]).astype(np.int8)

    def model(self, outputs: tuple[int, ...] = (), offsets: dict[int, int] | None = None, golden: int = 0,
              frame: writer.Preprocessing | None = None, **metadata: Any) -> writer.Model:  # fmt: skip
        """outputs: tensors; none: the last. offsets: in the arena, where they are not one behind the other."""
        last = outputs or (len(self.shapes) - 1,)
        tensors, at = [], 0
        for i, (shape, q) in enumerate(zip(self.shapes, self.quants, strict=True)):
            kind, mine = "f32" if q is None else "i8", i > 0 and i not in last
            place = 0 if not mine else at if offsets is None else offsets[i]
            tensors.append(writer.TensorRec(shape, kind, place, i == 0, i in last, quant=q))
            at += -(-tensors[-1].bytes // 16) * 16 * mine
        ops = []
        for k, (op, inputs, a, n, roles) in enumerate(self.nodes):
            i8 = self.quants[k + 1] is not None
            block = pack_int8.pack(op, a, roles) if i8 else b"" if op == "dequantize" else pack.pack(op, a, roles)
            ops.append(writer.OpRec(op, inputs, k + 1, a, block, "i8" if i8 and block else "f32", numbers=n))
        metadata = {"layers": [f"{op}{k}" for k, (op, *_) in enumerate(self.nodes)]} | metadata
        made = writer.Model(tensors, ops, frame or writer.Preprocessing(), metadata)
        if not golden:
            return made
        xs = [self.input() for _ in range(golden)]
        runs = [self.values(x) for x in xs]
        kind = "f32" if self.quants[0] is None else "i8"
        return writer.Model(tensors, ops, made.preprocessing, metadata, writer.Golden(
            kind, xs, [tuple(v[t] for t in sorted(last)) for v in runs],
            [writer.checksums(made, v[1:]) for v in runs]))  # fmt: skip


def joined(values: list[np.ndarray]) -> bytes:
    """Outputs as ln_run writes them: each from the next multiple of 4 on; what is between is 0xFF in our drivers."""
    out = b""
    for v in values:
        out += b"\xff" * (-len(out) % 4) + v.tobytes()
    return out


STEPS = Quant(1 / 32, 3)  # of pictures


def pictures(fine: bool = True) -> Net:
    """Pictures of 12 x 10 colours to four scores, int8 from end to end."""
    made = Net((12, 10, 3), STEPS, seed=5, fine=fine)
    wide = {"lo": -128, "hi": 127}
    made.add("conv2d", out_channels=6, kernel_size=3, stride=2, activation="relu", numbers=wide)
    made.add("global_avg_pool", numbers=wide)
    made.add("linear", out_features=4, numbers=wide)
    return made


def picture_model(made: Net, **metadata: Any) -> bytes:
    """The file, with golden frames."""
    rng = np.random.default_rng(1)
    frames = rng.integers(0, 256, (2, *made.shapes[0]), np.uint8)
    plain = made.model(frame=RGB, **metadata)
    P, Q = picture(RGB.mean, RGB.std, made.quants[0])
    runs = [made.values(definition.frame(f[None], P, Q)[0]) for f in frames]
    sums = [writer.checksums(plain, v[1:]) for v in runs]
    golden = writer.Golden("frame", list(frames), [(v[-1],) for v in runs], sums)
    return writer.write(replace(plain, golden=golden))
