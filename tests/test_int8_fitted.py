"""Sums of two, affine steps and changes of scale round as ONNX Runtime's float32 does, for as many int8 as can be."""

import platform

import numpy as np
import pytest
from onnx_nets import model

from litenet.exporter.int8 import fitted
from litenet.trainer.int8 import ops, scheme
from litenet.trainer.int8.scheme import Numbers, Quant

STEPS = np.arange(-128, 128)
A, B = (v.reshape(-1).astype(np.int8) for v in np.meshgrid(STEPS, STEPS, indexing="ij"))


def quant(scale, zero):
    return Quant(float(np.float32(scale)), zero)


PAIRS = {  # x, x2, y: of a MobileNet v2 and an UltraFace, and made up ones
    "mobilenet": (quant(0.035562083, 4), quant(0.028934143, 0), quant(0.04350751, -20)),
    "another": (quant(0.04350751, -20), quant(0.026068475, -2), quant(0.049828295, -8)),
    "small": (quant(0.0003, -128), quant(0.02, 100), quant(0.0417, 5)),
    "alike": (quant(0.05, 3), quant(0.05, 3), quant(0.1, -7)),
}


def nearest(x, x2, y):
    (m1, m2), _, shift = scheme.rescaling([x.scale / y.scale, x2.scale / y.scale])
    return Numbers(shift=shift, m1=m1, m2=m2)


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="ONNX Runtime adds by other rules elsewhere")
@pytest.mark.parametrize("kind", [np.int8, np.uint8])
@pytest.mark.parametrize("name", PAIRS)
def test_the_sum_of_every_pair_is_that_of_onnx_runtime(name, kind):
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    from onnx import TensorProto, helper

    x, x2, y = PAIRS[name]
    more = 128 * (kind is np.uint8)
    constants = {}
    for k, q in {"a": x, "b": x2, "c": y}.items():
        constants |= {f"s{k}": np.float32(q.scale), f"z{k}": kind(q.zero + more)}
    made = model([("QLinearAdd", "x sa za b sb zb sc zc", {"domain": "com.microsoft"})], (len(A),), constants)
    made.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    code = TensorProto.UINT8 if more else TensorProto.INT8
    made.graph.input.append(helper.make_tensor_value_info("b", code, [len(A)]))
    for value in (*made.graph.input, *made.graph.output):
        value.type.tensor_type.elem_type = code
    session = runtime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    theirs = session.run(None, {"x": (A.astype(int) + more).astype(kind), "b": (B.astype(int) + more).astype(kind)})[0]
    ours = np.clip(fitted.sums(x, x2, y, bool(more)).reshape(-1) + y.zero, -128, 127)
    assert np.array_equal(ours, theirs.astype(int) - more)


@pytest.mark.parametrize(("name", "before"), [("mobilenet", 2), ("another", 2), ("small", 0), ("alike", 1)])
def test_the_factors_of_a_sum_give_every_pair_that_they_can(name, before):
    x, x2, y = PAIRS[name]
    want = np.clip(fitted.sums(x, x2, y, True).reshape(-1) + y.zero, -128, 127)

    def missed(n):
        return int((ops.add(n, A, B, x, x2, y) != want).sum())

    first = nearest(x, x2, y)
    n = fitted.sum_of_two(first, x, x2, y, True)
    assert max(abs(n.m1 - first.m1), abs(n.m2 - first.m2)) <= fitted.TRIED and n.shift == first.shift
    ties = missed(first) if name == "alike" else 0  # halves go to even there, and up here
    assert missed(first) >= before and missed(n) <= ties


def test_no_factor_of_a_sum_is_too_large():
    x, y = quant(0.04, 0), quant(np.float32(0.04) / np.float32(0.99999952), 0)
    first = nearest(x, x, y)
    assert abs(first.m1) > scheme.RESCALE - 16
    n = fitted.sum_of_two(first, x, x, y, False)
    assert max(abs(n.m1), abs(n.m2)) <= scheme.RESCALE


@pytest.mark.filterwarnings("error")
def test_scales_at_the_ends_of_float32_do_no_harm():
    large, small = quant(3e38, -128), quant(1.2e-38, 0)
    assert fitted.line(large, small)[0].tolist() == [0, *[scheme.SUM] * 255]
    scale = np.array([0, 3e38], np.float32)
    assert fitted.line(large, small, scale, scale)[1].tolist() == [scheme.SUM] * 256
    assert fitted.line(small, large, scale, -scale)[1, 1:].max() <= 0


def affine(channels, seed):
    rng = np.random.default_rng(seed)
    x, y = quant(0.021, -7), quant(0.05, -31)
    scale = rng.uniform(0.01, 3, channels).astype(np.float32) * np.float32(-1) ** np.arange(channels)
    return x, y, scale.astype(np.float32), rng.uniform(-4, 4, channels).astype(np.float32)


@pytest.mark.parametrize(("lo", "hi"), [(-128, 127), (-31, 100)])
def test_an_affine_step_gives_every_value_that_float32_gives(lo, hi):
    x, y, scale, shift = affine(500, 1)
    ms, bs, S = scheme.rescaling(list(scale * np.float64(x.scale / y.scale)), list(shift / np.float64(y.scale)))
    n, values = Numbers(lo, hi, S), np.repeat(STEPS.astype(np.int8)[:, None], len(scale), 1)
    real = (STEPS - x.zero).astype(np.float32)[:, None] * np.float32(x.scale)
    want = np.clip(np.rint((real * scale + shift) / np.float32(y.scale)) + y.zero, lo, hi)
    m, b = fitted.affine(np.array(ms), np.array(bs), n, x, y, scale, shift)
    first = int((ops.batchnorm(n, values, np.array(ms), np.array(bs), x, y) != want).sum())
    assert first >= 1 and (ops.batchnorm(n, values, m, b, x, y) == want).all()


def test_a_change_of_scale_gives_every_value_that_float32_gives():
    first = last = 0
    for k in range(800):
        x, y = quant(0.02 * 1.00031415926**k, 3), quant(0.031, -60)
        (m,), _, S = scheme.rescaling([x.scale / y.scale])
        n, want = Numbers(shift=S), np.clip(fitted.line(x, y)[0], -128 - y.zero, 127 - y.zero)
        first += int((np.clip(ops.rescale(STEPS - x.zero, m, S), -68, 187) != want).sum())
        last += int((np.clip(ops.rescale(STEPS - x.zero, fitted.change(m, n, x, y), S), -68, 187) != want).sum())
    assert first >= 2 and last == 0
