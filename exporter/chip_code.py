"""How much code and stack the runtime takes on a chip: compiled for it, with just the operators a model needs.

    python -m litenet.exporter.chip_code      # measure again for every compiler that is here; writes chip_code.json
    python -m litenet.exporter.chip_code cortex-m4f     # or for these processors

Code is what a linker keeps of the runtime and of what it calls in the compiler's own library, built with FLAGS. The
stack is the longest path of calls from ln_open and ln_run: what each function takes, from the compiler, along the
calls in the linked program. There is no recursion; calls through pointers are listed in INDIRECT.

Without a compiler the table chip_code.json, made by one, is added up: symbols that several operators share count once,
those that grow with the number of operators grow by what each added. A model with tensors of both types has the larger
of what either form takes.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from litenet.trainer.ops import OPS, activations

ROOT = Path(__file__).resolve().parent.parent
RUNTIME = ROOT / "runtime_c"
TABLE = Path(__file__).with_name("chip_code.json")
FLAGS = (
    "-Os", "-std=c99", "-ffp-contract=off", "-ffunction-sections", "-fdata-sections", "-DLN_SMALL", "-DLN_TERSE",
)  # fmt: skip
FORMS = ("F32", "I8")  # types of tensors: a runtime has one or both
ARM = "-mthumb"
CPUS: dict[str, tuple[str, ...]] = {  # compiler and the flags that name the processor
    "cortex-m0": ("arm-none-eabi-gcc", "-mcpu=cortex-m0", ARM),
    "cortex-m3": ("arm-none-eabi-gcc", "-mcpu=cortex-m3", ARM),
    "cortex-m4f": ("arm-none-eabi-gcc", "-mcpu=cortex-m4", ARM, "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16"),
    "cortex-m7": ("arm-none-eabi-gcc", "-mcpu=cortex-m7", ARM, "-mfloat-abi=hard", "-mfpu=fpv5-d16"),
    "cortex-m33": ("arm-none-eabi-gcc", "-mcpu=cortex-m33", ARM, "-mfloat-abi=hard", "-mfpu=fpv5-sp-d16"),
    "cortex-m55": ("arm-none-eabi-gcc", "-mcpu=cortex-m55", ARM, "-mfloat-abi=hard"),
    "rv32imc": ("riscv64-unknown-elf-gcc", "-march=rv32imc", "-mabi=ilp32", "-ffreestanding", "-nostdlib"),
    "atmega328p": ("avr-gcc", "-mmcu=atmega328p"),
}
# functions that are called through a pointer, by who calls them
LISTS = ("list_rows", "list_taps", "list_pixels")
INDIRECT = {"ln_panels_run": LISTS, "ln_panels_i8_run": ("fetch",), "ln_open_checked": ("ln_crc32",),
            "check_all": ("ln_crc32",), "check_envelope": ("ln_crc32",), "ln_run_each": ()}  # fmt: skip
MAIN = """\
#include "litenet.h"
void measured(ln_model *m, const void *b, size_t n, void *a, size_t an, const float *x, float *y);
void measured(ln_model *m, const void *b, size_t n, void *a, size_t an, const float *x, float *y)
{
    if (ln_open(m, b, n) == LN_OK) ln_run(m, a, an, x, y);
}
"""


@dataclass(frozen=True)
class Code:
    """flash: code and constants; stack: of the deepest call; both in bytes. model: sizeof(ln_model). exact: compiled,
    not added up from the table. by_op: what each operator's own functions take, shared ones counted where first met."""

    flash: int
    stack: int
    model: int
    exact: bool
    by_op: dict[str, int]


@dataclass(frozen=True)
class Linked:
    """One build: size of every function and table in it, and the stack below `measured`."""

    symbols: dict[str, int]
    sections: int
    stack: int
    model: int


def code_for(cpu: str, needs: Sequence[str]) -> Code | None:
    """For a model that needs these (records.Program.needs); None: neither compiler nor table knows the processor."""
    if has_compiler(cpu):
        found = link(cpu, tuple(needs))
        return Code(found.sections, found.stack, found.model, True, _by_op(found.symbols, needs))
    return from_table(cpu, needs)


