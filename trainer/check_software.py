"""What edge-check says of the software: each function yields Lines. Nothing heavy is imported before its turn."""

from __future__ import annotations

import ctypes
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Iterator
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from .check_line import FAIL, OK, WARN, Line

PYTHON = (3, 10)
ROOM = 500 * 10**6  # bytes: CIFAR-10 as it is fetched and unpacked, and compiled kernels
TINY = """{
  "name": "edge_check", "input_shape": [1, 8, 8],
  "layers": [
    {"type": "conv2d", "out_channels": 4, "kernel_size": 3, "padding": "same", "activation": "relu"},
    {"type": "maxpool2d", "kernel_size": 2, "stride": 2},
    {"type": "flatten"},
    {"type": "linear", "out_features": 10}
  ]
}"""


def python() -> Iterator[Line]:
    found = f"{platform.python_version()}, {platform.system()} {platform.machine()}"
    if sys.version_info < PYTHON:
        yield Line("Python", FAIL, found, f"LiteNet needs Python {PYTHON[0]}.{PYTHON[1]} or newer.")
    else:
        yield Line("Python", OK, found, facts={"version": platform.python_version(), "executable": sys.executable})


def litenet() -> Iterator[Line]:
    where = Path(__file__).resolve().parent.parent
    try:
        version = metadata.version("litenet")
    except metadata.PackageNotFoundError:
        advice = "To have the commands: pip install -e '.[train]' in that folder."
        yield Line("LiteNet", WARN, f"not installed; this runs from {where}", advice, {"version": None})
    else:
        yield Line("LiteNet", OK, version, facts={"version": version, "folder": str(where)})


def numpy() -> Iterator[Line]:
    """Version, the library of its matrix products, and its threads."""
    try:
        import numpy as np
    except ImportError as error:
        yield Line("NumPy", FAIL, f"does not load: {first_line(error)}", "pip install --force-reinstall numpy")
        return
    blas, version = _blas(np)
    threads, cores = _threads(np), usable_cores()
    text = f"{np.__version__}, {blas} {version}".rstrip()
    text += f", {threads} thread{'s' * (threads > 1)}" if threads else ""
    facts = {"version": np.__version__, "blas": blas, "blas_version": version, "threads": threads, "cores": cores}
    if blas == "no BLAS":
        yield Line("NumPy", WARN, text, "Matrix products are slow without one: pip install numpy has OpenBLAS.", facts)
    elif threads is not None and threads > cores:
        advice = f"This process may use {cores} cores: set OPENBLAS_NUM_THREADS={cores}."
        yield Line("NumPy", WARN, text, advice, facts)
    else:
        yield Line("NumPy", OK, text, facts=facts)


def _blas(np: Any) -> tuple[str, str]:
    """Name and version, as NumPy was built."""
    found = np.show_config(mode="dicts").get("Build Dependencies", {}).get("blas", {})
    name = str(found.get("name", "")).lower()
    if not found.get("found"):
        return "no BLAS", ""
    known = {"openblas": "OpenBLAS", "mkl": "MKL", "accelerate": "Accelerate", "blis": "BLIS"}
    return next((text for key, text in known.items() if key in name), name or "BLAS"), str(found.get("version", ""))


def _threads(np: Any) -> int | None:
    """How many threads OpenBLAS uses, asked of the library that NumPy brings; None where that is not how it is."""
    for folder in (Path(np.__file__).parent.parent / "numpy.libs", Path(np.__file__).parent / ".dylibs"):
        for path in folder.glob("*openblas*"):
            library = ctypes.CDLL(str(path))
            for name in ("scipy_openblas_get_num_threads64_", "openblas_get_num_threads64_",
                         "scipy_openblas_get_num_threads", "openblas_get_num_threads"):  # fmt: skip
                if hasattr(library, name):
                    return int(getattr(library, name)())
    return None


