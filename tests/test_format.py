"""The .bin: what the writer writes, a reader made from FORMAT.md alone reads and runs; and the page stays true."""

import json
import re
import shutil
import struct
import zlib
from dataclasses import replace

import numpy as np
import pytest
import reader
from closeness import assert_close
from everything import everything, weights_of

from litenet.exporter import format as writer
from litenet.exporter import gen_ops
from litenet.exporter.format import Golden, Model, OpRec, Preprocessing, TensorRec, write
from litenet.exporter.pack import pack, packed_type
from litenet.trainer.ops import OPS, Attrs, make_attrs

PAGE = gen_ops.RUNTIME / "FORMAT.md"
CASES = [(name, i) for name, m in OPS.items() if m.OP.in_files for i in range(len(m.CASES))]


def one_op(name, case, half=False):
    """(file, input, answer by definition) of a model that is one operator."""
    op, rng = OPS[name], np.random.default_rng(3)
    given, x = dict(case), case["x"]
    a = make_attrs(op.OP, {k: v for k, v in given.items() if k != "x"})
    w = weights_of(name, a, x, rng)
    kind = packed_type(op.OP, "f16" if half else "f32")
    inputs = [rng.standard_normal(x).astype(np.float32) for _ in op.OP.inputs]
    present = [w.get(weight.name) for weight in op.OP.weights]
    if kind == "f16":
        present = [None if v is None else v.astype(np.float16) for v in present]
    present = [None if v is None else v.astype(np.float64) for v in present]
    both = [inputs[0][None].astype(np.float64)] * len(inputs)  # add: twice the same
    want = op.forward(a, *both, *present)[0]
    y = tuple(op.out_shape(a, *[x] * len(inputs)))
    rec = OpRec(name, (0,) * len(inputs), 1, a, pack(name, a, w, kind), kind)
    return write(Model([TensorRec(x, input=True), TensorRec(y, output=True)], [rec])), inputs[0], want


@pytest.mark.parametrize("half", [False, True], ids=["f32", "f16"])
@pytest.mark.parametrize(("name", "index"), CASES)
def test_a_reader_made_from_the_page_computes_what_the_operator_defines(name, index, half):
    data, x, want = one_op(name, OPS[name].CASES[index], half)
    got, _ = reader.run(reader.read(data), x)
    assert_close(got, want.reshape(-1), 1e-5, 1e-4)


@pytest.mark.parametrize("half", [False, True], ids=["f32", "f16"])
def test_the_reader_finds_every_field_that_was_written(half):
    model, values = everything(half)
    f = reader.read(write(model))
    assert [(t.at, t.shape, t.flags) for t in f.tensors] == [
        (t.offset, t.shape, 1 if t.input else 2 if t.output else 0) for t in model.tensors
    ]
    for got, op in zip(f.ops, model.ops, strict=True):
        assert (got.name, tuple(got.inputs), got.output, got.weights) == (op.op, op.inputs, op.output, op.weights)
        assert got.half == (op.weight_dtype == "f16")
        for attr, value in got.attrs.items():
            assert value == pytest.approx(getattr(op.attrs, attr), rel=1e-6)
    assert (f.codes, f.pad, f.arena_bytes) == ((2, 2, 1, 2), 7, 640)
    assert (f.mean, f.std) == ((33.5, 0, 0), (78.25, 1, 1))
    assert f.metadata == model.metadata
    assert len(f.golden) == 2 and f.golden[0][0].tobytes() == model.golden.inputs[0].tobytes()
    reader.selftest(f)
    got, each = reader.run(f, values[0])
    assert_close(got, np.concatenate([values[7], values[10]]), 1e-5, 1e-4)
    for op, y in zip(model.ops, each, strict=True):
        assert_close(y, values[op.output], 1e-5, 1e-4)


def test_the_selftest_of_the_reader_sees_a_changed_weight():
    f = reader.read(write(everything()[0]))
    op = f.ops[2]
    changed = np.frombuffer(op.weights, "<f4").copy()
    changed[5] += 0.5
    op.weights = changed.tobytes()
    with pytest.raises(AssertionError, match="operator 2"):
        reader.selftest(f)


def test_the_same_model_gives_the_same_bytes():
    assert write(everything()[0]) == write(everything()[0])


