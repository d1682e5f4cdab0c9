"""The builds in which the loader is attacked: two compilers, words of 64 and of 32 bits, either byte order."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import cbuild
import pytest

UNDEFINED = ("-fsanitize=undefined", "-fno-sanitize-recover=all")  # where the emulator has no room for ASan's shadow
WORDS_32 = ("-m32", "-msse2", "-mfpmath=sse", "-idirafter/usr/include/x86_64-linux-gnu")
DRIVER = [cbuild.TESTS_C / "open_driver.c", *cbuild.core(), cbuild.SRC / "ln_file.c"]


@dataclass(frozen=True)
class Build:
    compiler: str
    flags: tuple[str, ...] = ()
    command: tuple[str, ...] = ()  # what runs its programs here; empty: the processor

    def driver(self) -> list[str]:
        """The command that starts open_driver of this build, sanitized. Skips where something is missing."""
        if self.command and shutil.which(self.command[0]) is None:
            pytest.skip(f"{self.command[0]} is not installed")
        return [*self.command, str(cbuild.program("open_driver", DRIVER, self.compiler, not self.command, self.flags))]


BUILDS = {name: Build(name) for name in cbuild.COMPILERS}
if not cbuild.COVERAGE:
    BUILDS |= {f"{name}-32": Build(name, WORDS_32) for name in cbuild.COMPILERS}
    BUILDS["s390x"] = Build(
        "s390x-linux-gnu-gcc", ("-static", "-fexcess-precision=fast", *UNDEFINED), ("qemu-s390x",)
    )  # big-endian


def is_emulated(driver: list[str]) -> bool:
    """Whether it takes twenty times as long."""
    return len(driver) > 1


def floats(driver: list[str]) -> str:
    """float32 as the programs of this build read and write it."""
    return ">f4" if driver[0] == "qemu-s390x" else "<f4"


def drive(driver: list[str] | Path, *args: object, given: bytes | None = None, seconds: int = 300) -> bytes:
    """What the driver printed. A sanitizer's report fails the test."""
    command = [str(driver)] if isinstance(driver, Path) else driver
    words = [*command, *map(str, args)]
    done = subprocess.run(words, input=given, capture_output=True, timeout=seconds, check=False)
    assert done.returncode == 0, f"exit {done.returncode}: {done.stderr.decode()[-3000:]}"
    return done.stdout


def counted(driver: list[str], *args: object) -> dict[int, int]:
    """How often each status came."""
    lines = (line.split("\t") for line in drive(driver, *args, seconds=3000).decode().splitlines())
    return {int(status): int(n) for status, n in lines}
