"""ONNX models. Shape arithmetic and everything else that hangs on no input is calculated here, by onnx's own
reference operators; each remaining node has a function in onnx_nodes.py."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from litenet.trainer.errors import UserError

from . import layers, onnx_qdq, onnx_qoperator
from .builder import NCHW_OF_NHWC, Builder, Value
from .foreign import MALFORMED, Foreign, Place, Port, shape_text
from .given import Given, Scaled
from .onnx_node import OnnxNode
from .onnx_nodes import HANDLERS, INSTEAD
from .onnx_patterns import activations_of, layernorms_of, small_constants

QUANTISED = {onnx_qdq.QUANTIZE, *onnx_qoperator.HANDLERS}

def library() -> Any:
    """The onnx package, which only importing needs."""
    try:
        import onnx
    except ImportError:
        raise UserError(
            "Reading ONNX files needs the package onnx, which is not installed.\n"
            "  Install it with: pip install 'litenet[import]'"
        ) from None
    return onnx


def load(path: Path) -> Any:
    """The model, checked for what can be said before any node is looked at."""
    onnx = library()
    try:
        model = onnx.load(path, load_external_data=False)
    except FileNotFoundError:
        raise UserError(f"{path} does not exist.\n  Check the path of the model.") from None
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}).") from None
    except Exception:  # protobuf has several
        raise UserError(f"{path} is no ONNX model, or is cut off.\n  Get the file again, or export it anew.") from None
    if not model.graph.node:
        raise UserError(f"{path} is no ONNX model, or is empty: it has no nodes.\n  Get the file again.")
    if model.functions:
        from onnx import inliner

        model = inliner.inline_local_functions(model)
    if any(t.data_location == onnx.TensorProto.EXTERNAL for t in model.graph.initializer):
        raise UserError(
            f"{path} keeps its weights in another file, which is not read.\n"
            "  Save it as one: onnx.save_model(onnx.load('model.onnx'), 'one.onnx', save_as_external_data=False)"
        )
    return model


def read(path: Path, input_shape: tuple[int, ...] | None = None) -> Foreign:
    """The model as our graph. input_shape: the source's, without the batch, where the file leaves it open."""
    try:
        return _read(path, load(path), input_shape)
    except MALFORMED as error:
        raise UserError(f"{path} is damaged: it does not hold together ({error}).\n  Get the file again.") from None


def _read(path: Path, model: Any, input_shape: tuple[int, ...] | None) -> Foreign:
    graph, b = model.graph, Builder()
    from onnx import numpy_helper

    env: dict[str, Value | np.ndarray | None] = {"": None}
    for tensor in graph.initializer:
        try:
            env[tensor.name] = _float(numpy_helper.to_array(tensor))
        except MALFORMED:
            raise UserError(
                f"{path} is damaged: the weights {tensor.name} have another size than their shape.\n"
                "  Get the file again."
            ) from None
    inputs = [i for i in graph.input if i.name not in env]
    if len(inputs) != 1:
        names = ", ".join(i.name for i in inputs) or "none"
        raise UserError(
            f"{path} has {len(inputs)} inputs ({names}); one is expected.\n  Export the model with one input."
        )
    source = _input(path, graph, inputs[0], input_shape)
    order = _order(graph, source.name, source.shape)
    x = b.input(source.shape, order)
    env[source.name] = x
    opsets = {o.domain: o.version for o in model.opset_import}
    numbers = small_constants(graph.node, env, opsets)
    known: dict[str, tuple[str, Any]] = {
        **activations_of(graph.node, numbers, opsets),
        **layernorms_of(graph.node, numbers),
    }
    given = Given() if any(n.op_type in QUANTISED for n in graph.node) else None
    steps: set[str] = set()  # names of values that are whole numbers where they stand
    shared = onnx_qdq.read_as_they_are(graph)
    scaled: dict[str, Scaled] = {}
    needed = _needed(graph, {name: root for name, (root, _) in known.items()})
    for i, proto in enumerate(graph.node):
        if needed.isdisjoint(proto.output):
            continue
        if proto.output[0] in known:
            root, what = known[proto.output[0]]
            b.place = Place(str(path), proto.name or proto.output[0], proto.op_type)
            env[proto.output[0]] = _recognised(b, env[root], what)
            continue
        node = _node(proto, env, opsets, i, path)
        first = len(b.nodes)
        try:
            values = any(isinstance(v, Value) for v in node.inputs)
            if given is not None and values and node.op in (onnx_qdq.QUANTIZE, onnx_qdq.DEQUANTIZE):
                b.place = node.place
                env[proto.output[0]] = marked = onnx_qdq.marked(b, node, given, proto.input[0] in shared)
                if node.op == onnx_qdq.QUANTIZE:
                    given.note(marked, proto.output[0])
                    steps.add(proto.output[0])
                continue
            if given is not None and values and node.op in onnx_qoperator.HANDLERS:
                b.place = node.place
                env[proto.output[0]] = given.note(onnx_qoperator.HANDLERS[node.op](b, node, given), proto.output[0])
                steps.add(proto.output[0])
                given.where.update({x.name: node.place for x in b.nodes[first:]})
                continue
            whole = None if values else onnx_qdq.constant(node)
            if whole is not None:
                scaled[proto.output[0]], env[proto.output[0]] = whole, onnx_qdq.real(whole)
                continue
            found = _calculate(b, proto, node, opsets)
            calculated = [v for v in found if isinstance(v, Value)]
            if given is not None and calculated and not steps.isdisjoint(proto.input):
                found = onnx_qoperator.moved(b, node, given, calculated)
                steps.update(proto.output)
                for v, name in zip(found, proto.output, strict=False):
                    given.note(v, name)
            if given is not None:
                onnx_qdq.remember(given, node, proto.input, b.nodes[first:], scaled)
        except MALFORMED as error:
            node.place.refuse(f"its attributes or constants do not hold together ({error})")
        env.update(zip(proto.output, found, strict=False))
    if given is not None:
        given.other = lambda samples: onnx_qdq.other(path.read_bytes(), source.name, samples)
        given.inside = lambda samples: onnx_qdq.inside(model, source.name, sorted(steps), samples)
    ports: list[Port] = []
    tensors: list[int] = []
    for out in graph.output:
        value = env.get(out.name)
        b.place = Place(str(path), out.name, "output")
        if not isinstance(value, Value):
            b.place.refuse("it does not depend on the input")
        if out.name in steps:
            b.place.refuse("it is of whole numbers", "End the model with a DequantizeLinear.")
        port, tensor = _output(b, out.name, value, {x.tensor, *tensors})
        ports.append(port)
        tensors.append(tensor)
    return Foreign(
        b.graph(graph.name or path.stem, x.tensor, tensors), b.weights, replace(source, order=order), tuple(ports),
        "ONNX", str(path), lambda samples: run(model, path.read_bytes(), samples), given=given,
    )  # fmt: skip


