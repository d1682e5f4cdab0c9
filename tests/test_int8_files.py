"""int8 in files: what the writer refuses, what a reader refuses with which sentence, and what the self-test sees."""

import re
import struct
import subprocess
from dataclasses import replace
from functools import cache

import cbuild
import numpy as np
import pytest
import reader
import reader_int8
from int8_nets import Net, pictures
from test_open import SOURCES, counted, drive, repaired, verdicts

from litenet.exporter import pack_int8
from litenet.exporter.format import Golden, Preprocessing, checksums, write
from litenet.pyruntime import InferenceEngine, ModelError, chip_file
from litenet.trainer.int8 import ops as definition
from litenet.trainer.int8 import scheme
from litenet.trainer.int8.scheme import Numbers, Quant
from litenet.trainer.ops import OPS, Attrs, make_attrs

CONV, TABLE, ADD, PAD, POOL, SOFTMAX, FLOAT = range(7)
GRAY = Preprocessing("nearest", "stretch", "gray", "never", mean=(128.0,), std=(64.0,))


@cache
def net(fine=True):
    """conv -> add with itself through a table -> softmax over the last axis, an image in; and floats behind it."""
    net = Net((6, 5, 1), Quant(1 / 32, 3), seed=4, fine=fine)
    wide = {"lo": -128, "hi": 127}
    shift = {"shift": 3} if fine else {}
    a = net.add("conv2d", out_channels=4, kernel_size=3, padding=1, activation="relu", numbers=wide | shift)
    b = net.add("activation", activation="tanh")
    net.add("add", a, b, numbers={"shift": 20, "m1": 1 << 20, "m2": -(1 << 19), "lo": -100, "hi": 100})
    net.add("pad", before=[0, 1, 0, 0], after=[0, 0, 0, 0], numbers={"border": -7})
    net.add("global_avg_pool", numbers=wide)
    sharp = net.add("softmax")
    net.add("dequantize", sharp)
    return net


@cache
def small(fine=True):
    return net(fine).model((SOFTMAX + 1, FLOAT + 1), golden=2, frame=GRAY)


GOOD = write(small())
PROGRAM, GOLDEN = struct.unpack_from("<I", GOOD, 64)[0], struct.unpack_from("<I", GOOD, 80)[0]
N = struct.unpack_from("<H", GOOD, 88)[0]


def tensor(i, field=0):
    return PROGRAM + 32 * i + field


def op(i, field=0):
    return PROGRAM + 32 * (N + 1) + 64 * i + field


def weights(i):
    return struct.unpack_from("<I", GOOD, op(i, 16))[0]


def patched(*changes):
    b = bytearray(GOOD)
    for at, code, value in changes:
        struct.pack_into("<" + code, b, at, value)
    return repaired(bytes(b))


