"""The oldest processors that LiteNet is for, emulated: all golden models pass, with the kernels that each should take.

Programs for ARMv6 are made by zig, since Debian's C library begins at ARMv7.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path

import cbuild
import cv2
import numpy as np
import pytest
from c_jobs import MACHINES
from golden_models import golden_models

from litenet.pyruntime import InferenceEngine, decode

RUNTIME = cbuild.ROOT / "runtime_c"
ARMV6 = cbuild.ROOT / "build" / "armv6"
# processor: what its program is built as, emulator, kernels
PROCESSORS = {
    "arm1176": ("armv6", "qemu-arm", "portable"),  # Raspberry Pi 1, Zero
    "cortex-a7": ("armv7", "qemu-arm", "neon"),  # Raspberry Pi 2
    "cortex-a53": ("aarch64", "qemu-aarch64", "neon"),  # Raspberry Pi 3, Zero 2
    "cortex-a72": ("aarch64", "qemu-aarch64", "neon"),  # Raspberry Pi 4
    "core2duo": ("x86-64 without AVX", "qemu-x86_64", "sse2"),  # 2006
    "Nehalem": ("x86-64 without AVX", "qemu-x86_64", "sse2"),  # 2008
    "SandyBridge": ("x86-64 without AVX", "qemu-x86_64", "sse2"),  # 2011: AVX, but neither AVX2 nor FMA
    "Haswell": ("x86-64 with AVX2", "qemu-x86_64", "avx2"),  # 2013
}
NEON = re.compile(r"\bq\d+\b|\.[isu](8|16|32|64)\b")  # a register of 16 bytes; whole numbers in vector registers
AFTER_ARMV6 = {"movw", "movt", "ubfx", "sbfx", "bfi", "bfc", "rbit", "mls", "sdiv", "udiv", "dmb", "dsb", "isb"}
AFTER_ARMV8_0 = re.compile(
    r"([su]dot|us?dot|[su]mmla|usmmla|bf(dot|mmla|mlal|cvt)\w*|sqrdml[as]h|fmlal2?|fcmla|fcadd"
    r"|(cas|swp|ld(add|set|clr|eor))\w*)"
)


@pytest.fixture(scope="session")
def models(tmp_path_factory) -> list[Path]:
    return golden_models(tmp_path_factory.mktemp("golden"))


def run(*command: object) -> str:
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(map(str, command))[:500]}\n{done.stdout[-2000:]}{done.stderr[-3000:]}"
    return done.stdout


@pytest.fixture(scope="session")
def armv6() -> list[str]:
    """The library and the example, static, in ARMV6; returns the compiler."""
    if importlib.util.find_spec("ziglang") is None:
        pytest.skip("zig is not installed (pip install ziglang)")
    zig = [sys.executable, "-m", "ziglang", "cc", "-target", "arm-linux-musleabihf", "-mcpu=arm1176jzf_s"]
    run("make", "-C", RUNTIME, "-j2", f"BUILD={ARMV6}", f"CC={' '.join(zig)}", "LDFLAGS=-static -s", "classify")
    return zig


def program(built_as: str, request) -> Path:
    """The golden driver for one kind of machine."""
    source = cbuild.TESTS_C / "golden_driver.c"
    if built_as == "armv6":
        out = ARMV6 / "golden_driver"
        zig = request.getfixturevalue("armv6")
        run(*zig, "-O2", "-static", "-s", f"-I{cbuild.INCLUDE}", source, ARMV6 / "liblitenet.a", "-o", out)
        return out
    compiler, flags, _, _ = MACHINES[built_as]
    sources = [source, *cbuild.core(), *cbuild.fast(), cbuild.SRC / "ln_file.c"]
    return cbuild.program("golden_driver", sources, compiler, sanitize=False, flags=flags)


@pytest.mark.parametrize("processor", PROCESSORS)
def test_golden_models_pass_on_an_old_processor_with_its_kernels(processor, models, request):
    built_as, emulator, kernels = PROCESSORS[processor]
    if shutil.which(emulator) is None:
        pytest.skip(f"{emulator} is not installed")
    found = run(emulator, "-cpu", processor, program(built_as, request), *models)
    assert len(models) > 40 and found.split() == [kernels, str(len(models))]


def test_a_program_without_python_answers_on_a_raspberry_pi_zero(armv6, models, tmp_path):
    """A static program, emulated: the same line as edge-infer."""
    if shutil.which("qemu-arm") is None:
        pytest.skip("qemu-arm is not installed")
    assert 50_000 < (ARMV6 / "classify").stat().st_size < 200_000
    picture = tmp_path / "digit.pgm"
    cv2.imwrite(str(picture), np.random.default_rng(4).integers(0, 256, (50, 40), np.uint8))
    y = InferenceEngine(str(models[0])).predict_image(*decode(str(picture))).astype(np.float64)
    p = np.exp(y - y.max()) / np.exp(y - y.max()).sum()
    said = run("qemu-arm", "-cpu", "arm1176", ARMV6 / "classify", models[0], picture)
    assert said == f"{picture}  {p.argmax()}  {100 * p.max():.1f} %\n"


# ---------------------------------------------------------------- what the files hold


def instructions(objdump: str, path: Path) -> list[tuple[str, str]]:
    """(name, operands) of each instruction of an object file."""
    if shutil.which(objdump) is None:
        pytest.skip(f"{objdump} is not installed")
    return re.findall(r"^\s+[0-9a-f]+:\s+([a-z][\w.]*)[ \t]*([^\n]*)", run(objdump, "-d", "--no-show-raw-insn", path),
                      re.MULTILINE)  # fmt: skip


def test_armv6_files_hold_no_neon_and_nothing_newer_than_armv6(armv6):
    found = sorted(ARMV6.glob("*.o"))
    assert len(found) == len(list(cbuild.SRC.glob("*.c")))
    for path in found:
        for name, operands in instructions("arm-linux-gnueabihf-objdump", path):
            line = f"{path.stem}: {name} {operands}"
            assert name.split(".")[0] not in AFTER_ARMV6, line
            assert not NEON.search(operands) and not (name[0] == "v" and NEON.search(name) and "vcvt" not in name), line


def test_aarch64_files_hold_armv8_0_only_unless_they_are_chosen_at_run_time():
    """A file that is asks the compiler for more instructions by a target attribute or pragma."""
    compiler, flags, _, _ = MACHINES["aarch64"]
    for source in [*cbuild.core(), *cbuild.fast(), cbuild.SRC / "ln_file.c"]:
        if re.search(r"target\(", source.read_text()):
            continue
        (built,) = cbuild.objects([source], compiler, sanitize=False, flags=flags)
        for name, operands in instructions("aarch64-linux-gnu-objdump", built):
            line = f"{source.name}: {name} {operands}"
            assert not AFTER_ARMV8_0.fullmatch(name) and not re.search(r"\bz\d+\.", operands), line
            halves = name[0] == "f" and not name.startswith("fcvt") and re.search(r"\.[48]h", operands)
            assert not halves, line  # arithmetic on them; converting is old
