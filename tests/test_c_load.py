"""What a C program pays for a model: its file, its arena, and less than a megabyte besides."""

import platform
import shutil
import subprocess
import sys

import cbuild
import pytest
from nets import net
from test_export import export, trained

from litenet.trainer.ops import OPS

MEGABYTE = 1_000_000
NET = [
    {"type": "conv2d", "out_channels": 32, "kernel_size": 3, "padding": 1, "activation": "relu"},
    {"type": "maxpool2d", "kernel_size": 2, "stride": 2},
    {"type": "conv2d", "out_channels": 64, "kernel_size": 3, "padding": 1, "activation": "relu"},
    {"type": "maxpool2d", "kernel_size": 2, "stride": 2},
    {"type": "flatten"},
    {"type": "linear", "out_features": 128, "activation": "relu"},
    {"type": "linear", "out_features": 10},
]  # the net of examples/mnist_cnn.json


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc/self/statm")
@pytest.mark.parametrize("fast", [False, True], ids=["portable", "fast"])
@pytest.mark.parametrize("compiler", cbuild.COMPILERS)
def test_memory_is_the_file_the_arena_and_less_than_a_megabyte(tmp_path, compiler, fast):
    """The fast kernels' plan and transformed weights are memory that the caller is told of, as the arena is."""
    path = trained(tmp_path, net(NET, (1, 28, 28)))
    assert export(path, tmp_path / "net.bin", "--samples", "4") == 0
    sources = [cbuild.TESTS_C / "load_driver.c", *cbuild.core(), cbuild.SRC / "ln_file.c"]
    sources += cbuild.fast() if fast else []
    flags = ["-O2", "-DLN_TEST_FAST", "-pthread"] if fast else ["-O2"]
    driver = cbuild.program("load_driver", sources, compiler, sanitize=False, flags=flags)
    out = subprocess.run([driver, str(tmp_path / "net.bin")], capture_output=True, text=True, check=True).stdout
    _, gained, file_bytes, arena_bytes = map(int, out.split())
    assert 1.6e6 < file_bytes < 1.7e6
    assert gained <= file_bytes + arena_bytes + MEGABYTE


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the bound is for x86-64")
@pytest.mark.parametrize(
    ("imports", "int8", "bound"), [(False, False, 42_000), (True, False, 49_500), (True, True, 62_500)]
)
def test_code_of_the_core_stays_small(tmp_path, imports, int8, bound):
    """.text of the core, gcc -O2: at most 42 KB with all operators that are trained, 7.5 KB more with those that only
    importers make, 13 KB more with all that int8 takes."""
    cbuild.need("gcc")
    if shutil.which("size") is None:
        pytest.skip("size (binutils) is not installed")
    version = subprocess.run(["gcc", "-dumpversion"], capture_output=True, text=True, check=True).stdout
    if version.split(".")[0].strip() != "12":
        pytest.skip(f"the bound was set with gcc 12, this is gcc {version.strip()}")
    without = [] if imports else [f"-DLN_WITHOUT_{name.upper()}" for name, m in OPS.items() if m.OP.imported]
    without += [] if int8 else ["-DLN_WITHOUT_I8", "-DLN_WITHOUT_QUANTIZE", "-DLN_WITHOUT_DEQUANTIZE"]
    total = 0
    for source in cbuild.core():
        if source.name == "ln_move.c" and not imports:
            continue  # nothing else calls it, so that a linker leaves it out
        out = tmp_path / f"{source.stem}.o"
        flags = ["-O2", "-std=c99", "-ffp-contract=off", f"-I{cbuild.INCLUDE}", *without]
        subprocess.run(["gcc", *flags, "-c", str(source), "-o", str(out)], check=True)
        lines = subprocess.run(["size", "-A", str(out)], capture_output=True, text=True, check=True).stdout.splitlines()
        total += sum(int(line.split()[1]) for line in lines if line.startswith(".text"))
    print(f"{total:,} bytes")
    assert 10_000 < total <= bound
