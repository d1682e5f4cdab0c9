"""TFLite models, read without any library. What hangs on no input (shapes of a dynamic batch and the like) is
calculated here; each remaining operator has a function in tflite_nodes.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from litenet.trainer.errors import UserError

from .builder import Builder, Value
from .foreign import MALFORMED, Foreign, Place, Port, shape_text
from .tables import Table, TruncatedError
from .tflite_node import BUILTIN, CALCULATED, TfliteNode
from .tflite_nodes import HANDLERS, INSTEAD

TYPES = {0: "<f4", 1: "<f2", 2: "<i4", 3: "u1", 4: "<i8", 6: "?", 7: "<i2", 9: "i1", 10: "<f8"}
NAMES = {3: "uint8", 7: "int16", 9: "int8"}
QUANTISED = ("QUANTIZE", "FAKE_QUANT")


def read(path: Path, input_shape: tuple[int, ...] | None = None) -> Foreign:
    """The model as our graph. input_shape: the source's, without the batch, where the file leaves it open."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise UserError(f"{path} does not exist.\n  Check the path of the model.") from None
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}).") from None
    if data[4:8] != b"TFL3":
        raise UserError(f"{path} is no TFLite model: the mark TFL3 is missing at byte 4.\n  Get the file again.")
    try:
        return _read(path, data, input_shape)
    except (TruncatedError, *MALFORMED):
        raise UserError(f"{path} is damaged or cut off: an offset in it leads astray.\n  Get the file again.") from None


def _read(path: Path, data: bytes, input_shape: tuple[int, ...] | None) -> Foreign:
    model = Table.root(data)
    graphs, codes, buffers = model.tables(2), [_code(t) for t in model.tables(1)], model.tables(4)
    if len(graphs) != 1:
        raise UserError(f"{path} has {len(graphs)} subgraphs; one is expected.\n  Convert it without control flow.")
    graph = graphs[0]
    tensors, b = graph.tables(0), Builder()
    if len(graph.ints(1)) != 1:
        names = ", ".join(tensors[i].string(3) for i in graph.ints(1)) or "none"
        raise UserError(f"{path} has {len(graph.ints(1))} inputs ({names}); one is expected.")
    env: dict[int, Value | np.ndarray | None] = {-1: None}
    for i, t in enumerate(tensors):
        constant = _constant(t, buffers)
        if constant is not None:
            env[i] = constant
    _refuse_quantised(path, tensors, graph, codes, set(env))
    rounded = any(t.whole(1, "b") in NAMES for i, t in enumerate(tensors) if i in env)
    source = _input(path, tensors[graph.ints(1)[0]], input_shape)
    x = b.input(source.shape, source.order)
    env[graph.ints(1)[0]] = x
    for i, op in enumerate(graph.tables(3)):
        node = _node(path, op, codes, tensors, env, i)
        b.place = node.place
        try:
            found = _calculate(b, node)
        except MALFORMED as error:
            node.place.refuse(f"its options or constants do not hold together ({error})")
        env.update(zip(op.ints(2), found, strict=False))
    ports: list[Port] = []
    outs: list[int] = []
    for k in graph.ints(2):
        value, name = env.get(k), tensors[k].string(3)
        b.place = Place(str(path), name, "output")
        if not isinstance(value, Value):
            b.place.refuse("it does not depend on the input")
        out = b.shaped(value)
        if out in {x.tensor, *outs}:
            out = b.node("activation", [out], {"activation": "none"})
        ports.append(Port(name, value.shape, tuple(range(len(b.shape(out)) + 1))))
        outs.append(out)
    return Foreign(
        b.graph(path.stem, x.tensor, outs), b.weights, source, tuple(ports), "TFLite", str(path),
        lambda samples: run(path, source.shape, samples), rounded,
    )  # fmt: skip


def _code(t: Table) -> str:
    number = max(t.whole(0, "b"), t.whole(3))  # old files have only the first, new ones the second
    return t.string(1) if number == 32 else BUILTIN.get(number, f"builtin operator {number}")


def _refuse_quantised(path: Path, tensors: list[Table], graph: Table, codes: list[str], constants: set[int]) -> None:
    """Weights may be int8 where all that is calculated is float: they are turned into floats."""
    used = {k for op in graph.tables(3) for k in (*op.ints(1), *op.ints(2)) if k not in constants}
    kinds = {NAMES[t.whole(1, "b")] for i, t in enumerate(tensors) if i in used and t.whole(1, "b") in NAMES}
    ops = {codes[op.whole(0, "I")] for op in graph.tables(3)} & set(QUANTISED)
    if kinds or ops:
        what = ", ".join(sorted(kinds | ops))
        raise UserError(f"{path} is a quantised model ({what}); only float models can be imported.")


