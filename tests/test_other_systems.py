"""Windows and macOS: the library, the example and the Python binding compile there, with warnings as errors. Nothing
is run: this is all that can be said without such a machine."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cbuild
import pytest

SYSTEMS = ["x86_64-windows-gnu", "x86_64-macos", "aarch64-macos"]
# what Python.h must know of 64-bit Windows, where only C and no import library is made
WINDOWS = """\
#define MS_WIN64
#define MS_WIN32
#define MS_WINDOWS
#define NT_THREADS
#define WITH_THREAD
#define SIZEOF_INT 4
#define SIZEOF_SHORT 2
#define SIZEOF_LONG 4
#define SIZEOF_LONG_LONG 8
#define SIZEOF_VOID_P 8
#define SIZEOF_SIZE_T 8
#define SIZEOF_WCHAR_T 2
#define ALIGNOF_SIZE_T 8
#define HAVE_STDDEF_H 1
#define HAVE_SYS_TYPES_H 1
#define HAVE_SYS_STAT_H 1
#define HAVE_WCHAR_H 1
#define HAVE_SSIZE_T 1
"""


def compile_all(system: str, sources: list[Path], folder: Path, *flags: object) -> None:
    """Each source to an object of that system; a warning fails."""
    if importlib.util.find_spec("ziglang") is None:
        pytest.skip("zig is not installed (pip install ziglang)")
    zig = [sys.executable, "-m", "ziglang", "cc", "-target", system, "-O0", "-std=c99", f"-I{cbuild.INCLUDE}"]

    def one(source: Path) -> str:
        command = [*zig, *map(str, flags), "-c", str(source), "-o", str(folder / f"{source.stem}.o")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.stderr if done.returncode else ""

    with ThreadPoolExecutor(2) as pool:
        assert not "".join(pool.map(one, sources))
    assert all((folder / f"{source.stem}.o").stat().st_size for source in sources)


@pytest.mark.parametrize("system", SYSTEMS)
def test_the_library_and_the_example_compile(system, tmp_path):
    sources = [*sorted(cbuild.SRC.glob("*.c")), cbuild.ROOT / "runtime_c" / "examples" / "classify.c"]
    compile_all(system, sources, tmp_path, "-Wall", "-Wextra", "-Werror")


@pytest.mark.parametrize("system", SYSTEMS)
def test_the_binding_compiles(system, tmp_path):
    binding = tmp_path / "binding.c"
    code = "import sys, build_ffi; build_ffi.ffi.emit_c_code(sys.argv[1])"
    subprocess.run([sys.executable, "-c", code, str(binding)], check=True, cwd=cbuild.ROOT / "pyruntime")
    headers = [f"-I{sysconfig.get_path('include')}", f"-I{Path(sysconfig.get_config_h_filename()).parent}"]
    if "windows" in system:  # Python.h takes the pyconfig.h beside it
        folder = tmp_path / "include"
        folder.mkdir()
        for header in Path(sysconfig.get_path("include")).iterdir():
            (folder / header.name).symlink_to(header)
        (folder / "pyconfig.h").unlink()
        (folder / "pyconfig.h").write_text(WINDOWS)
        headers = [f"-I{folder}"]
    compile_all(system, [binding], tmp_path, *headers)


def test_the_core_is_c99_for_a_compiler_that_calls_itself_msvc():
    """clang with Microsoft's target claims to be MSVC and not gcc, so it sees the code that MSVC would; headers of C
    alone are needed. What MSVC itself says of it is not known."""
    if shutil.which("clang") is None:
        pytest.skip("clang is not installed")
    system = {"ln_file.c", "ln_threads.c"}  # they include Windows' headers
    sources = [str(p) for p in sorted(cbuild.SRC.glob("*.c")) if p.name not in system]
    command = ["clang", "--target=x86_64-pc-windows-msvc", "-ffreestanding", "-fsyntax-only", "-std=c99"]
    command += ["-Wall", "-Wextra", "-Wvla", "-Werror", f"-I{cbuild.INCLUDE}"]
    done = subprocess.run([*command, *sources], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    gnu = subprocess.run(
        [*command[:5], "-dM", "-E", "-x", "c", "-"], input="", capture_output=True, text=True, check=True
    )
    assert "__GNUC__" not in gnu.stdout and "_MSC_VER" in gnu.stdout
