"""ln_open attacked: every truncation, every byte, every status, under address and undefined-behaviour sanitizers.

A small C driver (c/open_driver.c) does the opening. Whatever it accepts it also runs, in buffers of exactly the
size asked for, so that one unchecked offset ends the process. The reader of tests/reader.py judges the same files.
"""

import os
import re
import struct
import subprocess
import zlib
from collections import Counter
from functools import cache

import cbuild
import numpy as np
import pytest
import reader
from attack_builds import BUILDS, DRIVER, drive, floats, is_emulated
from closeness import assert_close
from everything import everything

from litenet.exporter.format import Golden, Model, OpRec, TensorRec, op_checksum, write
from litenet.exporter.pack import pack
from litenet.trainer.ops import OPS, Attrs, make_attrs

HEADER = (cbuild.INCLUDE / "litenet.h").read_text()
NAMES = re.findall(
    r"\bLN_\w+", re.sub(r"/\*.*?\*/", "", HEADER[HEADER.index("LN_OK = 0") : HEADER.index("} ln_status;")])
)
SOURCES = DRIVER
GOOD = write(everything()[0])
HALF = write(everything(half=True)[0])


@pytest.fixture(scope="module", params=BUILDS)
def driver(request):
    return BUILDS[request.param].driver()


@pytest.fixture(scope="module")
def first_driver():
    return next(iter(BUILDS.values())).driver()


def verdicts(program, blobs, tmp_path):
    """(status name, sentence) of each blob."""
    bundle = tmp_path / "bundle"
    bundle.write_bytes(b"".join(struct.pack("<I", len(b)) + b for b in blobs))
    lines = drive(program, "bundle", bundle).decode().splitlines()
    return [(NAMES[int(status)], text) for status, text in (line.split("\t") for line in lines)]


def counted(program, *args):
    lines = drive(program, *args).decode().splitlines()
    return Counter({NAMES[int(status)]: int(n) for status, n in (line.split("\t") for line in lines)})


# ---------------------------------------------------------------- making bad files

PROGRAM, GOLDEN = struct.unpack_from("<I", GOOD, 64)[0], struct.unpack_from("<I", GOOD, 80)[0]
METADATA = struct.unpack_from("<I", GOOD, 72)[0]
N = struct.unpack_from("<H", GOOD, 88)[0]


def tensor(i, field=0):
    return PROGRAM + 32 * i + field


def op(i, field=0):
    return PROGRAM + 32 * (N + 1) + 64 * i + field


def repaired(data):
    """Length and checksums made true."""
    b = bytearray(data)
    struct.pack_into("<I", b, 8, len(b))
    struct.pack_into("<I", b, 16, zlib.crc32(b[128:]))
    struct.pack_into("<I", b, 12, 0)
    struct.pack_into("<I", b, 12, zlib.crc32(b[:128]))
    return bytes(b)


def patched(*changes, of=GOOD, repair=True):
    """The good file with (offset, struct code, value) written into it."""
    b = bytearray(of)
    for at, code, value in changes:
        struct.pack_into("<" + code, b, at, value)
    return repaired(b) if repair else bytes(b)


def elsewhere(name):
    """A few first bytes of other formats."""
    return {
        "lfs": b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n",
        "html": b"\xef\xbb\xbf\r\n  <!DOCTYPE html><html>",
        "html-lower": b"<html lang=en>",
        "xml": b'<?xml version="1.0"?>',
        "onnx": b"\x08\x08\x12\x07pytorch",
        "tflite": b"\x1c\0\0\0TFL3" + bytes(20),
        "zip": b"PK\x03\x04" + bytes(30),
        "gzip": b"\x1f\x8b\x08\0",
        "png": b"\x89PNG\r\n\x1a\n",
        "jpeg": b"\xff\xd8\xff\xe0",
        "bmp": b"BM\x36\x10\0\0\0\0\0\0\x36\0\0\0",
        "ppm": b"P6 4 4 255\n",
        "numpy": b"\x93NUMPY\x01\0",
        "json": b'{\n  "name": "net"}',
        "list": b"[1, 2]",
    }[name]


@cache
def aliased(ends_early):
    """x -> t1 -> flatten t2 at the same place -> activation t3 in place, and t1 read again before that or after."""
    relu = make_attrs(OPS["activation"].OP, {"activation": "relu"})
    act, pool = OpRec("activation", (2,), 3, relu), OpRec("global_avg_pool", (1,), 4)
    ops = [OpRec("activation", (0,), 1, relu), OpRec("flatten", (1,), 2), *((pool, act) if ends_early else (act, pool))]
    shapes = [(2, 2, 4), (2, 2, 4), (16,), (16,), (4,)]
    out = OpRec("softmax", (3,), 5)
    tensors = [TensorRec(s, input=i == 0, output=i == 4) for i, s in enumerate(shapes)]
    return write(Model([*tensors, TensorRec((16,), output=True)], [*ops, out]))


