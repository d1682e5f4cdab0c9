"""Every int8 operator against numbers worked by hand, and against its float definition within one step."""

import numpy as np
import pytest

from litenet.trainer.int8 import ops, scheme
from litenet.trainer.int8.scheme import Numbers, Quant, asymmetric
from litenet.trainer.ops import OPS, Attrs, make_attrs

ALL = Numbers()


def i8(*values):
    return np.array([values], np.int8)


def attrs(op, **given):
    return make_attrs(OPS[op].OP, given)


@pytest.mark.parametrize("acc,M,want", [
    (1, 1 << 30, 1),  # 0.5 goes up
    (-1, 1 << 30, 0),  # -0.5 goes up
    (3, 1 << 30, 2), (-3, 1 << 30, -1), (5, 1 << 30, 3), (-5, 1 << 30, -2),
    (100, 644245094, 30), (-100, 644245094, -30),
    (1000, 0, 0), ((1 << 30) - 1, scheme.ONE, (1 << 30) - 1), (-(1 << 30) + 1, scheme.ONE, -(1 << 30) + 1),
])  # fmt: skip
def test_requant_rounds_once_and_halves_go_up(acc, M, want):
    assert ops.requant(np.array([acc], np.int32), M)[0] == want


@pytest.mark.parametrize("acc,M,S,want", [
    (5000, 192414535, 7, 4),  # 3.5 and a little
    (4999, 192414535, 7, 3), (-4999, 192414535, 7, -3), (-5001, 192414535, 7, -4),
    (1, 1 << 30, 1, 0), (2, 1 << 30, 1, 1), (-2, 1 << 30, 1, 0), (-3, 1 << 30, 1, -1),  # 0.25, 0.5, -0.5, -0.75
    (127, 1 << 31 - 7, 0, 1), (63, 1 << 31 - 7, 0, 0),
    (127, scheme.ONE, 7, 1), (63, scheme.ONE, 7, 0), (-65, scheme.ONE, 7, -1),
    ((1 << 30) - 1, scheme.ONE, 7, 1 << 23), (-(1 << 30) + 1, scheme.ONE, 7, -(1 << 23)),
])  # fmt: skip
def test_requant_with_a_shift_rounds_once_too(acc, M, S, want):
    assert ops.requant(np.array([acc], np.int32), M, S)[0] == want


@pytest.mark.parametrize(
    "v,M,S,want", [(3, 1, 1, 2), (-3, 1, 1, -1), (255, 1 << 21, 21, 255), (-255, -(1 << 21), 20, 510)]
)
def test_rescale(v, M, S, want):
    assert ops.rescale(np.array([v]), M, S)[0] == want


def test_linear_by_hand():
    """B 100, weights 2 -3: 100 + 2*10 - 3*(-20) = 180; times 0.25 = 45; plus zero 5."""
    y = ops.linear(ALL, i8(10, -20), np.array([[2, -3]], np.int8), np.array([100], np.int32),
                   np.array([1 << 29], np.int32), Quant(1.0, 5))  # fmt: skip
    assert y.tolist() == [[50]] and y.dtype == np.int8
    held = ops.linear(Numbers(lo=-128, hi=20), i8(10, -20), np.array([[2, -3]], np.int8), np.array([100], np.int32),
                      np.array([1 << 29], np.int32), Quant(1.0, 5))  # fmt: skip
    assert held.tolist() == [[20]]


def test_sums_wrap_modulo_2_to_the_32():
    w = np.full((1, 2), 127, np.int8)
    y = ops.linear(ALL, i8(127, 127), w, np.array([2**31 - 1], np.int32), np.array([1 << 8], np.int32), Quant(1.0, 0))
    acc = 2**31 - 1 + 2 * 127 * 127 - 2**32
    assert y[0, 0] == max(-128, (acc * 256 + 2**30) >> 31)


