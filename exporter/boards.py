"""Does a model fit a board: its flash, its RAM to the byte, and about how long a run takes.

Flash is the runtime's code with this model's operators (chip_code.py) and the model. RAM is the arena, the input and
output buffers, the ln_model and the stack of the deepest call. What else the program needs, such as a driver for the
serial port, comes on top: BOARDS gives what a board has in all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from litenet.pyruntime.engine import InferenceEngine
from litenet.trainer.errors import UserError

from . import chip_code, records


@dataclass(frozen=True)
class Board:
    """flash and ram in bytes, as the chip's data sheet (or the board's, for flash beside the chip) has them; hertz: the
    clock it runs at as delivered. cpu: a key of chip_code.CPUS, or the nearest that a compiler here knows. data_flash:
    False where programs cannot read constants from flash through a pointer: the model then takes RAM too."""

    name: str
    cpu: str
    flash: int
    ram: int
    hertz: int
    data_flash: bool = True
    like: str = ""  # what `cpu` stands in for, where it is not the board's own


KB, MB, MHZ = 1 << 10, 1 << 20, 1_000_000
BOARDS: dict[str, Board] = {
    "rp2040": Board("Raspberry Pi Pico", "cortex-m0", 2 * MB, 264 * KB, 125 * MHZ),
    "rp2350": Board("Raspberry Pi Pico 2", "cortex-m33", 4 * MB, 520 * KB, 150 * MHZ),
    "microbit": Board("BBC micro:bit 1 (nRF51822)", "cortex-m0", 256 * KB, 16 * KB, 16 * MHZ),
    "stm32f103": Board("STM32F103C8, Blue Pill", "cortex-m3", 64 * KB, 20 * KB, 72 * MHZ),
    "stm32f4": Board("STM32F407VG", "cortex-m4f", 1 * MB, 128 * KB, 168 * MHZ),
    "stm32f7": Board("STM32F746NG", "cortex-m7", 1 * MB, 320 * KB, 216 * MHZ),
    "nrf52840": Board("nRF52840, Arduino Nano 33 BLE", "cortex-m4f", 1 * MB, 256 * KB, 64 * MHZ),
    "esp32c3": Board("ESP32-C3", "rv32imc", 1 * MB, 320 * KB, 160 * MHZ),
    "esp32": Board("ESP32", "rv32imc", 1 * MB, 160 * KB, 240 * MHZ, like="Xtensa LX6"),
    "atmega328p": Board("ATmega328P, Arduino Uno", "atmega328p", 32 * KB - 512, 2 * KB, 16 * MHZ, data_flash=False),
    "mps2-an385": Board("Arm MPS2 AN385, emulated", "cortex-m3", 4 * MB, 4 * MB, 25 * MHZ),
    "mps2-an386": Board("Arm MPS2 AN386, emulated", "cortex-m4f", 4 * MB, 4 * MB, 25 * MHZ),
    "mps2-an500": Board("Arm MPS2 AN500, emulated", "cortex-m7", 4 * MB, 4 * MB, 25 * MHZ),
    "mps3-an547": Board("Arm MPS3 AN547, emulated", "cortex-m55", 512 * KB, 512 * KB, 32 * MHZ),
}


# Instructions a multiply-accumulate, -Os, counted under emulation by benchmarks/chip_instructions.py: of a layer as a
# whole, so that what surrounds the products is in them. int8 with the processor's short vectors.
INSTRUCTIONS: dict[str, dict[str, float]] = {
    "cortex-m0": {"linear F32": 121, "conv2d F32": 123, "depthwise_conv2d F32": 115, "embed_projection F32": 132,
        "linear I8": 7.59, "conv2d I8": 9.28, "depthwise_conv2d I8": 23.8, "embed_projection I8": 14.9},
    "cortex-m3": {"linear F32": 47.7, "conv2d F32": 50.1, "depthwise_conv2d F32": 52.1, "embed_projection F32": 55.7,
        "linear I8": 4.46, "conv2d I8": 5.48, "depthwise_conv2d I8": 14.3, "embed_projection I8": 10.3},
    "cortex-m4f": {"linear F32": 4.39, "conv2d F32": 6.04, "depthwise_conv2d F32": 13.6, "embed_projection F32": 9.61,
        "linear I8": 1.94, "conv2d I8": 2.99, "depthwise_conv2d I8": 11.1, "embed_projection I8": 9.3},
    "cortex-m7": {"linear F32": 4.39, "conv2d F32": 6.04, "depthwise_conv2d F32": 13.6, "embed_projection F32": 9.61,
        "linear I8": 1.94, "conv2d I8": 2.99, "depthwise_conv2d I8": 11.1, "embed_projection I8": 9.3},
    "cortex-m55": {"linear F32": 5.15, "conv2d F32": 6.79, "depthwise_conv2d F32": 13.6, "embed_projection F32": 10.4,
        "linear I8": 1.02, "conv2d I8": 2.76, "depthwise_conv2d I8": 11.3, "embed_projection I8": 9.41},
}  # fmt: skip


@dataclass(frozen=True)
class Cost:
    """What a model takes on a board. cycles: of one run, None where this processor was never measured."""

    code: chip_code.Code
    model: int
    arena: int
    touched: int
    buffers: int
    flash: int
    ram: int
    cycles: int | None


def cost(board: Board, data: bytes, golden: bool = False) -> Cost | None:
    """None where nothing is known of the runtime's code on this processor."""
    program, stored = records.read(data), records.stripped(data, golden)
    code = chip_code.code_for(board.cpu, program.needs())
    if code is None:
        return None
    buffers = program.input_bytes + program.output_bytes
    ram = program.arena_bytes + buffers + code.model + code.stack + (0 if board.data_flash else len(stored))
    flash = code.flash + len(stored)
    return Cost(code, len(stored), program.arena_bytes, program.touched(), buffers, flash, ram, _cycles(board, data))


