"""What the core is made of: its checksum, and what it asks of a machine."""

from __future__ import annotations

import re
import subprocess
import zlib
from pathlib import Path

import cbuild
import numpy as np
import pytest
from attack_builds import drive


@pytest.mark.parametrize("flags", [(), ("-DLN_SMALL",)], ids=["tables", "small"])
@pytest.mark.parametrize("compiler", cbuild.COMPILERS)
def test_the_checksum_is_that_of_zip(compiler, flags):
    sources = [cbuild.TESTS_C / "crc_driver.c", cbuild.SRC / "ln_crc.c"]
    program = cbuild.program("crc_driver", sources, compiler, flags=flags)
    for n in (0, 1, 7, 8, 9, 100, 4097):
        data = np.random.default_rng(n).integers(0, 256, n, np.uint8).tobytes()
        assert drive([program], given=data).decode() == f"{zlib.crc32(data):08x}\n"


@pytest.mark.parametrize("compiler", cbuild.COMPILERS)
def test_the_core_needs_nothing_and_keeps_no_state(compiler):
    """Only what compilers call on their own; no writable data."""
    built = cbuild.objects(cbuild.core(), compiler, sanitize=False, flags=("-fno-pie",))
    symbols = subprocess.run(["nm", *built], capture_output=True, text=True, check=True).stdout
    kinds = re.findall(r"^[0-9a-f ]{16} (\w) (\w+)$", symbols, re.MULTILINE)
    defined = {name for kind, name in kinds if kind != "U"}
    assert {name for kind, name in kinds if kind == "U"} - defined <= {"memcpy", "memset", "memmove", "memcmp"}
    assert [name for kind, name in kinds if kind in "bBdDcC"] == []
    assert [name for kind, name in kinds if kind in "TR" and not name.startswith("ln_")] == []


def test_the_core_includes_two_headers_only():
    used = set()
    for path in [*cbuild.core(), *cbuild.SRC.glob("ln_*.h"), cbuild.INCLUDE / "litenet.h"]:
        used |= set(re.findall(r"#include\s*<(.*?)>", Path(path).read_text()))
    instructions = {"arm_acle.h", "arm_mve.h"}  # the compiler's, for the chips that have them
    assert used - instructions == {"stddef.h", "stdint.h"}
