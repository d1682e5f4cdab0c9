"""Memory of the runtime alone on a Cortex-M4: code, statics, and the stack as painted beside the bound."""

from __future__ import annotations

import subprocess

import bins
import cbuild
import firmware
import pytest
from c_jobs import CHIPS
from int8_nets import Net

from litenet.exporter import chip_code, format, records
from litenet.trainer.int8.scheme import Quant

Q = Quant(1 / 16, -3)
CPU = "cortex-m4f"
NO_VECTORS = "-DLN_NO_VECTORS"


def int8(*layers) -> bytes:
    """shape, then (operator, attributes) each"""
    net = Net(layers[0], Q)
    for op, given in layers[1:]:
        net.add(op, **given)
    return format.write(net.model())


def cnn() -> bytes:
    conv = {"out_channels": 8, "kernel_size": 3, "padding": 1, "activation": "relu"}
    return int8((12, 12, 3), ("conv2d", conv), ("maxpool2d", {"kernel_size": 2}), ("conv2d", conv),
                ("flatten", {}), ("linear", {"out_features": 10}))  # fmt: skip


NETS = {
    "linear float32": lambda: bins.mlp().bytes(golden=0),
    "cnn float32": lambda: bins.digits().bytes(golden=0),
    "linear int8": lambda: int8((19,), ("linear", {"out_features": 7}), ("linear", {"out_features": 3})),
    "cnn int8": cnn,
    "depthwise int8": lambda: int8((9, 9, 6), ("depthwise_conv2d", {"kernel_size": 3, "padding": 1})),
}


@pytest.mark.parametrize("plain", [False, True], ids=["vectors", "plain"])
@pytest.mark.parametrize(
    ("needs", "bound"),
    [
        (("ACT_RELU", "F32", "LINEAR"), 4096),
        (("ACT_RELU", "I8", "LINEAR"), 4096),
        (("ACT_RELU", "CONV2D", "F32", "LINEAR", "MAXPOOL2D"), 8192),
        (("ACT_RELU", "CONV2D", "I8", "LINEAR", "MAXPOOL2D"), 8192),
    ],
    ids=["linear float32", "linear int8", "cnn float32", "cnn int8"],
)
def test_the_runtime_of_one_model_is_small(needs, bound, plain):
    """With all checks that protect memory, at -Os."""
    firmware.need_compiler("arm-none-eabi-gcc", "12")
    found = chip_code.link(CPU, needs, more=(NO_VECTORS,) if plain else ())
    assert found.sections <= bound
    assert found.model < 256  # all that it takes of RAM besides the arena, input and output, and the stack
    run = {name for name in found.symbols if name.endswith("_run") and name.startswith("ln_")}
    form = "_i8" if "I8" in needs else ""
    assert run == {f"ln_{n.lower()}{form}_run" for n in needs if n in ("LINEAR", "CONV2D", "MAXPOOL2D")} | {
        f"ln_panels{form}_run", "ln_run"
    }  # fmt: skip
    assert not any(name.startswith(("ln_explain", "ln_check_preprocessing")) for name in found.symbols)


@pytest.mark.parametrize("net", [pytest.param(net, marks=() if "int8" in net else pytest.mark.slow) for net in NETS])
def test_the_bound_of_the_stack_holds(net, tmp_path):
    firmware.need_compiler("arm-none-eabi-gcc", "12")
    data = NETS[net]()
    program = records.read(data)
    compiler, flags, command = CHIPS["cortex-m4"]
    model = firmware.header(data, tmp_path, "net")
    (tmp_path / "jobs").write_bytes(data)
    flags = (*flags, '-DLN_OPS_HEADER="net.h"', f"-I{model.parent}", "-ffunction-sections", "-Wl,--gc-sections")
    sources = [cbuild.TESTS_C / "stack_driver.c", cbuild.TESTS_C / "chip_start.c", *cbuild.core()]
    sources.append(firmware.EXAMPLES / "common" / "small_mem.c")  # the bound is that of these
    driver = cbuild.program("stack_driver", sources, compiler, False, flags)
    firmware.need(command[0])
    subprocess.run([*command, driver], cwd=tmp_path, check=True, timeout=120)
    opened, ran = map(int, (tmp_path / "results").read_text().split())
    bound = chip_code.link(CPU, tuple(program.needs())).stack
    used = max(opened - 8, ran - 16)  # without the frames of open_it and run_it
    print(f"{net}: {used} bytes of {bound}")
    assert used <= bound
    assert bound - used < 200  # the bound is no idle one
