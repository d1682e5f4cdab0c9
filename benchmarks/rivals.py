"""Other runtimes, one thread each, behind one face, for the comparisons.

A rival makes its file of a net once, untimed, and raises NotHereError where it is not installed or cannot take the net.
Then `load()` is from file to ready, `feed(x)` is the input as it wants it, untimed, and `run(model, fed)` is one
inference, NumPy out. x: float32 (H, W, C) or (N,).

    pip install onnxruntime ai-edge-litert openvino ncnn pnnx MNN
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from to_tflite import to_tflite

from litenet.exporter.source import Source


class NotHereError(Exception):
    """Why a rival has no figure for a net."""


class Rival:
    """One runtime. `net` is the ONNX file of the net in a folder that it may write to."""

    name = ""
    package = ""

    def __init__(self, net: Path, source: Source):
        self.net = net

    @classmethod
    def title(cls) -> str:
        try:
            return f"{cls.name} {version(cls.package)}"
        except PackageNotFoundError:
            raise NotHereError(f"{cls.package} is not installed") from None

    def load(self) -> Any:
        raise NotImplementedError

    def feed(self, x: np.ndarray) -> Any:
        return channels_first(x)

    def run(self, model: Any, fed: Any) -> np.ndarray:
        raise NotImplementedError


def channels_first(x: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(x.transpose(2, 0, 1)[None] if x.ndim == 3 else x.reshape(1, -1))


class OnnxRuntime(Rival):
    name, package = "ONNX Runtime", "onnxruntime"

    def load(self) -> Any:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        return onnxruntime.InferenceSession(str(self.net), options, providers=["CPUExecutionProvider"])

    def run(self, model: Any, fed: Any) -> np.ndarray:
        return model.run(None, {"input": fed})[0]


class LiteRT(Rival):
    """With its XNNPACK kernels."""

    name, package = "LiteRT", "ai-edge-litert"

    def __init__(self, net: Path, source: Source):
        self.net = net.with_suffix(".tflite")
        try:
            self.net.write_bytes(to_tflite(source))
        except SystemExit as e:
            raise NotHereError(str(e)) from None

    def load(self) -> Any:
        from ai_edge_litert.interpreter import Interpreter

        model = Interpreter(str(self.net), num_threads=1)
        model.allocate_tensors()
        return model, model.get_input_details()[0]["index"], model.get_output_details()[0]["index"]

    def feed(self, x: np.ndarray) -> Any:
        return x[None]

    def run(self, model: Any, fed: Any) -> np.ndarray:
        net, x, y = model
        net.set_tensor(x, fed)
        net.invoke()
        return net.get_tensor(y)


class OpenVINO(Rival):
    """For short answers, in float32."""

    name, package = "OpenVINO", "openvino"

    def load(self) -> Any:
        import openvino

        wanted = {"INFERENCE_NUM_THREADS": 1, "NUM_STREAMS": "1", "INFERENCE_PRECISION_HINT": "f32",
                  "PERFORMANCE_HINT": "LATENCY"}  # fmt: skip
        return openvino.Core().compile_model(str(self.net), "CPU", wanted).create_infer_request()

    def run(self, model: Any, fed: Any) -> np.ndarray:
        return model.infer([fed], share_inputs=True, share_outputs=True)[0]


class Ncnn(Rival):
    """float32, through pnnx, with the Winograd sizes that it chooses itself."""

    name, package = "ncnn", "ncnn"
    winograd: tuple[str, ...] = ("23", "43", "63")

    def __init__(self, net: Path, source: Source):
        self.net = net.with_suffix(".ncnn.param")
        shape = ",".join(map(str, channels_first(np.zeros(source.graph.input_shape)).shape))
        converted(self.net, "pnnx", net.name, f"inputshape=[{shape}]", "fp16=0", cwd=net.parent)

    def load(self) -> Any:
        import ncnn

        net = ncnn.Net()
        net.opt.num_threads = 1
        net.opt.use_fp16_packed = net.opt.use_fp16_storage = net.opt.use_fp16_arithmetic = False
        for size in ("23", "43", "63"):
            setattr(net.opt, f"use_winograd{size}_convolution", size in self.winograd)
        if net.load_param(str(self.net)) or net.load_model(str(self.net.with_suffix(".bin"))):
            raise RuntimeError(f"ncnn cannot load {self.net}")
        return net

    def feed(self, x: np.ndarray) -> Any:
        import ncnn

        return ncnn.Mat(channels_first(x)[0]).clone()

    def run(self, model: Any, fed: Any) -> np.ndarray:
        run = model.create_extractor()
        run.input("in0", fed)
        return np.array(run.extract("out0")[1])


class NcnnF23(Ncnn):
    """ncnn, made to use F(2x2, 3x3) alone: for deep nets its own choice is slower."""

    name = "ncnn F(2,3)"
    winograd = ("23",)


class MNN(Rival):
    """With high precision, which is float32."""

    name, package = "MNN", "MNN"

    def __init__(self, net: Path, source: Source):
        self.net = net.with_suffix(".mnn")
        converted(self.net, "mnnconvert", "-f", "ONNX", "--modelFile", net, "--MNNModel", self.net, "--bizCode", "net")

    def load(self) -> Any:
        import MNN

        net = MNN.Interpreter(str(self.net))
        state = net.createSession({"backend": "CPU", "numThread": 1, "precision": "high"})
        y = net.getSessionOutput(state)
        shape = y.getShape()
        host = MNN.Tensor(shape, MNN.Halide_Type_Float, np.ones(shape, np.float32), MNN.Tensor_DimensionType_Caffe)
        return net, state, net.getSessionInput(state), y, host

    def feed(self, x: np.ndarray) -> Any:
        import MNN

        fed = channels_first(x)
        return MNN.Tensor(fed.shape, MNN.Halide_Type_Float, fed, MNN.Tensor_DimensionType_Caffe)

    def run(self, model: Any, fed: Any) -> np.ndarray:
        net, state, x, y, host = model
        x.copyFrom(fed)
        net.runSession(state)
        y.copyToHostTensor(host)
        return host.getNumpyData()


def converted(made: Path, tool: str, *given: object, cwd: Path | None = None) -> None:
    """Runs a converter that stands beside this Python; NotHereError if `made` is not there afterwards."""
    path = Path(sys.executable).parent / tool
    if not made.exists():
        if not path.exists():
            raise NotHereError(f"{tool} is not installed")
        done = subprocess.run([str(path), *map(str, given)], cwd=cwd, capture_output=True, text=True, env=os.environ)
        if not made.exists():
            raise NotHereError(f"{tool}: {(done.stderr or done.stdout).strip()[-200:]}")


ALL: tuple[type[Rival], ...] = (OnnxRuntime, LiteRT, OpenVINO, Ncnn, NcnnF23, MNN)
