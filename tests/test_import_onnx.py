"""ONNX models become .bin files that give the same numbers, or are refused by one sentence that names the node."""

import numpy as np
import pytest
from closeness import assert_close

onnx = pytest.importorskip("onnx", reason="the package onnx is not installed (extra: import)")

from onnx_nets import floats, ints, model  # noqa: E402
from onnx_random import random_model  # noqa: E402

from litenet.exporter import cli  # noqa: E402
from litenet.exporter.importers import onnx as importer  # noqa: E402
from litenet.pyruntime import InferenceEngine  # noqa: E402

IMAGE = (1, 3, 7, 6)


def imported(tmp_path, made, *options):
    """The engine of a model that has been imported, and the file's path."""
    onnx.save(made, tmp_path / "net.onnx")
    assert cli.main([str(tmp_path / "net.onnx"), "-o", str(tmp_path / "net.bin"), *options]) == 0
    return InferenceEngine(tmp_path / "net.bin")


def ops(engine):
    return [layer.op for layer in engine.layers]


def refused(tmp_path, made, capsys, *options):
    onnx.save(made, tmp_path / "net.onnx")
    assert cli.main([str(tmp_path / "net.onnx"), "-o", str(tmp_path / "net.bin"), *options]) == 1
    assert not (tmp_path / "net.bin").exists()
    return capsys.readouterr().err


