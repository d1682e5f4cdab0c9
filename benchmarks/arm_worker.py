"""One runtime, one net, on an emulated processor: arm_instructions.py starts this with a Python of that processor.

    python arm_worker.py PEER MODEL X.npy RUNS Y.npy

Calls getppid around each run, which the counter takes as a mark (count_instructions.c).
"""

import os
import sys

import numpy as np


def litenet(path, x):
    from litenet.pyruntime import InferenceEngine

    engine = InferenceEngine(path, threads=1)
    return lambda: engine.predict(x)


def ncnn(path, x, half=False):
    import ncnn as library

    net = library.Net()
    net.opt.num_threads = 1
    net.opt.use_fp16_packed = net.opt.use_fp16_storage = net.opt.use_fp16_arithmetic = half
    if net.load_param(path + ".param") or net.load_model(path + ".bin"):
        raise SystemExit("ncnn cannot load the net")
    planes = np.ascontiguousarray(x.transpose(2, 0, 1) if x.ndim == 3 else x)  # a Mat does not keep it alive
    given = library.Mat(planes).clone()

    def run():
        extractor = net.create_extractor()
        extractor.input("in0", given)
        return np.array(extractor.extract("out0")[1])

    return run


def ncnn_half(path, x):
    return ncnn(path, x, half=True)


def litert(path, x):
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(path, num_threads=1)
    interpreter.allocate_tensors()
    ends = interpreter.get_input_details()[0], interpreter.get_output_details()[0]
    given, out = (interpreter.tensor(end["index"]) for end in ends)
    scale, zero = 1.0, 0
    if ends[0]["dtype"] == np.int8:
        s, z = ends[0]["quantization"]
        x = np.clip(np.round(x / s) + z, -128, 127).astype(np.int8)
        scale, zero = ends[1]["quantization"]
    given()[:] = x[None]

    def run():
        interpreter.invoke()
        return (out()[0] - np.float32(zero)) * np.float32(scale) if zero or scale != 1 else np.array(out()[0])

    return run


def main():
    peer, path, x, runs, y = sys.argv[1:]
    peers = {"litenet": litenet, "ncnn": ncnn, "ncnn_half": ncnn_half, "litert": litert}
    run = peers[peer.removesuffix("_int8")](path, np.load(x))
    run()
    run()
    for _ in range(int(runs)):
        os.getppid()
        run()
    os.getppid()
    np.save(y, run())
    os._exit(0)  # threads that a library left would keep the emulator


main()
