"""The wheels that `make wheels` builds for other machines: what they promise, what is in them, and that they run.

Those of ARM run in a Python of that processor, emulated (.ci/foreign_python fetches one).
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
import zipfile
from email.parser import Parser
from pathlib import Path

import cv2
import numpy as np
import pytest
from golden_models import golden_models

ROOT = Path(__file__).resolve().parent.parent
# platform: machine and class as `readelf -h` has them, highest glibc
PROMISES = {
    "manylinux2014_x86_64": ("Advanced Micro Devices X86-64", "ELF64", (2, 17)),
    "manylinux2014_aarch64": ("AArch64", "ELF64", (2, 17)),
    "linux_armv7l": ("ARM", "ELF32", (2, 4)),
    "linux_armv6l": ("ARM", "ELF32", (2, 4)),
}
# platform: Debian's name of its Python, emulator, processor, kernels. An ARMv6 Python is not to be had: Debian's begins
# at ARMv7, so tests/test_old_processors.py runs the same code without Python.
ARM = {
    "manylinux2014_aarch64": ("arm64", "qemu-aarch64", "cortex-a53", "neon"),
    "linux_armv7l": ("armhf", "qemu-arm", "cortex-a8", "neon"),
    "linux_armv6l": ("armhf", "qemu-arm", "cortex-a7", "portable"),
}
KINDS = ("litenet", "litenet_runtime")
MEGABYTE, KILOBYTE = 1_000_000, 1_000
RUN = """
import sys, numpy as np
from litenet.pyruntime import InferenceEngine
for path in reversed(sys.argv[2:]):
    engine = InferenceEngine(path)
    engine.selftest()
    assert engine.kernels == sys.argv[1], engine.kernels
