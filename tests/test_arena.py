"""Memory: nothing outside arena and output is ever written, nothing dead is read, and a build with tiny limits says
what it was not made for."""

import struct
import subprocess

import bins
import cbuild
import pytest
import reader
from attack_builds import DRIVER, drive
from frozen import ALL

from litenet.exporter.format import Model, OpRec, TensorRec, write
from litenet.trainer.ops import OPS, make_attrs

FAST = [*cbuild.core(), *cbuild.fast(), cbuild.SRC / "ln_file.c"]
GUARD = cbuild.TESTS_C / "guard_driver.c"
TINY = ("-DLN_MOST_OPS=4", "-DLN_MOST_ARENA=1024")
RELU = make_attrs(OPS["activation"].OP, {"activation": "relu"})


@pytest.mark.parametrize(("compiler", "level"), [("gcc", "-O3"), ("clang", "-O3")])
def test_nothing_is_touched_outside_the_buffers(compiler, level):
    """Guard pages on both sides of file, plan, input, output and arena, in optimised code."""
    program = cbuild.program("guard_driver", [GUARD, *FAST], compiler, sanitize=False, flags=(level,))
    done = subprocess.run([program, *ALL], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"exit {done.returncode}: {done.stderr}"
    runs = dict(line.rsplit(" ", 1) for line in done.stdout.splitlines())
    assert "portable" in runs and set(runs.values()) == {str(2 * len(ALL))}


def chain(ops, floats):
    """`ops` activations in a row, each in place over the last, in an arena of so many floats."""
    tensors = [TensorRec((floats,), input=i == 0, output=i == ops) for i in range(ops + 1)]
    return write(Model(tensors, [OpRec("activation", (i,), i + 1, RELU) for i in range(ops)]))


@pytest.fixture(scope="module")
def tiny():
    return [str(cbuild.program("open_driver", DRIVER, cbuild.COMPILERS[0], flags=TINY))]


LIMITS = [
    (chain(4, 256), "no error."),
    (chain(5, 16), "the model is larger than this build of LiteNet was made for: the operator count is 5; at most 4 "
     "is expected. Export a smaller model, or build with a larger LN_MOST_OPS or LN_MOST_ARENA."),
    (chain(4, 260), "made for: the arena's size is 1040; at most 1024 is expected."),
    (chain(4096, 16), "the operator count is 4096; at most 4 is expected"),
    (bins.mlp().bytes(), "no error."),
]  # fmt: skip


@pytest.mark.parametrize(("data", "sentence"), LIMITS)
def test_a_build_with_tiny_limits_takes_what_just_fits_and_says_what_does_not(tiny, tmp_path, data, sentence):
    path = tmp_path / "model.bin"
    path.write_bytes(struct.pack("<I", len(data)) + data)
    status, text = drive(tiny, "bundle", path).decode().rstrip("\n").split("\t")
    assert sentence in text
    assert (status == "0") == (sentence == "no error.")


def test_a_build_with_tiny_limits_stands_every_truncation_and_every_byte(tiny, tmp_path):
    path = tmp_path / "model.bin"
    path.write_bytes(chain(4, 256))
    assert reader.read(path.read_bytes()).arena_bytes == 1024
    drive(tiny, "truncate", path)
    drive(tiny, "mutate", path, 1, "all")
