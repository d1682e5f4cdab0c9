"""make fuzz: everything that reads files, under coverage-guided fuzzing, for a given time.

    python tests/fuzz.py                         ten minutes, shared by all targets
    python tests/fuzz.py --seconds 3600 model    an hour for one of them
    python tests/fuzz.py --seconds 600 afl       AFL++ instead of libFuzzer, with the same mutations

C targets need clang (libFuzzer), afl needs AFL++, Python targets atheris; what is missing is said and passed over. What
was reached is kept in build/fuzz, so that a later run goes on. Files that fail are kept there in findings/; the exit
code is then 1. A finding becomes a fix and a file in tests/data/fuzz, which the tests run for ever.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import cbuild
import fuzz_readers
from frozen import ALL

WORK = cbuild.ROOT / "build" / "fuzz"
FINDINGS = WORK / "findings"
KEPT = cbuild.ROOT / "tests" / "data" / "fuzz"
LARGEST = 10_000  # bytes of a seed
C_TARGETS = {"model": "fuzz_model.c", "preprocess": "fuzz_preprocess.c"}
FLAGS = ("-ffp-contract=off",)


def seeds(name: str) -> Path:
    """A folder of small files to begin with: the golden ones, and what was found before."""
    folder = WORK / f"seeds-{name}"
    folder.mkdir(parents=True, exist_ok=True)
    files = ALL if name == "model" else []
    for path in [*files, *sorted((KEPT / name).glob("*"))]:
        if path.stat().st_size < LARGEST:
            shutil.copy(path, folder / path.name)
    if name == "preprocess":
        (folder / "rules").write_bytes(bytes([2, 2, 1, 2, 7, 5, 9, 0, 12, 0, 8, 0, 8, 0]) + bytes(range(64)))
    return folder


def harness(name: str) -> Path:
    """The libFuzzer program of a C target."""
    plain = ("-fsanitize=fuzzer-no-link,address,undefined", "-fno-sanitize-recover=all", *FLAGS)
    built = cbuild.objects([cbuild.TESTS_C / C_TARGETS[name]], "clang", False, (*plain, "-DFUZZ_LIBFUZZER"))
    built += cbuild.objects(cbuild.core(), "clang", False, plain)
    if name == "model":  # with all checks on, clang takes minutes over these
        built += cbuild.objects(cbuild.fast(), "clang", False, ("-fsanitize=address", *FLAGS))
    return cbuild.link(f"fuzz_{name}", built, "clang", False, ("-fsanitize=fuzzer,address,undefined", "-pthread"))


def libfuzzer(name: str, seconds: int) -> str:
    corpus = WORK / name
    corpus.mkdir(parents=True, exist_ok=True)
    command = [harness(name), corpus, seeds(name), "-max_len=16384", "-rss_limit_mb=3000", *_limits(name, seconds)]
    return _counts(command, cbuild.ROOT)


def _limits(name: str, seconds: int) -> list[str]:
    words = ["timeout=60", f"max_total_time={seconds}", f"artifact_prefix={FINDINGS}/{name}-", "print_final_stats=1"]
    return [f"-{word}" for word in words]


def reader(name: str, seconds: int) -> str:
    command = [sys.executable, "fuzz_readers.py", name, WORK / name, *_limits(name, seconds)]
    return _counts(command, Path(__file__).resolve().parent)


def _run(command: list, check: bool = False, **more: Any) -> subprocess.CompletedProcess:
    words = [*map(str, command)]
    return subprocess.run(words, check=check, capture_output=True, text=True, errors="replace", **more)


def _counts(command: list, folder: Path) -> str:
    done = _run(command, cwd=folder)
    runs = re.findall(r"Done (\d+) runs|number_of_executed_units: (\d+)", done.stderr)
    coverage = re.findall(r"cov: (\d+)", done.stderr)
    if done.returncode != 0:
        print(done.stderr[-4000:], file=sys.stderr)
    return f"{runs[-1][0] or runs[-1][1] if runs else 0} executions, {coverage[-1] if coverage else 0} edges"


def afl(seconds: int) -> str:
    """The model's harness under AFL++, with portable kernels; the custom mutator repairs checksums."""
    folder = WORK / "afl"
    folder.mkdir(parents=True, exist_ok=True)
    include = [f"-I{cbuild.INCLUDE}", f"-I{cbuild.SRC}", f"-I{cbuild.TESTS_C}"]
    sources = ["-DFUZZ_PORTABLE", cbuild.TESTS_C / "fuzz_model.c", *cbuild.core()]
    build = ["afl-clang-fast", "-O1", "-g", *FLAGS, *include, "-fsanitize=fuzzer", *sources, "-o", folder / "model"]
    _run([*build, "-pthread"], check=True, env=os.environ | {"AFL_USE_ASAN": "1"})
    mutator = [cbuild.TESTS_C / "fuzz_afl_mutator.c", cbuild.SRC / "ln_crc.c", "-o", folder / "mutator.so"]
    _run(["clang", "-O2", "-shared", "-fPIC", *include, "-Wl,--unresolved-symbols=ignore-all", *mutator], check=True)
    yes = ("NO_UI", "SKIP_CPUFREQ", "I_DONT_CARE_ABOUT_MISSING_CRASHES", "NO_AFFINITY", "AUTORESUME")
    settings = {"AFL_CUSTOM_MUTATOR_LIBRARY": str(folder / "mutator.so")} | {f"AFL_{name}": "1" for name in yes}
    command = ["afl-fuzz", "-i", seeds("model"), "-o", folder / "out", "-m", "none", "-t", "5000", "-V", seconds]
    command += ["--", folder / "model"]
    done = _run(command, env=os.environ | settings)
    if done.returncode != 0:
        print(done.stdout[-3000:], file=sys.stderr)
    stats = folder / "out" / "default" / "fuzzer_stats"
    found = dict(line.split(":", 1) for line in stats.read_text().splitlines()) if stats.exists() else {}
    values = {key.strip(): value.strip() for key, value in found.items()}
    for path in (folder / "out" / "default").glob("[ch]*s/id*"):  # crashes, hangs
        shutil.copy(path, FINDINGS / f"afl-{path.parent.name}-{path.name.replace(':', '_')}")
    return f"{values.get('execs_done', 0)} executions, {values.get('edges_found', 0)} edges"