print(np.argmax(engine.predict_image(np.arange(784).astype(np.uint8).reshape(28, 28))))
"""


def run(*command: object, **more) -> str:
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, check=False, **more)
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout[-2000:]}{done.stderr[-3000:]}"
    return done.stdout


@pytest.fixture(scope="session")
def wheels(tmp_path_factory) -> dict[tuple[str, str], Path]:
    """The wheel of each kind and platform."""
    if importlib.util.find_spec("ziglang") is None:
        pytest.skip("zig is not installed (pip install ziglang)")
    if int(importlib.metadata.version("setuptools").split(".")[0]) < 77:
        pytest.skip("wheels need setuptools 77 or newer")
    dist = tmp_path_factory.mktemp("dist")
    run(sys.executable, ROOT / "pyruntime" / "build_wheels.py", "--dist", dist)
    found = {(p.name.split("-")[0], p.stem.split("-")[-1]): p for p in dist.iterdir()}
    assert set(found) == {(kind, platform) for kind in KINDS for platform in PROMISES}
    return found


def unpacked(wheel: Path, folder: Path) -> Path:
    """The binding inside a wheel that has been unpacked into `folder`, as pip would."""
    with zipfile.ZipFile(wheel) as z:
        z.extractall(folder)
    (binding,) = folder.rglob("*.so")
    return binding


def readelf(option: str, binding: Path) -> str:
    if shutil.which("readelf") is None:
        pytest.skip("readelf (binutils) is not installed")
    return run("readelf", option, "-W", binding)


# ---------------------------------------------------------------- what they promise


@pytest.mark.parametrize("platform", PROMISES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_wheel_names_python_and_platform(wheels, kind, platform):
    wheel = wheels[kind, platform]
    tag = f"cp310-abi3-{platform}"
    assert wheel.stem.endswith(f"-{tag}")
    with zipfile.ZipFile(wheel) as z:
        (info,) = [n for n in z.namelist() if n.endswith(".dist-info/WHEEL")]
        fields = Parser().parsestr(z.read(info).decode())
    assert (fields["Tag"], fields["Root-Is-Purelib"]) == (tag, "false")


@pytest.mark.parametrize("platform", PROMISES)
def test_a_binding_is_of_its_platform_and_needs_no_newer_glibc(wheels, platform, tmp_path):
    machine, width, newest = PROMISES[platform]
    binding = unpacked(wheels["litenet", platform], tmp_path)
    header = readelf("-h", binding)
    assert re.search(rf"Machine:\s+{machine}\n", header) and re.search(rf"Class:\s+{width}\n", header)
    versions = re.findall(r"Name: GLIBC_([\d.]+)", readelf("-V", binding))
    assert versions and max(tuple(map(int, v.split("."))) for v in versions) <= newest
    needed = set(re.findall(r"NEEDED.*\[(.*)\]", readelf("-d", binding)))
    assert needed <= {"libc.so.6", "libpthread.so.0"}


def test_32_bit_bindings_say_which_processors_they_are_for(wheels, tmp_path):
    said = {name: readelf("-A", unpacked(wheels["litenet", name], tmp_path / name)) for name in list(PROMISES)[2:]}
    assert "Tag_CPU_arch: v7" in said["linux_armv7l"] and "NEONv1" in said["linux_armv7l"]
    assert "Tag_CPU_arch: v6" in said["linux_armv6l"] and "Advanced_SIMD" not in said["linux_armv6l"]
    for text in said.values():
        assert "Tag_ABI_VFP_args: VFP registers" in text  # floats in registers: armhf


@pytest.mark.parametrize("platform", PROMISES)
def test_a_binding_shows_python_one_symbol_and_no_other(wheels, platform, tmp_path):
    symbols = readelf("--dyn-syms", unpacked(wheels["litenet", platform], tmp_path))
    assert re.findall(r"(?:GLOBAL|WEAK)\s+DEFAULT\s+\d+ (\S+)", symbols) == ["PyInit__litenet"]


# ---------------------------------------------------------------- what is in them


@pytest.mark.parametrize("platform", PROMISES)
def test_a_binding_with_all_instruction_sets_is_under_400_kilobytes(wheels, platform, tmp_path):
    size = unpacked(wheels["litenet", platform], tmp_path).stat().st_size
    assert 50 * KILOBYTE < size < 400 * KILOBYTE


@pytest.mark.parametrize("platform", PROMISES)
def test_the_runtime_installed_takes_less_than_one_and_a_half_megabytes(wheels, platform, tmp_path):
    """With the compiled modules that pip makes, without the packages it depends on."""
    unpacked(wheels["litenet_runtime", platform], tmp_path)
    run(sys.executable, "-m", "compileall", "-q", tmp_path)
    assert 200 * KILOBYTE < sum(p.stat().st_size for p in tmp_path.rglob("*") if p.is_file()) < 1.5 * MEGABYTE


@pytest.mark.parametrize("platform", PROMISES)
def test_the_runtime_wheel_is_the_other_one_without_trainer_and_exporter(wheels, platform, tmp_path):
    whole, part = tmp_path / "whole", tmp_path / "part"
    unpacked(wheels["litenet", platform], whole)
    unpacked(wheels["litenet_runtime", platform], part)
    names = {p.relative_to(part).as_posix() for p in part.rglob("*") if p.is_file()}
    expected = {p.relative_to(whole).as_posix() for p in whole.rglob("*") if p.is_file()}
    assert not {n for n in expected if "build_" in Path(n).name}
    kept = {n for n in expected if n.startswith("litenet/pyruntime/")}
    assert {n for n in names if "dist-info" not in n} == kept
    for name in kept:
        assert (part / name).read_bytes() == (whole / name).read_bytes()
    (info,) = part.glob("*.dist-info")
    fields = Parser().parsestr((info / "METADATA").read_text(encoding="utf-8"))
    assert fields["Name"] == "litenet-runtime" and fields["Requires-Python"] == ">=3.10"
    assert fields.get_all("Provides-Extra") is None
    assert sorted(re.match(r"[\w-]+", r)[0] for r in fields.get_all("Requires-Dist")) == [
        "cffi", "numpy", "opencv-python-headless"]  # fmt: skip
    assert (info / "entry_points.txt").read_text().split("\n")[:2] == [
        "[console_scripts]", "edge-infer = litenet.pyruntime.cli:entry"]  # fmt: skip


# ---------------------------------------------------------------- that they run


@pytest.fixture(scope="session")
def models(tmp_path_factory) -> list[Path]:
    return golden_models(tmp_path_factory.mktemp("models"))


@pytest.mark.skipif(sys.platform != "linux" or platform.machine() != "x86_64", reason="a wheel for Linux on x86-64")
@pytest.mark.parametrize("kind", KINDS)
def test_a_wheel_installed_in_a_fresh_environment_answers_about_a_picture(wheels, models, kind, tmp_path):
    run(sys.executable, "-m", "venv", "--without-pip", tmp_path)
    python = tmp_path / "bin" / "python"
    wheel = wheels[kind, "manylinux2014_x86_64"]
    run(sys.executable, "-m", "pip", "-q", "--python", python, "install", "--no-deps", "--no-index", wheel)
    (site,) = tmp_path.glob("lib/python*/site-packages")
    # the packages it depends on, from here; a .pth of theirs is not followed, so this LiteNet is not among them
    (site / "dependencies.pth").write_text("\n".join({str(Path(m.__file__).parents[1]) for m in (np, cv2)}))
    cv2.imwrite(str(tmp_path / "seven.png"), np.zeros((28, 28), np.uint8))
    answer = run(tmp_path / "bin" / "edge-infer", models[0], "seven.png", cwd=tmp_path, env={})
    assert re.fullmatch(r"seven\.png  \S+  \d+\.\d %\n", answer)
    home = run(python, "-c", "import litenet.pyruntime.engine as e; print(e.lib.ln_crc32, e.__file__)", env={})
    assert str(site) in home
    found = run(python, "-c", "import importlib.util as u; print(bool(u.find_spec('litenet.trainer')))", env={})
    assert found.strip() == str(kind == "litenet")


@pytest.mark.parametrize("platform", ARM)
def test_an_arm_wheel_in_an_arm_python_passes_the_golden_models(wheels, models, platform, tmp_path):
    debian, emulator, processor, kernels = ARM[platform]
    root = ROOT / "build" / "foreign-python" / debian
    if shutil.which(emulator) is None or not (root / "usr" / "bin" / "python3").exists():
        pytest.skip(f"needs {emulator} and `.ci/foreign_python {debian}`")
    unpacked(wheels["litenet_runtime", platform], tmp_path)
    (libraries,) = (root / "usr" / "lib").glob("*-linux-gnu*")
    here = {**os.environ, "PYTHONPATH": f"{tmp_path}:{root / 'usr/lib/python3/dist-packages'}"}
    found = run(emulator, "-cpu", processor, "-L", root, "-E", f"LD_LIBRARY_PATH={libraries}/blas:{libraries}/lapack",
                root / "usr" / "bin" / "python3", "-c", RUN, kernels, *models, env=here)  # fmt: skip
    assert found.strip() in map(str, range(10))
