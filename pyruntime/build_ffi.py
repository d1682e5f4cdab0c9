"""Build the binding: two headers and the C sources become the extension module litenet.pyruntime._litenet.

Installing does this through setup.py. While working on the C code, `python pyruntime/build_ffi.py` builds it
anew, in place. One extension serves all CPython versions (stable ABI).
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import cffi

ROOT = Path(__file__).resolve().parent.parent
HEADERS = [ROOT / "runtime_c" / "include" / name for name in ("litenet.h", "litenet_fast.h")]
SOURCES = sorted((ROOT / "runtime_c" / "src").glob("*.c"))

# -ffp-contract=off: no fused multiply-add behind our back, so that equal code gives equal bits everywhere.
# Without unwind tables, 22 KB less: nothing is ever thrown through C.
UNIX_FLAGS = ["-O2", "-g0", "-std=c99", "-ffp-contract=off", "-fvisibility=hidden"]
UNIX_FLAGS += ["-fno-unwind-tables", "-fno-asynchronous-unwind-tables"]
# What pays is unrolled and in vectors by hand; clang, which builds the wheels, would do it to all the rest: 57 KB.
UNIX_FLAGS += ["-fno-unroll-loops", "-fno-tree-vectorize", "-fno-tree-slp-vectorize"]
# Functions, loops and targets of jumps at multiples of 16 take 10 KB and bring nothing: the long loops are unrolled.
UNIX_FLAGS += ["-falign-functions=1", "-fno-align-jumps", "-falign-loops=8"]
LINK_FLAGS = {"win32": [], "linux": ["-pthread", "-s"]}  # -s: no names that only a debugger reads
if "zig" not in os.environ.get("CC", ""):  # which does it unasked, and knows no such flag
    LINK_FLAGS["linux"] += ["-Wl,-z,noseparate-code"]  # constants in the pages of code: else two gaps of up to 4 KB
WINDOWS_FLAGS = ["/O2", "/fp:precise"]

CALLBACK = """
extern "Python" int litenet_after_op(void *user, uint32_t op_index, const ln_op *op, const ln_tensor *output,
                                     const void *data);
"""

# A mapped file that is cut short takes its pages along: who reads them gets a signal, and no Python runs before it is
# answered. So a command says one last sentence. Not for a library: signals belong to the program.
OWN_DECLARATIONS = """
static const char *const LN_VERSION;
void litenet_say_on_bus_error(const char *text, size_t length);
ln_status litenet_run(const ln_model *m, void *arena, size_t arena_bytes, const void *in, void *out);
ln_status litenet_run_real(const ln_model *m, void *arena, size_t arena_bytes, const float *in, float *out);
size_t litenet_run_real_bytes(const ln_model *m);
"""
OWN = """
static ln_status litenet_run(const ln_model *m, void *arena, size_t arena_bytes, const void *in, void *out)
{
    const ln_status s = ln_check_input(m, in);
    return s != LN_OK ? s : ln_run(m, arena, arena_bytes, in, out);
}
/* Floats to floats of a model that begins or ends with int8, in one call. Behind the arena's bytes there are as many as
 * litenet_run_real_bytes says. */
