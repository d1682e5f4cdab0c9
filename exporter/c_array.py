"""A model as a C header: an aligned constant array, its sizes, and what the runtime must be built with to run it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from litenet.pyruntime.engine import InferenceEngine
from litenet.pyruntime.errors import ModelError
from litenet.trainer.checkpoint import write_atomically
from litenet.trainer.errors import UserError

from . import records

HEADER = """\
/* {name}, written by edge-export from {source}: make it again rather than edit it.
 *
 * Build the runtime with -DLN_OPS_HEADER='"{file}"', and it has the operators of this model and no others.
 * Include it in one file of the program, which then has the model, its sizes and the memory it needs:
 *
 *     static ln_model m;
 *     static uint8_t arena[{upper}_ARENA_BYTES] LN_ALIGNED_16;
 *     ln_open(&m, {lower}_bin, sizeof {lower}_bin);
 */
#ifdef LN_ASKS_FOR_OPS
{needs}
#else
#ifndef {upper}_H
#define {upper}_H

#include <stdint.h>

#ifdef LN_MODEL_IN_H /* firmware_examples/common/model_in.h asks for the names */
#define MODEL_NAME {lower}
#define MODEL_CAPS {upper}
#endif

#if defined(__GNUC__)
#define LN_ALIGNED_16 __attribute__((aligned(16)))
#elif defined(_MSC_VER)
#define LN_ALIGNED_16 __declspec(align(16))
#else
#define LN_ALIGNED_16 /* tell your compiler: multiples of 4 for the model, of 16 for the arena */
#endif

#define {upper}_BYTES {bytes}u
#define {upper}_ARENA_BYTES {arena}u     /* working memory of a run */
#define {upper}_INPUT_ELEMENTS {inputs}u  /* shape {in_shape} */
#define {upper}_OUTPUT_ELEMENTS {outputs}u /* shape {out_shape} */
#define {upper}_INPUT_BYTES {in_bytes}u
#define {upper}_OUTPUT_BYTES {out_bytes}u
#define {upper}_OPERATORS {ops}u
#define {upper}_IDENTITY 0x{identity:08X}u /* CRC-32 of weights and program */
{labels}
static const uint8_t {lower}_bin[{upper}_BYTES] LN_ALIGNED_16 = {{
{array}
}};

#endif
#endif
"""


def identifier(name: str) -> str:
    """name as a C identifier in lower case."""
    found = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_").lower() or "model"
    return found if not found[0].isdigit() else f"m{found}"


def header(data: bytes, file: str, source: str, golden: bool) -> str:
    """The text of the header `file` for the model `data`."""
    with InferenceEngine(data) as engine:
        labels, shapes = engine.labels or [], (engine.input_shape, engine.output_shape)
        name = str(engine.metadata.get("name") or Path(source).stem)
    program, lower = records.read(data), identifier(Path(file).stem)
    small = records.stripped(data, golden)
    rows = (small[i : i + 16] for i in range(0, len(small), 16))
    table = ""
    if labels:
        text = ", ".join(_literal(str(label)) for label in labels)
        table = f"#define {lower.upper()}_LABELS {{{text}}} /* in the order of the outputs */\n"
    return HEADER.format(
        name=_comment(name),
        source=_comment(Path(source).name),
        file=file,
        lower=lower,
        upper=lower.upper(),
        needs="\n".join(f"#define LN_WITH_{need}" for need in program.needs()),
        bytes=len(small),
        arena=program.arena_bytes,
        inputs=_elements([program.tensors[0]]),
        outputs=_elements([t for t in program.tensors if t.is_output]),
        in_bytes=program.input_bytes,
        out_bytes=program.output_bytes,
        in_shape=" x ".join(map(str, shapes[0])),
        out_shape=" x ".join(map(str, shapes[1])),
        ops=len(program.ops),
        identity=records.identity(data),
        labels=table,
        array="\n".join("    " + " ".join(f"{b}," for b in row) for row in rows),
    )


def write(data: bytes, out: Path, source: str, golden: bool) -> Iterator[str]:
    """Write the header; yields the lines of the report."""
    if not re.fullmatch(r"[\w.+-]+", out.name, re.ASCII):
        raise UserError(f"-o {out}: the name of a C header has letters, digits, '_', '-' and '.' only.")
    text = header(data, out.name, source, golden).encode()
    write_atomically(out, lambda file: file.write(text))
    program, stored = records.read(data), len(records.stripped(data, golden))
    yield f"{out}: {stored:,} bytes of flash, {program.arena_bytes:,} bytes of arena"
    left = [what for what, gone in (("metadata", True), ("golden inputs", not golden)) if gone]
    yield f"  {' and '.join(left)} left out ({len(data) - stored:,} bytes); runtime with {', '.join(program.needs())}"


def bin_bytes(path: Path) -> bytes:
    """The bytes of a .bin that the runtime accepts, and that of a chip, too."""
    try:
        InferenceEngine(path).close()
        data = path.read_bytes()
    except (ModelError, OSError) as error:
        raise UserError(str(error)) from None
    if any(op.algorithm for op in records.read(data).ops):
        raise UserError(f"{path} holds weights for Winograd's algorithm: export it for chips without --store-winograd.")
    return data


def _elements(tensors: list[records.TensorOf]) -> int:
    return sum(t.bytes // records.ELEMENT_BYTES[t.dtype] for t in tensors)


def _comment(text: str) -> str:
    return text.replace("*/", "* /").replace("\n", " ")


def _literal(text: str) -> str:
    """text as a C string; bytes beyond ASCII as octal escapes, which end by themselves."""
    out = "".join(
        f"\\{chr(b)}" if chr(b) in '"\\' else chr(b) if 32 <= b < 127 and chr(b) != "?" else f"\\{b:03o}"
        for b in text.encode()
    )
    return f'"{out}"'