CASES = [
    ("BAD_DTYPE", [(20, "I", 0)], f"tensor 0, byte {tensor(0, 4)}: its type is 2; 0 is expected"),
    ("BAD_DTYPE", [(tensor(1, 4), "B", 3)], "its type is 3; 0 or 2 is expected"),
    ("BAD_DTYPE", [(tensor(1, 4), "B", 0), (tensor(1, 7), "B", 0), (tensor(1, 24), "f", 1)],
     f"operator 0 (conv2d), byte {op(0, 4)}: an input has type 2; 0 is expected"),
    ("BAD_DTYPE", [(tensor(7, 4), "B", 2)], f"operator 6 (dequantize), byte {op(6, 12)}: its output has type 2; 0 is"),
    ("BAD_DTYPE", [(op(ADD), "H", 10), (op(ADD, 14), "B", 1), (op(ADD, 6), "H", 0xFFFF)],
     f"operator 2 (layernorm), byte {op(ADD, 12)}: its output has type 2; 0 is expected"),
    ("BAD_DTYPE", [(op(CONV, 15), "B", 0)], "the type of its weights is 0; 2 is expected"),
    ("BAD_DTYPE", [(op(CONV, 15), "B", 1), (20, "I", 3)], "the type of its weights is 1; 2 is expected"),
    ("BAD_DTYPE", [(op(ADD, 15), "B", 2)], "the type of its weights is 2; 0 is expected"),
    ("BAD_DTYPE", [(op(FLOAT, 15), "B", 2)], "the type of its weights is 2; 0 is expected"),
    ("BAD_SCALE", [(tensor(1, 24), "f", 0.0)], "its scale is 0; a number above 0 is expected"),
    ("BAD_SCALE", [(tensor(1, 24), "f", -1.0)], "its scale is -1; a number above 0 is expected"),
    ("BAD_SCALE", [(tensor(1, 24), "f", np.inf)], "its scale is infinity; a number above 0 is expected"),
    ("BAD_SCALE", [(tensor(1, 24), "f", np.nan)], "its scale is NaN; a number above 0 is expected"),
    ("BAD_SCALE", [(tensor(1, 24), "I", 1)], "its scale is 1.4013e-45; at least 2^-126 is expected"),
    ("BAD_SCALE", [(tensor(1, 24), "I", 0x007FFFFF)], "its scale is 1.17549e-38; at least 2^-126 is expected"),
    ("BAD_SCALE", [(tensor(1, 24), "I", 0x80000001)], "a number above 0 is expected"),
    ("BAD_SCALE", [(tensor(7, 7), "b", 1)], "its zero point is byte 1; 0 is expected"),
    ("BAD_SCALE", [(tensor(7, 24), "f", 0.5)], "its scale is 0.5; 1 is expected"),
    ("BAD_SCALE", [(tensor(4, 24), "f", 0.5)], f"tensor 4, byte {tensor(4, 24)}: its scale is 0.5; "),
    ("BAD_SCALE", [(tensor(4, 7), "b", 1)], f"tensor 4, byte {tensor(4, 7)}: its zero point is byte 1; "),
    ("BAD_SCALE", [(tensor(6, 24), "f", 0.5)], "tensor 6, byte ", "its scale is 0.5; 0.00390625 is expected"),
    ("BAD_SCALE", [(tensor(6, 7), "b", 0)], "its zero point is byte 0; 128 is expected"),
    ("BAD_ACTIVATION", [(op(CONV, 2), "B", 6)], "its activation is 6; a number below 3 is expected"),
    ("BAD_ATTRIBUTE", [(op(ADD, 36), "B", 1)], "a byte after its attributes is 1; 0 is expected"),
    ("BAD_ATTRIBUTE", [(op(FLOAT, 53), "B", 127)], "a byte after its attributes is 127; 0 is expected"),
    ("BAD_QUANT", [(op(ADD, 52), "b", 101)],
     f"operator 2 (add), byte {op(ADD, 52)}: lo is 101; at most 100 is expected, as hi is"),
    ("BAD_QUANT", [(op(TABLE, 52), "b", -127)], "lo is -127; -128 is expected"),
    ("BAD_QUANT", [(op(PAD, 53), "b", 126)], "hi is 126; 127 is expected"),
    ("BAD_QUANT", [(op(ADD, 54), "B", 0)], "S is 0; 1 to 24 is expected"),
    ("BAD_QUANT", [(op(ADD, 54), "B", 25)], "S is 25; 1 to 24 is expected"),
    ("BAD_QUANT", [(op(CONV, 54), "B", 8)], "S is 8; 0 to 7 is expected"),
    ("BAD_QUANT", [(op(POOL, 54), "B", 255)], "S is 255; 0 is expected"),
    ("BAD_QUANT", [(op(PAD, 54), "B", 1)], "S is 1; 0 is expected"),
    ("BAD_QUANT", [(op(ADD, 55), "b", -1)], "its border is -1; 0 is expected"),
    ("BAD_QUANT", [(op(ADD, 56), "i", -(1 << 21) - 1)], "M1 is -2097153; -2097152 to 2097152 is expected"),
    ("BAD_QUANT", [(op(ADD, 60), "i", (1 << 21) + 1)], "M2 is 2097153; -2097152 to 2097152 is expected"),
    ("BAD_QUANT", [(op(ADD, 60), "i", -(1 << 31))], "M2 is -2147483648; -2097152 to 2097152 is expected"),
    ("BAD_QUANT", [(op(POOL, 56), "i", -1)], "M1 is -1; 0 or more is expected"),
    ("BAD_QUANT", [(op(POOL, 60), "i", 1)], "M2 is 1; 0 is expected"),
    ("BAD_QUANT", [(op(CONV, 56), "i", 5)], "M1 is 5; 0 is expected"),
    ("BAD_QUANT", [(weights(SOFTMAX), "H", 0)], "operator 5 (softmax)", "its table begins with 0; at least 1 is"),
    ("BAD_DTYPE", [(op(ADD, 6), "H", 7)], f"operator 2 (add), byte {op(ADD, 6)}: an input has type 0; 2 is expected"),
    ("BAD_DTYPE", [(op(FLOAT), "H", 24)], f"operator 6 (quantize), byte {op(FLOAT, 12)}: its output has type 0; 2 is"),
    ("BAD_DTYPE", [(op(PAD), "H", 24)], f"operator 3 (quantize), byte {op(PAD, 4)}: an input has type 2; 0 is"),
    ("BAD_WEIGHTS", [(op(TABLE, 16), "I", 0), (op(TABLE, 20), "I", 0)], "operator 1 (activation)", "end at byte 0"),
    ("BAD_WEIGHTS", [(op(TABLE, 20), "I", 257)], "257 bytes of weights are not what it needs"),
    ("BAD_WEIGHTS", [(op(TABLE, 16), "I", weights(SOFTMAX) + 512)], f"weights end at byte {weights(SOFTMAX) + 768}"),
    ("BAD_WEIGHTS", [(op(ADD, 16), "I", 128)], "it takes no weights, but their offset is 128"),
    ("BAD_WEIGHTS", [(op(CONV, 20), "I", 144)], "144 bytes of weights are not what it needs"),
    ("MISALIGNED", [(op(TABLE, 16), "I", weights(TABLE) + 4)], f"offset {weights(TABLE) + 4} is not a multiple of 64"),
    ("BAD_WEIGHTS", [(op(TABLE, 20), "I", 255)], "255 bytes of weights are not what it needs"),
    ("BAD_WEIGHTS", [(op(SOFTMAX, 20), "I", 1)], "1 bytes of weights are not what it needs"),
    ("BAD_WEIGHTS", [(op(SOFTMAX, 20), "I", 255)], "255 bytes of weights are not what it needs"),
    ("BAD_WEIGHTS", [(op(CONV, 20), "I", 84)], "84 bytes of weights are not what it needs"),
    ("BAD_PREPROCESS", [(100, "i", 0)], "header, byte 100: a multiplier is 0; 1 to 4194303 is expected"),
    ("BAD_PREPROCESS", [(100, "i", 1 << 22)], "a multiplier is 4194304; 1 to 4194303 is expected"),
    ("BAD_PREPROCESS", [(112, "i", -(1 << 30))], "an offset is -1073741824; -1073741823 to 1073741823 is expected"),
    ("BAD_PREPROCESS", [(104, "i", 9)], "a number of a channel that a grey picture does not have is 9; 0 is expected"),
    ("BAD_PREPROCESS", [(120, "i", -9)], "a grey picture does not have is -9; 0 is expected"),
    ("BAD_HEADER", [(25, "B", 0)], "the first output's type is 0; 2 is expected"),
    ("OUTSIDE_ARENA", [(92, "I", 100)], "it ends at byte 120 of an arena of 100"),
    ("BAD_GOLDEN", [(GOLDEN + 12, "B", 2)], "the number of golden inputs is 2"),
    ("BAD_GOLDEN", [(GOLDEN + 12, "B", 3)], "the kind of its inputs is 3; 0 is expected"),
    ("BAD_GOLDEN", [(GOLDEN + 16 + 4 * N + 30, "B", 1)], "a fill byte is 1; 0 is expected"),
    ("BAD_GOLDEN", [(GOLDEN + 16 + 4 * N + 32 + 4 + 16 + 4, "I", 1)], "0 is expected"),
]  # fmt: skip