@cache
def gated(over_the_gate):
    """A picture times one number a channel, written over the picture, or where the gate begins, which is shorter."""
    relu = make_attrs(OPS["activation"].OP, {"activation": "relu"})
    ops = [OpRec("activation", (0,), 1, relu), OpRec("global_avg_pool", (1,), 2), OpRec("mul", (1, 2), 3)]
    places = {2: 64, 3: 64 * over_the_gate}
    shapes = [(4,) if i == 2 else (2, 2, 4) for i in range(4)]
    tensors = [TensorRec(s, offset=places.get(i, 0), input=i == 0) for i, s in enumerate(shapes)]
    return write(Model([*tensors, TensorRec((2, 2, 4), output=True)], [*ops, OpRec("softmax", (3,), 4)]))


@cache
def flattened_input():
    """A view of what the caller holds."""
    ops = [OpRec("flatten", (0,), 1), OpRec("softmax", (1,), 2)]
    tensors = [TensorRec((2, 2, 4), input=True), TensorRec((16,)), TensorRec((16,), output=True)]
    return write(Model(tensors, ops))


@cache
def flattened_output():
    """A view of what is an output itself."""
    relu = make_attrs(OPS["activation"].OP, {"activation": "relu"})
    ops = [OpRec("activation", (0,), 1, relu), OpRec("flatten", (1,), 2), OpRec("softmax", (2,), 3)]
    shapes = [(2, 2, 4), (2, 2, 4), (16,), (16,)]
    return write(Model([TensorRec(s, input=i == 0, output=i in (1, 3)) for i, s in enumerate(shapes)], ops))


@cache
def huge_values():
    """A model whose output overflows, with golden values that do not."""
    w = pack("linear", Attrs(), {"weight": np.full((1, 2), 3e38)})
    rec = OpRec("linear", (0,), 1, Attrs(alpha=0.0), w)
    golden = Golden("f32", [np.ones(2, np.float32)], [np.ones(1)], [[(1.0, 1.0)]])
    return write(Model([TensorRec((2,), input=True), TensorRec((1,), output=True)], [rec], golden=golden))


