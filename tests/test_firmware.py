"""The firmware under emulation, over a serial line: this PC's bits, memory to the byte, the stack in bounds."""

from __future__ import annotations

import re
import subprocess

import firmware
import numpy as np
import pytest
from firmware_nets import NETS

from litenet.exporter import boards, chip_code, records
from litenet.pyruntime.engine import InferenceEngine
from litenet.pyruntime.serial_cli import main

pytest.importorskip("serial", reason="pyserial is not installed")


PAIRS = [("microbit", "tinymaix"), ("mps2-an385", "mnist_mlp"), ("mps2-an386", "mnist_cnn")]
PAIRS += [(machine, f"{net}_int8") for machine, net in PAIRS] + [("microbit", "tinymaix_own")]
LONG = [(machine, f"trained_{net}{kind}") for machine in ("mps2-an386", "mps2-an385")
        for net in ("mnist_mlp", "mnist_cnn") for kind in ("", "_int8")]  # fmt: skip
LONG += [(machine, net) for machine in ("microbit", "mps2-an500", "mps3-an547")
         for net in ("tinymaix", "tinymaix_int8", "tinymaix_own")]  # fmt: skip


@pytest.fixture(scope="module")
def image(tmp_path_factory):
    """image(machine, net): (the ELF file, the .bin)"""
    made = {}

    def get(machine: str, net: str):
        if (machine, net) not in made:
            folder = tmp_path_factory.mktemp(f"{machine}-{net}")
            model = firmware.header(NETS[net](), folder, net)
            made[machine, net] = firmware.build(machine, model), model.with_suffix(".bin")
        return made[machine, net]

    return get


def verified(image, machine, net, samples, capsys):
    elf, model = image(machine, net)
    with firmware.running(machine, elf) as port:
        status = main(["verify", port, str(model), "--samples", str(samples), "--exact", "--wait", "2"])
    out = capsys.readouterr().out
    print(f"{machine} {net}: {out}")
    assert status == 0, out
    assert re.search(rf"{samples} samples \(\d golden\): {samples} the same bit for bit;", out), out


@pytest.mark.parametrize(("machine", "net"), PAIRS)
def test_outputs_are_those_of_this_pc_bit_for_bit(image, machine, net, capsys):
    verified(image, machine, net, 4, capsys)


@pytest.mark.slow
@pytest.mark.parametrize(("machine", "net"), LONG)
def test_two_hundred_outputs_are_those_of_this_pc_bit_for_bit(image, machine, net, capsys):
    verified(image, machine, net, 200, capsys)


def test_predicted_memory_is_the_high_water_mark_to_the_byte(image):
    for machine, net in [("microbit", "tinymaix"), ("mps2-an386", "mlp")]:
        elf, model = image(machine, net)
        program = records.read(model.read_bytes())
        with firmware.board(machine, elf, wait=2.0) as device:
            device.run(bytes(program.input_bytes))
            touched, used, size = device.memory()
            assert device.info.arena_bytes == program.arena_bytes
        assert touched == program.touched()
        bound = firmware_stack_bound(elf)
        assert used <= bound <= size
        assert bound - used < 200  # the bound is no idle one