def has_compiler(cpu: str) -> bool:
    return cpu in CPUS and shutil.which(CPUS[cpu][0]) is not None and (RUNTIME / "src").is_dir()


def from_table(cpu: str, needs: Sequence[str]) -> Code | None:
    """Added up from chip_code.json: within a few percent of what a compiler gives."""
    table = json.loads(TABLE.read_text(encoding="utf-8")).get(cpu)
    if table is None or any(form in needs and form not in table for form in FORMS):
        return None
    total: dict[str, int] = {}
    stack = 0
    for form in [form for form in FORMS if form in needs]:
        base, rows = table[form]["base"], table[form]["needs"]
        mine = [need for need in needs if need in rows]
        added, deepest = _added_up(base, [rows[need] for need in mine])
        total = {name: max(total.get(name, 0), added.get(name, 0)) for name in total | added}
        stack = max(stack, deepest)
    known = {need for form in FORMS if form in needs for need in table[form]["needs"]}
    if not known.issuperset(needs):
        return None
    return Code(sum(total.values()), stack, table["model"], False, _by_op(total, needs))


def _added_up(base: dict, rows: list[dict]) -> tuple[dict[str, int], int]:
    """Symbols and stack of a runtime with what these rows bring."""
    ground: dict[str, int] = base["symbols"]
    total, stack = dict(ground), base["stack"]
    for row in rows:
        for name, size in row["symbols"].items():
            total[name] = total.get(name, 0) + size - ground[name] if name in ground else max(total.get(name, 0), size)
        stack = max(stack, row["stack"])
    return total, stack


def _by_op(symbols: dict[str, int], needs: Sequence[str]) -> dict[str, int]:
    names = {need.lower() for need in needs if need.lower() in OPS}
    return {
        op: sum(size for name, size in symbols.items() if re.match(rf"ln_{op}_(check|run|i8_run|decode|macs)", name))
        for op in sorted(names)
    }


@cache
def link(cpu: str, needs: tuple[str, ...], made: Path | None = None, more: tuple[str, ...] = ()) -> Linked:
    """Compile and link the runtime with just these. made: a folder of objects to take those from, and add those to,
    whose code is the same. more: options of the compiler."""
    compiler, *flags = CPUS[cpu]
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        (work / "ops.h").write_text(
            "#ifdef LN_ASKS_FOR_OPS\n" + "".join(f"#define LN_WITH_{need}\n" for need in needs) + "#endif\n"
        )
        (work / "measured.c").write_text(MAIN)
        (work / "size.c").write_text('#include "litenet.h"\nchar size_of_model[sizeof(ln_model)];\n')
        include = [f"-I{RUNTIME / 'include'}", f"-I{RUNTIME / 'src'}", '-DLN_OPS_HEADER="ops.h"', f"-I{work}"]
        common = [compiler, *flags, *FLAGS, *include, *more]
        sources = [p for p in sorted((RUNTIME / "src").glob("*.c"))
                   if not p.name.startswith("fast_") and p.name not in ("ln_file.c", "ln_threads.c")]  # fmt: skip
        sources += [work / "measured.c", ROOT / "firmware_examples" / "common" / "small_mem.c"]
        objects = []
        for source in sources:
            out = work / f"{source.stem}.o"
            if made is not None:
                out = made / f"{source.stem}-{cpu}-{'-'.join(sorted(_seen(source, needs)))}.o"
            if not out.exists():
                _run([*common, "-fstack-usage", "-c", str(source), "-o", str(out)])
            objects.append(str(out))
        _run([*common, "-c", str(work / "size.c"), "-o", str(work / "size.o")])
        elf = work / "runtime.elf"
        _run([compiler, *flags, "-nostartfiles", "-Wl,--gc-sections", "-Wl,-e,measured", *objects,
              *(["-lm"] if compiler.startswith("avr") else []), "-lgcc", "-o", str(elf)])  # fmt: skip
        tools = compiler.removesuffix("gcc")
        symbols = _symbols(tools, elf)
        main = symbols.pop("measured")
        sections = _sections(tools, elf) - main
        frames = stack_frames(Path(o).with_suffix(".su") for o in objects)
        stack = stack_bound(tools, elf, "measured", frames) - frames.get("measured", 0)
        return Linked(symbols, sections, stack, _symbols(tools, work / "size.o")["size_of_model"])