NAN, INF = float("nan"), float("inf")
CASES = [
    # the file is something else
    ("EMPTY_FILE", b"", "the file is empty. Copy or download it again."),
    ("NOT_LITENET", b"hello there", "it starts with 68 65 6C 6C, a model with 4C 4E 45 54 (LNET). Give"),
    ("NOT_LITENET", b"LNEX" + bytes(200), "4C 4E 45 58, a"),
    ("NOT_LITENET", bytes(4096), "nothing seems to have been written here"),
    ("NOT_LITENET", b"\xff" * 128, "FF FF FF FF, a model with 4C 4E 45 54: nothing"),
    ("NOT_LITENET", b"X", "58 00 00 00"),
    ("IS_LFS_POINTER", elsewhere("lfs"), "git lfs pull"),
    ("IS_HTML", elsewhere("html"), "web page"),
    ("IS_ONNX", elsewhere("onnx"), "ONNX"),
    ("IS_TFLITE", elsewhere("tflite"), "TensorFlow Lite"),
    ("IS_ZIP", elsewhere("zip"), ".npz"),
    ("IS_GZIP", elsewhere("gzip"), "gunzip"),
    ("IS_IMAGE", elsewhere("png"), "picture"),
    ("IS_NUMPY", elsewhere("numpy"), "NumPy"),
    ("IS_JSON", elsewhere("json"), "edge-train"),
    # damaged, or newer
    ("TRUNCATED", b"LN", "it has 2 of 128 bytes"),
    ("TRUNCATED", GOOD[:127], "it has 127 of 128 bytes"),
    ("TRUNCATED", GOOD[:-1], f"it has {len(GOOD) - 1} of {len(GOOD)} bytes"),
    ("EXTRA_BYTES", GOOD + b"\n", f"it has {len(GOOD) + 1} bytes; its header says {len(GOOD)}"),
    ("BAD_HEADER_CRC", patched((92, "B", 1), repair=False), "the checksum of the header is 0x"),
    ("BAD_BODY_CRC", patched((200, "B", 99), repair=False), "the checksum of all after the header is 0x"),
    ("NEWER_MAJOR", patched((4, "H", 2)), "it has format 2; this LiteNet reads format 1"),
    ("UNKNOWN_FEATURE", patched((20, "I", 12)), "0x0000000C; known are 0x00000003"),
    ("BAD_HEADER", patched((4, "H", 0)), "header, byte 4: the major version is 0; 1 is expected"),
    ("BAD_HEADER", patched((88, "H", 0)), "the operator count is 0; 1 to 4096 is expected"),
    ("BAD_HEADER", patched((88, "H", 4097)), "the operator count is 4097"),
    ("BAD_HEADER", patched((90, "H", 12)), "the tensor count is 12; 11 is expected"),
    ("BAD_HEADER", patched((88, "H", N - 1), (90, "H", N)), "the program's size is 992; 896 is expected"),
    ("BAD_HEADER", patched((126, "B", 5)), "an unused byte is 5; 0 is expected"),
    ("BAD_HEADER", patched((24, "B", 3)), "the input's type is 3; 0 is expected"),
    ("BAD_HEADER", patched((27, "B", 2)), "the first output's rank is 2; 1 is expected"),
    ("BAD_HEADER", patched((28, "I", 6)), "a dimension of the input is 6; 5 is expected"),
    ("BAD_HEADER", patched((44, "I", 9)), "a dimension of the first output is 9; 3 is expected"),
    ("BAD_SECTION", patched((60, "I", 1 << 31)), "the weights' size is 2147483648; at most 2296 is expected"),
    ("BAD_SECTION", patched((60, "I", 0xFFFFFFFF)), "the weights' size is 4294967295"),
    ("BAD_SECTION", patched((64, "I", PROGRAM + 64)), f"the program's offset is {PROGRAM + 64}; {PROGRAM} is"),
    ("BAD_SECTION", patched((68, "I", 1 << 30)), "the program's size is 1073741824; at most"),
    ("BAD_SECTION", patched((72, "I", 3)), "the metadata's offset is 3;"),
    ("BAD_SECTION", patched((76, "I", 0xFFFFFFFF)), "the metadata's size is 4294967295; at most"),
    ("BAD_SECTION", patched((76, "I", 0)), "the metadata's offset is "),
    ("BAD_SECTION", patched((80, "I", 0)), "the golden section's offset is 0;"),
    ("BAD_SECTION", patched((84, "I", 0xFFFFFFFF)), "the golden section's size is 4294967295; at most"),
    ("BAD_SECTION", patched((PROGRAM + 992 + 1, "B", 7)), "a fill byte between sections is 7; 0 is expected"),
    ("BAD_SECTION", repaired(GOOD + bytes(4)), f"the file's length is {len(GOOD) + 4}; {len(GOOD)} is expected"),
    ("BAD_PREPROCESS", patched((96, "B", 3)), "the resize rule is 3; 0 to 2 is expected"),
    ("BAD_PREPROCESS", patched((97, "B", 9)), "the fit rule is 9"),
    ("BAD_PREPROCESS", patched((98, "B", 4)), "the colour rule is 4; 0 to 3"),
    ("BAD_PREPROCESS", patched((99, "B", 255)), "the inversion rule is 255"),
    ("BAD_PREPROCESS", patched((100, "f", INF)), "a mean is infinity; a finite number is expected"),
    ("BAD_PREPROCESS", patched((104, "f", NAN)), "a mean is NaN"),
    ("BAD_PREPROCESS", patched((112, "f", 0.0)), "a standard deviation is 0; a number above 0 is expected"),
    ("BAD_PREPROCESS", patched((116, "f", -0.5)), "a standard deviation is -0.5"),
    ("BAD_PREPROCESS", patched((112, "I", 0x7FFFFF)), "a standard deviation is 1.17549e-38; at least 2^-126"),
    ("BAD_PREPROCESS", patched((98, "B", 2)), "a dimension of the input is 1; 3 is expected, as the input is"),
    ("BAD_PREPROCESS", patched((28, "I", 65536)), "a dimension of the input is 65536; at most 65535"),
    ("BAD_PREPROCESS", patched((26, "B", 4)), "the input's rank is 4; 3 is expected"),
    ("BAD_PREPROCESS", patched((98, "B", 0)), "a mean is 33.5; 0 is expected, as the input is no picture"),
    ("BAD_PREPROCESS", patched((98, "B", 0), (100, "f", 0.0)), "a standard deviation is 78.25; 1 is expected"),
    (
        "BAD_PREPROCESS",
        patched((96, "I", 0), (100, "f", 0), (112, "f", 1)),
        "the letterbox grey is 7; 0 is expected, as the input is no picture",
    ),
    (
        "BAD_PREPROCESS",
        patched((96, "I", 2), (100, "f", 0), (112, "f", 1), (124, "B", 0)),
        "the resize rule is 2; 0 is expected, as the input is no picture",
    ),
    # tensor records
    ("BAD_DTYPE", patched((tensor(2, 4), "B", 2)), f"tensor 2, byte {tensor(2, 4)}: its type is 2; 0 is expected"),
    ("BAD_RANK", patched((tensor(3, 5), "B", 5)), "its rank is 5; 1 to 4 is expected"),
    ("BAD_RANK", patched((tensor(3, 5), "B", 0)), "its rank is 0"),
    ("BAD_DIM", patched((tensor(1, 12), "I", 0)), "a dimension is 0; at least 1 is expected"),
    ("BAD_DIM", patched((tensor(1, 20), "I", 1)), "an unused dimension is 1; 0 is expected"),
    ("TENSOR_TOO_LARGE", patched((tensor(1, 8), "I", 0xFFFFFFFF)), "it makes 4294967295 elements; at most 1073741823"),
    ("TENSOR_TOO_LARGE", patched((tensor(1, 12), "I", 1 << 28)), "it makes 1342177280 elements"),
    (
        "TENSOR_TOO_LARGE",
        patched((tensor(7, 8), "I", (1 << 30) - 1), (44, "I", (1 << 30) - 1)),
        f"tensor 10, byte {tensor(10, 8)}: it makes 1073741827",
    ),
    ("BAD_FLAGS", patched((tensor(0, 6), "B", 0)), "its flags are 0; 1 is expected"),
    ("BAD_FLAGS", patched((tensor(4, 6), "B", 1)), "its flags are 1; 0 or 2 is expected"),
    ("BAD_FLAGS", patched((tensor(4, 6), "B", 3)), "its flags are 3"),
    ("BAD_FLAGS", patched((tensor(7, 6), "B", 0), (tensor(10, 6), "B", 0)), "header, byte 90: no tensor is"),
    ("BAD_SCALE", patched((tensor(4, 7), "b", -1)), "its zero point is byte 255; 0 is expected"),
    ("BAD_SCALE", patched((tensor(4, 24), "f", 0.0625)), "its scale is 0.0625; 1 is expected"),
    ("OUTSIDE_ARENA", patched((tensor(0), "I", 16)), "its arena offset is 16; 0 is expected, as the caller holds it"),
    ("OUTSIDE_ARENA", patched((tensor(3), "I", 336)), "it ends at byte 656 of an arena of 640"),
    ("OUTSIDE_ARENA", patched((tensor(3), "I", 0xFFFFFFF0)), "it ends at byte 4294967600 of an arena of 640"),
    ("OUTSIDE_ARENA", patched((92, "I", 0)), "of an arena of 0"),
    ("MISALIGNED", patched((tensor(3), "I", 328)), "its offset 328 is not a multiple of 16"),
    ("BAD_LIFETIME", patched((tensor(3, 28), "H", 10)), "its first operator is 10; a number below 10 is expected"),
    ("BAD_LIFETIME", patched((tensor(3, 28), "H", 1)), "its first operator is 1, which does not write it"),
    ("BAD_LIFETIME", patched((tensor(0, 28), "H", 3)), "its first operator is 3; 0 is expected, as it is the input"),
    ("BAD_LIFETIME", patched((tensor(3, 30), "H", 65535)), "its last operator is 65535; a number below 10"),
    ("BAD_LIFETIME", patched((tensor(3, 30), "H", 4)), "its last operator is 4, which is not where its life ends"),
    ("BAD_LIFETIME", patched((tensor(2, 30), "H", 2)), "its last operator is 2, but operator 3 still reads it"),
    ("BAD_LIFETIME", patched((tensor(7, 30), "H", 8)), "its last operator is 8, which is not"),
    ("OVERLAP", patched((tensor(3), "I", 0)), f"tensor 3, byte {tensor(3)}: it shares bytes with tensor 2, alive at"),
    ("OVERLAP", patched((tensor(4), "I", 16)), "it shares bytes with tensor 2, alive at operator 3"),
    ("OVERLAP", patched((tensor(8), "I", 48), (tensor(9), "I", 48)), "it shares bytes with tensor 5"),
    ("OVERLAP", aliased(ends_early=False), "it shares bytes with tensor 1, alive at operator 2"),
    ("OVERLAP", gated(over_the_gate=True), "it shares bytes with tensor 2, alive at operator 2"),
    # operator records
    ("UNKNOWN_OP", patched((op(5), "H", 11)), f"operator 5 (?), byte {op(5)}: its number is 11. Install a newer"),
    ("UNKNOWN_OP", patched((op(5), "H", 0xFFFF)), "its number is 65535"),
    ("BAD_ACTIVATION", patched((op(0, 2), "B", 10)), "its activation is 10; a number below 10 is expected"),
    ("BAD_ACTIVATION", patched((op(4, 2), "B", 1)), "its activation is 1, but it takes none"),
    ("BAD_ALGORITHM", patched((op(0, 3), "B", 1)), "its algorithm is 1; 0 is expected. Install a newer LiteNet"),
    ("BAD_ALGORITHM", patched((op(0, 3), "B", 3)), "its algorithm is 3; 0 is expected. Install a newer LiteNet"),
    ("BAD_ALGORITHM", patched((op(2, 3), "B", 1)), f"byte {op(2, 3)}: its algorithm is 1; 0 is expected"),
    ("BAD_ATTRIBUTE", patched((op(0, 34), "B", 0)), "stride is 0, 1; 1 to 255 is expected"),
    ("BAD_ATTRIBUTE", patched((op(0, 40), "B", 0)), "dilation is 0, 1; 1 to 255 is expected"),
    ("BAD_ATTRIBUTE", patched((op(0, 42), "H", 0)), "groups is 0; 1 to 65535 is expected"),
    ("BAD_ATTRIBUTE", patched((op(0, 44), "f", NAN)), "alpha is NaN; 0 to 1 is expected"),
    ("BAD_ATTRIBUTE", patched((op(3, 32), "f", -1e-6)), "alpha is -1e-6; 0 to 1"),
    ("BAD_ATTRIBUTE", patched((op(8, 32), "f", 1.5e7)), "eps is 1.5e+7; 1e-12 to 1 is expected"),
    ("BAD_ATTRIBUTE", patched((op(9, 63), "B", 4)), "a byte after its attributes is 4; 0 is expected"),
    ("BAD_TENSOR_INDEX", patched((op(3, 14), "B", 1)), "the number of its inputs is 1; 2 is expected"),
    ("BAD_TENSOR_INDEX", patched((op(3, 14), "B", 255)), "the number of its inputs is 255"),
    ("BAD_TENSOR_INDEX", patched((op(3, 6), "H", 11)), "an input is 11; a number below 11 is expected"),
    ("BAD_TENSOR_INDEX", patched((op(3, 8), "H", 0)), "an unused input is 0; 65535 is expected"),
    ("BAD_TENSOR_INDEX", patched((op(3, 12), "H", 0xFFFF)), "its output is 65535; a number below 11"),
    ("BAD_DTYPE", patched((op(6, 15), "B", 1)), "the type of its weights is 1; 0 is expected"),
    ("BAD_DTYPE", patched((op(8, 15), "B", 1), (20, "I", 1)), f"operator 8 (layernorm), byte {op(8, 15)}: the type"),
    ("MISALIGNED", patched((op(6, 16), "I", 500)), "its offset 500 is not a multiple of 64"),
    ("MISALIGNED", patched((op(6, 24), "I", 8), (op(6, 28), "I", 16)), "its offset 8 is not a multiple of 16"),
    ("BAD_WEIGHTS", patched((op(6, 16), "I", 0)), "its weights end at byte 272, and all weights at byte 864"),
    ("BAD_WEIGHTS", patched((op(6, 20), "I", 0xFFFFFFF0)), "its weights end at byte 429496"),
    ("BAD_WEIGHTS", patched((op(6, 20), "I", 268)), "268 bytes of weights are not what it needs from 16 to 3"),
    ("BAD_WEIGHTS", patched((op(5, 16), "I", 128)), "it takes no weights, but their offset is 128"),
    ("BAD_WEIGHTS", patched((op(5, 20), "I", 4)), "it takes no weights, but their size is 4"),
    ("BAD_SCRATCH", patched((op(6, 28), "I", 641)), "its scratch memory ends at byte 641 of an arena of 640"),
    ("BAD_SCRATCH", patched((op(6, 24), "I", 0xFFFFFFF0), (op(6, 28), "I", 0xFFFFFFFF)), "ends at byte 8589934575"),
    ("BAD_SCRATCH", patched((op(6, 24), "I", 16), (op(6, 28), "I", 32)), "32 bytes of scratch memory are not what it"),
    ("BAD_SCRATCH", patched((op(6, 24), "I", 16)), "its scratch memory ends at byte 16 of an arena of 640"),
    ("BAD_SCRATCH", patched((op(6, 28), "I", 64)), "64 bytes of scratch memory are not what it needs"),
    ("BAD_ORDER", patched((op(2, 4), "H", 5)), "it reads tensor 5, which operator 4 writes"),
    ("BAD_ORDER", patched((op(2, 4), "H", 3)), "it reads tensor 3, which operator 2 writes"),
    ("BAD_SHAPE", patched((op(0, 36), "B", 0)), "operator 0 (conv2d), byte 1260: it does not lead from 5 x 4 x 1"),
    ("BAD_SHAPE", patched((op(4, 32), "B", 5)), "it does not lead from 5 x 4 x 4 to 2 x 2 x 4"),
    ("BAD_SHAPE", patched((tensor(9, 5), "B", 2), (tensor(9, 12), "I", 1)), "it does not lead from 4 to 4 x 1"),
    # the golden section
    ("BAD_GOLDEN", patched((GOLDEN, "I", 2)), f"golden section, byte {GOLDEN}: its version is 2; 1 is expected"),
    ("BAD_GOLDEN", patched((GOLDEN + 4, "I", 3)), "the number of golden inputs is 3; 2 is expected"),
    ("BAD_GOLDEN", patched((GOLDEN + 4, "I", 0xFFFFFFFF)), "the number of golden inputs is 4294967295"),
    ("BAD_GOLDEN", patched((GOLDEN + 8, "I", 9)), "its operator count is 9; 10 is expected"),
    ("BAD_GOLDEN", patched((GOLDEN + 12, "B", 2)), "the kind of its inputs is 2; 0 is expected"),
    ("BAD_GOLDEN", patched((GOLDEN + 13, "B", 2)), "a fill byte is 2; 0 is expected"),
    ("BAD_GOLDEN", patched((GOLDEN + 56 + 20, "f", NAN)), "a value is NaN; a finite number is expected"),
    ("BAD_GOLDEN", patched((84, "I", 40), of=GOOD[: GOLDEN + 40]), "the golden section's size is 40; at least 56"),
]  # fmt: skip


