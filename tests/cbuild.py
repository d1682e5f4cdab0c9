"""Compile C test programs: strict warnings, sanitizers, and a cache keyed by what goes in.

    driver = cbuild.program("open_driver", [cbuild.TESTS_C / "open_driver.c", *cbuild.core()], "clang")
    subprocess.run([driver, ...])

Each source is compiled to an object of its own, so that tests share the core's. A compiler or sanitizer that
this machine lacks skips the test that asked for it, with the reason.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
INCLUDE = ROOT / "runtime_c" / "include"
SRC = ROOT / "runtime_c" / "src"
TESTS_C = ROOT / "tests" / "c"

COMPILERS = ["gcc", "clang"]
STRICT = (
    "-std=c99", "-pedantic", "-Wall", "-Wextra", "-Wshadow", "-Wvla", "-Wdouble-promotion",
    "-Wfloat-conversion", "-Werror",
)  # fmt: skip
SANITIZE = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer")
# LITENET_COVERAGE: flags that count what runs, as `make coverage` sets them; sanitizers are then left out
COVERAGE = shlex.split(os.environ.get("LITENET_COVERAGE", ""))
if COVERAGE:
    COMPILERS, SANITIZE = ["clang"], ()
BUILD = ROOT / "build" / ("coverage" if COVERAGE else "tests-c")
DESKTOP = {"ln_file.c", "ln_threads.c"}  # not part of the core: they use the operating system


def core() -> list[Path]:
    """The sources of the core: all of runtime_c/src but the kernels for vector units, and what needs an operating
    system."""
    return sorted(p for p in SRC.glob("*.c") if p.name not in DESKTOP and not p.name.startswith("fast_"))


def fast() -> list[Path]:
    """The sources of the kernels for vector units, which need the core."""
    return sorted(SRC.glob("fast_*.c"))


def program(
    name: str,
    sources: Iterable[Path],
    compiler: str = "gcc",
    sanitize: bool = True,
    flags: Sequence[str] = (),
    strict: bool = True,
) -> Path:
    """The built program. `flags` go to compiler and linker alike and come last, so they can override -O1."""
    return link(name, objects(sources, compiler, sanitize, flags, strict), compiler, sanitize, flags)


def link(
    name: str, built: Sequence[Path], compiler: str = "gcc", sanitize: bool = True, flags: Sequence[str] = ()
) -> Path:
    """The program of these objects."""
    out = BUILD / f"{name}-{_digest([compiler, *flags, *(o.name for o in built)])}"
    if not out.exists():
        _run([compiler, *map(str, built), *(SANITIZE if sanitize else ()), *flags, *_counting(compiler)], out)
    return out


def _counting(compiler: str) -> list[str]:
    return COVERAGE if compiler == "clang" else []


def objects(
    sources: Iterable[Path],
    compiler: str = "gcc",
    sanitize: bool = True,
    flags: Sequence[str] = (),
    strict: bool = True,
) -> list[Path]:
    """The object file of each source, in order."""
    need(compiler, sanitize, flags)
    options = ["-O1", "-g", f"-I{INCLUDE}", f"-I{SRC}", f"-I{TESTS_C}"]
    options += [*(STRICT if strict else ()), *(SANITIZE if sanitize else ()), *flags, *_counting(compiler)]
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        return list(pool.map(lambda source: _object(Path(source), compiler, options), sources))


def need(compiler: str, sanitize: bool = False, flags: Sequence[str] = ()) -> None:
    """Skip the running test where the compiler, its sanitizers, or the library of its 32-bit programs are missing."""
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    wanted = (*(SANITIZE if sanitize else ()), *(f for f in flags if f.startswith(("-m32", "-idirafter"))))
    if wanted and not _links(compiler, wanted):
        pytest.skip(f"{compiler} cannot link {' '.join(wanted)} here")


@cache
def _links(compiler: str, flags: Sequence[str]) -> bool:
    BUILD.mkdir(parents=True, exist_ok=True)
    probe = BUILD / f"probe-{compiler}-{os.getpid()}"
    command = [compiler, "-x", "c", "-", *flags, "-o", str(probe)]
    source = b"#include <errno.h>\n#include <stdio.h>\nint main(void){return puts(\"\") < 0;}"
    done = subprocess.run(command, input=source, capture_output=True, check=False)
    probe.unlink(missing_ok=True)
    return done.returncode == 0


def _object(source: Path, compiler: str, options: Sequence[str]) -> Path:
    key = _digest([compiler, _version(compiler), *options, str(source), source.read_text(), _headers()])
    out = BUILD / f"{source.stem}-{key}.o"
    if not out.exists():
        _run([compiler, *options, "-c", str(source)], out)
    return out


def _run(command: Sequence[str], out: Path) -> None:
    """Run a compiler into `out`. The name appears only when complete: test runs may do this at once."""
    BUILD.mkdir(parents=True, exist_ok=True)
    draft = out.with_name(f"{out.name}.{os.getpid()}")
    done = subprocess.run([*command, "-o", str(draft)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stderr}"
    draft.replace(out)


@cache
def _version(compiler: str) -> str:
    return subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True).stdout


@cache
def _headers() -> str:
    """All that a source can include, as one text."""
    found = [*INCLUDE.glob("*.h"), *SRC.glob("*.h"), *SRC.glob("*.def"), *TESTS_C.glob("*.h")]
    return "".join(f"{p.name}\n{p.read_text()}" for p in sorted(found))


def _digest(parts: Iterable[str]) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
