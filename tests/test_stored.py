"""Weights that a file holds transformed for Winograd's algorithm: the same answers, less memory, all else as before."""

import platform
import struct
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import reader
import test_open
from attack_builds import BUILDS
from bins import Bin
from c_jobs import FIRST, MACHINES, Job, run
from everything import weights_of
from nets import net
from test_export import export, trained

from litenet.exporter import format, winograd
from litenet.exporter.pack import pack
from litenet.pyruntime import InferenceEngine, report
from litenet.pyruntime.kernels import KERNELS, available
from litenet.trainer.ops import OPS, make_attrs

FUSED = ("avx2", "avx512", *(["neon"] if platform.machine() in ("aarch64", "arm64") else []))  # fused multiply-add
DIRECT = 1  # as in litenet_fast.h; 2 and 4: the tiles of Winograd's algorithm
CONVOLUTIONS = (0, 1, 3)


def model() -> format.Model:
    """Four 3 x 3 convolutions, of which the third cannot have transformed weights, and one is pooled."""
    made = Bin((13, 9, 16), seed=4)
    made.add("conv2d", out_channels=32, kernel_size=3, padding=1, activation="relu")
    made.add("conv2d", out_channels=48, kernel_size=3, padding=1, activation="silu")
    made.add("maxpool2d", kernel_size=2, stride=2)
    made.add("conv2d", out_channels=32, kernel_size=3, padding=1)
    made.add("conv2d", out_channels=20, kernel_size=3)
    return made.model()


def with_stored(plain: format.Model, algorithm: int) -> format.Model:
    ops = list(plain.ops)
    for i in CONVOLUTIONS:
        channels = plain.tensors[ops[i].inputs[0]].shape[2]
        added = winograd.transformed(algorithm, ops[i].weights, channels)
        ops[i] = replace(ops[i], weights=ops[i].weights + added, algorithm=algorithm)
    return replace(plain, ops=ops)


PLAIN = model()
BEFORE = format.write(PLAIN)
AFTER = {4: format.write(with_stored(PLAIN, 1)), 2: format.write(with_stored(PLAIN, 2))}  # by the tile
SIDES = [(PLAIN.tensors[i].shape[2], PLAIN.tensors[i + 1].shape[2]) for i in CONVOLUTIONS]
ADDED = {m: sum(winograd.stored_bytes(a, *sides) for sides in SIDES) for a, m in winograd.TILES.items()}
IMAGE = np.random.default_rng(1).standard_normal((13, 9, 16)).astype(np.float32)


def engines(kernels, choice, stored, **more):
    tuned = bytes([choice] * len(PLAIN.ops))
    return [InferenceEngine(data, kernels=kernels, tuned=tuned, **more) for data in (BEFORE, AFTER[stored])]


@pytest.mark.parametrize("kernels", [name for name in available() if name != "portable"])
@pytest.mark.parametrize("m", AFTER)
def test_answers_are_the_same_and_memory_is_smaller_by_what_the_file_holds(m, kernels):
    for threads in (1, 2):
        before, after = engines(kernels, m, m, threads=threads)
        assert after.layers[0].algorithm.startswith(f"winograd {m}x{m}")
        y, z = before.predict(IMAGE), after.predict(IMAGE)
        if kernels in FUSED or m == 2:
            assert y.tobytes() == z.tobytes()
        assert np.abs(y - z).max() <= 1e-4 * np.abs(y).max()
        assert before.prepared_bytes - after.prepared_bytes == ADDED[m]
        after.selftest()


@pytest.mark.parametrize("m", AFTER)
@pytest.mark.parametrize("build", [FIRST, *MACHINES])
def test_answers_are_the_same_under_sanitizers_and_on_other_machines(build, m, tmp_path):
    """In a C program, joined and operator by operator, memory that nothing has written being NaN."""
    sets = [KERNELS[name] for name in available() if name != "portable"] if build == FIRST else [MACHINES[build][3]]
    fused = [KERNELS[name] for name in FUSED] if build == FIRST else sets * (build in ("aarch64", "x86-64 with AVX2"))
    jobs = [Job(name, "conv2d", data, IMAGE, IMAGE, 0, 0) for name, data in (("before", BEFORE), ("after", AFTER[m]))]
    for number in sets:
        one, two = run(build, jobs, tmp_path, fast=(number, m))
        if number in fused or m == 2:
            assert one.bytes == two.bytes
        assert np.abs(one.y - two.y).max() <= 1e-4 * np.abs(one.y).max()


@pytest.mark.parametrize("kernels", available())
@pytest.mark.parametrize(("choice", "stored"), [(DIRECT, 4), (DIRECT, 2), (2, 4), (4, 2)])
def test_what_does_not_need_them_gives_the_same_bits(kernels, choice, stored):
    before, after = engines(kernels, choice, stored)
    assert before.predict(IMAGE).tobytes() == after.predict(IMAGE).tobytes()
    assert before.prepared_bytes == after.prepared_bytes
    after.selftest()


