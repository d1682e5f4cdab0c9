"""TFLite models, read without any library. What hangs on no input (shapes of a dynamic batch and the like) is
calculated here; each remaining operator has a function in tflite_nodes.py."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from litenet.trainer.errors import UserError

from .builder import Builder, Value
from .foreign import MALFORMED, Foreign, Place, Port, shape_text
from .given import AGAIN, Given, Inside, Scaled, less_128, quant
from .tables import Table, TruncatedError
from .tflite_node import BUILTIN, CALCULATED, TfliteNode
from .tflite_nodes import HANDLERS, INSTEAD

TYPES = {0: "<f4", 1: "<f2", 2: "<i4", 3: "u1", 4: "<i8", 6: "?", 7: "<i2", 9: "i1", 10: "<f8"}
NAMES = {3: "uint8", 7: "int16", 9: "int8"}
WHOLE = (3, 9)  # types that can be whole numbers of a quantised model: uint8, int8
LAYERS = ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED")  # with weights and a bias


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
    given = Given() if _quantised(path, tensors, graph, codes, set(env)) else None
    rounded = given is None and any(t.whole(1, "b") in NAMES for i, t in enumerate(tensors) if i in env)
    source = _input(path, tensors[graph.ints(1)[0]], input_shape)
    x = b.input(source.shape, source.order)
    env[graph.ints(1)[0]] = x
    if given is not None:
        b.place = Place(str(path), source.name, "input")
        _mark(b, given, x, tensors[graph.ints(1)[0]])
    for i, op in enumerate(graph.tables(3)):
        node = _node(path, op, codes, tensors, env, i)
        b.place, first = node.place, len(b.nodes)
        constants = [_scaled(tensors[k], buffers) if k >= 0 else None for k in op.ints(1)] if given else []
        try:
            if given is not None and node.op in LAYERS:
                node = replace(node, inputs=_real(node, constants))
            found = _calculate(b, node)
            if given is not None:
                found = [
                    given.note(_mark(b, given, v, tensors[k]), str(k)) if isinstance(v, Value) else v
                    for k, v in zip(op.ints(2), found, strict=False)
                ]
                _remember(given, node, b.nodes[first:], constants)
        except MALFORMED as error:
            node.place.refuse(f"its options or constants do not hold together ({error})")
        env.update(zip(op.ints(2), found, strict=False))
    if given is not None:
        given.other = lambda samples: (run(path, source.shape, samples, True) or (None,))[0]
        given.inside = lambda samples: inside(path, source.shape, samples)
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
        lambda samples: run(path, source.shape, samples), rounded, given,
    )  # fmt: skip


def _code(t: Table) -> str:
    number = max(t.whole(0, "b"), t.whole(3))  # old files have only the first, new ones the second
    return t.string(1) if number == 32 else BUILTIN.get(number, f"builtin operator {number}")


def _quantised(path: Path, tensors: list[Table], graph: Table, codes: list[str], constants: set[int]) -> bool:
    """Whether it calculates in whole numbers. Weights alone may be int8 where all that is calculated is float: they
    are turned into floats."""
    used = {k for op in graph.tables(3) for k in (*op.ints(1), *op.ints(2)) if k not in constants}
    kinds = {t.whole(1, "b") for i, t in enumerate(tensors) if i in used}
    if "FAKE_QUANT" in {codes[op.whole(0, "I")] for op in graph.tables(3)} or 7 in kinds:
        what = NAMES[7] if 7 in kinds else "FAKE_QUANT"
        raise UserError(f"{path} is a quantised model ({what}); float and int8 models can be imported.")
    return not kinds.isdisjoint(WHOLE)


def _mark(b: Builder, given: Given, v: Value, t: Table) -> Value:
    """The value with the scale and zero point of the source's tensor; floats and shapes have none."""
    kind = t.whole(1, "b")
    if kind not in WHOLE:
        return v
    q = t.table(4)
    scale = q.array(2, "<f4") if q is not None else np.zeros(0)
    zero = q.array(3, "<i8") if q is not None else np.zeros(0)
    if scale.size != 1 or zero.size > 1:
        b.place.refuse(f"its {NAMES[kind]} values have {scale.size} scales; one is expected", AGAIN)
    return given.mark(b, v, quant(b.place, float(scale[0]), int(zero.sum()), kind == 3))


def _scaled(t: Table, buffers: list[Table]) -> Scaled | None:
    """A constant as it stands in the file; None for what is calculated."""
    steps, q = _steps(t, buffers), t.table(4)
    if steps is None or q is None or not q.array(2, "<f4").size:
        return None
    return Scaled(steps, q.array(2, "<f4"), q.array(3, "<i8"))


def _real(node: TfliteNode, constants: list[Scaled | None]) -> list[Any]:
    """The inputs of a layer, its bias in real numbers too."""
    bias = constants[2] if len(constants) > 2 else None
    if bias is None or bias.steps.dtype.kind != "i":
        return node.inputs
    return [*node.inputs[:2], (bias.steps * bias.scale.astype(np.float64)).astype(np.float32)]


def _remember(given: Given, node: TfliteNode, made: list[Any], constants: list[Scaled | None]) -> None:
    given.where.update({n.name: node.place for n in made})
    if node.op not in LAYERS:
        return
    weight = constants[1] if len(constants) > 1 else None
    if weight is None:
        node.place.refuse("its weights are no constant with a scale", AGAIN)
    bias = constants[2] if len(constants) > 2 else None
    if bias is None and len(node.inputs) > 2 and node.inputs[2] is not None:
        node.place.refuse("its bias has no scale", AGAIN)
    given.layer(node.place, made, weight, bias)