@pytest.fixture(scope="module")
def answers(driver, tmp_path_factory):
    return verdicts(driver, [data for _, data, _ in CASES], tmp_path_factory.mktemp("open"))


@pytest.mark.parametrize("index", range(len(CASES)), ids=[f"{name}-{i}" for i, (name, *_) in enumerate(CASES)])
def test_a_bad_file_is_refused_with_its_own_status_and_sentence(answers, index):
    name, _, sentence = CASES[index]
    got_name, got = answers[index]
    assert got_name == f"LN_{name}" and sentence in got


def test_no_two_sentences_are_the_same(answers):
    texts = Counter(text for _, text in answers)
    assert [text for text, n in texts.items() if n > 1] == []
    assert all(text.endswith(".") and "%" not in text for text in texts)


@pytest.mark.parametrize("index", range(len(CASES)), ids=[f"{name}-{i}" for i, (name, *_) in enumerate(CASES)])
def test_the_second_reader_refuses_the_same_files(index):
    with pytest.raises(reader.RefusedError):
        reader.read(CASES[index][1])


def test_what_is_wrong_in_a_newer_file_may_be_new(driver, tmp_path):
    minors = GOOD[6], 3, 4, 900
    files = [patched((6, "H", minor), (op(0, 36), "B", 0)) for minor in minors]
    for minor, (status, said) in zip(minors, verdicts(driver, files, tmp_path), strict=True):
        advice = "written like this: export" if minor <= 3 else "Install a newer LiteNet, or export the model for"
        assert status == "LN_BAD_SHAPE" and advice in said, said


