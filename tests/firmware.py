"""Boards for tests: firmware built and run under qemu-system-arm, or as a program of this PC."""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from cbuild import ROOT

from litenet.exporter import c_array
from litenet.pyruntime.serial_device import Device
from litenet.pyruntime.serial_link import Link, open_port

EXAMPLES = ROOT / "firmware_examples"
MACHINES = {  # machine: the processor, as exporter/chip_code.py names it
    "microbit": "cortex-m0",
    "mps2-an385": "cortex-m3",
    "mps2-an386": "cortex-m4f",
    "mps2-an500": "cortex-m7",
    "mps3-an547": "cortex-m55",
}


def header(data: bytes, folder: Path, name: str = "net") -> Path:
    """The model as a C header in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    list(c_array.write(data, folder / f"{name}.h", f"{name}.bin", golden=False))
    (folder / f"{name}.bin").write_bytes(data)
    return folder / f"{name}.h"


def need(*tools: str) -> None:
    for tool in tools:
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")


def need_compiler(compiler: str, major: str) -> None:
    """Skips where sizes are not those of the compiler that the bounds and tables are of."""
    need(compiler)
    version = subprocess.run([compiler, "-dumpversion"], capture_output=True, text=True, check=True).stdout.strip()
    if version.split(".")[0] != major:
        pytest.skip(f"the sizes are those of gcc {major}, this is gcc {version}")


def sizes(image: Path, size: str = "arm-none-eabi-size") -> tuple[int, int]:
    """(bytes of flash, bytes of RAM without the stack) of an image."""
    text = subprocess.run([size, str(image)], capture_output=True, text=True, check=True).stdout
    code, data, bss = map(int, text.splitlines()[1].split()[:3])
    return code + data, data + bss


def as_told(folder: str, image: Path, prefix: str = "arm-none-eabi-", major: str = "12") -> None:
    """The README of an example says what an image takes, within 3 % and 32 bytes."""
    need_compiler(f"{prefix}gcc", major)
    text = (EXAMPLES / folder / "README.md").read_text(encoding="utf-8")
    said = re.search(r"([\d,]+) bytes of flash, ([\d,]+) of RAM", text)
    assert said, f"{folder}/README.md says no size"
    for told, found in zip(said.groups(), sizes(image, f"{prefix}size"), strict=True):
        off = int(told.replace(",", "")) - found
        assert abs(off) <= 0.03 * found + 32, f"{folder}/README.md: {told}, found {found:,}"


def build(machine: str, model: Path, room: int = 0, plain: bool = False) -> Path:
    """The image of one of MACHINES, or "host"; skips where a compiler is missing. plain: without the kernels for the
    processor's short vectors."""
    compiler = "cc" if machine == "host" else "arm-none-eabi-gcc"
    need(compiler, "make")
    out = model.parent / f"{machine}-{room}{'-plain' if plain else ''}"
    where = EXAMPLES / ("host_sim" if machine == "host" else "qemu_cortex_m")
    given = [f"MODEL={model}", f"BUILD={out}", *([f"ROOM={room}"] if room else [])]
    given += ["PLAIN=1"] if plain else []
    given += [f"MACHINE={machine}"] if machine != "host" else []
    done = subprocess.run(["make", "-s", "-j2", "-C", str(where), *given], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return out / ("board" if machine == "host" else "firmware.elf")


@contextlib.contextmanager
def running(machine: str, image: Path, *more: str) -> Iterator[str]:
    """The board runs; gives the name of its serial port. `more`: options of qemu, or of the program."""
    if machine == "host":
        command = [str(image), *more]
    else:
        need("qemu-system-arm")
        line = ["-chardev", "pty,id=line", "-serial", "chardev:line"]
        command = ["qemu-system-arm", "-M", machine, "-display", "none", "-monitor", "none", *line]
        command += ["-kernel", str(image), *more]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            assert process.stdout is not None
            first = process.stdout.readline()
            port = re.search(r"/dev/\S+", first)
            assert port, first
            yield port[0]
        finally:
            process.kill()


@contextlib.contextmanager
def board(machine: str, image: Path, *more: str, wait: float = 1.0) -> Iterator[Device]:
    """A conversation with it."""
    pytest.importorskip("serial", reason="pyserial is not installed")
    with running(machine, image, *more) as port, Link(open_port(port), port, wait) as link:
        yield Device(link)