def _steps(t: Table, buffers: list[Table]) -> np.ndarray | None:
    """A constant in the file's numbers."""
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
    return np.frombuffer(data, dtype).reshape(shape)


def _constant(t: Table, buffers: list[Table]) -> np.ndarray | None:
    """A constant in real numbers, or in whole ones where it has no scale."""
    found, kind, shape = _steps(t, buffers), t.whole(1, "b"), t.ints(0)
    if found is None:
        return None
    quantised = t.table(4)
    scale = quantised.array(2, "<f4") if quantised is not None and kind in NAMES else np.zeros(0)
    if quantised is not None and scale.size:
        axis, zero = quantised.whole(6), quantised.array(3, "<i8")
        if scale.size > 1 and (axis >= len(shape) or scale.size != shape[axis] or zero.size != scale.size):
            raise TruncatedError
        along = [-1 if k == axis else 1 for k in range(len(shape))] if scale.size > 1 else [1] * len(shape)
        steps = found.astype(np.float64) - (zero.reshape(along) if zero.size == scale.size else 0)
        return (steps * scale.astype(np.float64).reshape(along)).astype(np.float32)
    return found.astype(np.float32) if found.dtype.kind == "f" else found


def _input(path: Path, t: Table, wanted: tuple[int, ...] | None) -> Port:
    name, shape = t.string(3), t.ints(0)
    signature = t.ints(7) or shape
    if t.whole(1, "b") not in (0, *WHOLE):
        raise UserError(f"{path}: its input {name} is not of float32 or int8; only such models can be imported.")
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


def run(
    path: Path, shape: tuple[int, ...], samples: np.ndarray, plain: bool = False
) -> tuple[list[np.ndarray], str] | None:
    """The source's own outputs for samples (N, ...), one at a time; None where nothing is installed that runs it.
    plain: by the kernels of the interpreter itself, as on chips, not by XNNPACK's."""
    opened = _opened(path, shape, plain)
    if opened is None:
        return None
    net, by = opened
    at, outs = net.get_input_details()[0], net.get_output_details()
    rows: list[list[np.ndarray]] = [[] for _ in outs]
    for x in samples:
        net.set_tensor(at["index"], _entering(x[None], at))
        net.invoke()
        for row, out in zip(rows, outs, strict=True):
            row.append(_leaving(net.get_tensor(out["index"]), out)[None])
    return [np.concatenate(row) for row in rows], by


def inside(path: Path, shape: tuple[int, ...], samples: np.ndarray, plain: bool = False) -> Inside | None:
    """What the source has for samples (N, ...), by the numbers of its tensors; None where nothing is installed that
    shows them. plain: as in run."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it takes memory
        opened = _opened(path, shape, plain, experimental_preserve_all_tensors=True)
    if opened is None:
        return None
    net, by = opened
    at, outs = net.get_input_details()[0], net.get_output_details()
    ends: list[list[np.ndarray]] = [[] for _ in outs]
    wanted = [t["index"] for t in net.get_tensor_details() if np.dtype(t["dtype"]) in (np.int8, np.uint8)]
    rows: dict[int, list[np.ndarray]] = {k: [] for k in wanted}
    for x in samples:
        net.set_tensor(at["index"], _entering(x[None], at))
        net.invoke()
        for k in list(rows):
            try:
                rows[k].append(net.get_tensor(k)[None])
            except ValueError:  # a tensor that no operator fills
                del rows[k]
        for end, out in zip(ends, outs, strict=True):
            end.append(_leaving(net.get_tensor(out["index"]), out))
    found = {str(k): less_128(np.concatenate(row)) for k, row in rows.items()}
    return found, [np.stack(end) for end in ends], by


def _opened(path: Path, shape: tuple[int, ...], plain: bool, **more: Any) -> tuple[Any, str] | None:
    """An interpreter ready to run, and its name; plain as in run."""
    found = interpreter()
    if found is None:
        return None
    if plain:
        if found[1] != "LiteRT":
            return None
        from ai_edge_litert.interpreter import OpResolverType

        more["experimental_op_resolver_type"] = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    try:
        net = found[0](model_path=str(path), num_threads=1, **more)
        net.resize_tensor_input(net.get_input_details()[0]["index"], list(shape))
        net.allocate_tensors()
    except (RuntimeError, ValueError):  # it does not take the model
        return None
    return net, found[1]


def _entering(x: np.ndarray, port: dict[str, Any]) -> np.ndarray:
    """Real numbers in the type that the source takes."""
    kind = np.dtype(port["dtype"])
    if kind.kind == "f":
        return x
    scale, zero = port["quantization"]
    ends = np.iinfo(kind)
    return np.clip(np.rint(x.astype(np.float64) / scale) + zero, ends.min, ends.max).astype(kind)


def _leaving(y: np.ndarray, port: dict[str, Any]) -> np.ndarray:
    """The real numbers that it gives."""
    if np.dtype(port["dtype"]).kind == "f":
        return np.array(y, np.float32)
    scale, zero = port["quantization"]
    return ((y.astype(np.float64) - zero) * scale).astype(np.float32)