@pytest.mark.parametrize("compiler", cbuild.COMPILERS)
def test_every_number_out_of_range_is_refused_with_its_own_sentence(compiler, tmp_path):
    program = cbuild.program("open_driver", SOURCES, compiler)
    found = verdicts(program, [GOOD, *(patched(*changes) for _, changes, *_ in CASES)], tmp_path)
    assert found[0] == ("LN_OK", "no error.")
    for (status, changes, *texts), (name, sentence) in zip(CASES, found[1:], strict=True):
        assert name == f"LN_{status}" and all(text in sentence for text in texts), (changes, name, sentence)
    assert len({sentence for _, sentence in found}) == len(found)
    assert all(sentence.endswith(".") and "%" not in sentence for _, sentence in found)


LARGE = [
    ("softmax", {}, (2, 32767), (2, 32768), "it does not lead from 2 x 32768 to 2 x 32768"),
    ("global_avg_pool", {}, (2048, 2048, 1), (2048, 2049, 1), "it does not lead from 2048 x 2049 x 1 to 1"),
]


@pytest.mark.parametrize(("name", "given", "fits", "too_large", "sentence"), LARGE)
def test_sums_that_32_bits_do_not_hold_are_refused(tmp_path, name, given, fits, too_large, sentence):
    """The writer refuses them as well, so that the shape is put into the file afterwards."""
    net = Net(fits, Quant(1.0, 0))
    net.add(name, **given)
    good = write(net.model())
    bad = bytearray(good)
    at = struct.unpack_from("<I", good, 64)[0]
    for first in (at + 8, 28, *((at + 40, 44) if name == "softmax" else ())):  # records of input and output, header
        struct.pack_into(f"<{len(too_large)}I", bad, first, *too_large)
    program = cbuild.program("open_driver", SOURCES)
    (right, _), (wrong, said) = verdicts(program, [good, repaired(bytes(bad))], tmp_path)
    assert (right, wrong) == ("LN_OK", "LN_BAD_SHAPE") and sentence in said
    with pytest.raises(reader.RefusedError):
        reader.read(repaired(bytes(bad)))