def missing(name: str) -> str | None:
    if name == "afl":
        return None if shutil.which("afl-fuzz") else "AFL++ is not installed"
    if name in C_TARGETS:
        return None if shutil.which("clang") else "clang is not installed"
    return None if importlib.util.find_spec("atheris") else "atheris is not installed"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser("fuzz", description=(__doc__ or "").partition("\n")[0])
    every = [*C_TARGETS, *fuzz_readers.TARGETS]
    parser.add_argument("targets", nargs="*", metavar="target", help=f"{', '.join([*every, 'afl'])} (all but afl)")
    parser.add_argument("--seconds", type=int, default=600, help="for all targets together (default 600)")
    options = parser.parse_args(argv)
    unknown = [name for name in options.targets if name not in (*every, "afl")]
    if unknown:
        parser.error(f"there is no target {', '.join(unknown)}; give some of {', '.join([*every, 'afl'])}")
    FINDINGS.mkdir(parents=True, exist_ok=True)
    before = set(FINDINGS.iterdir())
    targets = []
    for name in options.targets or every:
        if reason := missing(name):
            print(f"{name}: passed over, {reason}")
        else:
            targets.append(name)
    seconds = max(1, options.seconds // max(1, len(targets)))
    for name in targets:
        counts = afl(seconds) if name == "afl" else (libfuzzer if name in C_TARGETS else reader)(name, seconds)
        print(f"{name}: {counts} in {seconds} s", flush=True)
    slow = "slow-unit"  # what takes ten seconds on a busy machine is no failure
    found = sorted(p for p in set(FINDINGS.iterdir()) - before if slow not in p.name)
    for path in found:
        print(f"found: {path}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