static size_t litenet_run_real_bytes(const ln_model *m)
{
    return (ln_input_bytes(m) + (size_t)63) / 64 * 64 + ln_output_bytes(m) + (size_t)64;
}
static ln_status litenet_run_real(const ln_model *m, void *arena, size_t arena_bytes, const float *in, float *out)
{
    uint8_t *given = (uint8_t *)arena + (arena_bytes + 63) / 64 * 64;
    uint8_t *taken = given + (ln_input_bytes(m) + (size_t)63) / 64 * 64;
    ln_status s = ln_quantize_input(m, in, given);
    if (s == LN_OK) s = litenet_run(m, arena, arena_bytes, given, taken);
    return s != LN_OK ? s : ln_dequantize_output(m, taken, out);
}
#if defined(_WIN32)
static void litenet_say_on_bus_error(const char *text, size_t length) { (void)text; (void)length; }
#else
#include <signal.h>
#include <unistd.h>
static char litenet_last_words[512];
static size_t litenet_last_words_length;
static void litenet_on_bus_error(int signal)
{
    (void)signal;
    if (write(2, litenet_last_words, litenet_last_words_length) < 0) _exit(2);
    _exit(1);
}
static void litenet_say_on_bus_error(const char *text, size_t length)
{
    litenet_last_words_length = length < sizeof litenet_last_words ? length : sizeof litenet_last_words;
    for (size_t i = 0; i < litenet_last_words_length; i++) litenet_last_words[i] = text[i];
    signal(SIGBUS, litenet_on_bus_error);
}
#endif
"""


# A constant takes 120 bytes of the extension, a function 300 to 700. These constants are read by Python, and these
# functions are not called: its own forms above, or ln_fast_open, are called in their place.
CONSTANTS = re.compile(
    "LN_(OK|NULL_POINTER|BAD_IMAGE_SIZE|BAD_CHANNELS|I8|GRAY|GRAY_ALPHA|RGBA?|BGRA?|NEAREST|BILINEAR|AREA|STRETCH|CROP"
    "|LETTERBOX|COLOR_[A-Z]+|INVERT_[A-Z]+|KERNELS_END|DIRECT|WINOGRAD_[24])"
)
NOT_CALLED = ("ln_open", "ln_run", "ln_check_input", "ln_output_elements", "ln_dequantize_output", "ln_threads_stop")


def _constants_read(enum: re.Match[str]) -> str:
    """The same enum with CONSTANTS alone; where their values follow from their places, the compiler tells them."""
    listed = [one.strip() for one in enum[2].split(",")]
    kept = [one for one in listed if CONSTANTS.fullmatch(one.split(" ")[0])]
    return f"enum {enum[1] or ''}{{ {', '.join(kept + ['...'] * any('=' not in one for one in kept))} }}"


def declarations() -> str:
    """The part of each header between the lines marked cffi, without what Python never asks for."""
    texts = [header.read_text(encoding="utf-8") for header in HEADERS]
    text = "".join(t.split("/* cffi begin */", 1)[1].split("/* cffi end */", 1)[0] for t in texts)
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    text = re.sub(r"enum (\w+ )?\{(.*?)\}", _constants_read, text, flags=re.DOTALL)
    return re.sub(rf"^[^;{{}}]*\b(?:{'|'.join(NOT_CALLED)})\([^;]*;", "", text, flags=re.MULTILINE)


def make(base: str) -> cffi.FFI:
    """The builder, with `base` before every path: "" for setuptools, which runs in the root folder."""
    builder = cffi.FFI()
    builder.cdef(declarations() + CALLBACK + OWN_DECLARATIONS)
    source_dir = SOURCES[0].parent
    depends = [*HEADERS, *source_dir.glob("*.h"), *source_dir.glob("*.def")]
    builder.set_source(
        "litenet.pyruntime._litenet",
        '#include "litenet.h"\n#include "litenet_fast.h"' + OWN,
        sources=[base + path.relative_to(ROOT).as_posix() for path in SOURCES],
        depends=[base + path.relative_to(ROOT).as_posix() for path in depends],
        include_dirs=[base + "runtime_c/include", base + "runtime_c/src"],
        extra_compile_args=WINDOWS_FLAGS if sys.platform == "win32" else UNIX_FLAGS,
        extra_link_args=LINK_FLAGS.get(sys.platform, ["-pthread"]),
    )
    return builder


ffi = make("")  # what setup.py asks for


def build_in_place() -> Path:
    """Compile in build/, and put the module beside this file."""
    suffix = ".pyd" if sys.platform == "win32" else ".abi3.so"
    work = ROOT / "build" / "ffi"
    built = Path(make(f"{ROOT.as_posix()}/").compile(tmpdir=str(work), target=f"_litenet{suffix}"))
    return built.replace(ROOT / "pyruntime" / f"_litenet{suffix}")


if __name__ == "__main__":
    print(build_in_place())