ACCEPTED = {
    "the file itself": GOOD,
    "half precision": HALF,
    "a newer minor": patched((6, "H", 900)),
    "a feature bit that no operator uses": patched((20, "I", 1)),
    "a larger arena": patched((92, "I", 4096)),
    "add over its other input": patched((tensor(4), "I", 0), (tensor(5), "I", 320), (tensor(6), "I", 320)),
    "flatten that copies": patched((tensor(6), "I", 128)),
    "flatten whose input is read again": aliased(ends_early=True),
    "flatten of the input": flattened_input(),
    "flatten of an output": flattened_output(),
    "a product over its first input": gated(over_the_gate=False),
    "bars of another grey": patched((124, "B", 255)),
    "overflow at run time": huge_values(),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_a_harmless_difference_is_accepted(driver, tmp_path, name):
    assert verdicts(driver, [ACCEPTED[name]], tmp_path) == [("LN_OK", "no error.")]
    reader.read(ACCEPTED[name])


# ---------------------------------------------------------------- in bulk


@pytest.mark.parametrize("data", [GOOD, HALF], ids=["f32", "f16"])
def test_every_truncation_is_refused(driver, tmp_path, data):
    path = tmp_path / "model.bin"
    path.write_bytes(data)
    counts = counted(driver, "truncate", path)
    assert counts.total() == 2 * len(data)
    assert set(counts) <= {"LN_EMPTY_FILE", "LN_TRUNCATED", "LN_BAD_SECTION", "LN_BAD_GOLDEN"}


@pytest.mark.parametrize("repair", [0, 1], ids=["checksums-broken", "checksums-repaired"])
def test_every_byte_can_be_anything(driver, tmp_path, repair, request):
    if is_emulated(driver) and not request.config.getoption("--slow"):
        pytest.skip("takes half a minute when emulated; run with --slow")
    path = tmp_path / "model.bin"
    path.write_bytes(GOOD)
    counts = counted(driver, "mutate", path, repair)
    assert counts.total() > 11 * len(GOOD)
    if not repair:
        assert counts["LN_OK"] == 0 and counts["LN_BAD_HEADER_CRC"] > 1000 and counts["LN_BAD_BODY_CRC"] > 10000
        return
    seen = {name for name in NAMES[NAMES.index("LN_BAD_HEADER") : NAMES.index("LN_BAD_GOLDEN") + 1] if counts[name]}
    assert len(seen) >= 22  # nearly every kind of refusal is one byte away
    assert counts["LN_OK"] > 1000  # weights, golden frames, metadata


def test_several_bytes_can_be_anything(driver, tmp_path):
    path = tmp_path / "model.bin"
    path.write_bytes(HALF)
    assert counted(driver, "random", path, 12345, 20_000).total() == 20_000


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 9))
@pytest.mark.parametrize("data", [GOOD, HALF, aliased(True)], ids=["f32", "f16", "aliased"])
def test_a_million_times_several_bytes(driver, tmp_path, data, seed):
    path = tmp_path / "model.bin"
    path.write_bytes(data)
    assert counted(driver, "random", path, seed * 7919, 100_000).total() == 100_000