W = {"w": floats(4, 3, 3, 3), "b": floats(4)}
CONV = {"pads": [1, 1, 1, 1]}
LAYERNORM = [
    ("ReduceMean", "x a"), ("Sub", "x n0"), ("Pow", "n1 two"), ("ReduceMean", "n2 a"), ("Add", "n3 eps"), ("Sqrt",
                "n4"),
    ("Div", "n1 n5"), ("Mul", "n6 g"), ("Add", "n7 h"),
]  # fmt: skip
# name: (nodes, shape of x, constants, {opset, ...}); every one must agree with onnxruntime or onnx's own definitions
NETS = {
    "conv": ([("Conv", "x w b")], IMAGE, W),
    "conv, no bias, pads of its own on each side": ([("Conv", "x w", {"pads": [0, 1, 2, 0]})], IMAGE, W),
    "conv, stride and dilation": ([("Conv", "x w b", {"strides": [2, 1], "dilations": [2, 2]})], IMAGE, W),
    "conv, SAME_UPPER": ([("Conv", "x w b", {"auto_pad": "SAME_UPPER", "strides": [2, 2]})], IMAGE, W),
    "conv, SAME_LOWER": ([("Conv", "x w b", {"auto_pad": "SAME_LOWER", "strides": [2, 2]})], (1, 3, 8, 7), W),
    "conv, VALID": ([("Conv", "x w b", {"auto_pad": "VALID"})], IMAGE, W),
    "conv, groups": ([("Conv", "x w", {"group": 2})], (1, 4, 5, 5), {"w": floats(6, 2, 3, 3)}),
    "conv, depthwise": ([("Conv", "x w b", {"group": 4, **CONV})], (1, 4, 5, 5), {"w": floats(4, 1, 3, 3),
                "b": floats(4)}),
    "conv, depthwise times 2": ([("Conv", "x w", {"group": 3})], IMAGE, {"w": floats(6, 1, 3, 3)}),
    "conv, one dimension": ([("Conv", "x w b", {"pads": [1, 2], "strides": [2]})], (1, 3, 11),
                            {"w": floats(5, 3, 4), "b": floats(5)}),
    "conv, very wide pads": ([("Conv", "x w", {"pads": [0, 300, 0, 1]})], (1, 3, 4, 4), W),
    "batchnorm behind conv": ([("Conv", "x w b"), ("BatchNormalization", "n0 g h m v"), ("Relu", "n1")], IMAGE,
                              W | {"g": floats(4), "h": floats(4), "m": floats(4), "v": np.abs(floats(4)) + 0.5}),
    "batchnorm before conv": ([("BatchNormalization", "x g h m v"), ("Conv", "n0 w b")], IMAGE,
                              W | {"g": floats(3), "h": floats(3), "m": floats(3), "v": np.abs(floats(3)) + 0.5}),
    "batchnorm before padded conv": ([("BatchNormalization", "x g h m v"), ("Conv", "n0 w b", CONV)], IMAGE,
                                     W | {"g": floats(3), "h": floats(3), "m": floats(3),
                                                 "v": np.abs(floats(3)) + 0.5}),
    "batchnorm of a row": ([("BatchNormalization", "x g h m v")], (1, 5),
                           {"g": floats(5), "h": floats(5), "m": floats(5), "v": np.abs(floats(5)) + 0.5}),
    "pad before conv": ([("Pad", "x p"), ("Conv", "n0 w b")], IMAGE, W | {"p": ints(0, 0, 1, 2, 0, 0, 0, 1)}),
    "pad with ones before conv": ([("Pad", "x p one"), ("Conv", "n0 w b")], IMAGE,
                                  W | {"p": ints(0, 0, 1, 2, 0, 0, 0, 1), "one": np.float32(1)}),
    "pad of channels": ([("Pad", "x p")], IMAGE, {"p": ints(0, 1, 0, 0, 0, 2, 0, 0)}),
    "pad that cuts": ([("Pad", "x p")], IMAGE, {"p": ints(0, 0, -1, 2, 0, 0, -1, 0)}),
    "pad before maxpool behind relu": ([("Relu", "x"), ("Pad", "n0 p"), ("MaxPool", "n1", {"kernel_shape": [3, 3]})],
                                       IMAGE, {"p": ints(0, 0, 1, 1, 0, 0, 1, 1)}),
    "pad before maxpool": ([("Pad", "x p"), ("MaxPool", "n0", {"kernel_shape": [3, 3]})], IMAGE,
                           {"p": ints(0, 0, 1, 1, 0, 0, 1, 1)}),
    "pad before avgpool": ([("Pad", "x p"), ("AveragePool", "n0", {"kernel_shape": [3, 3]})], IMAGE,
                           {"p": ints(0, 0, 1, 1, 0, 0, 1, 1)}),
    "gemm": ([("Gemm", "x w b", {"transB": 1})], (1, 6), {"w": floats(5, 6), "b": floats(5)}),
    "gemm, alpha and beta": ([("Gemm", "x w b", {"alpha": 0.5, "beta": 2.0})], (1, 6), {"w": floats(6, 5),
                "b": floats(1, 5)}),
    "gemm behind flatten": ([("Conv", "x w b"), ("Flatten", "n0"), ("Gemm", "n1 v", {"transB": 1})], IMAGE,
                            W | {"v": floats(3, 80)}),
    "gemm behind flatten of the input": ([("Flatten", "x"), ("Gemm", "n0 v", {"transB": 1})], IMAGE, {"v": floats(3,
                126)}),
    "gemm behind reshape": ([("Reshape", "x s"), ("Gemm", "n0 v", {"transB": 1})], IMAGE,
                            {"v": floats(3, 126), "s": ints(0, -1)}),
    "matmul and add": ([("MatMul", "x w"), ("Add", "n0 b"), ("Relu", "n1")], (1, 6), {"w": floats(6, 5),
                "b": floats(5)}),
    "matmul of rows": ([("MatMul", "x w"), ("Add", "n0 b")], (1, 4, 6), {"w": floats(6, 5), "b": floats(5)}),
    "matmul of an image": ([("MatMul", "x w")], (1, 2, 4, 6), {"w": floats(6, 5)}),
    "matmul of rows as one": ([("MatMul", "x w"), ("Reshape", "n0 s"), ("MatMul", "n1 v")], (1, 4, 6),
                              {"w": floats(6, 5), "s": ints(1, 20), "v": floats(20, 3)}),
    "matmul by a row": ([("MatMul", "x w")], (1, 4, 6), {"w": floats(6)}),
    "maxpool": ([("MaxPool", "x", {"kernel_shape": [2, 2], "strides": [2, 2]})], IMAGE, {}),
    "maxpool, ceil": ([("MaxPool", "x", {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1})], (1, 3, 8, 6),
                {}),
    "maxpool, pads": ([("MaxPool", "x", {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]})], IMAGE, {}),
    "maxpool, a large window": ([("MaxPool", "x", {"kernel_shape": [17, 18]})], (1, 2, 20, 19), {}),
    "maxpool, one dimension": ([("MaxPool", "x", {"kernel_shape": [3], "strides": [2]})], (1, 3, 9), {}),
    "avgpool": ([("AveragePool", "x", {"kernel_shape": [2, 3], "strides": [1, 2]})], IMAGE, {}),
    "avgpool, pads": ([("AveragePool", "x", {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]})], IMAGE, {}),
    "avgpool, pads that count": ([("AveragePool", "x", {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1],
                                                         "count_include_pad": 1})], IMAGE, {}),
    "avgpool, ceil": ([("AveragePool", "x", {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1})], (1, 3, 8,
                6), {}),
    "avgpool of everything": ([("AveragePool", "x", {"kernel_shape": [7, 6]})], IMAGE, {}),
    "global pools": ([("GlobalAveragePool", "x"), ("GlobalMaxPool", "x"), ("Add", "n0 n1")], IMAGE, {}),
    "global pool and gemm": ([("GlobalAveragePool", "x"), ("Flatten", "n0"), ("Gemm", "n1 w")], IMAGE, {"w": floats(3,
                4)}),
    "mean of height and width": ([("ReduceMean", "x", {"axes": [2, 3]})], IMAGE, {}),
    "mean of channels": ([("ReduceMean", "x", {"axes": [1]})], IMAGE, {}),
    "mean of rows": ([("ReduceMean", "x", {"axes": [1], "keepdims": 0})], (1, 4, 6), {}),
    "mean of columns": ([("ReduceMean", "x", {"axes": [-1], "keepdims": 0})], (1, 4, 6), {}),
    "sum": ([("ReduceSum", "x a", {"keepdims": 0})], (1, 4, 6), {"a": ints(1)}),
    "max of channels": ([("ReduceMax", "x", {"axes": [1], "keepdims": 0})], IMAGE, {}),
    "max of very many": ([("ReduceMax", "x", {"axes": [1]})], (1, 599, 4), {}),
    "max of a large image": ([("GlobalMaxPool", "x")], (1, 2, 300, 260), {}),
    "relu6": ([("Clip", "x lo hi")], IMAGE, {"lo": np.float32(0), "hi": np.float32(6)}),
    "clip": ([("Clip", "x lo hi")], IMAGE, {"lo": np.float32(-0.5), "hi": np.float32(0.75)}),
    "clip, old": ([("Clip", "x", {"min": 0.0, "max": 1.0})], IMAGE, {}, {"opset": 10}),
    "clip below": ([("Clip", "x lo")], IMAGE, {"lo": np.float32(0.25)}),
    "clip above": ([("Clip", "x - hi")], IMAGE, {"hi": np.float32(0.25)}),
    "max and min": ([("Max", "x lo"), ("Min", "n0 hi")], IMAGE, {"lo": np.float32(-1), "hi": np.float32(0.25)}),
    "activations": ([("Sigmoid", "x"), ("Tanh", "n0"), ("HardSwish", "n1"), ("LeakyRelu", "n2", {"alpha": 0.2})],
                IMAGE, {}),
    "hard sigmoid": ([("HardSigmoid", "x")], IMAGE, {}),
    "leaky relu, steep": ([("LeakyRelu", "x", {"alpha": -1.5})], IMAGE, {}),
    "prelu by channel": ([("Conv", "x w b"), ("PRelu", "n0 s")], IMAGE, W | {"s": floats(4, 1, 1)}),
    "prelu with one slope": ([("PRelu", "x s")], IMAGE, {"s": np.array([[[0.3]]], np.float32)}),
    "prelu of a row": ([("PRelu", "x s")], (1, 5), {"s": floats(5)}),
    "gelu": ([("Div", "x r"), ("Erf", "n0"), ("Add", "n1 one"), ("Mul", "x n2"), ("Mul", "n3 half")], IMAGE,
             {"r": np.float32(2**0.5), "one": np.float32(1), "half": np.float32(0.5)}),
    "gelu by tanh": ([("Mul", "x x"), ("Mul", "n0 x"), ("Mul", "n1 c"), ("Add", "x n2"), ("Mul", "n3 k"), ("Tanh",
                "n4"),
                      ("Add", "n5 one"), ("Mul", "half x"), ("Mul", "n7 n6")], (1, 4, 9),
                     {"c": np.float32(0.044715), "k": np.float32((2 / np.pi) ** 0.5), "one": np.float32(1),
                      "half": np.float32(0.5)}),
    "silu": ([("Sigmoid", "x"), ("Mul", "x n0")], IMAGE, {}),
    "hard swish written out": ([("Add", "x three"), ("Clip", "n0 zero six"), ("Mul", "x n1"), ("Div", "n2 six")], IMAGE,
                               {"three": np.float32(3), "zero": np.float32(0), "six": np.float32(6)}),
    "constants": ([("Add", "x a"), ("Mul", "n0 m"), ("Sub", "n1 a"), ("Div", "n2 m"), ("Neg", "n3")], IMAGE,
                  {"a": floats(3, 1, 1), "m": floats(1, 3, 1, 1) + 3}),
    "constant minus x": ([("Sub", "a x"), ("Add", "a n0")], IMAGE, {"a": floats(3, 1, 1)}),
    "constants along width": ([("Add", "x a"), ("Mul", "n0 m")], IMAGE, {"a": floats(6), "m": floats(7, 1) + 2}),
    "constants of its whole size": ([("Add", "x a"), ("Conv", "n0 w b")], IMAGE, W | {"a": floats(3, 7, 6)}),
    "square, root, exponential": ([("Pow", "x two"), ("Add", "n0 one"), ("Sqrt", "n1"), ("Exp", "n2"), ("Reciprocal",
                "n3")],
                                  IMAGE, {"two": np.float32(2), "one": np.float32(1)}),
    "a residual": ([("Conv", "x w b", CONV), ("Relu", "n0"), ("Conv", "n1 v", CONV), ("Add", "n1 n2"), ("Relu", "n3")],
                   IMAGE, W | {"v": floats(4, 4, 3, 3)}),
    "a difference": ([("Sigmoid", "x"), ("Sub", "x n0")], IMAGE, {}),
    "a quotient": ([("Sigmoid", "x"), ("Div", "x n0")], IMAGE, {}),
    "squeeze and excite": ([("GlobalAveragePool", "x"), ("Conv", "n0 w"), ("Sigmoid", "n1"), ("Mul", "x n2")], IMAGE,
                           {"w": floats(3, 3, 1, 1)}),
    "layer norm": ([("LayerNormalization", "x g h", {"epsilon": 1e-3})], (1, 4, 9), {"g": floats(9), "h": floats(9)}),
    "layer norm over two axes": ([("LayerNormalization", "x g h", {"axis": 1})], (1, 4, 9), {"g": floats(4, 9),
                "h": floats(4, 9)}),
    "layer norm of channels last": ([("Transpose", "x", {"perm": [0, 2, 3, 1]}), ("LayerNormalization", "n0 g h"),
                                     ("Transpose", "n1", {"perm": [0, 3, 1, 2]})], IMAGE, {"g": floats(3),
                                                 "h": floats(3)}),
    "layer norm written out": (LAYERNORM, (1, 4, 9), {"a": ints(-1), "two": np.float32(2), "eps": np.float32(1e-3),
                               "g": floats(9), "h": floats(9)}, {"opset": 18}),
    "layer norm written out, and a relu": ([*LAYERNORM, ("Relu", "n8")], (1, 9),
                                           {"a": ints(-1), "two": np.float32(2), "eps": np.float32(1e-3),
                                                       "g": floats(9),
                                            "h": floats(9)}, {"opset": 18}),
    "softmax": ([("Gemm", "x w"), ("Softmax", "n0")], (1, 6), {"w": floats(6, 5)}),
    "softmax of channels": ([("Softmax", "x", {"axis": 1})], IMAGE, {}),
    "softmax of height": ([("Softmax", "x", {"axis": 2})], IMAGE, {}),
    "softmax, old": ([("Softmax", "x")], (1, 2, 3, 2), {}, {"opset": 11}),
    "transposes": ([("Transpose", "x", {"perm": [0, 2, 3, 1]}), ("Relu", "n0"), ("Transpose", "n1", {"perm": [0, 3, 1,
                2]})],
                   IMAGE, {}),
    "rows transposed": ([("Transpose", "x", {"perm": [0, 2, 1]}), ("MatMul", "n0 w")], (1, 4, 6), {"w": floats(4, 5)}),
    "channel shuffle": ([("Reshape", "x s"), ("Transpose", "n0", {"perm": [0, 2, 1, 3, 4]}), ("Reshape", "n1 t"),
                         ("Conv", "n2 w")], (1, 6, 4, 5),
                        {"s": ints(1, 2, 3, 4, 5), "t": ints(1, 6, 4, 5), "w": floats(2, 6, 1, 1)}),
    "concat of channels": ([("Conv", "x w b"), ("Relu", "n0"), ("Concat", "n0 n1 n0", {"axis": 1})], IMAGE, W),
    "concat of rows": ([("Concat", "x x", {"axis": 1})], (1, 4, 6), {}),
    "concat of orders": ([("Transpose", "x", {"perm": [0, 1, 3, 2]}), ("Relu", "x"), ("Concat", "n0 n1", {"axis": 1})],
                         (1, 3, 5, 5), {}),
    "split": ([("Split", "x s", {"axis": 1, "outputs": 2}), ("Concat", "n0_1 n0", {"axis": 1})], (1, 5, 3, 3),
                {"s": ints(2, 3)}),
    "slices": ([("Slice", "x p q a st")], (1, 5, 9, 8),
               {"p": ints(1, -8, 0), "q": ints(4, 2**62, 7), "a": ints(1, 2, 3), "st": ints(1, 3, 2)}),
    "slice, old": ([("Slice", "x", {"starts": [1], "ends": [3], "axes": [2]})], IMAGE, {}, {"opset": 9}),
    "gather": ([("Gather", "x i", {"axis": 1})], (1, 5, 6), {"i": np.int64(2)}),
    "gather of a range": ([("Gather", "x i", {"axis": 2})], (1, 5, 6), {"i": ints(1, 3, 5)}),
    "squeezes": ([("GlobalAveragePool", "x"), ("Squeeze", "n0 a"), ("Unsqueeze", "n1 c"), ("Conv", "n2 w")], IMAGE,
                 {"a": ints(2, 3), "c": ints(2, 3), "w": floats(2, 3, 1, 1)}),
    "no batch at the end": ([("Conv", "x w b"), ("Squeeze", "n0 a"), ("Transpose", "n1", {"perm": [1, 2, 0]}),
                             ("Softmax", "n2", {"axis": 0}), ("Slice", "n3 a c")], IMAGE, W | {"a": ints(0),
                                         "c": ints(3)}),
    "resize, nearest": ([("Resize", "x - s")], IMAGE, {"s": np.array([1, 1, 2, 2], np.float32)}),
    "resize, by half": ([("Resize", "x - - z", {"mode": "linear"})], (1, 3, 8, 6), {"z": ints(1, 3, 4, 3)}),
    "resize, linear, corners": ([("Resize", "x - - z", {"mode": "linear",
                "coordinate_transformation_mode": "align_corners"})],
                                IMAGE, {"z": ints(1, 3, 10, 13)}),
    "resize, linear, asymmetric": ([("Resize", "x - - z", {"mode": "linear",
                "coordinate_transformation_mode": "asymmetric"})],
                                   IMAGE, {"z": ints(1, 3, 14, 9)}),
    "resize, nearest, asymmetric floor": ([("Resize", "x - - z", {"coordinate_transformation_mode": "asymmetric",
                                                                  "nearest_mode": "floor"})], IMAGE, {"z": ints(1, 3,
                                                                              14, 18)}),
    "upsample": ([("Upsample", "x s")], IMAGE, {"s": np.array([1, 1, 3, 2], np.float32)}, {"opset": 9}),
    "left out": ([("Identity", "x"), ("Dropout", "n0"), ("Cast", "n1", {"to": 1}), ("Relu", "n2")], IMAGE, {}),
    "shape arithmetic": ([("Shape", "x"), ("Gather", "n0 zero"), ("Unsqueeze", "n1 a"), ("Concat", "n2 m", {"axis": 0}),
                          ("Reshape", "x n3"), ("Gemm", "n4 w")], ("N", 3, 4, 4),
                         {"zero": np.int64(0), "a": ints(0), "m": ints(-1), "w": floats(48, 3)}),
    "constant nodes": ([("Constant", "", {"value_float": 2.0}), ("Mul", "x n0"), ("Constant", "", {"value_ints": [1,
                -1]}),
                        ("Reshape", "n1 n2")], IMAGE, {}),
    "channels last input": ([("Transpose", "x", {"perm": [0, 3, 1, 2]}), ("Conv", "n0 w b")], (1, 7, 6, 3), W),
    "one value": ([("Gemm", "x w b"), ("Tanh", "n0")], (1, 1), {"w": floats(1, 1), "b": floats(1)}),
    "hard swish, the sixth first": ([("Add", "x three"), ("Clip", "n0 zero six"), ("Mul", "n1 s"), ("Mul", "x n2")],
                IMAGE,
                                    {"three": np.float32(3), "zero": np.float32(0), "six": np.float32(6),
                                     "s": np.float32(1 / 6)}),
    "hard sigmoid as a gate": ([("HardSigmoid", "x", {"alpha": 1 / 6, "beta": 0.5}), ("Mul", "x n0")], IMAGE, {}),
    "half precision": ([("Cast", "x", {"to": 10}), ("Gemm", "n0 w"), ("Cast", "n1", {"to": 1})], (1, 6),
                       {"w": floats(6, 5).astype(np.float16)}),
    "a detection head": ([("Conv", "x w"), ("Reshape", "n0 s"), ("Transpose", "n1", {"perm": [0, 1, 3, 4, 2]}),
                          ("Sigmoid", "n2"), ("Slice", "n3 p q a"), ("Slice", "n3 q r a"), ("Mul", "n4 two"),
                          ("Add", "n6 grid"), ("Pow", "n5 two"), ("Concat", "n7 n8", {"axis": 4}),
                          ("Reshape", "n9 t")], IMAGE,
                         {"w": floats(8, 3, 1, 1), "s": ints(1, 2, 4, 7, 6), "p": ints(0), "q": ints(2), "r": ints(4),
                          "a": ints(4), "two": np.float32(2), "grid": floats(1, 1, 7, 6, 2), "t": ints(1, -1, 4)}),
    "zoo's embedding": ([("Reshape", "x s"), ("MatMul", "n0 w"), ("Add", "n1 b"), ("ReduceSum", "n2 a",
                {"keepdims": 0}),
                         ("Gemm", "n3 v")], (1, 3, 8, 8),
                        {"s": ints(1, 3, 64), "w": floats(64, 9), "b": floats(9), "a": ints(1), "v": floats(9, 4)}),
}  # fmt: skip