def _cycles(board: Board, data: bytes) -> int | None:
    """Multiply-accumulates times the instructions that each took, by operator, when this was measured."""
    table = INSTRUCTIONS.get(board.cpu)
    if table is None:
        return None
    program, total = records.read(data), 0.0
    with InferenceEngine(data) as engine:
        for op, layer in zip(program.ops, engine.layers, strict=True):
            key = f"{op.op} {records.TYPE_NAMES[program.tensors[op.output].dtype]}"
            if layer.macs and key not in table:
                return None
            total += layer.macs * table.get(key, 0)
    return round(total)


def check(key: str, data: bytes, golden: bool = False) -> Iterator[str]:
    """The report, line by line. UserError where the model does not fit, or the board is unknown."""
    if key not in BOARDS:
        raise UserError(f"--board {key}: there is no such board here; known are {', '.join(sorted(BOARDS))}.")
    board = BOARDS[key]
    found = cost(board, data, golden)
    if found is None:
        _refuse(key, board, data, *_without_code(board, data, golden), at_least=" at least")
        raise UserError(
            f"--board {key}: nothing is known of the runtime's code on {board.cpu} with these operators; "
            f"install {chip_code.CPUS[board.cpu][0]}, with which it is measured."
        )
    code, how = found.code, "compiled" if found.code.exact else "from the table"
    chip = board.cpu if not board.like else f"{board.cpu}, in place of its {board.like}"
    parts = ", ".join(f"{op} {size:,}" for op, size in code.by_op.items())
    yield f"{board.name} ({chip}, {board.hertz // MHZ} MHz)"
    sizes = f"model {found.model:,}, code {code.flash:,} ({how}; {parts})"
    yield f"  flash {found.flash:,} of {board.flash:,} bytes: {sizes}"
    yield (
        f"  RAM {found.ram:,} of {board.ram:,} bytes: arena {found.arena:,}, input and output {found.buffers:,}, "
        f"ln_model {code.model}, stack {code.stack:,}"
        + ("" if board.data_flash else f", model {found.model:,}, as this chip reads no constants from flash")
    )
    if found.cycles is None:
        yield "  time: not known, as runs on this processor were never counted"
    else:
        yield (
            f"  time about {1e3 * found.cycles / board.hertz:,.3g} ms: {found.cycles:,} instructions as counted under "
            "emulation, taken as one cycle each; a chip that waits for its flash is slower"
        )
    _refuse(key, board, data, found.flash, found.ram)


def _without_code(board: Board, data: bytes, golden: bool) -> tuple[int, int]:
    """Flash and RAM of the model alone."""
    program, model = records.read(data), len(records.stripped(data, golden))
    ram = program.arena_bytes + program.input_bytes + program.output_bytes
    return model, ram + (0 if board.data_flash else model)


def _refuse(key: str, board: Board, data: bytes, flash: int, ram: int, at_least: str = "") -> None:
    """UserError, naming the layer, where so many bytes are more than there are."""
    if ram <= board.ram and flash <= board.flash:
        return
    program = records.read(data)
    with InferenceEngine(data) as engine:
        names = [layer.name for layer in engine.layers]
    needs = f"--board {key}: the model needs{at_least}"
    if flash > board.flash:
        op = max(range(len(names)), key=lambda i: program.ops[i].weights_bytes)
        whole = all(records.TYPE_NAMES[o.weight_dtype] == "I8" for o in program.ops if o.weights_bytes)
        smaller = "A" if whole else "--int8 quarters weights, --fp16 halves them; a"
        raise UserError(
            f"{needs} {flash:,} bytes of flash, {flash - board.flash:,} more than "
            f"there are; layer {names[op]!r} has {program.ops[op].weights_bytes:,} bytes of weights.\n"
            f"  {smaller} smaller layer there would help."
        )
    op = max(range(len(names)), key=program.alive)
    raise UserError(
        f"{needs} {ram:,} bytes of RAM, {ram - board.ram:,} more than there "
        f"are; most is in use at layer {names[op]!r}: {program.alive(op):,} bytes of arena, "
        f"{ram - program.arena_bytes:,} besides.\n"
        "  Smaller pictures, fewer channels there or a larger stride before it would help."
    )