def test_both_readers_agree_on_every_byte_of_header_and_program(first_driver, tmp_path):
    rng = np.random.default_rng(5)
    where = [*range(20, 128), *range(PROGRAM, PROGRAM + 992), *range(GOLDEN, GOLDEN + 16)]
    files = [patched((at, "B", int(value))) for at in where for value in (rng.integers(256), GOOD[at] + 1 & 255)]
    disagree = []
    for data, (name, text) in zip(files, verdicts(first_driver, files, tmp_path), strict=True):
        try:
            reader.read(data)
            accepted = True
        except reader.RefusedError:
            accepted = False
        if accepted != (name == "LN_OK"):
            disagree.append((name, text))
    assert disagree == []


def test_a_long_program_opens_quickly(first_driver, tmp_path):
    """4096 operators, all tensors at one place; and as many that all stay alive."""
    relu = make_attrs(OPS["activation"].OP, {"activation": "relu"})
    ops = [OpRec("activation", (i,), i + 1, relu) for i in range(4096)]
    tensors = [TensorRec((3,), input=i == 0, output=i == 4096) for i in range(4097)]
    chain = write(Model(tensors, ops))
    outputs = write(Model([tensors[0], *(TensorRec((3,), output=True) for _ in range(4096))], ops))
    assert [name for name, _ in verdicts(first_driver, [chain, outputs], tmp_path)] == ["LN_OK", "LN_OK"]