def test_every_section_starts_where_the_sizes_say_and_zeros_fill_the_gaps():
    data = write(everything()[0])
    end = 128 + struct.unpack_from("<I", data, 60)[0]
    for at, size in struct.iter_unpack("<II", data[64:88]):
        assert at == -(-end // 64) * 64 and not any(data[end:at])
        end = at + size
    assert end == len(data)
    assert zlib.crc32(data[128:]) == struct.unpack_from("<I", data, 16)[0]


def test_empty_sections_take_no_place():
    data, x, _ = one_op("softmax", {"x": (3,)})
    assert len(data) == 128 + 2 * 32 + 64
    assert struct.unpack_from("<I6I", data, 60) == (0, 128, 128, 0, 0, 0, 0)


def test_metadata_is_utf8_and_keeps_its_order():
    model, _ = everything()
    at, size = struct.unpack_from("<II", write(model), 72)
    text = write(model)[at : at + size].decode()
    assert "é" in text and list(json.loads(text)) == list(model.metadata)


# ---------------------------------------------------------------- the page


def test_generated_files_are_up_to_date():
    assert gen_ops.stale() == []
    assert gen_ops.main(["--check"]) == 0


def test_a_stale_generated_file_is_named(tmp_path):
    runtime = tmp_path / "runtime_c"
    shutil.copytree(gen_ops.RUNTIME, runtime)
    header = runtime / "src" / "ln_ops.h"
    header.write_text(header.read_text().replace("LN_OP_ADD = 8", "LN_OP_ADD = 9"))
    (runtime / "src" / "ln_ops.def").unlink()
    assert gen_ops.stale(runtime) == [header, runtime / "src" / "ln_ops.def"]
    page = runtime / "FORMAT.md"
    page.write_text(page.read_text().replace("<!-- generated ops end -->", ""))
    with pytest.raises(ValueError, match="'ops'"):
        gen_ops.stale(runtime)


def dumped(name):
    """The file that the page shows between the marks of this name."""
    text = PAGE.read_text().split(f"<!-- generated {name} begin -->")[1].split("<!-- generated")[0]
    lines = re.findall(r"^([0-9A-F]{4})  ((?:[0-9A-F]{2} ?){16})$", text, re.MULTILINE)
    data = bytes.fromhex("".join(text for _, text in lines))
    assert [int(at, 16) for at, _ in lines] == list(range(0, len(data), 16)) and len(data) == 320
    return data


def test_the_int8_dump_on_the_page_is_the_file_it_describes():
    f = reader.read(dumped("dump8"))
    assert reader.run_each(f, np.array([24, 4]))[0].tolist() == [-116]
    for x in ([0, 0], [1, 0.5], [3, 1], [0, 4]):
        got = reader.run(f, np.array(x) * 16)[0]
        assert got == pytest.approx([max(0, 0.5 + x[0] - 2 * x[1])], abs=0.125 / 2 + 0.03)


def test_the_dump_on_the_page_is_the_file_it_describes():
    f = reader.read(dumped("dump"))
    for x in ([0, 0], [1, 0.5], [3, 1], [0, 4]):
        assert reader.run(f, np.array(x))[0] == pytest.approx([max(0, 0.5 + x[0] - 2 * x[1])])


def test_the_page_and_the_reader_know_the_same_operators():
    rows = re.findall(r"^\| (\d+) \| (\w+) \| (x(?:, x2)?) \| (yes|no) \| (\S+) \| ", PAGE.read_text(), re.MULTILINE)
    assert {
        int(n): (name, len(x.split(", ")), act == "yes", None if w == "-" else w) for n, name, x, act, w in rows
    } == {n: spec[:4] for n, spec in reader.OPS.items()}


# ---------------------------------------------------------------- packing


def test_six_outputs_are_packed_as_the_page_shows():
    w, b = np.arange(12.0).reshape(6, 2), np.arange(100.0, 106.0)
    block = np.frombuffer(pack("linear", Attrs(bias=1), {"weight": w, "bias": b}), "<f4").reshape(3, 8)
    assert block.tolist() == [[*b, 0, 0], [*w[:, 0], 0, 0], [*w[:, 1], 0, 0]]


def test_twenty_two_outputs_make_a_panel_of_sixteen_and_one_of_eight():
    w = np.arange(44.0).reshape(22, 2)
    block = np.frombuffer(pack("linear", Attrs(bias=0), {"weight": w}), "<f4")
    assert len(block) == 16 * 3 + 8 * 3
    assert block[16:32].tolist() == w[:16, 0].tolist()
    assert block[48 + 8 : 48 + 16].tolist() == [*w[16:, 0], 0, 0]


def test_groups_have_panels_of_their_own():
    w = np.arange(4 * 2, dtype=float).reshape(4, 1, 1, 2)
    block = np.frombuffer(pack("conv2d", Attrs(groups=2), {"weight": w}), "<f4").reshape(2, 3, 4)
    assert block[1, 1].tolist() == [w[2, 0, 0, 0], w[3, 0, 0, 0], 0, 0]


def test_batchnorm_is_stored_as_scale_and_shift():
    w = {
        "gamma": np.array([2.0]),
        "beta": np.array([1.0]),
        "running_mean": np.array([3.0]),
        "running_var": np.array([4.0]),
    }
    assert np.frombuffer(pack("batchnorm", Attrs(eps=0.0), w), "<f4").tolist() == [1.0, -2.0]


def test_half_precision_rounds_to_nearest_and_keeps_its_largest_value():
    block = pack("linear", Attrs(), {"weight": np.array([[65504.0], [65519.0], [1 + 2**-11], [1e-9]])}, "f16")
    assert np.frombuffer(block, "<f2")[4:].tolist() == [65504, 65504, 1, 0]


@pytest.mark.parametrize(
    ("op", "weights", "dtype", "message"),
    [
        ("linear", {"weight": np.full((1, 1), 65520.0)}, "f16", "65520, beyond 65504, where half precision ends"),
        ("linear", {"weight": np.full((1, 1), 1e39)}, "f32", "beyond what float32 holds"),
        ("linear", {"weight": np.full((1, 1), np.nan)}, "f32", "not finite"),
        ("linear", {"bias": np.zeros(1)}, "f32", "no weight to pack"),
        ("linear", {"weight": np.zeros((2, 1)), "bias": np.zeros(3)}, "f32", "bias has shape"),
        ("linear", {"weight": np.zeros((1, 1)), "gain": np.zeros(1)}, "f32", "no weights called gain"),
        ("linear", {"weight": np.zeros((1, 1))}, "i8", "f32 or f16, not 'i8'"),
        ("layernorm", {"gamma": np.zeros(2), "beta": np.zeros(3)}, "f32", "one is expected"),
        ("conv2d", {"weight": np.zeros((3, 1, 1, 1))}, "f32", "2 groups do not divide 3"),
    ],
)
def test_weights_that_cannot_be_packed_are_refused(op, weights, dtype, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        pack(op, Attrs(groups=2 if op == "conv2d" else 1), weights, dtype)


def test_norms_stay_in_float32():
    assert packed_type(OPS["layernorm"].OP, "f16") == "f32" and packed_type(OPS["conv2d"].OP, "f16") == "f16"


# ---------------------------------------------------------------- what the writer refuses


def changed(tensor=None, op=None, **more):
    """The everything model with tensor (index, fields) or operator (index, fields) replaced."""
    model, _ = everything()
    tensors, ops = list(model.tensors), list(model.ops)
    if tensor:
        tensors[tensor[0]] = replace(tensors[tensor[0]], **tensor[1])
    if op:
        ops[op[0]] = replace(ops[op[0]], **op[1])
    return replace(model, tensors=tensors, ops=ops, **more)


def golden(**more):
    return {"golden": replace(everything()[0].golden, **more)}


REFUSALS = [
    ({"ops_count": 0}, "0 operators"),
    ({"tensor": (0, {"input": False})}, "tensor 0, and no other, must be the input"),
    ({"tensor": (1, {"input": True})}, "tensor 0, and no other, must be the input"),
    ({"no_outputs": True}, "no tensor is an output"),
    ({"tensor": (1, {"dtype": "u8"})}, "type 'u8'"),
    ({"tensor": (1, {"shape": ()})}, "1 to 4 dims"),
    ({"tensor": (1, {"shape": (1 << 15, 1 << 15, 1)})}, "below 2^30"),
    ({"tensor": (1, {"offset": 8})}, "a multiple of 16"),
    ({"tensor": (0, {"offset": 16})}, "arena offset 16"),
    ({"tensor": (1, {"first": 1, "last": 1})}, "is said to live"),
    ({"tensor": (9, {"output": True})}, "tensor 9 has arena offset 64"),
    ({"op": (9, {"inputs": (8,)})}, "tensor 9 is never read"),
    ({"op": (0, {"inputs": (11,)})}, "names tensor 11"),
    ({"op": (0, {"inputs": (5,)})}, "reads tensor 5 before"),
    ({"op": (1, {"output": 1})}, "writes tensor 1, which is written already"),
    ({"op": (3, {"inputs": (3,)})}, "has 1 inputs; 2 are expected"),
    ({"op": (0, {"op": "dropout"})}, "cannot stand in a .bin"),
    ({"op": (0, {"activation": "softplus"})}, "cannot have activation 'softplus'"),
    ({"op": (4, {"activation": "relu"})}, "cannot have activation 'relu'"),
    ({"op": (0, {"weights": b""})}, "0 bytes of weights"),
    ({"op": (4, {"weights": b"1234"})}, "4 bytes of weights"),
    ({"op": (8, {"weight_dtype": "f16"})}, "weights of type 'f16'"),
    ({"op": (0, {"scratch": (8, 16)})}, "scratch memory at 8"),
    ({"op": (0, {"attrs": Attrs(kernel_size=(3, 256))})}, "kernel_size is (3, 256)"),
    ({"op": (3, {"attrs": Attrs(alpha=float("nan"))})}, "alpha is (nan,)"),
    ({"arena_bytes": 639}, "the arena has 639 bytes"),
    ({"preprocessing": Preprocessing(color="cmyk")}, "color is 'cmyk'"),
    ({"preprocessing": Preprocessing(color="rgb")}, "(height, width, 3)"),
    ({"preprocessing": Preprocessing(color="gray", mean=(1.0, 2.0))}, "mean has 2, std 1 values"),
    ({"preprocessing": Preprocessing(color="gray", std=(0.0,))}, "above 0"),
    ({"preprocessing": Preprocessing(color="gray", pad=256)}, "pad is 256"),
    ({"preprocessing": Preprocessing(pad=1), "golden": None}, "nothing else may be set"),
    ({"metadata": {"accuracy": float("nan")}}, "not JSON compliant"),
    (golden(kind="i8"), "kind is 'i8', but the input is f32"),
    (golden(kind="u8"), "kind is 'u8'"),
    (golden(inputs=[]), "0 inputs"),
    (golden(inputs=[np.zeros((5, 4, 1))] * 2), "a frame has type float64"),
    (golden(outputs=[np.zeros(6)] * 2), "6 output values"),
    (golden(outputs=[np.full(7, np.nan)] * 2), "not finite"),
    (golden(checksums=[[(1.0, 1.0)]] * 2), "1 checksums"),
]


@pytest.mark.parametrize(("change", "message"), REFUSALS)
def test_the_writer_refuses_what_the_format_cannot_hold(change, message):
    change = dict(change)
    if change.pop("ops_count", None) == 0:
        model = replace(everything()[0], ops=[])
    elif change.pop("no_outputs", None):
        model = everything()[0]
        model = replace(model, tensors=[replace(t, output=False) for t in model.tensors])
    else:
        model = changed(**change)
    with pytest.raises(ValueError, match=re.escape(message)):
        write(model)


def test_what_a_checksum_is_made_of():
    y = np.array([1.0, -2.0, 3.0, 4.0])
    signs = [1 if i * 2654435761 % 2**32 < 2**31 else -1 for i in range(4)]
    assert writer.op_checksum(y) == (2.5, float(np.dot(y, signs) / 4))
    assert writer.op_checksum(y[[1, 0, 2, 3]]) != writer.op_checksum(y)


def test_golden_tensors_may_be_float32():
    data, x, want = one_op("linear", {"out_features": 3, "x": (5,)})
    f = reader.read(data)
    rec = OpRec("linear", (0,), 1, Attrs(alpha=0.0), f.ops[0].weights)
    sums = [[writer.op_checksum(want)]]
    model = Model(
        [TensorRec((5,), input=True), TensorRec((3,), output=True)], [rec], golden=Golden("f32", [x], [want], sums)
    )
    reader.selftest(reader.read(write(model)))
