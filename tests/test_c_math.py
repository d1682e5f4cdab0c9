"""The mathematics of the C core: the errors that ln_math.h states hold, and special values come out right.

The limits are read from the header's own comments, so that what it says is what is tested.
"""

import re
import subprocess

import cbuild
import numpy as np
import pytest

FUNCTIONS = ["exp", "tanh", "erf", "sigmoid", "sqrt"]
# -Wno...: -lm goes to the compiler too, and clang remarks that it has no use for it there
LIBM = ("-ffp-contract=off", "-lm", "-Wno-unused-command-line-argument")
CASTS = ("-fsanitize=float-cast-overflow",)  # not part of -fsanitize=undefined
SPREAD = 4099  # a prime: every 4099th float32 is a million of them, in all binades and with all low bits


def run(compiler: str, *arguments: str, sanitize: bool = True) -> list[str]:
    sources = [cbuild.TESTS_C / "math_driver.c", cbuild.SRC / "ln_math.c"]
    flags = (*LIBM, *CASTS) if sanitize else (*LIBM, "-O2")
    driver = cbuild.program("math_driver", sources, compiler, sanitize, flags)
    done = subprocess.run([driver, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.split()


def stated(function: str) -> float:
    """The limit in ulps that ln_math.h gives."""
    text = (cbuild.SRC / "ln_math.h").read_text()
    comment = re.search(rf"/\* ln_{function}f .*?\*/", text, re.DOTALL)
    assert comment, f"ln_math.h has no comment on ln_{function}f"
    if "Correctly rounded" in comment.group():
        return 0.0
    limit = re.search(r"Error below ([0-9.]+) ulp", comment.group())
    assert limit, f"ln_math.h states no error of ln_{function}f"
    return float(limit[1])


@pytest.mark.parametrize("compiler", cbuild.COMPILERS)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_stated_errors_hold_on_a_million_floats(function, compiler):
    worst, at = run(compiler, "error", function, str(SPREAD), "0")
    assert float(worst) <= stated(function), f"{worst} ulp at {at}"


@pytest.mark.slow
@pytest.mark.parametrize("function", FUNCTIONS)
def test_stated_errors_hold_on_every_float(function):
    worst, at = run("gcc", "error", function, "1", "0", sanitize=False)
    assert float(worst) <= stated(function), f"{worst} ulp at {at}"


TINY = float(np.float32(1e-45))  # the smallest float32 above 0


@pytest.mark.parametrize("compiler", cbuild.COMPILERS)
@pytest.mark.parametrize(
    ("function", "points"),
    [
        ("exp", {"nan": np.nan, "inf": np.inf, "-inf": 0, "0": 1, "-0": 1, "89": np.inf, "1e38": np.inf,
                 "-103.9": TINY, "-104": 0, "-1e38": 0, "1e-45": 1}),
        ("tanh", {"nan": np.nan, "inf": 1, "-inf": -1, "0": 0.0, "-0": -0.0, "1e-45": TINY, "-1e-45": -TINY, "20": 1}),
        ("erf", {"nan": np.nan, "inf": 1, "-inf": -1, "0": 0.0, "-0": -0.0, "1e-45": TINY, "-1e-45": -TINY, "4": 1}),
        ("sigmoid", {"nan": np.nan, "inf": 1, "-inf": 0, "0": 0.5, "-0": 0.5, "100": 1, "-110": 0}),
        ("sqrt", {"nan": np.nan, "inf": np.inf, "-inf": np.nan, "-1": np.nan, "-1e-45": np.nan, "0": 0.0, "-0": -0.0,
                  "16777216": 4096, "6.7762636e-21": 8.2318061e-11}),
    ],
)  # fmt: skip
def test_special_values_come_out_exactly(function, points, compiler):
    got = np.array([float(v) for v in run(compiler, "values", function, *points)], np.float32)
    want = np.array([*points.values()], np.float32)
    assert ((got == want) | (np.isnan(got) & np.isnan(want))).all()
    assert (np.signbit(got) == np.signbit(want))[~np.isnan(want)].all()


@pytest.mark.parametrize("compiler", cbuild.COMPILERS)
def test_every_half_that_a_file_can_hold_is_decoded_exactly(compiler):
    got = np.array(run(compiler, "halves"), np.uint32).view(np.float32)
    want = np.arange(65536, dtype=np.uint16).view(np.float16).astype(np.float32)
    finite = np.isfinite(want)
    assert (got.view(np.uint32) == want.view(np.uint32))[finite].all()
    assert (np.abs(got[~finite]) >= 65536).all()  # no file holds them; defined all the same