PAIRS = {name.upper() for name, m in OPS.items() if len(m.OP.inputs) == 2}


def _seen(source: Path, needs: Sequence[str]) -> set[str]:
    """Which of these the code of a source depends on: those it names, the types of tensors, and whether an operator has
    two inputs. What has a list of all operators depends on all."""
    text = source.read_text(encoding="utf-8")
    if re.search(r'#include "ln_ops(_i8)?\.def"|LN_WITH_ACT_', text):
        return set(needs)
    named = set(re.findall(r"LN_WITH_(\w+)", text)) | {"F16", *FORMS}
    return {need for need in needs if need in named} | ({"PAIR"} if PAIRS.intersection(needs) else set())


def _symbols(tools: str, elf: Path) -> dict[str, int]:
    """Sizes of functions and constants, without the compiler's suffixes; copies of one name are added."""
    out: dict[str, int] = {}
    end = 0  # names that share bytes, as a library's aliases do, count once
    for line in sorted(_run([tools + "nm", "-S", str(elf)]).splitlines()):
        part = line.split()
        if len(part) == 4 and part[2] in "tTrRwWbBdDC":
            name, at, size = part[3].split(".")[0], int(part[0], 16), int(part[1], 16)
            out[name] = out.get(name, 0) + max(0, at + size - max(at, end))
            end = max(end, at + size)
    return out


def _sections(tools: str, elf: Path) -> int:
    """Bytes of the sections that lie in flash."""
    total = 0
    for line in _run([tools + "size", "-A", str(elf)]).splitlines():
        part = line.split()
        if len(part) == 3 and re.match(r"\.(text|rodata|data|srodata|sdata|init|fini)", part[0]):
            total += int(part[1])
    return total


# ---------------------------------------------------------------- stack


def stack_frames(reports) -> dict[str, int]:
    """What each function takes of the stack, from the compiler's reports (-fstack-usage)."""
    frames: dict[str, int] = {}
    for report in reports:
        for line in Path(report).read_text().splitlines():
            place, size, kind = line.split("\t")[:3]
            if kind not in ("static", "dynamic,bounded"):
                raise ValueError(f"{place} takes an unknown amount of stack ({kind})")
            name = place.split(":")[-1]
            frames[name] = max(frames.get(name, 0), int(size))
    return frames


def stack_bound(tools: str, elf: Path, root: str, frames: dict[str, int], indirect=None) -> int:
    """Bytes of stack of the deepest call from `root` on, its own frame included."""
    calls, pushed = _calls(_run([tools + "objdump", "-d", str(elf)]))
    pointers = INDIRECT | (indirect or {})
    known: dict[str, int] = {}
    callers: list[str] = []

    def depth(name: str) -> int:
        if name in known:
            return known[name]
        if name in callers:
            raise ValueError(f"{name} calls itself: the stack has no bound")
        callers.append(name)
        below, plain = calls.get(name, set()), name.split(".")[0]
        if "*" in below and plain not in pointers:
            raise ValueError(f"{name} calls through a pointer, and who is called is not listed")
        names = (below - {"*"}) | {n for n in calls if "*" in below and n.split(".")[0] in pointers.get(plain, ())}
        own = frames.get(name, frames.get(plain))
        known[name] = (pushed.get(name, 0) if own is None else own) + max(map(depth, names), default=0)
        callers.pop()
        return known[name]

    return depth(root)