def _needed(graph: Any, instead: dict[str, str]) -> set[str]:
    """The values that the outputs hang on. instead: value -> the only one that it hangs on."""
    needed = {out.name for out in graph.output}
    for n in reversed(graph.node):
        for name in n.output:
            if name in needed:
                needed.update([instead[name]] if name in instead else n.input)
    return needed


def _recognised(b: Builder, value: Any, what: str | float) -> Value:
    """A written-out activation of that name, or a layer normalisation with that eps."""
    assert isinstance(value, Value)
    if isinstance(what, str):
        return layers.activation(b, value, what)
    ones = np.ones(value.shape[-1], np.float32)
    return layers.layernorm(b, value, ones, 0 * ones, what, -1)


def _float(a: np.ndarray) -> np.ndarray:
    return a.astype(np.float32) if a.dtype.kind == "f" and a.dtype != np.float32 else a


def _input(path: Path, graph: Any, given: Any, wanted: tuple[int, ...] | None) -> Port:
    tensor = given.type.tensor_type
    if tensor.elem_type not in (1, 10, 11):  # float, half, double
        raise UserError(f"{path}: its input {given.name} is not of floats; only float models can be imported.")
    dims = [d.dim_value for d in tensor.shape.dim]
    if len(dims) < 2 and wanted is None:
        raise UserError(
            f"{path}: its input {given.name} has shape {tuple(dims)}; a batch and at least one axis are expected.\n"
            "  Say what shape it has with --input-shape."
        )
    if wanted is not None:
        other = any(d not in (0, w) for d, w in zip(dims[1:], wanted, strict=False))
        if other or len(dims) not in (0, len(wanted) + 1):
            raise UserError(
                f"{path}: --input-shape {','.join(map(str, wanted))} does not go with {given.name} {tuple(dims)}."
            )
        dims = [dims[0] if dims else 1, *wanted]
    if dims[0] > 1:
        raise UserError(
            f"{path}: its input {given.name} holds a batch of {dims[0]}; 1 is expected.\n"
            "  Export the model with a batch of 1, or of any size."
        )
    if any(d < 1 for d in dims[1:]):
        names = [d.dim_param or str(d.dim_value or "?") for d in tensor.shape.dim]
        raise UserError(
            f"{path}: its input {given.name} has shape ({', '.join(names)}), which is open.\n"
            "  Say what it is, without the batch: --input-shape 3,224,224"
        )
    return Port(given.name, (1, *dims[1:]), ())