def test_conv_sees_the_zero_point_outside_the_image():
    a = attrs("conv2d", out_channels=1, kernel_size=3, padding=1)
    x = np.full((1, 1, 1, 1), 9, np.int8)
    w = np.ones((1, 3, 3, 1), np.int8)
    y = ops.conv2d_(a, ALL, x, w, np.zeros(1, np.int32), np.array([1 << 30], np.int32), Quant(1.0, -4), Quant(1.0, 0))
    assert y.reshape(-1).tolist() == [(9 + 8 * -4) // 2 + (9 + 8 * -4) % 2]  # -11.5 goes up to -11


def test_add_by_hand():
    """S 2, M1 3, M2 -1: (10 - 2) 3 - (5 - 1) = 20; (20 + 2) >> 2 = 5; plus zero -7."""
    y = ops.add(Numbers(shift=2, m1=3, m2=-1), i8(10), i8(5), Quant(1.0, 2), Quant(1.0, 1), Quant(1.0, -7))
    assert y.tolist() == [[-2]]


def test_mul_by_hand_and_with_a_row():
    n = Numbers(m1=1 << 29)
    y = ops.mul(n, i8(10, -3), i8(6, 7), Quant(1.0, 2), Quant(1.0, 1), Quant(1.0, 0))
    assert y.tolist() == [[10, -7]]  # 8*5/4 = 10; -5*6/4 = -7.5
    x = np.arange(4, dtype=np.int8).reshape(1, 1, 2, 2)
    row = ops.mul(n, x, i8(4, 8), Quant(1.0, 0), Quant(1.0, 0), Quant(1.0, 0))
    assert row.reshape(-1).tolist() == [0, 2, 2, 6]


def test_concat_with_equal_scales_moves_only():
    q = Quant(0.125, 3)
    n = Numbers(shift=21, m1=1 << 21, m2=1 << 20)
    y = ops.concat(attrs("concat", axis=0), n, i8(-128, 127, 0), i8(5, -4), q, q, q)
    assert y.tolist() == [[-128, 127, 0, 4, 0]]  # 3 + 2/2; 3 + (-7/2 = -3.5, up)


def test_batchnorm_and_prelu_by_hand():
    y = ops.batchnorm(Numbers(shift=1), i8(4, 4), np.array([3, -3], np.int32), np.array([1, 0], np.int32),
                      Quant(1.0, 1), Quant(1.0, 10))  # fmt: skip
    assert y.tolist() == [[15, 6]]  # (9 + 1 + 1) >> 1 = 5; (-9 + 0 + 1) >> 1 = -4
    y = ops.prelu(Numbers(shift=2, m1=4), i8(5, -5), np.array([9, 2], np.int32), Quant(1.0, 1), Quant(1.0, 0))
    assert y.tolist() == [[4, -3]]  # 4 * 4 / 4; -6 * 2 / 4 = -3


def test_pools_by_hand():
    x = np.array([[-128, 3], [4, -6]], np.int8).reshape(1, 2, 2, 1)
    assert ops.maxpool2d(attrs("maxpool2d", kernel_size=2), x).item() == 4
    assert ops.avgpool2d_(attrs("avgpool2d", kernel_size=2), x, Quant(1.0, 0)).item() == -32  # -127/4 = -31.75
    halves = np.array([[1, 2], [2, 1]], np.int8).reshape(1, 2, 2, 1)
    assert ops.avgpool2d_(attrs("avgpool2d", kernel_size=2), halves, Quant(1.0, 0)).item() == 2  # 1.5 goes up
    assert ops.avgpool2d_(attrs("avgpool2d", kernel_size=2), (-halves).astype(np.int8), Quant(1.0, 0)).item() == -1
    corner = attrs("avgpool2d", kernel_size=2, padding=1, count_include_pad=1)
    assert ops.avgpool2d_(corner, halves, Quant(1.0, -100))[0, 0, 0, 0] == -75  # (1 - 300) / 4 = -74.75
    inside = attrs("avgpool2d", kernel_size=2, padding=1, count_include_pad=0)
    assert ops.avgpool2d_(inside, halves, Quant(1.0, -100))[0, 0, 0, 0] == 1
    got = ops.global_avg_pool(Numbers(m1=1 << 29), x, Quant(1.0, -2), Quant(1.0, -2))
    assert got.item() == -2 + -30  # (-127 + 8) / 4 = -29.75


def test_pad_and_resize_by_hand():
    a = attrs("pad", before=[1, 0, 0, 0], after=[2, 0, 0, 0], value=1.0)
    assert ops.pad_(a, Numbers(border=7), i8(1, 2)).tolist() == [[7, 1, 2, 7, 7]]
    x = np.array([0, 10], np.int8).reshape(1, 1, 2, 1)
    a = attrs("resize", size=[1, 4], mode=1)
    assert ops.resize_(a, x).reshape(-1).tolist() == [0, 3, 8, 10]  # 2.5 and 7.5 go up
    assert ops.resize_(a, (-x).astype(np.int8)).reshape(-1).tolist() == [0, -2, -7, -10]


def test_softmax_by_hand():
    """Scale ln 2: each step halves. 65535, 32767, 16384 of 114686."""
    q = Quant(float(np.float32(np.log(2))), 0)
    table = ops.softmax_table(q)
    assert table[:3].tolist() == [65535, 32767, 16384] and table.dtype == np.uint16
    assert ops.softmax(i8(5, 4, 3), table).tolist() == [[146 - 128, 73 - 128, 37 - 128]]
    assert ops.softmax(i8(127, -128), table).tolist() == [[127, -128]]
    assert ops.softmax(i8(-128), table).tolist() == [[127]]


def test_quantize_and_dequantize():
    q = Quant(0.5, 3)
    x = np.array([0.0, 0.25, -0.25, 0.24, 1e30, -1e30, np.nan, np.inf, -np.inf, 1.0], np.float32)
    assert ops.quantize(ALL, x, q).tolist() == [3, 4, 2, 3, 127, -128, 3, 127, -128, 5]
    assert ops.dequantize(i8(3, 127, -128), q).tolist() == [[0.0, 62.0, -65.5]]


def test_tables():
    x, y = asymmetric(-4, 4), Quant(1 / 256, -128)
    table = ops.activation_table("sigmoid", 0.01, x, y)
    assert table.dtype == np.int8 and len(table) == 256
    assert table[x.zero + 128] == 0  # sigmoid(0) is half of 256 steps
    assert ops.lookup(i8(x.zero), table).tolist() == [[0]]
    inverse = ops.unary_table(2, asymmetric(-1, 1, symmetric=True), Quant(1.0, 0))
    assert inverse[128] == 127  # 1/0


CASES = [
    ("linear", {"out_features": 7}, (30,)),
    ("conv2d", {"out_channels": 6, "kernel_size": 3, "padding": 1, "groups": 2, "activation": "relu6"}, (6, 5, 4)),
    ("conv2d", {"out_channels": 5, "kernel_size": [1, 3], "stride": 2, "dilation": 2, "padding": 2}, (7, 9, 3)),
    ("depthwise_conv2d", {"kernel_size": 3, "padding": 1, "activation": "relu"}, (5, 6, 7)),
    ("embed_projection", {"embed_dim": 5}, (4, 4, 3)),
    ("embed_projection", {"embed_dim": 5, "keep_channels": 1}, (4, 4, 3)),
]


@pytest.mark.parametrize("op,given,shape", CASES)
def test_sums_of_products_are_the_float_ones_within_one_step(op, given, shape):
    """On inputs and weights that int8 holds exactly, so that rounding of the result is the only error."""
    rng, spec, a = np.random.default_rng(1), OPS[op].OP, attrs(op, **given)
    x = Quant(float(np.float32(0.05)), 11)
    q = rng.integers(-128, 128, (3, *shape), np.int8)
    weights = {w.name: rng.standard_normal(w.shape(a, shape)) for w in spec.weights}
    w = weights["weight"]
    axis = {"depthwise_conv2d": -1, "embed_projection": -1}.get(op, 0)
    rows = np.moveaxis(w, axis, 0).reshape(w.shape[axis], -1)
    scale = scheme.weight_scales(rows)
    rows = scheme.rounded_weights(rows, scale) * scale.astype(np.float64)[:, None]
    shaped = np.moveaxis(rows.reshape(-1, *np.delete(w.shape, axis)), 0, axis)
    real = x.scale * (q.astype(np.float64) - x.zero)
    bias = weights.get("bias", np.zeros(len(rows)))
    arguments = [real, shaped] + ([bias] if "bias" in weights else [])
    want = OPS[op].forward(a, *arguments)
    y = scheme.wider(asymmetric(want.min(), want.max()), scheme.least_scale(x, scale))
    times = shape[2] if op == "embed_projection" and not given.get("keep_channels") else 1
    found = scheme.layer(rows, bias, x, y, times=times)
    arrays = {"weight": np.moveaxis(found.rows.reshape(-1, *np.delete(w.shape, axis)), 0, axis),
              "bias": found.bias, "multiplier": found.multiplier}  # fmt: skip
    lo, hi = scheme.bounds(given.get("activation", "none"), y)
    got = ops.forward(op, a, Numbers(lo, hi), [q], [x], y, arrays)
    gap = np.abs(y.scale * (got.astype(np.float64) - y.zero) - want) / y.scale
    assert got.shape == want.shape and gap.max() <= 0.5 + 0.05


def test_every_operator_of_a_file_has_an_int8_form_but_layernorm():
    missing = {m.OP.name for m in OPS.values() if m.OP.in_files} - set(ops.FORWARD)
    assert missing == {"layernorm"}


def test_moves_are_the_float_ones():
    x = np.arange(24, dtype=np.int8).reshape(1, 2, 3, 4)
    a = Attrs(axes=(1, 0, 2, 3))
    assert ops.forward("transpose", a, ALL, [x], [None], None, {}).shape == (1, 3, 2, 4)
    assert ops.forward("flatten", Attrs(), ALL, [x], [None], None, {}).tolist() == [list(range(24))]
