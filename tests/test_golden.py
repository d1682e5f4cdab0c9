"""Golden files of format 1 are read for ever, by the runtime and by a reader made from the page alone; and whatever is
wrong with a device's weights or kernels, the self-test names the operator."""

import hashlib
import re
import subprocess

import cbuild
import numpy as np
import pytest
import reader
from attack_builds import BUILDS, counted, drive, is_emulated
from closeness import assert_close
from frozen import ALL, FILES, FORMAT_1, INT8

from litenet.pyruntime import InferenceEngine, ModelError
from litenet.trainer.ops import OPS

KERNELS = [None, "portable"]
FINE = {"linear", "conv2d", "depthwise_conv2d", "embed_projection"}  # whose requantisations can have a shift


def test_the_golden_files_are_what_they_were():
    """Never write one again: a format that cannot read them has a bug, or another major version."""
    sums = dict(line.split()[::-1] for line in (FORMAT_1 / "SHA256SUMS").read_text().splitlines())
    assert {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in ALL} == sums
    assert len(FILES) >= 32 and len(INT8) >= 28


def test_the_golden_files_hold_every_operator_and_both_types_of_weights():
    ops = [op for path in FILES for op in reader.read(path.read_bytes()).ops]
    assert {op.name for op in ops} >= {name for name, m in OPS.items() if m.OP.in_files and m.OP.id <= 23}
    assert {op.name for op in ops if op.half} == {"linear", "conv2d", "depthwise_conv2d", "embed_projection"}


def test_the_golden_files_hold_every_int8_operator_and_every_kind_of_golden_input():
    files = [reader.read(path.read_bytes()) for path in INT8]
    int8 = {op.name for f in files for op in f.ops if op.i8 or f.tensors[op.inputs[0]].i8}
    assert int8 == {name for name, m in OPS.items() if m.OP.in_files and (m.OP.int8 is not None or m.OP.crosses)}
    assert any(op.half for f in files for op in f.ops)
    fine = {op.name for f in files for op in f.ops if op.i8 and op.numbers.shift and op.name in FINE}
    assert fine == FINE
    data = [path.read_bytes() for path in INT8]
    assert {d[int.from_bytes(d[80:84], "little") + 12] for d in data} == {0, 1, 2}
    assert {d[6] for d in data} == {0, 1, 3}  # the minor version


@pytest.mark.parametrize("kernels", KERNELS, ids=["best", "portable"])
@pytest.mark.parametrize("path", ALL, ids=lambda p: p.stem)
def test_a_golden_file_passes_its_own_test(path, kernels):
    InferenceEngine(path, kernels=kernels).selftest()


@pytest.mark.parametrize("path", ALL, ids=lambda p: p.stem)
def test_the_second_reader_computes_the_same_answers(path):
    """Written from FORMAT.md, in Python, with nothing of ours."""
    f, engine = reader.read(path.read_bytes()), InferenceEngine(path, kernels="portable")
    reader.selftest(f)
    rng = np.random.default_rng(4)
    for _ in range(3):
        x = rng.standard_normal(engine.input_shape).astype(np.float32)
        if engine.input_dtype == "int8":
            x = rng.integers(-128, 128, engine.input_shape).astype(np.int8)
        y = engine.predict(x)
        got, want = np.concatenate([np.ravel(part) for part in (y if isinstance(y, tuple) else (y,))]), reader.run(f, x)
        if all(op.i8 for op in f.ops):
            np.testing.assert_array_equal(got, want[0])
        else:
            step = max((t.scale for t in f.tensors if t.i8 and path.stem == "int8-mixed"), default=0.0)
            assert_close(got, want[0], 1e-5 + step, 1e-4)


@pytest.mark.parametrize("build", BUILDS)
def test_every_build_passes_the_selftests_of_all_golden_files(build):
    driver = BUILDS[build].driver()
    for path in ALL:
        assert drive(driver, "selftest", path).decode() == "0\tno error.\n", path.name


SMALL = [path for path in ALL if path.stat().st_size < 1000]