def _constant(t: Table, buffers: list[Table]) -> np.ndarray | None:
    kind, shape = t.whole(1, "b"), t.ints(0)
    number = t.whole(2, "I")
    if kind not in TYPES or number >= len(buffers):
        return None
    data = buffers[number].array(0, "u1").tobytes()
    dtype = np.dtype(TYPES[kind])
    if number == 0 or not data:
        return None
    if len(data) != dtype.itemsize * int(np.prod(shape, dtype=np.int64)):
        raise TruncatedError
    found = np.frombuffer(data, dtype).reshape(shape)
    quantised = t.table(4)
    scale = quantised.array(2, "<f4") if quantised is not None and kind in NAMES else np.zeros(0)
    if quantised is not None and scale.size:
        axis, zero = quantised.whole(6), quantised.array(3, "<i8")
        if scale.size > 1 and (axis >= len(shape) or scale.size != shape[axis] or zero.size != scale.size):
            raise TruncatedError
        along = [-1 if k == axis else 1 for k in range(len(shape))] if scale.size > 1 else [1] * len(shape)
        steps = found.astype(np.float64) - (zero.reshape(along) if zero.size == scale.size else 0)
        return (steps * scale.astype(np.float64).reshape(along)).astype(np.float32)
    return found.astype(np.float32) if dtype.kind == "f" else found


def _input(path: Path, t: Table, wanted: tuple[int, ...] | None) -> Port:
    name, shape = t.string(3), t.ints(0)
    signature = t.ints(7) or shape
    if t.whole(1, "b") != 0:
        raise UserError(f"{path}: its input {name} is not of float32; only float models can be imported.")
    if wanted is not None:
        if len(shape) != len(wanted) + 1 or any(s not in (-1, w) for s, w in zip(signature[1:], wanted, strict=True)):
            raise UserError(
                f"{path}: --input-shape {','.join(map(str, wanted))} does not go with {name} {tuple(signature)}."
            )
        shape = [1, *wanted]
    elif any(s < 0 for s in signature[1:]):
        raise UserError(
            f"{path}: its input {name} has shape {tuple(signature)}, which is open.\n"
            "  Say what it is, without the batch: --input-shape 224,224,3"
        )
    if len(shape) < 2 or (shape[0] != 1 and signature[0] != -1):
        raise UserError(f"{path}: its input {name} has shape {tuple(shape)}; a batch of 1 in front is expected.")
    return Port(name, (1, *shape[1:]), tuple(range(len(shape))))


def _node(path: Path, op: Table, codes: list[str], tensors: list[Table], env: dict[int, Any], i: int) -> TfliteNode:
    name, ins, outs = codes[op.whole(0, "I")], op.ints(1), op.ints(2)
    inputs = [env.get(k) for k in ins]
    shapes = tuple(shape_text(v.shape) for v in inputs if v is not None)
    label = tensors[outs[0]].string(3).split(";")[0] if outs else f"{name}{i}"
    place = Place(str(path), label, name, shapes)
    for k in ins:
        if k not in env:
            place.refuse(f"its input {tensors[k].string(3)!r} is made by no operator before it")
    return TfliteNode(place, name, inputs, op.table(4) or Table(b"\4\0\4\0\4\0\0\0", 4), len(outs))


def _calculate(b: Builder, node: TfliteNode) -> list[Any]:
    values = [v for v in node.inputs if isinstance(v, Value)]
    if node.op == "SHAPE" and values:
        return [np.array(values[0].shape, np.int32)]
    if not values and node.op in CALCULATED:
        return [np.asarray(CALCULATED[node.op](node))]
    handler = HANDLERS.get(node.op)
    if handler is None or not values:
        what = "calculates with constants alone" if handler else f"the operator {node.op} is not known here"
        node.place.refuse(what, INSTEAD.get(node.op, "docs/import.md lists what is; convert the model without it."))
    found = handler(b, node)
    return found if isinstance(found, list) else [found]


def interpreter() -> tuple[Any, str] | None:
    """LiteRT's or TFLite's interpreter class and its name, whichever is installed."""
    try:
        from ai_edge_litert.interpreter import Interpreter

        return Interpreter, "LiteRT"
    except ImportError:
        pass
    try:
        from tflite_runtime.interpreter import Interpreter

        return Interpreter, "TFLite"
    except ImportError:
        return None


def run(path: Path, shape: tuple[int, ...], samples: np.ndarray) -> tuple[list[np.ndarray], str] | None:
    """The source's own outputs for samples (N, ...), one at a time; None where nothing is installed that runs it."""
    found = interpreter()
    if found is None:
        return None
    try:
        net = found[0](model_path=str(path), num_threads=1)
        net.resize_tensor_input(net.get_input_details()[0]["index"], list(shape))
        net.allocate_tensors()
    except (RuntimeError, ValueError):  # it does not take the model
        return None
    at, outs = net.get_input_details()[0]["index"], [d["index"] for d in net.get_output_details()]
    rows: list[list[np.ndarray]] = [[] for _ in outs]
    for x in samples:
        net.set_tensor(at, x[None])
        net.invoke()
        for row, out in zip(rows, outs, strict=True):
            row.append(np.array(net.get_tensor(out), np.float32)[None])
    return [np.concatenate(row) for row in rows], found[1]