def test_static_memory_is_predicted_to_the_byte(image):
    """What two models' firmware differs by is what the prediction differs by; the rest is the program's own."""
    fixed = []
    for net in ("tinymaix", "mlp"):
        elf, model = image("microbit", net)
        program = records.read(model.read_bytes())
        buffers = [program.arena_bytes or 16, program.input_bytes, program.output_bytes]
        fixed.append(firmware.sizes(elf)[1] - sum(-(-n // 16) * 16 for n in buffers))
    assert max(fixed) - min(fixed) <= 16  # where the arrays of 16-byte alignment happen to begin
    assert max(fixed) < 600  # ln_model, a frame, what the device knows


def firmware_stack_bound(elf) -> int:
    """The deepest call of the whole firmware, by the compiler's reports beside its objects."""
    frames = chip_code.stack_frames(elf.parent.glob("*.su"))
    indirect = {"ln_run_each": ("note_operator",), "ln_frame_send": ("board_write",)}
    return chip_code.stack_bound("arm-none-eabi-", elf, "begin", frames, indirect)


def test_the_stack_bound_refuses_what_has_none():
    listing = "00000000 <a>:\n 0:\tf000\tbl\t0 <b>\n\n00000004 <b>:\n 4:\tf000\tbl\t0 <a>\n"
    assert chip_code._calls(listing)[0] == {"a": {"b"}, "b": {"a"}}


# ---------------------------------------------------------------- code size


@pytest.mark.parametrize(
    ("needs", "bound"),
    [
        (("ACT_RELU", "F32", "LINEAR"), 5120),
        (("ACT_RELU", "CONV2D", "F32", "LINEAR", "MAXPOOL2D"), 8192),
        (("I8", "LINEAR"), 5120),
        (("ACT_RELU", "CONV2D", "I8", "LINEAR", "MAXPOOL2D"), 8192),
    ],
    ids=["linear", "cnn", "linear int8", "cnn int8"],
)
def test_the_runtime_of_one_model_is_small(needs, bound):
    """Checks of the file included, Cortex-M4 at -Os."""
    firmware.need_compiler("arm-none-eabi-gcc", "12")
    code = chip_code.code_for("cortex-m4f", needs)
    assert code.exact and code.flash <= bound
    assert code.model < 256  # what it takes of RAM besides the arena and the stack
    assert set(code.by_op) == {n.lower() for n in needs if n in ("LINEAR", "CONV2D", "MAXPOOL2D")}


def test_operators_that_a_model_lacks_are_not_linked(image):
    elf, _ = image("microbit", "tinymaix")
    names = subprocess.run(["arm-none-eabi-nm", elf], capture_output=True, text=True, check=True).stdout
    run = set(re.findall(r"ln_(\w+)_run\b", names)) - {"panels"}
    assert run == {"conv2d", "global_avg_pool", "linear", "softmax"}
    assert "ln_explain" not in names and "gelu" not in names


@pytest.mark.parametrize("net", ["mnist_cnn", "tinymaix"])
def test_the_table_of_code_is_near_what_a_compiler_gives(net):
    firmware.need_compiler("arm-none-eabi-gcc", "12")
    needs = records.read(NETS[net]()).needs()
    exact, table = chip_code.code_for("cortex-m3", needs), chip_code.from_table("cortex-m3", needs)
    assert not table.exact and abs(table.flash - exact.flash) <= 0.03 * exact.flash
    assert abs(table.stack - exact.stack) <= 64


@pytest.mark.parametrize("net", ["mlp", "tiny_int8"])
def test_an_avr_gives_the_same_bits(tmp_path, net):
    firmware.need("avr-gcc", "simavr", "make")
    model = firmware.header(NETS[net](), tmp_path, "tiny")
    where = firmware.EXAMPLES / "arduino" / "atmega328p"
    subprocess.run(["make", "-s", "-C", where, f"MODEL={model}", f"BUILD={tmp_path}"], check=True, capture_output=True)
    command = ["simavr", "-m", "atmega328p", "-f", "16000000", str(tmp_path / "firmware.elf")]
    text = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    found = re.search(r"([0-9A-F]{2}) ([0-9A-F]+) ([0-9A-F]{4}) ([0-9A-F]{4})\.", text.stdout + text.stderr)
    assert found and found[1] == "00" and int(found[3], 16) > 0, text.stdout
    ram = firmware.sizes(tmp_path / "firmware.elf", "avr-size")[1] + int(found[4], 16)
    assert ram < 2048  # the stack met nothing
    with InferenceEngine(model.with_suffix(".bin"), kernels="portable") as engine:
        y = engine.predict(np.arange(engine.input_shape[0], dtype=engine.input_dtype), raw=True)
        assert y.dtype == engine.output_dtypes[0] and len(set(y.tobytes())) > 2  # not all the same
    assert bytes.fromhex(found[2])[: y.nbytes] == y.tobytes()
    if net == "tiny_int8":
        firmware.as_told("arduino", tmp_path / "firmware.elf", "avr-", "5")


def test_the_readme_tells_an_images_size(image):
    firmware.as_told("qemu_cortex_m", image("microbit", "tinymaix_int8")[0])


# ---------------------------------------------------------------- boards


def test_a_model_that_fits_is_reported_to_the_byte():
    firmware.need_compiler("arm-none-eabi-gcc", "12")
    data = NETS["tinymaix"]()
    lines = list(boards.check("stm32f4", data))
    code, program = chip_code.code_for("cortex-m4f", records.read(data).needs()), records.read(data)
    assert f"model {len(records.stripped(data)):,}, code {code.flash:,} (compiled" in lines[1]
    ram = program.arena_bytes + program.input_bytes + program.output_bytes + code.model + code.stack
    assert f"RAM {ram:,} of 131,072 bytes" in lines[2]
    assert re.search(r"time about [\d.]+ ms: [\d,]+ instructions as counted under emulation", lines[3])
