"""make coverage: which branches of the C core, and which lines and branches of the Python side, the tests reach.

    python tests/branches.py c         the core; needs clang with llvm-cov and llvm-profdata
    python tests/branches.py python    trainer, exporter and runtime; all tests of Python

A branch is each outcome of each condition, as clang counts them. The targets: all of the loader and of preprocessing,
95 in 100 of the rest of the core, 90 in 100 of Python. The exit code is 1 where one is missed; for C the branches that
were not taken are listed.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "coverage"
COUNTING = "-fprofile-instr-generate -fcoverage-mapping"
C_TESTS = ["open", "core", "golden", "arena", "preprocess", "c_ops", "c_math", "c_moves", "c_shapes"]
C_TESTS += ["int8", "int8_files"]
NOT_COUNTED = "s390x or second_reader or definitions or other_machines or wrong_kernel"
# all branches: what a hostile file meets, and pictures
LOADER = ("ln_open.c", "ln_check.c", "ln_check_header.c", "ln_check_i8.c", "ln_sniff.c", "ln_preprocess.c")
REST, PYTHON = 95.0, 90.0  # percent


def tool(name: str) -> str:
    found = [name, *(f"{name}-{n}" for n in range(22, 12, -1))]
    return next((path for path in map(shutil.which, found) if path), name)


def core() -> int:
    BUILD.mkdir(parents=True, exist_ok=True)
    for old in [*BUILD.glob("*.profraw"), *(p for p in BUILD.iterdir() if not p.suffix and p.is_file())]:
        old.unlink()  # what was counted before, and programs of other sources
    more = {"LITENET_COVERAGE": COUNTING, "LLVM_PROFILE_FILE": str(BUILD / "%4m.profraw")}
    tests = [f"tests/test_{name}.py" for name in C_TESTS]
    command = [sys.executable, "-m", "pytest", "-q", *tests, "-k", f"not ({NOT_COUNTED})"]
    tested = subprocess.run(command, cwd=ROOT, env=os.environ | more, check=False).returncode
    data = BUILD / "all.profdata"
    subprocess.run([tool("llvm-profdata"), "merge", "-sparse", *BUILD.glob("*.profraw"), "-o", data], check=True)
    programs = [p for p in BUILD.iterdir() if not p.suffix and os.access(p, os.X_OK) and "swapped" not in p.name]
    objects = [word for p in programs[1:] for word in ("-object", str(p))]
    export = [tool("llvm-cov"), "export", str(programs[0]), *objects, f"-instr-profile={data}", "runtime_c/src"]
    done = subprocess.run([*export, *map(str, [])], cwd=ROOT, capture_output=True, text=True, check=True)
    return max(tested, _told(json.loads(done.stdout)))


def _told(exported: dict) -> int:
    missed, sums = False, {"loader": [0, 0], "rest": [0, 0]}
    for file in sorted(exported["data"][0]["files"], key=lambda f: f["filename"]):
        name = Path(file["filename"]).name
        if "/src/" not in file["filename"] or not re.match(r"(ln|op)_", name) or name in ("ln_file.c", "ln_threads.c"):
            continue
        places: dict[tuple[int, int, int, int], list[int]] = {}
        for line, column, end_line, end_column, yes, no, *_ in file["branches"]:
            both = places.setdefault((line, column, end_line, end_column), [0, 0])
            both[0] += yes
            both[1] += no
        taken, all_ = sum(n > 0 for both in places.values() for n in both), 2 * len(places)
        kind = sums["loader" if name in LOADER else "rest"]
        kind[0] += taken
        kind[1] += all_
        print(f"{name}: {taken} of {all_} branches")
        for (line, column, *_), both in sorted(places.items()):
            for n, outcome in zip(both, ("true", "false"), strict=True):
                if n == 0:
                    print(f"  {name}:{line}:{column} is never {outcome}")
    for name, least in (("loader", 100.0), ("rest", REST)):
        taken, all_ = sums[name]
        share = 100 * taken / max(all_, 1)
        missed |= share < least
        print(f"{name}: {taken} of {all_} branches, {share:.2f} %; {least:g} % is expected")
    return int(missed)


def python() -> int:
    """All tests that run here. Processes that the tests start are not counted."""
    config = BUILD / "coveragerc"
    BUILD.mkdir(parents=True, exist_ok=True)
    config.write_text(f"[run]\nbranch = true\ndata_file = {BUILD / 'python'}\n[report]\nskip_covered = true\n")
    packages = [f"--cov={ROOT / name}" for name in ("trainer", "exporter", "pyruntime")]
    command = [sys.executable, "-m", "pytest", "-q", *packages, f"--cov-config={config}", f"--cov-fail-under={PYTHON}"]
    return subprocess.run([*command, *sys.argv[2:]], cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(python() if sys.argv[1:2] == ["python"] else core())
