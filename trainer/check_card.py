"""What edge-check says of driver, CuPy and card: each function yields Lines. CuPy comes in as an argument."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .backends import cards
from .backends.cards import Capability
from .backends.driver import Driver, version_text
from .check_line import FAIL, OK, WARN, Line

if TYPE_CHECKING:
    from .backends.cuda import CudaDevice

PLENTY = 10**9  # bytes of the card that are enough for the nets of the examples
LITTLE = 3 * 10**8  # what a training run needs before its first byte of data
ROOM = 10**8  # bytes for compiled kernels
SMI_SECONDS = 5.0
CUPYS = ("cupy", "cupy-cuda11x", "cupy-cuda12x", "cupy-cuda13x", "cupy-rocm-7-0")
INSTALL = "pip install 'litenet[gpu]'"


def smi(what: str, apps: bool = False) -> list[list[str]]:
    """Rows of nvidia-smi's answer; none where the tool is missing, slow or refuses."""
    query = f"--query-{'compute-apps' if apps else 'gpu'}={what}"
    command = ["nvidia-smi", query, "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SMI_SECONDS)
    except (OSError, subprocess.SubprocessError):
        return []
    rows = [[cell.strip() for cell in row.split(",")] for row in done.stdout.splitlines() if row.strip()]
    return rows if done.returncode == 0 else []


# ---- before CuPy


def driver(found: Driver, asked: str) -> Iterator[Line]:
    """Whether NVIDIA's driver is there and answers. asked: how bad its absence is."""
    if not found.installed:
        if sys.platform == "darwin":
            advice = "CUDA does not exist on macOS: train on the CPU."
        elif "microsoft" in _kernel():
            advice = "In WSL the driver is that of Windows: update NVIDIA's driver there, then run wsl --update."
        else:
            advice = "With an NVIDIA card in this machine, install NVIDIA's driver (branch 525 or newer)."
        yield Line("driver", asked, "no NVIDIA driver", advice, {"installed": False})
        return
    release = next((row[0] for row in smi("driver_version")), "") or _release()
    facts = {"installed": True, "version": release or None, "cuda": version_text(found.cuda)}
    text = f"{release + ', ' if release else ''}runs CUDA up to {version_text(found.cuda)}"
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
    if found.cards:
        yield Line("driver", OK, text, facts=facts)
    elif hidden is not None and not re.match(r"\s*[0-9GM]", hidden):
        advice = "Unset CUDA_VISIBLE_DEVICES, or set it to 0."
        text += f"; CUDA_VISIBLE_DEVICES={hidden!r} hides every card"
        yield Line("driver", asked, text, advice, facts)
    else:
        advice = "Look at nvidia-smi; after an update of the driver restart the machine."
        yield Line("driver", asked, f"{text}, but {found.problem}", advice, facts)


def _kernel() -> str:
    return os.uname().release.lower() if hasattr(os, "uname") else ""


def _release() -> str:
    """The driver's version as the kernel module tells it."""
    path = Path("/proc/driver/nvidia/version")
    found = re.search(r"\s(\d+\.\d+(\.\d+)?)\s", path.read_text()) if path.exists() else None
    return found[1] if found else ""


def card(found: Driver, asked: str) -> Iterator[Line]:
    """The cards, and whether the first, which is the one that trains, is new enough."""
    from .memory import bytes_text

    if not found.cards:
        yield Line("card", asked, "none" if found.installed else "none that could be seen without a driver")
    for index, one in enumerate(found.cards):
        cc = one.capability
        name = "card" if len(found.cards) == 1 else f"card {index}"
        text = f"{one.name}, compute capability {_text(cc)}"
        text += f" ({cards.family(cc)})" if cards.family(cc) else ""
        text += f", {bytes_text(one.bytes)}"
        facts = {"index": index, "name": one.name, "compute_capability": _text(cc), "bytes": one.bytes}
        status, advice = OK, ""
        if cc < cards.OLDEST:
            status = FAIL if index == 0 else WARN
            advice = f"The kernels need {_text(cards.OLDEST)}; train on the CPU. (NVRTC {cards.last_toolkit(cc)} was"
            advice += f" the last to compile for {_text(cc)}, driver branch {cards.last_driver(cc)} to run it.)"
        elif index == 0 and len(found.cards) > 1:
            advice = "This one trains. For another, set CUDA_VISIBLE_DEVICES to its number."
        yield Line(name, status, text, advice, facts)


def _text(cc: Capability) -> str:
    return f"{cc[0]}.{cc[1]}"


# ---- CuPy and its compiler


def cupy(found: Driver, asked: str, held: dict[str, Any]) -> Iterator[Line]:
    """Whether CuPy loads and suits driver and card. Puts the module into held["cupy"] if it can be used."""
    from .backends.cuda import cupy_module
    from .errors import UserError

    installed = {name: version for name in CUPYS if (version := _installed(name))}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what it warns of, the lines say
            module = cupy_module()
    except UserError as error:
        if not installed:
            yield Line("CuPy", asked, "not installed", INSTALL if found.cards else "", {"version": None})
        else:
            said = str(error.__cause__).strip().splitlines()
            text = f"{_list(installed)}, but it does not load: {said[0] if said else ''}"
            yield Line("CuPy", FAIL, text, f"pip install --force-reinstall {_wheel(found)}", {"installed": installed})
        return
    built = int(module.cuda.runtime.runtimeGetVersion())
    major = built // 1000
    text = f"{module.__version__}, built for CUDA {version_text(built)}"
    facts = {"version": module.__version__, "cuda": version_text(built), "installed": installed}
    if getattr(module.cuda.runtime, "is_hip", False):
        yield Line("CuPy", FAIL, f"{module.__version__}, built for AMD's ROCm", _exchange(installed, found), facts)
    elif not found.cards:
        yield Line("CuPy", OK, text, facts=facts)
    elif major > found.cuda // 1000:
        need = cards.DRIVERS.get(major)
        advice = f"Update the driver{f' to {need} or newer' if need else ''}, or: {_exchange(installed, found)}"
        text += f", but the driver runs CUDA only up to {version_text(found.cuda)}"
        yield Line("CuPy", FAIL, text, advice, facts)
    elif major >= 13 and found.cards[0].capability < cards.OLDEST_13:
        text += f", which begins at compute capability {_text(cards.OLDEST_13)}: not this card"
        yield Line("CuPy", FAIL, text, _exchange(installed, found), facts)
    else:
        held["cupy"] = module
        if len(installed) > 1:
            advice = f"pip uninstall {' '.join(installed)}, then {INSTALL}"
            yield Line("CuPy", WARN, f"{text}; installed more than once: {_list(installed)}", advice, facts)
        else:
            yield Line("CuPy", OK, text, facts=facts)


def _installed(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _list(installed: dict[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in installed.items())


def _wheel(found: Driver) -> str:
    """The CuPy that suits the driver: 12 reaches every card from 5.0 on."""
    return "cupy-cuda11x" if 0 < found.cuda < 12000 else "cupy-cuda12x"


def _exchange(installed: dict[str, str], found: Driver) -> str:
    return f"pip uninstall {' '.join(installed) or 'cupy'}; pip install {_wheel(found)}"


def nvrtc(module: Any, cc: Capability) -> Iterator[Line]:
    """The compiler: its version, and a kernel compiled for this very card."""
    from .backends.cuda_info import compile_probe, compiler

    try:
        found = compiler(module)
    except (RuntimeError, ImportError, OSError) as error:
        text = f"not found: {' '.join(str(error).split())[:80]}"
        yield Line("NVRTC", FAIL, text, "pip install 'nvidia-cuda-nvrtc-cu12>=12.9,<13'", {"version": None})
        return
    version, arch = _text(found.version), _text(cc)
    facts = {"version": version, "knows": [_text(known) for known in found.capabilities]}
    begin = time.perf_counter()
    try:
        compile_probe(module, cc)
    except Exception as error:
        text = f"{version} does not compile for {arch}: {' '.join(str(error).split())[:200]}"
        if cc < cards.OLDEST_13 and found.version[0] >= 13:
            advice = f"NVRTC 13 begins at 7.5, {cards.last_toolkit(cc)} is the last for {arch}: "
            advice += "pip install 'nvidia-cuda-nvrtc-cu12>=12.9,<13', and keep CUDA 13 out of the library path."
        elif found.capabilities and cc > max(found.capabilities):
            advice = f"The card is newer than this compiler: {INSTALL} --upgrade"
        else:
            advice = f"Reinstall it: {INSTALL} --force-reinstall"
        yield Line("NVRTC", FAIL, text, advice, facts)
        return
    spent = time.perf_counter() - begin
    yield Line("NVRTC", OK, f"{version}, compiles for {arch}", facts=facts | {"seconds": spent})


def kernel_cache() -> Iterator[Line]:
    """Where CuPy keeps compiled kernels: without it they are compiled anew by every run."""
    from .check_software import folder

    path = Path(os.environ.get("CUPY_CACHE_DIR") or Path.home() / ".cupy" / "kernel_cache")
    advice = "Set CUPY_CACHE_DIR to a folder that can be written: else every run compiles its kernels anew."
    yield folder("kernel cache", path, advice, ROOM)


# ---- the card at work


def half(cc: Capability) -> Iterator[Line]:
    speed = cards.half_arithmetic(cc)
    facts = {"arithmetic": speed, "offered": cc >= cards.HALF_FROM}
    if cc >= cards.HALF_FROM:
        yield Line("float16", OK, "fast; half-precision activations are offered", facts=facts)
        return
    why = {"none": "has no arithmetic for it", "slow": "does its arithmetic at 1/64 of float32's speed",
           "fast": "is fast at arithmetic alone"}[speed]  # fmt: skip
    text = f"{_text(cc)} stores it but {why}: not offered below {_text(cards.HALF_FROM)}"
    yield Line("float16", WARN, text, "Train in float32, which is the default.", facts)


def memory(device: CudaDevice) -> Iterator[Line]:
    """Free and total, and which programs hold the rest."""
    from .backends.cuda_info import memory as read
    from .memory import bytes_text

    free, total = read(device.cupy)
    users = holders()
    text = f"{bytes_text(free)} free of {bytes_text(total)}"
    named = ", ".join(f"{u['name']} ({u['pid']}{', ' + bytes_text(u['bytes']) if u['bytes'] else ''})" for u in users)
    text += f"; held by {named}" if named else ""
    facts = {"free_bytes": free, "total_bytes": total, "programs": users}
    if free < LITTLE:
        advice = "Close what holds it: a training run needs about 0.3 GB before its first byte of data."
        yield Line("memory", FAIL if total < LITTLE else WARN, text, advice, facts)
    elif free < min(PLENTY, total // 2):
        advice = "Close what holds it, or ask what fits: edge-train plan BLUEPRINT --memory " + _budget(free)
        yield Line("memory", WARN, text, advice, facts)
    else:
        yield Line("memory", OK, text, facts=facts)


def _budget(free: int) -> str:
    return f"{max(free - LITTLE, 10**8) // 10**6}MB"


def holders() -> list[dict[str, Any]]:
    """Programs that compute on the card besides this one, the largest first: pid, name, bytes (None: not told)."""
    found: list[dict[str, Any]] = []
    for row in smi("pid,used_memory,process_name", apps=True):
        if len(row) < 3 or not row[0].isdigit() or int(row[0]) == os.getpid():
            continue
        used = int(row[1]) << 20 if row[1].isdigit() else None
        found.append({"pid": int(row[0]), "name": _name(row[0], ",".join(row[2:])), "bytes": used})
    return sorted(found, key=lambda user: user["bytes"] or 0, reverse=True)[:5]


def _name(pid: str, told: str) -> str:
    """The program's name: as the tool tells it, or else as the kernel does."""
    if told and not told.startswith("["):
        return Path(told.replace("\\", "/")).name
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return "a program not to be seen from here"


def display(device: CudaDevice) -> Iterator[Line]:
    """A card that drives a screen stops kernels after a while."""
    from .backends.cuda_info import WATCHDOG, attribute

    if attribute(device.cupy, WATCHDOG, device.index):
        text = "the card drives a screen: a kernel that runs for 2 s is stopped, and the screen takes memory"
        advice = "A large batch on a slow card can reach that: use a smaller --batch with --accumulation."
        yield Line("display", WARN, text, advice, {"watchdog": True})
    else:
        yield Line("display", OK, "no limit to a kernel's time", facts={"watchdog": False})


def board(device: CudaDevice) -> Iterator[Line]:
    """Error correction, and the link to the card."""
    from .backends.cuda_info import ECC, INTEGRATED, attribute

    ecc = bool(attribute(device.cupy, ECC, device.index))
    row = next(iter(smi("pcie.link.gen.max,pcie.link.width.current")), [])
    link = [int(cell) if cell.isdigit() else 0 for cell in row]
    facts: dict[str, Any] = {"ecc": ecc, "integrated": bool(attribute(device.cupy, INTEGRATED, device.index))}
    text = f"error correction {'on' if ecc else 'off'}"
    if len(link) == 2 and all(link):
        facts |= {"pcie_generation": link[0], "pcie_lanes": link[1]}
        text += f", PCIe {link[0]} with {link[1]} lanes"
        if link[1] < 4:
            advice = "Training hardly notices while the data set fits on the card; else use a wider slot."
            yield Line("board", WARN, text, advice, facts)
            return
    yield Line("board", OK, text, facts=facts)


def graphs(device: Any) -> Iterator[Line]:
    """Two launches captured, replayed twice, and their result: training is nothing but that."""
    import numpy as np

    from .backends.cuda_info import COOPERATIVE, attribute
    from .kernels import calls_step

    n = 1000
    a, b = np.arange(n, dtype=np.float32), np.full(n, 0.5, np.float32)
    found, size = np.zeros_like(a), -(-a.nbytes // 256) * 256
    base = device.allocate(4 * size)
    at = {role: base + i * size for i, role in enumerate("abyz")}
    (call,) = calls_step.sum_calls(n, device.sms)  # y = a + b, then z = y + b
    advice = "Training on the card needs CUDA graphs: update the driver."
    try:
        device.upload(at["a"], a)
        device.upload(at["b"], b)
        replay = device.capture([(call, (at["a"], at["b"], at["y"])), (call, (at["y"], at["b"], at["z"]))])
        replay()
        replay()
        device.download(at["z"], found)
    except Exception as error:
        text = f"cannot be captured and replayed: {type(error).__name__}: {' '.join(str(error).split())[:200]}"
        yield Line("CUDA graphs", FAIL, text, advice)
        return
    finally:
        device.release(base)
    if not (found == a + 1).all():
        yield Line("CUDA graphs", FAIL, "two launches captured and replayed give a wrong sum", advice)
        return
    cooperative = bool(attribute(device.cupy, COOPERATIVE, device.index))
    text = f"captured and replayed; cooperative launch: {'yes' if cooperative else 'no'} (not used)"
    yield Line("CUDA graphs", OK, text, facts={"cooperative_launch": cooperative})