def _order(graph: Any, name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """How the source's input comes from ours: channels first, unless all that reads it turns it to that first."""
    if len(shape) != 4:
        return tuple(range(len(shape)))
    readers = [n for n in graph.node if name in n.input]
    turned = all(
        n.op_type == "Transpose" and [list(a.ints) for a in n.attribute if a.name == "perm"] == [list(NCHW_OF_NHWC)]
        for n in readers
    )
    return (0, 1, 2, 3) if turned and readers else NCHW_OF_NHWC


def _output(b: Builder, name: str, v: Value, taken: set[int]) -> tuple[Port, int]:
    """Images stay channels last, as all of ours; everything else leaves as the source has it."""
    if v.order == NCHW_OF_NHWC and b.turned(v) == v.shape:
        order, tensor = tuple(v.order), v.tensor
    else:
        tensor = b.shaped(v)
        order = tuple(range(len(b.shape(tensor)) + 1))
    if tensor in taken:
        tensor = b.node("activation", [tensor], {"activation": "none"})
    return Port(name, v.shape, order), tensor


def _node(proto: Any, env: dict[str, Any], opsets: dict[str, int], i: int, path: Path) -> OnnxNode:
    from onnx import helper

    attrs = {a.name: helper.get_attribute_value(a) for a in proto.attribute}
    attrs = {k: v.decode("utf-8", "replace") if isinstance(v, bytes) else v for k, v in attrs.items()}
    inputs = [env.get(name) for name in proto.input]
    shapes = tuple(shape_text(v.shape) for v in inputs if v is not None)
    place = Place(str(path), proto.name or proto.output[0] or f"{proto.op_type}{i}", proto.op_type, shapes)
    for name in proto.input:
        if name not in env:
            place.refuse(f"its input {name!r} is made by no node before it")
    return OnnxNode(place, proto.op_type, proto.domain, inputs, attrs, len(proto.output), opsets.get(proto.domain, 1))


def _calculate(b: Builder, proto: Any, node: OnnxNode, opsets: dict[str, int]) -> Sequence[Any]:
    b.place = node.place
    values = [v for v in node.inputs if isinstance(v, Value)]
    if node.op in ("Shape", "Size") and values:
        shape = np.array(values[0].shape, np.int64)
        return [shape[node.attrs.get("start", 0) : node.attrs.get("end")] if node.op == "Shape" else shape.prod()]
    if not values and node.op not in ("If", "Loop", "Scan"):
        return [_float(np.asarray(a)) for a in evaluate(proto, node.inputs, opsets)]
    handler = HANDLERS.get(node.op) if node.domain in ("", "ai.onnx") else None
    if handler is None:
        what = f"the operator {node.domain + '.' if node.domain else ''}{node.op} is not known here"
        instead = (INSTEAD | onnx_qoperator.INSTEAD).get(node.op)
        node.place.refuse(what, instead or "docs/import.md lists what is; export the model without it.")
    found = handler(b, node)
    return found if isinstance(found, list) else [found]


def evaluate(proto: Any, inputs: Sequence[Any], opsets: dict[str, int]) -> list[np.ndarray]:
    """One node by onnx's reference operators."""
    from onnx import TensorProto, helper
    from onnx.reference import ReferenceEvaluator

    unknown = [helper.make_tensor_value_info(n, TensorProto.UNDEFINED, None) for n in proto.input if n]
    outs = [helper.make_tensor_value_info(n, TensorProto.UNDEFINED, None) for n in proto.output if n]
    imports = [helper.make_opsetid(domain, version) for domain, version in opsets.items()]
    model = helper.make_model(helper.make_graph([proto], "one", unknown, outs), opset_imports=imports)
    feed = {n: v for n, v in zip(proto.input, inputs, strict=True) if n}
    return list(ReferenceEvaluator(model).run(None, feed))


def run(model: Any, data: bytes, samples: np.ndarray) -> tuple[list[np.ndarray], str]:
    """The source's own outputs for samples (N, ...), one at a time, and who calculated them."""
    weights = {t.name for t in model.graph.initializer}
    given = next(i for i in model.graph.input if i.name not in weights)
    kind = {10: np.float16, 11: np.float64}.get(given.type.tensor_type.elem_type, np.float32)
    rows, who = answers(model, data, [{given.name: x[None].astype(kind)} for x in samples])
    return [np.concatenate([np.asarray(r[k], np.float32)[None] for r in rows]) for k in range(len(rows[0]))], who


def answers(model: Any, data: bytes, feeds: Sequence[dict[str, np.ndarray]]) -> tuple[list[Any], str]:
    """All outputs for each feed, and who calculated them: ONNX Runtime where it is installed and takes the model."""
    try:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level, options.intra_op_num_threads = 4, 1
        session = onnxruntime.InferenceSession(data, options, ["CPUExecutionProvider"])
        return [session.run(None, feed) for feed in feeds], "ONNX Runtime"
    except Exception:  # it is not installed, or does not take the model, for reasons of its own
        from onnx.reference import ReferenceEvaluator

        definition = ReferenceEvaluator(model)
        return [definition.run(None, feed) for feed in feeds], "onnx's reference operators"
