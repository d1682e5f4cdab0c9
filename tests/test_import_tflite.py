"""TFLite models become .bin files that give the same numbers, or are refused by one sentence that names the operator.

Where LiteRT is not installed the comparison is with the NumPy definition alone.
"""

import numpy as np
import pytest
from closeness import assert_close
from tflite_nets import model
from values import floats

from litenet.exporter import cli
from litenet.exporter.importers import tflite as importer
from litenet.pyruntime import InferenceEngine

IMAGE = (1, 7, 6, 3)
SAME, VALID, RELU, RELU_N1, RELU6 = (np.int8(k) for k in (0, 1, 1, 2, 3))
W = {"w": floats(4, 3, 3, 3), "b": floats(4)}


def n(value):
    return np.int32(value)


def yes():
    return np.uint8(1)


def i4(*values):
    return np.array(values, np.int32)


CONV = {0: SAME, 1: n(1), 2: n(1)}
NETS = {
    "conv, SAME": ([("CONV_2D", "x w b", {0: SAME, 1: n(2), 2: n(2), 3: RELU})], IMAGE, W),
    "conv, VALID": ([("CONV_2D", "x w b", {0: VALID, 1: n(1), 2: n(2), 3: RELU6})], IMAGE, W),
    "conv, dilation": ([("CONV_2D", "x w b", {0: SAME, 1: n(1), 2: n(1), 4: n(2), 5: n(3)})], IMAGE, W),
    "conv, no bias, relu between -1 and 1": ([("CONV_2D", "x w b", CONV | {3: RELU_N1})], IMAGE, W),
    "depthwise": ([("DEPTHWISE_CONV_2D", "x w b", {0: SAME, 1: n(2), 2: n(2), 3: n(1), 4: RELU6})], IMAGE,
                  {"w": floats(1, 3, 3, 3), "b": floats(3)}),
    "depthwise times 2": ([("DEPTHWISE_CONV_2D", "x w b", {0: SAME, 1: n(1), 2: n(1), 3: n(2)})], IMAGE,
                          {"w": floats(1, 3, 3, 6), "b": floats(6)}),
    "depthwise, dilation": ([("DEPTHWISE_CONV_2D", "x w b", {0: SAME, 1: n(1), 2: n(1), 3: n(1), 5: n(2), 6: n(2)})],
                            IMAGE, {"w": floats(1, 3, 3, 3), "b": floats(3)}),
    "pad before conv": ([("PAD", "x p"), ("CONV_2D", "n0 w b", {0: VALID, 1: n(2), 2: n(2)})], IMAGE,
                        W | {"p": np.array([[0, 0], [0, 1], [0, 1], [0, 0]], np.int32)}),
    "pad with a value": ([("PADV2", "x p v")], IMAGE,
                         {"p": np.array([[0, 0], [2, 1], [0, 1], [1, 0]], np.int32),
                                     "v": np.float32([1.5]).reshape(())}),
    "fully connected": ([("FULLY_CONNECTED", "x w b", {0: RELU})], (1, 6), {"w": floats(5, 6), "b": floats(5)}),
    "fully connected of an image": ([("RELU", "x"), ("FULLY_CONNECTED", "n0 w b", {0: RELU6})], (1, 2, 3, 4),
                                    {"w": floats(5, 24), "b": floats(5)}),
    "fully connected of rows": ([("FULLY_CONNECTED", "x w b", {2: yes()})], (1, 4, 6), {"w": floats(5, 6),
                "b": floats(5)}),
    "batch matmul": ([("BATCH_MATMUL", "x w")], (1, 4, 6), {"w": floats(1, 6, 5)}),
    "max pool": ([("MAX_POOL_2D", "x", {0: SAME, 1: n(2), 2: n(2), 3: n(3), 4: n(3), 5: RELU})], IMAGE, {}),
    "average pool, SAME": ([("AVERAGE_POOL_2D", "x", {0: SAME, 1: n(1), 2: n(2), 3: n(2), 4: n(3)})], IMAGE, {}),
    "average pool, VALID": ([("AVERAGE_POOL_2D", "x", {0: VALID, 1: n(1), 2: n(2), 3: n(2), 4: n(3)})], IMAGE, {}),
    "mean of height and width": ([("MEAN", "x a", {0: yes()})], IMAGE, {"a": i4(1, 2)}),
    "sum of channels": ([("SUM", "x a")], IMAGE, {"a": i4(3)}),
    "largest": ([("REDUCE_MAX", "x a")], IMAGE, {"a": i4(1, 2)}),
    "activations": ([("LOGISTIC", "x"), ("TANH", "n0"), ("HARD_SWISH", "n1"), ("RELU_N1_TO_1", "n2"),
                     ("LEAKY_RELU", "n3", {0: np.float32(0.2)})], IMAGE, {}),
    "prelu": ([("PRELU", "x s")], IMAGE, {"s": floats(1, 1, 3)}),
    "gelu": ([("GELU", "x")], IMAGE, {}),
    "constants": ([("ADD", "x a"), ("MUL", "n0 m"), ("SUB", "n1 a"), ("DIV", "n2 m"), ("NEG", "n3")], IMAGE,
                  {"a": floats(3), "m": np.abs(floats(3)) + 1}),
    "two values": ([("LOGISTIC", "x"), ("ADD", "x n0", {0: RELU}), ("SUB", "n1 n0"), ("MUL", "n2 n0"), ("DIV",
                "n3 n0")],
                   IMAGE, {}),
    "functions": ([("SQUARE", "x"), ("ADD", "n0 one"), ("SQRT", "n1"), ("RSQRT", "n2"), ("EXP", "n3")], IMAGE,
                  {"one": np.float32([1])}),
    "bounds": ([("MAXIMUM", "x lo"), ("MINIMUM", "n0 hi")], IMAGE, {"lo": np.float32([-1]), "hi": np.float32([0.25])}),
    "softmax": ([("SOFTMAX", "x", {0: np.float32(1)})], (1, 9), {}),
    "softmax, beta": ([("SOFTMAX", "x", {0: np.float32(2)})], (1, 9), {}),
    "shapes": ([("RESHAPE", "x s", {}), ("SQUEEZE", "n0", {}), ("EXPAND_DIMS", "n1 a"), ("RELU", "n2")], (1, 2, 1, 6),
               {"s": i4(1, 1, 3, 4), "a": i4(0)}),
    "transpose": ([("TRANSPOSE", "x p"), ("RELU", "n0")], IMAGE, {"p": i4(0, 3, 1, 2)}),
    "concat": ([("RELU", "x"), ("CONCATENATION", "x n0 x", {0: n(3)})], IMAGE, {}),
    "split": ([("SPLIT", "a x", {"outputs": 2, 0: n(2)}), ("CONCATENATION", "n0_1 n0", {0: n(2)})], IMAGE,
                {"a": i4(2)}),
    "split, sizes": ([("SPLIT_V", "x z a", {"outputs": 2, 0: n(2)}), ("CONCATENATION", "n0_1 n0", {0: n(3)})], IMAGE,
                     {"z": i4(1, 2), "a": i4(3)}),
    "slice": ([("SLICE", "x p z", {"shape": (1, 3, 4, 2)})], IMAGE, {"p": i4(0, 1, 2, 0), "z": i4(1, 3, -1, 2)}),
    "strided slice": ([("STRIDED_SLICE", "x p q s", {0: n(1), 1: n(9), 2: n(0), 3: n(0), 4: n(4)})], IMAGE,
                      {"p": i4(0, 1, 2, 0), "q": i4(1, 6, 3, 0), "s": i4(1, 2, 1, 1)}),
    "resize, bilinear": ([("RESIZE_BILINEAR", "x z", {})], IMAGE, {"z": i4(10, 13)}),
    "resize, bilinear, half pixels": ([("RESIZE_BILINEAR", "x z", {3: yes()})], IMAGE, {"z": i4(10, 13)}),
    "resize, bilinear, corners": ([("RESIZE_BILINEAR", "x z", {2: yes()})], IMAGE, {"z": i4(10, 13)}),
    "resize, nearest": ([("RESIZE_NEAREST_NEIGHBOR", "x z", {})], IMAGE, {"z": i4(14, 9)}),
    "resize, nearest, half pixels": ([("RESIZE_NEAREST_NEIGHBOR", "x z", {1: yes()})], IMAGE, {"z": i4(10, 13)}),
    "resize, nearest, corners": ([("RESIZE_NEAREST_NEIGHBOR", "x z", {0: yes()})], IMAGE, {"z": i4(10, 13)}),
    "hard swish written out": ([("ADD", "x three", {0: RELU6}), ("MUL", "n0 sixth", {}), ("MUL", "x n1", {})], IMAGE,
                               {"three": np.float32([3]), "sixth": np.float32([1 / 6])}),
    "weights in half precision": ([("DEQUANTIZE", "h", {"shape": (4, 3, 3, 3)}), ("CONV_2D", "x n0 b", CONV)], IMAGE,
                                  {"h": floats(4, 3, 3, 3).astype(np.float16), "b": floats(4)}),
    "a batch that stays open": ([("SHAPE", "x", {0: np.int8(2)}), ("STRIDED_SLICE", "n0 p q s", {4: n(1),
                "whole": True}),
                                 ("PACK", "n1 m", {0: n(2), 1: n(0)}), ("RESHAPE", "x n2", {}),
                                 ("FULLY_CONNECTED", "n3 w b", {})], (1, 2, 3, 4),
                                {"p": i4(0), "q": i4(1), "s": i4(1), "m": i4(24).reshape(()), "w": floats(5, 24),
                                            "b": floats(5)}),
}  # fmt: skip


def imported(tmp_path, data, *options):
    (tmp_path / "net.tflite").write_bytes(data)
    assert cli.main([str(tmp_path / "net.tflite"), "-o", str(tmp_path / "net.bin"), *options]) == 0
    return InferenceEngine(tmp_path / "net.bin")


@pytest.mark.parametrize("name", NETS)
def test_the_device_gives_what_the_tflite_model_gives(name, tmp_path):
    nodes, x, constants = NETS[name]
    with imported(tmp_path, model(nodes, x, constants)) as engine:
        engine.selftest()
        values = np.random.default_rng(3).uniform(-3, 3, (2, *x[1:])).astype(np.float32)
        found = importer.run(tmp_path / "net.tflite", x, values)
        if found is None:
            pytest.skip("LiteRT is not installed: compared with the NumPy definition only")
        assert_close(engine.predict(values).reshape(found[0][0].shape), found[0][0], 2e-5, 2e-5)
