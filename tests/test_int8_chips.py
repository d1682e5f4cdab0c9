"""int8 on Cortex-M: plain C, the DSP instructions and Helium give the bytes of the definition, in programs of these
chips run under emulation."""

import pytest
from c_jobs import CHIPS, run
from test_int8 import NAMES, jobs, near, nets
from test_int8_fast import products

KINDS = {"nets": nets, "products": products}
SHORT = ["linear", "conv2d", "depthwise_conv2d", "nets", "products"]


def compare(chip: str, name: str, folder) -> None:
    todo = KINDS[name]() if name in KINDS else jobs(name)
    for got, j in zip(run(chip, todo, folder), todo, strict=True):
        assert got.bytes == j.want.tobytes() or near(j, got.bytes), j.what


@pytest.mark.parametrize("name", SHORT)
@pytest.mark.parametrize("chip", ["cortex-m4", "cortex-m55"])
def test_short_vectors_give_the_bytes_of_the_definition(chip, name, tmp_path):
    compare(chip, name, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in NAMES if name not in SHORT])
@pytest.mark.parametrize("chip", CHIPS)
def test_every_operator_gives_the_bytes_of_the_definition(chip, name, tmp_path):
    compare(chip, name, tmp_path)