# ---------------------------------------------------------------- other files


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("html-lower", "IS_HTML"), ("xml", "IS_HTML"), ("jpeg", "IS_IMAGE"), ("bmp", "IS_IMAGE"), ("ppm", "IS_IMAGE"),
        ("list", "IS_JSON"),
    ],
)  # fmt: skip
def test_other_formats_are_told_apart(first_driver, tmp_path, kind, status):
    assert verdicts(first_driver, [elsewhere(kind)], tmp_path)[0][0] == f"LN_{status}"


LIKE = [  # what a first byte or two does not settle
    (b"BM" + bytes(4) + b"\0\0\0\1" + bytes(9), "NOT_LITENET"), (b"BM", "NOT_LITENET"),
    (b"BX" + bytes(20), "NOT_LITENET"),
    (b"P7 ", "NOT_LITENET"), (b"P0 ", "NOT_LITENET"), (b"P6", "NOT_LITENET"), (b"P6x", "NOT_LITENET"),
    *((bytes([8, 1, field]), "IS_ONNX") for field in (0x12, 0x1A, 0x22, 0x28, 0x32, 0x3A, 0x42)),
    (bytes([8, 0, 0x12]), "NOT_LITENET"), (bytes([8, 32, 0x12]), "NOT_LITENET"), (bytes([8, 31, 0x13]), "NOT_LITENET"),
    (b"\xef\xbbX", "NOT_LITENET"), (b"\xefX\xbf", "NOT_LITENET"), (b"\xef\xbb", "NOT_LITENET"),
    (b"\xef\xbb\xbf", "NOT_LITENET"), (b"   ", "NOT_LITENET"),
    *((text, "IS_JSON") for text in (b"{", b"[", b"{}", b"[]", b"[{", b"[[", b"[-1", b"[9", b"\xef\xbb\xbf [0")),
    (b"[x", "NOT_LITENET"), (b"{:", "NOT_LITENET"), (b"[/", "NOT_LITENET"), (b"\x0b\x0e{", "NOT_LITENET"),
    (b"<HTMl", "IS_HTML"), (b"<head", "IS_HTML"), (b"<h[ml", "NOT_LITENET"), (b"<!doctyp", "NOT_LITENET"),
]  # fmt: skip


def test_what_only_looks_like_another_format_at_first(first_driver, tmp_path):
    got = verdicts(first_driver, [data for data, _ in LIKE], tmp_path)
    assert [(data, name) for (data, _), (name, _) in zip(LIKE, got, strict=True)] == [(d, f"LN_{n}") for d, n in LIKE]


def test_real_models_of_others_are_told_apart(first_driver):
    folder = cbuild.ROOT.parent / "shared" / "models"
    found = sorted(p for p in folder.glob("*") if p.suffix in (".onnx", ".tflite", ".npy"))
    if not found:
        pytest.skip("no foreign models beside the repository (../shared/models)")
    want = {".onnx": "LN_IS_ONNX", ".tflite": "LN_IS_TFLITE", ".npy": "LN_IS_NUMPY"}
    for path in found:
        status = int(drive(first_driver, "load", path).split(b"\t")[0])
        assert NAMES[status] == want[path.suffix], path.name


# ---------------------------------------------------------------- running and testing


@pytest.mark.parametrize("data", [GOOD, HALF, aliased(True)], ids=["f32", "f16", "aliased"])
def test_both_readers_compute_the_same(driver, tmp_path, data):
    path = tmp_path / "model.bin"
    path.write_bytes(data)
    f = reader.read(data)
    x = np.random.default_rng(2).standard_normal((3, f.tensors[0].size)).astype(floats(driver))
    got = np.frombuffer(drive(driver, "run", path, given=x.tobytes()), floats(driver)).reshape(3, -1)
    assert_close(got, np.stack([reader.run(f, row)[0] for row in x]), 1e-5, 1e-4)


SELFTESTS = [
    ("OK", GOOD, (), "no error."),
    ("OK", HALF, (), "no error."),
    ("NO_GOLDEN", aliased(True), (), "holds no golden inputs to test with. Export the model with"),
    ("SELFTEST_FAILED", GOOD, (128, 64), "operator 0 (conv2d): the checksum of its weights is 0x"),
    ("SELFTEST_FAILED", patched((GOLDEN + 16, "I", 5)), (), "and was 0x00000005 at export"),
    ("SELFTEST_FAILED", patched((GOLDEN + 56 + 20 + 28 + 24, "f", 0.5)), (), "3 (add), golden input 0: the mean"),
    ("SELFTEST_FAILED", patched((GOLDEN + 56 + 20 + 28 + 52, "f", 90)), (), "6 (linear), golden input 0: the signed"),
    ("SELFTEST_FAILED", patched((GOLDEN + 56 + 128 + 20, "f", 99)), (), "(linear), golden input 1: an output is "),
    ("SELFTEST_FAILED", patched((GOLDEN + 56 + 128 + 44, "f", 9)), (), "(softmax), golden input 1: an output is "),
    ("NOT_FINITE", huge_values(), (), "operator 0 (linear), golden input 0: the mean of |y| is infinity, and was 1 at"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "data", "damage", "sentence"), SELFTESTS)