@pytest.mark.parametrize("name", NETS)
def test_the_device_gives_what_the_onnx_model_gives(name, tmp_path):
    nodes, x, constants, *more = NETS[name]
    made = model(nodes, x, constants, **(more[0] if more else {}))
    with imported(tmp_path, made) as engine:
        engine.selftest()
        # the same, with nothing of ours between: a fresh input in the source's order
        shape = tuple(1 if d == "N" else d for d in x)
        values = np.random.default_rng(3).uniform(-3, 3, (2, *shape[1:])).astype(np.float32)
        foreign = importer.read(tmp_path / "net.onnx")
        (want,), _ = foreign.run(values)
        got = foreign.outputs[0].to_source(engine.predict(foreign.input.to_ours(values, engine.input_shape)))
        assert_close(got.reshape(want.shape), want, 1e-5 * max(1, np.abs(want).max()), 1e-5)


FOLDED = {  # what is left of some of them
    "batchnorm behind conv": ["conv2d"],
    "batchnorm before conv": ["conv2d"],
    "batchnorm before padded conv": ["batchnorm", "conv2d"],
    "pad before conv": ["conv2d"],
    "pad with ones before conv": ["pad", "conv2d"],
    "pad before maxpool behind relu": ["activation", "maxpool2d"],
    "pad before maxpool": ["pad", "maxpool2d"],
    "pad before avgpool": ["avgpool2d"],
    "gemm behind flatten": ["conv2d", "linear"],
    "gemm behind reshape": ["linear"],
    "matmul and add": ["linear"],
    "global pool and gemm": ["global_avg_pool", "linear"],
    "gelu": ["activation"],
    "gelu by tanh": ["activation"],
    "silu": ["activation"],
    "hard swish written out": ["activation"],
    "hard swish, the sixth first": ["activation"],
    "hard sigmoid as a gate": ["activation"],
    "constants": ["batchnorm"],
    "a residual": ["conv2d", "conv2d", "add"],
    "layer norm written out": ["layernorm"],
    "layer norm written out, and a relu": ["layernorm", "activation"],
    "layer norm of channels last": ["layernorm"],
    "softmax of channels": ["softmax"],
    "transposes": ["activation"],
    "left out": ["activation"],
    "shape arithmetic": ["linear"],
    "channels last input": ["conv2d"],
    "conv, depthwise": ["depthwise_conv2d"],
    "zoo's embedding": ["embed_projection", "linear"],
    "squeeze and excite": ["global_avg_pool", "linear", "mul"],
}


@pytest.mark.parametrize("name", FOLDED)
def test_what_says_nothing_new_is_folded_away(name, tmp_path):
    nodes, x, constants, *more = NETS[name]
    assert ops(imported(tmp_path, model(nodes, x, constants, **(more[0] if more else {})))) == FOLDED[name]


@pytest.mark.parametrize("seed", range(60))
def test_random_graphs_keep_their_numbers(seed, tmp_path):
    """The importer compares every output with the source's own before it writes."""
    with imported(tmp_path, random_model(seed)) as engine:
        engine.selftest()