def usable_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def runtime() -> Iterator[Line]:
    """The C runtime loads, and gives what training's definition gives: a net is exported, proved and self-tested."""
    try:
        from litenet.pyruntime._litenet import lib  # noqa: F401
    except ImportError as error:
        advice = "pip install --force-reinstall litenet; from a checkout pip install -e . (it needs a C compiler)."
        yield Line("C runtime", FAIL, f"does not load: {first_line(error)}", advice)
        return
    from litenet.exporter.binary import export
    from litenet.pyruntime import InferenceEngine

    from . import checkpoint
    from .blueprint import parse
    from .errors import UserError
    from .trainer import Trainer

    try:
        with tempfile.TemporaryDirectory() as folder:
            blueprint, weights, out = (Path(folder, name) for name in ("net.json", "net.npz", "net.bin"))
            blueprint.write_text(TINY, encoding="utf-8")
            checkpoint.save(weights, Trainer(parse(TINY), 1, 1).state_arrays(), {})
            lines = list(export(None, out, config=str(blueprint), weights=str(weights), data="digits", samples=16))
            InferenceEngine(out.read_bytes()).selftest()
    except (UserError, RuntimeError, ValueError) as error:
        text = f"loads, but a net does not survive export and self-test: {first_line(error)}"
        yield Line("C runtime", FAIL, text, "Exported files cannot be trusted on this machine: please report this.")
        return
    yield Line("C runtime", OK, "a net exported, proved on digits and self-tested", facts={"report": lines})


def opencv() -> Iterator[Line]:
    """Pictures are read and written."""
    try:
        import cv2
    except ImportError as error:
        text = f"does not load: {first_line(error)}"
        yield Line("OpenCV", FAIL, text, "pip install opencv-python-headless (edge-infer reads pictures with it).")
        return
    import numpy as np

    picture = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)
    found = cv2.imdecode(cv2.imencode(".png", picture)[1], cv2.IMREAD_COLOR)
    version = cv2.__version__
    if found is None or not (found == picture).all():
        text = f"{version}, but a PNG does not come back as it was written"
        yield Line("OpenCV", FAIL, text, "pip install --force-reinstall opencv-python-headless")
    else:
        yield Line("OpenCV", OK, version, facts={"version": version})


def extras() -> Iterator[Line]:
    """What the extra "train" adds."""
    uses = {"PyYAML": ("yaml", "blueprints in YAML"), "tqdm": ("tqdm", "moving line of progress")}
    there = {name: _version(name) for name, (module, _) in uses.items() if find_spec(module)}
    missing = {name: use for name, (_, use) in uses.items() if name not in there}
    if missing:
        text = "; ".join(f"{name} is not installed: no {use}" for name, use in missing.items())
        yield Line("extras", WARN, text, "pip install 'litenet[train]'", {"versions": there})
    else:
        yield Line("extras", OK, ", ".join(f"{n} {v}" for n, v in there.items()), facts={"versions": there})


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "(of unknown version)"


def cache() -> Iterator[Line]:
    """The folder of fetched data sets and chosen kernels: can it be written, and is there room?"""
    from .data.known import default_cache

    yield folder("cache", default_cache(), "Give edge-train --data-dir with a folder that can be written.")


def folder(name: str, path: Path, advice: str, room: int = ROOM) -> Line:
    """Whether files can be kept there. advice: what to do if not."""
    from .memory import bytes_text

    there = next(p for p in (path, *path.parents) if p.exists())
    facts: dict[str, Any] = {"folder": str(path)}
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path) as file:
            file.write(b"edge-check")
    except OSError as error:
        return Line(name, WARN, f"{path} cannot be written: {error.strerror}", advice, facts)
    facts["free_bytes"] = free = shutil.disk_usage(there).free
    text = f"{path}, {bytes_text(free)} free"
    if free < room:
        return Line(name, WARN, text, f"Make room, {bytes_text(room)} are wanted. {advice}", facts)
    return Line(name, OK, text, facts=facts)


def first_line(error: BaseException) -> str:
    """The first line of an error's text, or its type where it has none."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