def test_the_selftest_names_the_first_operator_that_differs(driver, tmp_path, name, data, damage, sentence):
    path = tmp_path / "model.bin"
    path.write_bytes(data)
    status, text = drive(driver, "selftest", path, *damage).decode().rstrip("\n").split("\t")
    assert NAMES[int(status)] == f"LN_{name}" and sentence in text


def test_the_signed_mean_agrees_with_the_exporters_on_long_outputs(driver, tmp_path):
    """100,000 values: longer than the blocks that the sums are made of."""
    tanh = make_attrs(OPS["activation"].OP, {"activation": "tanh"})
    x = np.random.default_rng(3).standard_normal(100_003).astype(np.float32)
    y = np.tanh(x.astype(np.float64))
    mean, signed = op_checksum(y)
    for off, name in ((0.0, "LN_OK"), (2e-3 * mean, "LN_SELFTEST_FAILED")):
        golden = Golden("f32", [x], [y], [[(mean, signed + off)]])
        tensors = [TensorRec(x.shape, input=True), TensorRec(x.shape, output=True)]
        path = tmp_path / "long.bin"
        path.write_bytes(write(Model(tensors, [OpRec("activation", (0,), 1, tanh)], golden=golden)))
        assert NAMES[int(drive(driver, "selftest", path).split(b"\t")[0])] == name


CALLS = [
    "NULL_POINTER", "NULL_POINTER", "BIN_MISALIGNED", "BIN_MISALIGNED", "NULL_POINTER", "NULL_POINTER", "NULL_POINTER",
    "NULL_POINTER", "ARENA_TOO_SMALL", "ARENA_MISALIGNED", "STOPPED", "NULL_POINTER", "NULL_POINTER", "OK",
    "INPUT_NOT_FINITE", "INPUT_NOT_FINITE", "OK", *["NULL_POINTER"] * 3, "OK", *["NULL_POINTER"] * 3,
    "BAD_IMAGE_SIZE", *["NULL_POINTER"] * 6, "BAD_IMAGE_SIZE", "OK", *["NULL_POINTER"] * 6,
    *["TRUNCATED"] * 6, *["NULL_POINTER"] * 4, "BAD_CHANNELS",
    "NO_PREPROCESS",
]  # fmt: skip


def test_wrong_calls_are_refused(driver, tmp_path):
    path, plain = tmp_path / "model.bin", tmp_path / "plain.bin"
    path.write_bytes(GOOD)
    plain.write_bytes(aliased(True))
    lines = drive(driver, "calls", path, plain).decode().splitlines()
    assert [NAMES[int(line.split("\t")[0])] for line in lines] == [f"LN_{name}" for name in CALLS]
    assert "bytes past a multiple of 64. Align the array" in lines[3]


SHRINKING = ["LN_OK", "LN_FILE_CHANGED", "LN_FILE_CHANGED", "LN_NULL_POINTER", "LN_NULL_POINTER"]


def test_files_are_mapped_or_read_and_their_failures_named(driver, tmp_path):
    def load(path):
        status, text = drive(driver, "load", path).decode().rstrip("\n").split("\t")
        return NAMES[int(status)], text

    good, empty, pipe = tmp_path / "good.bin", tmp_path / "empty.bin", tmp_path / "pipe"
    good.write_bytes(GOOD)
    empty.touch()
    assert load(good)[0] == "LN_OK"
    assert load(empty)[0] == "LN_EMPTY_FILE"
    assert load(tmp_path / "absent.bin") == ("LN_FILE_NOT_FOUND", "the file does not exist")
    assert load(good / "below.bin")[0] == "LN_FILE_NOT_FOUND"
    assert load(tmp_path)[0] == "LN_FILE_UNREADABLE"
    os.mkfifo(pipe)
    with subprocess.Popen(["cp", good, pipe]):  # what cannot be mapped is read
        assert load(pipe)[0] == "LN_OK"
    assert drive(driver, "shrink", good).decode().splitlines() == [f"{NAMES.index(name)}" for name in SHRINKING]
    large = tmp_path / "large.bin"
    with large.open("wb") as f:
        f.truncate(1 << 32)  # a hole: takes no disk
    assert load(large)[0] == "LN_FILE_TOO_LARGE"


def test_every_status_is_reached_by_a_test():
    reached = {f"LN_{name}" for name, *_ in CASES + SELFTESTS} | {f"LN_{name}" for name in CALLS}
    reached |= {"LN_FILE_NOT_FOUND", "LN_FILE_UNREADABLE", "LN_FILE_TOO_LARGE", "LN_FILE_CHANGED"}
    reached.add("LN_BEYOND_LIMITS")  # tests/test_arena.py
    reached |= {"LN_BAD_QUANT"}  # test_int8_files.py
    assert sorted(set(NAMES) - reached) == []