def test_the_pages_reader_refuses_the_same():
    reader.selftest(reader.read(GOOD))
    for _, changes, *_ in CASES:
        with pytest.raises(reader.RefusedError):
            reader.read(patched(*changes))


@pytest.mark.parametrize("compiler", cbuild.COMPILERS)
def test_truncations_and_any_bytes_are_refused_or_harmless(compiler, tmp_path):
    program, path = cbuild.program("open_driver", SOURCES, compiler), tmp_path / "small.bin"
    path.write_bytes(GOOD)
    assert set(counted(program, "truncate", path)) <= {
        "LN_EMPTY_FILE", "LN_TRUNCATED", "LN_BAD_SECTION", "LN_BAD_GOLDEN"
    }  # fmt: skip
    counts = counted(program, "mutate", path, 1)
    assert counts["LN_BAD_QUANT"] > 100 and counts["LN_BAD_SCALE"] > 20 and counts["LN_OK"] > 1000
    assert counted(program, "random", path, 777, 5000).total() == 5000


def test_both_readers_agree_on_every_byte_of_header_and_program(tmp_path):
    rng, disagree = np.random.default_rng(5), []
    where = [*range(20, 128), *range(PROGRAM, op(N)), *range(GOLDEN, GOLDEN + 16)]
    files = [patched((at, "B", int(value))) for at in where for value in (rng.integers(256), GOOD[at] + 1 & 255)]
    program = cbuild.program("open_driver", SOURCES)
    for data, (name, text) in zip(files, verdicts(program, files, tmp_path), strict=True):
        try:
            reader.read(data)
            accepted = True
        except reader.RefusedError:
            accepted = False
        if accepted != (name == "LN_OK"):
            disagree.append((name, text))
    assert disagree == []


def test_no_int8_operator_needs_a_float(tmp_path):
    """Built for a processor without any: nothing is asked of the compiler's functions for floats."""
    cbuild.need("clang")
    flags = ("--target=armv6m-none-eabi", "-mfloat-abi=soft", "-ffreestanding", "-O1")
    sources = [p for p in cbuild.core() if p.stem.endswith("_i8") and p.name != "ln_check_i8.c"]
    built = cbuild.objects([*sources, cbuild.SRC / "ln_check_i8.c"], "clang", sanitize=False, flags=flags)
    symbols = subprocess.run(["nm", "-u", *built], capture_output=True, text=True, check=True).stdout
    asked = set(re.findall(r"__\w+", symbols))
    assert len(sources) >= 15 and not [name for name in asked if re.search(r"_[fd](add|mul|sub|div|cmp|2)|sf|df", name)]


