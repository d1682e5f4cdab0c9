"""Build the wheels of other machines on this one: `python pyruntime/build_wheels.py [PLATFORM ...]`, into dist/.

Each is made by setup.py, as `pip install` does it, with another compiler: zig (pip package ziglang), which brings the
C libraries and headers of every system. Code is for the oldest processor a platform's name promises; what newer ones
can do better is chosen at run time, where the processor can be asked. Works on Linux and macOS.

A second wheel of each platform, litenet-runtime, has the same files without trainer and exporter: what a device needs.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / "build" / "wheels"


@dataclass(frozen=True)
class Target:
    """What zig calls a platform: system with its oldest C library, and the oldest processor."""

    system: str
    cpu: str
    bits: int


PLATFORMS = {
    "manylinux2014_x86_64": Target("x86_64-linux-gnu.2.17", "x86_64", 64),
    "manylinux2014_aarch64": Target("aarch64-linux-gnu.2.17", "generic", 64),  # ARMv8.0: Raspberry Pi 3 and later
    "linux_armv7l": Target("arm-linux-gnueabihf.2.17", "cortex_a8", 32),  # with NEON: Raspberry Pi 2 and later
    "linux_armv6l": Target("arm-linux-gnueabihf.2.17", "arm1176jzf_s", 32),  # Raspberry Pi 1 and Zero
}
# pyconfig.h of this machine's Python, for one whose pointers have four bytes
FOUR_BYTES = ("LONG", "VOID_P", "SIZE_T", "PTHREAD_T", "UINTPTR_T", "TIME_T")


def compiler(target: Target) -> list[str]:
    """The command that compiles C for a target."""
    return [sys.executable, "-m", "ziglang", "cc", "-target", target.system, f"-mcpu={target.cpu}"]


def python_headers(bits: int) -> Path:
    """A copy of this Python's headers that describes a machine of so many bits; made when it is missing."""
    folder = WORK / f"python{bits}"
    if not folder.exists():
        draft = folder.with_name(f"{folder.name}.{os.getpid()}")
        shutil.copytree(sysconfig.get_path("include"), draft)
        config = Path(sysconfig.get_config_h_filename()).read_text(encoding="utf-8")
        if bits == 32:
            sizes = [f"SIZEOF_{name}" for name in FOUR_BYTES] + ["ALIGNOF_LONG", "ALIGNOF_SIZE_T"]
            config += "".join(f"\n#undef {name}\n#define {name} 4" for name in sizes) + "\n"
        (draft / "pyconfig.h").write_text(config, encoding="utf-8")
        draft.replace(folder)
    return folder


def build(platform: str, dist: Path) -> Path:
    """The wheel of one platform."""
    target, work = PLATFORMS[platform], WORK / platform
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    command = shlex.join([*compiler(target), "-s"])
    environment = {
        **os.environ,
        "CC": shlex.join([*compiler(target), f"-I{python_headers(target.bits)}"]),
        "LDSHARED": f"{command} -shared -Wl,--gc-sections",
        "CFLAGS": "",  # not what this machine's Python was built with
        "LDFLAGS": "",
        "_PYTHON_HOST_PLATFORM": platform.replace("manylinux2014_", "linux-").replace("linux_", "linux-"),
    }
    steps = [
        "egg_info", f"--egg-base={work}", "build", f"--build-base={work}",
        "bdist_wheel", f"--bdist-dir={work / 'bdist'}", f"--plat-name={platform}", f"--dist-dir={work / 'dist'}",
    ]  # fmt: skip
    log = work / "log.txt"
    with log.open("w", encoding="utf-8") as out:
        made = subprocess.run([sys.executable, "setup.py", *steps], cwd=ROOT, env=environment, stdout=out,
                              stderr=subprocess.STDOUT, check=False)  # fmt: skip
    if made.returncode:
        sys.exit(f"{platform}: setup.py failed; {log} ends with\n{log.read_text(encoding='utf-8')[-3000:]}")
    (wheel,) = (work / "dist").glob("*.whl")
    dist.mkdir(parents=True, exist_ok=True)
    return Path(shutil.move(wheel, dist / wheel.name))


def runtime_only(wheel: Path) -> Path:
    """The same wheel with litenet.pyruntime alone, named litenet-runtime, beside it."""
    name, version, *tags = wheel.stem.split("-")
    old, new = f"{name}-{version}.dist-info", f"{name}_runtime-{version}.dist-info"
    out = wheel.with_name("-".join([f"{name}_runtime", version, *tags]) + ".whl")
    record = []
    with zipfile.ZipFile(wheel) as source, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as target:
        for info in source.infolist():
            if info.filename.startswith(("litenet/trainer/", "litenet/exporter/")) or info.filename == f"{old}/RECORD":
                continue
            data = source.read(info)
            info.filename = info.filename.replace(old, new, 1)
            if info.filename == f"{new}/METADATA":
                data = _runtime_metadata(data.decode()).encode()
            elif info.filename == f"{new}/entry_points.txt":
                lines = data.decode().splitlines()
                data = "".join(f"{line}\n" for line in lines if line[:1] == "[" or "pyruntime" in line).encode()
            target.writestr(info, data, zipfile.ZIP_DEFLATED)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
            record.append(f"{info.filename},sha256={digest},{len(data)}\n")
        target.writestr(f"{new}/RECORD", "".join(record) + f"{new}/RECORD,,\n")
    return out


def _runtime_metadata(text: str) -> str:
    """METADATA under the other name, without what the left-out parts would need."""
    head, body = text.split("\n\n", 1)
    kept = [line for line in head.splitlines() if not line.startswith("Provides-Extra:") and "extra ==" not in line]
    lines = ["Name: litenet-runtime" if line == "Name: litenet" else line for line in kept]
    return "\n".join(lines) + "\n\n" + body


def main() -> None:
    p = argparse.ArgumentParser(description="Build wheels for other machines, by zig.")
    p.add_argument("platforms", nargs="*", metavar="PLATFORM", help=f"default: all of {' '.join(PLATFORMS)}")
    p.add_argument("--dist", type=Path, default=ROOT / "dist", help="where the wheels go (default: dist/)")
    args = p.parse_args()
    for name in args.platforms:
        if name not in PLATFORMS:
            p.error(f"there is no platform {name!r}; expected one of {', '.join(PLATFORMS)}")
    for bits in (32, 64):  # before any two builds ask for them at once
        python_headers(bits)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for wheel in pool.map(lambda name: build(name, args.dist), args.platforms or PLATFORMS):
            for made in (wheel, runtime_only(wheel)):
                print(f"{made}: {made.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
