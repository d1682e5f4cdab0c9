"""The firmware under emulation, over a serial line: this PC's bits, memory to the byte, the stack in bounds."""

from __future__ import annotations

import re
import shutil
import subprocess

import bins
import firmware
import numpy as np
import pytest
from bins import GRAY, Bin

from litenet.exporter import boards, chip_code, records
from litenet.pyruntime.engine import InferenceEngine
from litenet.pyruntime.serial_cli import main

pytest.importorskip("serial", reason="pyserial is not installed")


def mnist_mlp() -> Bin:
    net = Bin((28, 28, 1), GRAY).add("flatten").add("linear", out_features=256, activation="relu")
    return net.add("linear", out_features=128, activation="relu").add("linear", out_features=10)


def mnist_cnn() -> Bin:
    """421,642 parameters."""
    net = Bin((28, 28, 1), GRAY, turns=True)
    for channels in (32, 64):
        net.add("conv2d", out_channels=channels, kernel_size=3, padding=1, activation="relu")
        net.add("maxpool2d", kernel_size=2)
    return net.add("flatten").add("linear", out_features=128, activation="relu").add("linear", out_features=10)


def tinymaix_mnist() -> Bin:
    """The shapes of TinyMaix's MNIST example: three convolutions of stride 2, their mean, ten scores."""
    net = Bin((28, 28, 1), GRAY, turns=True)
    for channels in (4, 8, 16):
        net.add("conv2d", out_channels=channels, kernel_size=3, stride=2, activation="relu")
    return net.add("global_avg_pool").add("linear", out_features=10).add("softmax")


NETS = {"mnist_mlp": mnist_mlp, "mnist_cnn": mnist_cnn, "tinymaix": tinymaix_mnist, "mlp": bins.mlp}
PAIRS = [("microbit", "tinymaix"), ("mps2-an385", "mnist_mlp"), ("mps2-an386", "mnist_cnn")]
MORE = [("mps2-an385", "mnist_cnn"), ("mps2-an386", "mnist_mlp"), ("mps2-an500", "tinymaix"),
        ("mps3-an547", "tinymaix")]  # fmt: skip


@pytest.fixture(scope="module")
def image(tmp_path_factory):
    """image(machine, net): (the ELF file, the .bin)"""
    made = {}

    def get(machine: str, net: str):
        if (machine, net) not in made:
            folder = tmp_path_factory.mktemp(f"{machine}-{net}")
            model = firmware.header(NETS[net]().bytes(), folder, net)
            made[machine, net] = firmware.build(machine, model), model.with_suffix(".bin")
        return made[machine, net]

    return get


def verified(image, machine, net, samples, capsys):
    elf, model = image(machine, net)
    with firmware.running(machine, elf) as port:
        status = main(["verify", port, str(model), "--samples", str(samples), "--exact", "--wait", "2"])
    out = capsys.readouterr().out
    assert status == 0, out
    assert f"{samples} samples (2 golden): {samples} the same bit for bit" in out


@pytest.mark.parametrize(("machine", "net"), PAIRS)
def test_outputs_are_those_of_this_pc_bit_for_bit(image, machine, net, capsys):
    verified(image, machine, net, 4, capsys)


@pytest.mark.slow
@pytest.mark.parametrize(("machine", "net"), PAIRS + MORE)
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
        text = subprocess.run(["arm-none-eabi-size", elf], capture_output=True, text=True, check=True).stdout
        _, data, bss = map(int, text.splitlines()[1].split()[:3])
        buffers = [program.arena_bytes or 16, program.input_bytes, program.output_bytes]
        fixed.append(data + bss - sum(-(-n // 16) * 16 for n in buffers))
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


def need_arm():
    if shutil.which("arm-none-eabi-gcc") is None:
        pytest.skip("arm-none-eabi-gcc is not installed")
    version = subprocess.run(["arm-none-eabi-gcc", "-dumpversion"], capture_output=True, text=True, check=True).stdout
    if version.split(".")[0].strip() != "12":
        pytest.skip(f"the bounds were set with gcc 12, this is gcc {version.strip()}")


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
    need_arm()
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
    need_arm()
    needs = records.read(NETS[net]().bytes(golden=0)).needs()
    exact, table = chip_code.code_for("cortex-m3", needs), chip_code.from_table("cortex-m3", needs)
    assert not table.exact and abs(table.flash - exact.flash) <= 0.03 * exact.flash
    assert abs(table.stack - exact.stack) <= 64


def test_an_avr_gives_the_same_bits(tmp_path):
    for tool in ("avr-gcc", "simavr", "make"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    model = firmware.header(bins.mlp().bytes(), tmp_path, "tiny")
    where = firmware.EXAMPLES / "arduino" / "atmega328p"
    subprocess.run(["make", "-s", "-C", where, f"MODEL={model}", f"BUILD={tmp_path}"], check=True, capture_output=True)
    command = ["simavr", "-m", "atmega328p", "-f", "16000000", str(tmp_path / "firmware.elf")]
    text = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    words = re.findall(r"([0-9A-F]{8})\.", text.stdout + text.stderr)
    with InferenceEngine(model.with_suffix(".bin"), kernels="portable") as engine:
        y = engine.predict(np.arange(4, dtype=np.float32))
    assert [int(w, 16) for w in words] == [0, *y.view(np.uint32)]


# ---------------------------------------------------------------- boards


def test_a_model_that_fits_is_reported_to_the_byte():
    need_arm()
    data = tinymaix_mnist().bytes()
    lines = list(boards.check("stm32f4", data))
    code, program = chip_code.code_for("cortex-m4f", records.read(data).needs()), records.read(data)
    assert f"model {len(records.stripped(data)):,}, code {code.flash:,} (compiled" in lines[1]
    ram = program.arena_bytes + program.input_bytes + program.output_bytes + code.model + code.stack
    assert f"RAM {ram:,} of 131,072 bytes" in lines[2]
    assert re.search(r"time about [\d.]+ ms: [\d,]+ instructions as counted under emulation", lines[3])