def test_any_weights_of_the_right_size_are_harmless(tmp_path):
    """Sums that wrap, multipliers below 0: other numbers, no fault. The driver runs what it opens, under sanitizers."""
    program, rng, blobs = cbuild.program("open_driver", SOURCES), np.random.default_rng(0), []
    for fill in (0x80, 0x7F, 0xFF, None, None, None):
        b = bytearray(GOOD)
        for i in (CONV, TABLE, SOFTMAX):
            at, size = struct.unpack_from("<II", GOOD, op(i, 16))
            b[at : at + size] = bytes([fill]) * size if fill else rng.integers(1, 256, size, np.uint8).tobytes()
        blobs.append(repaired(bytes(b)))
    assert {name for name, _ in verdicts(program, blobs, tmp_path)} == {"LN_OK"}


SELFTEST = [
    (weights(CONV) + 33, "operator 0 (conv2d): the checksum of its weights is 0x"),
    (GOLDEN + 16 + 4 * N + 32 + 4 + 16 + 2, "operator 0 (conv2d), golden input 0: the checksum of y is 0x"),
    (GOLDEN + 16 + 4 * N + 32 + 1, "operator 5 (softmax), golden input 0: an output is "),
    (GOLDEN + 16 + 4 * N + 32 + 4 + 3, "operator 6 (dequantize), golden input 0: an output is "),
    (GOLDEN + 16 + 4 * N + 32 + 4 + 16 + 48 + 3, "operator 6 (dequantize), golden input 0: the mean of |y| is "),
    (GOLDEN + 16 + 4 * N + 1, "operator 0 (conv2d), golden input 0: the checksum of y is 0x"),
]


@pytest.mark.parametrize(("at", "text"), SELFTEST)
def test_one_wrong_bit_fails_the_self_test_with_its_place(at, text, tmp_path):
    path = tmp_path / "small.bin"
    path.write_bytes(GOOD)
    program = cbuild.program("open_driver", SOURCES)
    assert drive(program, "selftest", path, len(GOOD), 0).decode() == "0\tno error.\n"
    assert text in drive(program, "selftest", path, at, 1 if at < GOLDEN else 0x40).decode()


# ---------------------------------------------------------------- the writer


def changed(i, tensor_at=None, **more):
    """The small model with operator i, or a tensor, changed."""
    made = small()
    if tensor_at is not None:
        tensors = [replace(t, **more) if k == tensor_at else t for k, t in enumerate(made.tensors)]
        return replace(made, tensors=tensors)
    return replace(made, ops=[replace(o, **more) if k == i else o for k, o in enumerate(made.ops)])


def golden(**more):
    return replace(small(), golden=replace(small().golden, **more))


def numbers(i, **more):
    return changed(i, numbers=replace(small().ops[i].numbers, **more))