def _calls(listing: str) -> tuple[dict[str, set[str]], dict[str, int]]:
    """Who calls whom ("*": through a pointer), and what functions that no compiler reported on push."""
    calls: dict[str, set[str]] = {}
    pushed: dict[str, int] = {}
    current = ""
    for line in listing.splitlines():
        head = re.match(r"[0-9a-f]+ <([^>]+)>:$", line)
        if head:
            current = head[1]
            calls.setdefault(current, set())
            continue
        part = line.split("\t")
        if not current or len(part) < 3:
            continue
        word, rest = part[2].strip(), "\t".join(part[3:])
        target = re.search(r"<([^>+]+)>", rest)
        if re.match(r"(bl|b|b\.[nw]|b[a-z]{2}(\.[nw])?|call|rcall|jmp|rjmp|j|jal|tail)$", word) and target:
            if target[1] != current:
                calls[current].add(target[1])
        elif re.match(r"(blx|icall|eicall|ijmp|jalr|bx)$", word) and not re.match(r"lr|r14", rest):
            if word not in ("bx",) and not target:
                calls[current].add("*")
            elif target and target[1] != current:
                calls[current].add(target[1])
        if word == "push":
            pushed[current] = pushed.get(current, 0) + (4 * _registers(rest) if "{" in rest else 1)
        elif re.match(r"stmdb|vpush", word) and ("sp!" in rest or word == "vpush"):
            pushed[current] = pushed.get(current, 0) + (8 if "d" in rest else 4) * _registers(rest)
        elif re.match(r"sub(w|\.w)?$", word) and rest.startswith("sp"):
            size = re.search(r"#(\d+)", rest)
            pushed[current] = pushed.get(current, 0) + (int(size[1]) if size else 0)
        elif word == "addi" and re.match(r"sp,sp,-\d+", rest):
            pushed[current] = pushed.get(current, 0) + int(rest.split("-")[1].split()[0])
    return calls, pushed


def _registers(text: str) -> int:
    """How many stand between the braces: {r4, r5, lr}, {d8-d11}."""
    inside = text[text.index("{") + 1 : text.index("}")]
    total = 0
    for item in inside.split(","):
        ends = re.findall(r"\d+", item)
        total += int(ends[1]) - int(ends[0]) + 1 if "-" in item and len(ends) == 2 else 1
    return total


def _run(command: Sequence[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}\n{done.stderr}")
    return done.stdout


# ---------------------------------------------------------------- table


def measure(cpu: str) -> dict:
    """The rows of the table for one processor: for each form a model that only flattens, and what each other need adds
    to that."""
    with tempfile.TemporaryDirectory() as folder:
        forms = {form: _rows(cpu, form, Path(folder)) for form in FORMS}
        return {"model": link(cpu, ("F32", "FLATTEN"), Path(folder)).model, **forms}


def _rows(cpu: str, form: str, made: Path) -> dict:
    base = link(cpu, tuple(sorted((form, "FLATTEN"))), made)
    rows: dict[str, dict] = {form: {"symbols": {}, "stack": 0}, "FLATTEN": {"symbols": {}, "stack": 0}}
    ops = [name.upper() for name, m in OPS.items() if m.OP.in_files and name != "flatten"
           and (form == "F32" or (m.OP.int8 is not None and not m.OP.crosses))]  # fmt: skip
    acts = [f"ACT_{name.upper()}" for name, number in activations.IDS.items() if number]
    for need in [*ops, *acts, *(["F16"] if form == "F32" else [])]:
        with_linear = need.startswith("ACT_") or need == "F16"
        ground = link(cpu, tuple(sorted((form, "FLATTEN", "LINEAR"))), made) if with_linear else base
        found = link(cpu, tuple(sorted({form, "FLATTEN", need} | ({"LINEAR"} if with_linear else set()))), made)
        changed = {n: s for n, s in found.symbols.items() if ground.symbols.get(n) != s}
        if with_linear:  # those that linear brings are not in the base: store what they become
            changed = {n: s - ground.symbols.get(n, 0) + base.symbols.get(n, 0) if n in base.symbols else s
                       for n, s in changed.items()}  # fmt: skip
        rows[need] = {"symbols": changed, "stack": found.stack}
    return {"base": {"symbols": base.symbols, "stack": base.stack}, "needs": rows}


def main(argv: Sequence[str] | None = None) -> int:
    asked = list(sys.argv[1:] if argv is None else argv) or list(CPUS)
    table = json.loads(TABLE.read_text(encoding="utf-8")) if TABLE.exists() else {}
    for cpu in asked:
        if not has_compiler(cpu):
            print(f"{cpu}: {CPUS[cpu][0]} is not installed; its rows stay as they are", file=sys.stderr)
            continue
        table[cpu] = measure(cpu)
        text = json.dumps(table, separators=(",", ":"), sort_keys=True).replace('},"', '},\n"')
        TABLE.write_text(text + "\n", encoding="utf-8")
        print(f"{cpu}: {sum(len(table[cpu][form]['needs']) for form in FORMS)} rows", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