@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("repair", [0, 1], ids=["checksums-broken", "checksums-repaired"])
def test_every_byte_of_a_small_file_set_to_all_256_values(build, repair, request):
    """And every truncation. In the long form of all small files, and on emulated processors; in the short one the
    others are set to a dozen values, those of whole numbers in one build."""
    driver, slow = BUILDS[build].driver(), request.config.getoption("--slow")
    if is_emulated(driver) and not slow:
        pytest.skip("takes minutes when emulated; run with --slow")
    for path in SMALL:
        whole = slow or path.stem == "linear-half"
        if not slow and path in INT8 and build != next(iter(BUILDS)):
            continue
        counts = counted(driver, "mutate", path, repair, *["all"] * whole)
        assert sum(counts.values()) >= (255 if whole else 11) * path.stat().st_size
        assert repair or 0 not in counts
        drive(driver, "truncate", path)


# ---------------------------------------------------------------- what the self-test says


@pytest.mark.parametrize("path", ALL, ids=lambda p: p.stem)
def test_any_bit_of_any_weight_that_flips_is_found_and_its_operator_named(path):
    if path.stat().st_size > 10_000 and not cbuild.COVERAGE:
        pytest.skip("takes long; smaller files have the same operators")
    driver = next(iter(BUILDS.values())).driver()
    wrong, tried = map(int, drive(driver, "flips", path).split())
    weights = sum(len(op.weights) for op in reader.read(path.read_bytes()).ops)
    assert (wrong, tried) == (0, 8 * weights)


def swapped(name, flags=()):
    """open_driver with another function in place of one operator's, or with "linear_i8" of its int8 form."""
    source = next(p for p in cbuild.core() if re.search(rf"^void ln_{name}_run\(", p.read_text(), re.MULTILINE))
    core = [p for p in cbuild.core() if p != source]
    sources = [cbuild.TESTS_C / "open_driver.c", *core, cbuild.SRC / "ln_file.c"]
    options = {"compiler": cbuild.COMPILERS[0], "sanitize": False}
    built = cbuild.objects(sources, **options)
    built += cbuild.objects([source], flags=(f"-Dln_{name}_run=ln_{name}_run_true",), **options)
    built += cbuild.objects([cbuild.TESTS_C / "swapped.c"], flags=(f"-DSWAP={name}", *flags), **options)
    return cbuild.link("swapped", built, **options)


KINDS = [name for name, m in OPS.items() if m.OP.in_files]
KINDS += [f"{name}_i8" for name, m in OPS.items() if m.OP.int8 is not None and not m.OP.crosses]


@pytest.mark.parametrize("kind", KINDS)
def test_a_wrong_kernel_is_named(kind):
    driver, found = [str(swapped(kind))], 0
    name = kind.removesuffix("_i8")
    for path in ALL:
        f = reader.read(path.read_bytes())
        whole = [op.i8 and op.name != "quantize" for op in f.ops]
        at = [i for i, op in enumerate(f.ops) if op.name == name and whole[i] == (kind != name)]
        text = drive(driver, "selftest", path).decode()
        if not at:
            assert text == "0\tno error.\n"
            continue
        found += 1
        first = int(re.search(r"operator (\d+) ", text)[1])
        assert first == at[0] and f"operator {first} ({name})" in text, f"{path.name}: {text}"
    assert found


def test_a_kernel_that_reads_dead_memory_is_seen_by_the_harness(tmp_path):
    """What all attacks rest on: dead memory is overwritten between operators (tests/c/attack.h)."""
    data = (FORMAT_1 / "mlp.bin").read_bytes()
    path = tmp_path / "one"
    path.write_bytes(len(data).to_bytes(4, "little") + data)
    program = swapped("linear", ("-DREADS_DEAD",))
    done = subprocess.run([program, "bundle", path], capture_output=True, check=False)
    assert done.returncode == -6  # abort: not the same bits
    assert drive([str(swapped("linear"))], "bundle", path) == b"0\tno error.\n"


def test_a_damaged_golden_file_is_refused_by_name(tmp_path):
    data = bytearray(FILES[0].read_bytes())
    data[200] ^= 1
    path = tmp_path / "damaged.bin"
    path.write_bytes(data)
    with pytest.raises(ModelError, match="the file is damaged: the checksum of all after the header is"):
        InferenceEngine(path)