REFUSALS = [
    (lambda: changed(0, tensor_at=1, quant=None), "tensor 1 is i8 and has no scale"),
    (lambda: changed(0, tensor_at=7, quant=Quant(1.0, 0)), "tensor 7 is f32 and has a scale"),
    (lambda: changed(0, tensor_at=7, dtype="i8", quant=Quant(1.0, 0)), "from i8 to i8; i8 to f32 is expected"),
    (lambda: changed(0, tensor_at=1, dtype="f32", quant=None), "goes from i8 to f32; f32 to f32 is expected"),
    (lambda: changed(TABLE, op="layernorm", activation="none"), "has no int8 form"),
    (lambda: changed(ADD, numbers=None), "needs the numbers that say how"),
    (lambda: changed(FLOAT, numbers=Numbers()), "gives floats, but has the numbers"),
    (lambda: changed(CONV, weight_dtype="f32"), "cannot have weights of type 'f32'"),
    (lambda: changed(CONV, weights=b""), "0 bytes of weights; its layout is 'panels8'"),
    (lambda: changed(CONV, activation="silu"), "cannot have activation 'silu' in int8"),
    (lambda: numbers(ADD, lo=5, hi=4), "hi is 4; 5 to 127 is expected"),
    (lambda: numbers(ADD, lo=-129), "lo is -129; -128 to 127 is expected"),
    (lambda: numbers(ADD, shift=0), "shift is 0; 1 to 24 is expected"),
    (lambda: numbers(CONV, shift=8), "shift is 8; 0 to 7 is expected"),
    (lambda: numbers(PAD, shift=1), "shift is 1; 0 is expected"),
    (lambda: numbers(ADD, border=1), "border is 1; 0 is expected"),
    (lambda: numbers(ADD, m1=(1 << 21) + 1), "m1 is 2097153; -2097152 to 2097152 is expected"),
    (lambda: numbers(POOL, m1=-1), "m1 is -1; 0 to 2147483647 is expected"),
    (lambda: numbers(POOL, m2=1), "m2 is 1; 0 is expected"),
    (lambda: numbers(TABLE, lo=0), "lo is 0; -128 is expected"),
    (lambda: changed(0, tensor_at=4, quant=Quant(0.5, 0)), "gives Quant(scale=0.5, zero=0); Quant("),
    (lambda: changed(0, tensor_at=6, quant=Quant(0.5, -128)), "Quant(scale=0.00390625, zero=-128) is expected"),
    (lambda: golden(kind="f32"), "kind is 'f32', but the input is i8"),
    (lambda: golden(inputs=[np.zeros((6, 5, 1))] * 2), "an input has type float64; int8 is expected"),
    (lambda: golden(inputs=[7, 8]), "of kind 'i8' an input is a int"),
    (lambda: golden(kind="made"), "of kind 'made' an input is a ndarray"),
    (lambda: golden(checksums=[[(1.0, 1.0)] * 7] * 2), "a checksum is (1.0, 1.0); a CRC-32 is expected"),
    (lambda: golden(checksums=[[1] * 7] * 2), "a checksum is 1; two numbers is expected"),
    (lambda: golden(outputs=[(np.zeros(4), np.zeros(4))] * 2), "an int8 output has type float64"),
    (lambda: replace(small(), preprocessing=replace(GRAY, std=(1e-4,))), "do not go with the input's scale"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "message"), REFUSALS)