def test_the_choice_of_algorithms_does_not_depend_on_them():
    """Weights of 6 MB are taken from the third cache, those of 40 MB would not be."""
    wide = Bin((8, 8, 384)).add("conv2d", out_channels=384, kernel_size=3, padding=1).model(0)
    ops = [replace(wide.ops[0], weights=wide.ops[0].weights + bytes(winograd.stored_bytes(1, 384, 384)), algorithm=1)]
    names = [InferenceEngine(format.write(m), tuned=False).layers[0].algorithm for m in (wide, replace(wide, ops=ops))]
    assert names[0] == names[1]


SIX = [[1 / 4, 0, 0], [-1 / 6, -1 / 6, -1 / 6], [-1 / 6, 1 / 6, -1 / 6], [1 / 24, 1 / 12, 1 / 6],
       [1 / 24, -1 / 12, 1 / 6], [0, 0, 1]]  # fmt: skip
FOUR = [[1, 0, 0], [1 / 2, 1 / 2, 1 / 2], [1 / 2, -1 / 2, 1 / 2], [0, 0, 1]]


@pytest.mark.parametrize(("algorithm", "G"), [(1, np.array(SIX)), (2, np.array(FOUR))])
def test_they_are_those_of_the_definition_where_the_format_says(algorithm, G):
    C, O = 16, 32
    a = make_attrs(OPS["conv2d"].OP, {"out_channels": O, "kernel_size": 3})
    w = weights_of("conv2d", a, (5, 5, C), np.random.default_rng(2))
    found = np.frombuffer(winograd.transformed(algorithm, pack("conv2d", a, w, "f32"), C), "<f4")
    U = np.einsum("iu,ouvc,jv->ijoc", G, w["weight"].astype(np.float64).reshape(O, 3, 3, C), G)
    i, j, o, c = np.indices(U.shape)
    at = (len(G) * i + j) * (C * O + 16) + 16 * (C * (o // 16) + c) + o % 16
    assert np.abs(found[at] - U).max() <= 1e-6 * np.abs(U).max()
    assert not np.delete(found, at.ravel()).any() and found.size == len(G) ** 2 * (C * O + 16)


def test_a_product_and_a_sum_are_rounded_once():
    rng = np.random.default_rng(3)
    a, b = (rng.standard_normal(300).astype(np.float32) * np.float32(2) ** rng.integers(-30, 30, 300) for _ in range(2))
    k = np.float32(1 / 24)
    check(a, k, b, winograd._fused(a, k, b))
    tie = np.float32(1 + 2.0**-15), np.float32((1 - 2.0**-15) * 2.0**-24), np.float32(1 + 2.0**-23)  # a little below it
    for sign in (np.float32(1), np.float32(-1)):
        a, b = np.array([sign * tie[0]]), np.array([sign * tie[2]])
        got = winograd._fused(a, tie[1], b)
        check(a, tie[1], b, got)
        assert got != (a.astype(np.float64) * tie[1] + b).astype(np.float32)  # what two roundings give


def check(a, k, b, got):
    """No float32 is nearer to a k + b."""
    for x, y, z in zip(a, b, got, strict=True):
        exact = Fraction(float(x)) * Fraction(float(k)) + Fraction(float(y))
        for other in (np.nextafter(z, np.float32(np.inf)), np.nextafter(z, np.float32(-np.inf))):
            assert abs(Fraction(float(z)) - exact) <= abs(Fraction(float(other)) - exact)


# ---- other readers, and files that are refused


@pytest.mark.parametrize(("m", "algorithm"), [(4, 1), (2, 2)])
def test_the_second_reader_takes_them_and_computes_the_same(m, algorithm):
    found = reader.read(AFTER[m])
    assert [op.algorithm for op in found.ops] == [algorithm, algorithm, 0, algorithm, 0]
    assert struct.unpack_from("<H", AFTER[m], 6)[0] == 2
    assert struct.unpack_from("<H", BEFORE, 6)[0] == 0
    reader.selftest(found)


def wrong(how: str) -> bytes:
    """One convolution that says it has transformed weights, and one thing about it that rules them out."""
    given = {"out_channels": 16, "kernel_size": 1 if how == "window" else 3}
    given |= {how: 2} if how in ("stride", "dilation", "groups") else {}
    a = make_attrs(OPS["conv2d"].OP, given)
    x = (7, 7, 15 if how == "channels" else 16)
    block = pack("conv2d", a, weights_of("conv2d", a, x, np.random.default_rng(3)), "f16" if how == "half" else "f32")
    behind = winograd.stored_bytes(1, 16, 16) + {"short": -64, "long": 64}.get(how, 0)
    block += bytes(0 if how == "missing" else behind)
    record = format.OpRec("conv2d", (0,), 1, a, block, algorithm=2 if how == "other" else 1)
    tensors = [format.TensorRec(x, input=True), format.TensorRec(tuple(OPS["conv2d"].out_shape(a, x)), output=True)]
    data = format.write(format.Model(tensors, [record]))
    at = struct.unpack_from("<I", data, 64)[0] + 64
    return test_open.patched((at + 15, "B", 1), (20, "I", 1), of=data) if how == "half" else data


WRONG = {
    **dict.fromkeys(("stride", "dilation", "groups", "window", "channels", "half"), "BAD_ALGORITHM"),
    **dict.fromkeys(("other", "short", "long", "missing"), "BAD_WEIGHTS"),
}


@pytest.mark.parametrize("build", BUILDS)
def test_wrong_files_are_refused_and_the_right_one_runs(build, tmp_path):
    """Whatever is opened also runs, by every set of kernels, under sanitizers."""
    blobs = [*map(wrong, WRONG), wrong("right"), *AFTER.values()]
    found = test_open.verdicts(BUILDS[build].driver(), blobs, tmp_path)
    assert [name for name, _ in found] == [f"LN_{name}" for name in WRONG.values()] + ["LN_OK"] * 3
    assert "its algorithm is 1; 0 is expected. Install a newer LiteNet" in found[0][1]
    assert "bytes of weights are not what it needs from" in found[-4][1]


@pytest.mark.parametrize("how", WRONG)
def test_the_second_reader_refuses_the_same(how):
    with pytest.raises(reader.RefusedError):
        reader.read(wrong(how))


def test_the_writer_refuses_them_elsewhere():
    ops = [replace(op, algorithm=1) if op.op == "maxpool2d" else op for op in PLAIN.ops]
    with pytest.raises(ValueError, match="cannot have algorithm 1"):
        format.write(replace(PLAIN, ops=ops))


# ---- edge-export

CONV = {"type": "conv2d", "out_channels": 64, "kernel_size": 3, "padding": 1, "activation": "relu"}
NET = net([CONV, CONV, {**CONV, "out_channels": 32}, {"type": "global_avg_pool"}], (3, 24, 24))
SIZES = [winograd.stored_bytes(1, 64, 64), winograd.stored_bytes(1, 64, 32)]


@pytest.mark.skipif(available() == ["portable"], reason="no vector kernels for this processor")
def test_export_stores_them_on_request_up_to_a_size(tmp_path, capsys):
    path, files = trained(tmp_path, NET), {}
    for name, *options in (("plain",), ("all", "--store-winograd"), ("some", "--store-winograd", "0.6"),
                           ("none", "--store-winograd", "0.01")):  # fmt: skip
        assert export(path, tmp_path / f"{name}.bin", *options) == 0
        files[name] = (tmp_path / f"{name}.bin").read_bytes(), capsys.readouterr().out
    for name, count, bytes_more in (("all", 2, sum(SIZES)), ("some", 1, SIZES[0])):
        data, told = files[name]
        assert len(data) - len(files["plain"][0]) == bytes_more
        assert f"{len(data):,} bytes" in told and f"{bytes_more:,} of these bytes" in told
        assert f"the weights of {count} layer" in told
        with InferenceEngine(data) as engine:
            engine.selftest()
            shown = "\n".join(report.info_text(report.info(engine)))
            assert f"{bytes_more:,} of them transformed for Winograd's algorithm" in shown
    assert files["none"][0] == files["plain"][0] and "nothing is stored for Winograd" in files["none"][1]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["net.bin", "--fp16"], "it goes with no --int8 and no --fp16"),
        (["net.bin", "--int8"], "it goes with no --int8 and no --fp16"),
        (["net.h"], "only for a .bin, and for no --board"),
        (["net.onnx"], "only for a .bin, and for no --board"),
        (["net.bin", "--board", "rp2040"], "only for a .bin, and for no --board"),
    ],
)
def test_what_takes_none_says_so(tmp_path, capsys, options, words):
    assert export(trained(tmp_path, NET), tmp_path / options[0], *options[1:], "--store-winograd") == 1
    assert words in capsys.readouterr().err and not (tmp_path / options[0]).exists()


def test_chips_are_given_none(tmp_path, capsys):
    (tmp_path / "net.bin").write_bytes(AFTER[4])
    assert export(tmp_path / "net.bin", tmp_path / "net.h") == 1
    assert "export it for chips without --store-winograd" in capsys.readouterr().err


def test_a_file_that_has_them_becomes_onnx_as_without(tmp_path):
    pytest.importorskip("onnx")
    for name, data in (("one", BEFORE), ("two", AFTER[4])):
        (tmp_path / name).mkdir()
        (tmp_path / name / "net.bin").write_bytes(data)
        assert export(tmp_path / name / "net.bin", tmp_path / name / "net.onnx") == 0
    assert (tmp_path / "one" / "net.onnx").read_bytes() == (tmp_path / "two" / "net.onnx").read_bytes()
