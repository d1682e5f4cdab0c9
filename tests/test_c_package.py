"""The C runtime in other projects: installed by make or CMake, found by pkg-config or find_package, taken in as a
folder, or compiled by one line of cc. The same ten-line program is built each way, and must answer."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import bins
import cbuild
import numpy as np
import pytest

from litenet.pyruntime import InferenceEngine

RUNTIME = cbuild.ROOT / "runtime_c"
CONSUMER = cbuild.TESTS_C / "consumer.c"
SOURCES = sorted((RUNTIME / "src").glob("*.c"))
PROJECT = """\
cmake_minimum_required(VERSION 3.16)
project(consumer C)
{find}
add_executable(consumer {source})
target_link_libraries(consumer LiteNet::{kind})
"""


def run(*command: object, **more) -> str:
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, check=False, **more)
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout[-2000:]}{done.stderr[-3000:]}"
    return done.stdout


def need(*tools: str) -> None:
    for tool in tools:
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")


@pytest.fixture(scope="module")
def by_make(tmp_path_factory) -> Path:
    """Where `make install-c` has put it."""
    need("make", "cc")
    folder = tmp_path_factory.mktemp("make")
    run("make", "-C", RUNTIME, "-j2", f"BUILD={folder / 'build'}", f"PREFIX={folder}", "install")
    return folder


@pytest.fixture(scope="module")
def by_cmake(tmp_path_factory) -> Path:
    """Where CMake has installed it, with libraries in lib/<machine> as Debian has them."""
    need("cmake", "cc")
    folder = tmp_path_factory.mktemp("cmake")
    machine = run("cc", "-print-multiarch").strip()
    run("cmake", "-S", RUNTIME, "-B", folder / "build", "-DCMAKE_BUILD_TYPE=Debug", f"-DCMAKE_INSTALL_PREFIX={folder}",
        f"-DCMAKE_INSTALL_LIBDIR=lib/{machine}")  # fmt: skip
    run("cmake", "--build", folder / "build", "-j2")
    run("cmake", "--install", folder / "build")
    return folder


@pytest.fixture(scope="module")
def installed(request) -> Path:
    return request.getfixturevalue(request.param)


def answers(program: Path, folder: Path, **more) -> None:
    """The program says about zeros what the engine says."""
    model = folder / "model.bin"
    model.write_bytes(bins.digits().bytes())
    engine = InferenceEngine(str(model), kernels="portable")
    got = np.array([float(line) for line in run(program, model, **more).split()])
    np.testing.assert_allclose(got, engine.predict(np.zeros(engine.input_shape, np.float32)), rtol=1e-5, atol=1e-5)


BOTH = pytest.mark.parametrize("installed", ["by_make", "by_cmake"], indirect=True)


@BOTH
@pytest.mark.parametrize("kind", ["shared", "static"])
def test_pkg_config_finds_the_library(installed, kind, tmp_path):
    need("pkg-config")
    (found,) = installed.rglob("lib/**/litenet.pc")
    here = {**os.environ, "PKG_CONFIG_PATH": str(found.parent)}
    flags = run("pkg-config", "--cflags", "--libs", *["--static"] * (kind == "static"), "litenet", env=here).split()
    if kind == "static":
        flags = [f"-l:lib{flag[2:]}.a" if flag == "-llitenet" else flag for flag in flags]
    run("cc", CONSUMER, *flags, "-o", tmp_path / "consumer")
    library = {} if kind == "static" else {"LD_LIBRARY_PATH": str(found.parent.parent)}
    answers(tmp_path / "consumer", tmp_path, env={**os.environ, **library})
    assert run("pkg-config", "--modversion", "litenet", env=here).strip() == version()


@BOTH
@pytest.mark.parametrize("kind", ["shared", "static"])
def test_cmake_finds_the_package(installed, kind, tmp_path):
    need("cmake")
    found = f"find_package(LiteNet {version()} REQUIRED)"
    (tmp_path / "CMakeLists.txt").write_text(PROJECT.format(find=found, source=CONSUMER, kind=kind))
    run("cmake", "-S", tmp_path, "-B", tmp_path / "build", f"-DCMAKE_PREFIX_PATH={installed}")
    run("cmake", "--build", tmp_path / "build")
    answers(tmp_path / "build" / "consumer", tmp_path)


def test_a_cmake_project_takes_the_folder_in(tmp_path):
    need("cmake", "cc")
    taken = f"add_subdirectory({RUNTIME} litenet)"
    (tmp_path / "CMakeLists.txt").write_text(PROJECT.format(find=taken, source=CONSUMER, kind="static"))
    run("cmake", "-S", tmp_path, "-B", tmp_path / "build", "-DCMAKE_BUILD_TYPE=Debug")
    run("cmake", "--build", tmp_path / "build", "-j2")
    answers(tmp_path / "build" / "consumer", tmp_path)
    assert not list((tmp_path / "build").rglob("*.so*")) and not list((tmp_path / "build").rglob("classify"))


def test_a_newer_version_is_not_found(by_make, tmp_path):
    need("cmake")
    wanted = "find_package(LiteNet 99.0 REQUIRED)"
    (tmp_path / "CMakeLists.txt").write_text(PROJECT.format(find=wanted, source=CONSUMER, kind="static"))
    command = ["cmake", "-S", tmp_path, "-B", tmp_path / "build", f"-DCMAKE_PREFIX_PATH={by_make}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode != 0 and 'compatible with requested version "99.0"' in " ".join(done.stderr.split())


@pytest.fixture(scope="module")
def by_cc(tmp_path_factory) -> dict[str, Path]:
    """The program as each compiler here builds it, with its own C, not C99, and no flag that is not needed."""
    folder = tmp_path_factory.mktemp("cc")
    here = [c for c in cbuild.COMPILERS if shutil.which(c)]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda c: run(c, "-O2", f"-I{RUNTIME / 'include'}", CONSUMER, *SOURCES, "-o", folder / c,
                                    "-pthread"), here))  # fmt: skip
    return {c: folder / c for c in here}


@pytest.mark.parametrize("compiler", cbuild.COMPILERS)
def test_one_line_of_cc_builds_a_program(compiler, by_cc, tmp_path):
    cbuild.need(compiler)
    answers(by_cc[compiler], tmp_path)


def test_the_shared_library_shows_the_functions_of_the_headers_and_no_other(by_make):
    need("nm")
    declared = set()
    for header in (RUNTIME / "include").glob("*.h"):
        code = re.sub(r"/\*.*?\*/|//[^\n]*", "", header.read_text(), flags=re.DOTALL)
        declared |= set(re.findall(r"^[^#{}\n]*?\b(ln_\w+)\(", code, re.MULTILINE))
    shown = run("nm", "-D", "--defined-only", by_make / "lib" / "liblitenet.so").split("\n")
    assert {line.split()[2] for line in shown if line} == declared - {"ln_after_op"}


def test_the_shared_library_with_all_instruction_sets_is_under_400_kilobytes(by_make):
    assert 50_000 < (by_make / "lib" / "liblitenet.so").resolve().stat().st_size < 400_000


def version() -> str:
    (found,) = re.findall(r'^version = "(.*)"', (cbuild.ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    return found


def test_the_header_has_the_version_of_the_project():
    assert f'#define LN_VERSION "{version()}"' in (RUNTIME / "include" / "litenet.h").read_text()