def test_the_writer_refuses_what_the_format_cannot_hold(make, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        write(make())


ONE = {"weight": np.ones((1, 1), np.int8), "bias": np.zeros(1, np.int32), "multiplier": np.ones(1, np.int32)}


@pytest.mark.parametrize(
    ("op", "roles", "message"),
    [
        ("linear", ONE | {"weight": np.full((1, 1), -128, np.int8)}, "a weight is -128; -127 to 127 is expected"),
        ("linear", ONE | {"weight": np.ones((1, 1))}, "a weight has type float64; whole numbers are expected"),
        ("linear", ONE | {"multiplier": np.array([-1])}, "a multiplier is -1; 0 to 2147483647 is expected"),
        ("linear", ONE | {"bias": np.zeros(2, np.int32)}, "1 channels in 1 groups have (2,) biases"),
        ("prelu", {"multiplier": np.array([1 << 22])}, "a multiplier is 4194304; -2097152 to 2097152 is expected"),
        ("activation", {"table": np.zeros(255, np.int8)}, "its table has shape (255,); (256,) is expected"),
        ("softmax", {"table": np.zeros(256, np.uint16)}, "its table begins with 0"),
    ],
)
def test_weights_that_cannot_be_packed_are_refused(op, roles, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        pack_int8.pack(op, Attrs(), roles)


def test_five_inputs_are_packed_as_the_page_shows():
    w = np.arange(10, dtype=np.int8).reshape(2, 5)
    roles = {"weight": w, "bias": np.array([100, 101]), "multiplier": np.array([7, 8])}
    block = pack_int8.pack("linear", make_attrs(OPS["linear"].OP, {"out_features": 2}), roles)
    assert len(block) == 64
    assert np.frombuffer(block, "<i4", 8).tolist() == [100, 101, 0, 0, 7, 8, 0, 0]
    rows = np.frombuffer(block, np.int8, 32, 32).reshape(2, 4, 4)
    assert rows[:, :2].tolist() == [[[0, 1, 2, 3], [5, 6, 7, 8]], [[4, 0, 0, 0], [9, 0, 0, 0]]]
    assert not rows[:, 2:].any()


def made(picture, seeds=(1, 0xFFFFFFFF), fine=False):
    """The small model with golden inputs that are made of seeds."""
    bare = small(fine) if picture else replace(small(fine), preprocessing=Preprocessing())
    P, Q = scheme.picture(GRAY.mean, GRAY.std, bare.tensors[0].quant)
    outputs, sums = [], []
    for seed in seeds:
        v = np.array(reader_int8.made(seed, 30), np.uint8).reshape(6, 5, 1)
        x = definition.frame(v[None], P, Q)[0] if picture else (v.astype(int) - 128).astype(np.int8)
        values = net(fine).values(x)
        outputs.append((values[SOFTMAX + 1], values[FLOAT + 1]))
        sums.append(checksums(bare, values[1:]))
    return write(replace(bare, golden=Golden("made", seeds, outputs, sums)))


@pytest.mark.parametrize("picture", [False, True])
def test_golden_inputs_made_of_a_seed_are_what_the_page_says(picture, tmp_path):
    data = made(picture)
    assert data[6] == 1 and write(pictures(fine=False).model(golden=1))[6] == 0  # format 1.1, and 1.0
    assert made(picture, fine=True)[6] == 3
    f = reader.read(data)
    reader.selftest(f)
    InferenceEngine(data).selftest()
    found, frames = chip_file.golden_inputs(data, 30, "int8")
    assert frames == picture and [x.dtype for x in found] == [np.uint8 if picture else np.int8] * 2
    assert all(np.array_equal(x, stored) for x, (stored, _, _) in zip(found, f.golden, strict=True))
    assert reader_int8.made(1, 4) == [20, 84, 82, 118]
    at = struct.unpack_from("<I", data, 80)[0] + 16 + 4 * N
    other = repaired(data[:at] + b"\x02" + data[at + 1 :])
    with pytest.raises(AssertionError, match="operator 0: other bytes"):
        reader.selftest(reader.read(other))
    with pytest.raises(ModelError, match="operator 0 .*golden input 0: the checksum of y is"):
        InferenceEngine(other).selftest()


def test_only_int8_is_made_of_a_seed():
    from bins import mlp

    data = bytearray(mlp().bytes())
    data[struct.unpack_from("<I", data, 80)[0] + 12] = 2
    with pytest.raises(ModelError, match="the kind of its inputs is 2; 0 is expected"):
        InferenceEngine(repaired(bytes(data)))
    with pytest.raises(reader.RefusedError):
        reader.read(repaired(bytes(data)))


def test_zeros_at_the_end_of_exponentials_are_not_stored():
    roles = {"table": np.array([65535, 300, 0, 2] + [0] * 252, np.uint16)}
    assert pack_int8.pack("softmax", Attrs(), roles) == struct.pack("<4H", 65535, 300, 0, 2)
    full = pack_int8.pack("softmax", Attrs(), {"table": np.ones(256, np.uint16)})
    assert len(full) == 512 and not pack_int8.is_short("softmax", full)
    sharp = Net((7,), Quant(0.5, 3), seed=1)
    sharp.add("softmax")
    model = sharp.model(golden=2)
    size = len(model.ops[0].weights)
    assert size == 2 * 24 and pack_int8.is_short("softmax", model.ops[0].weights)  # 65535 e^-11.5 is 0.66, e^-12 0.40
    data = write(model)
    assert data[6] == 1
    engine = InferenceEngine(data)
    engine.selftest()
    reader.selftest(reader.read(data))
    x = np.array([127, 104, 103, 102, -128, 0, 127], np.int8)  # T[23], the last that is stored, and what is behind it
    assert engine.predict(x, raw=True).tolist() == sharp.values(x)[-1].tolist()


def test_golden_frames_of_an_int8_input_are_pictures():
    plain, frame = small(), np.arange(30, dtype=np.uint8).reshape(6, 5, 1)
    data = write(replace(plain, golden=Golden("frame", [frame] * 2, plain.golden.outputs, plain.golden.checksums)))
    with pytest.raises(AssertionError, match="operator 0: other bytes"):
        reader.selftest(reader.read(data))
