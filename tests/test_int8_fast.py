"""The vector kernels for int8, for every set that this processor can run and under emulation: the bytes of the
definition, each model also operator by operator, with nothing joined (tests/c/ops_driver.c)."""

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from c_jobs import MACHINES, Job, run
from int8_nets import Net
from test_int8 import NAMES, Q, as_job, jobs, near, nets

from litenet.pyruntime.kernels import KERNELS, lib

HERE = {name: number for name, number in KERNELS.items() if lib.ln_fast_has(number)}
CHOOSE = 0
BUILDS = ["gcc", "gcc-O3", "clang-O3"]
pytestmark = pytest.mark.skipif(not HERE, reason="no vector kernels for this processor")


@cache
def products() -> list[Job]:
    """Around the tiles: 12 rows, panels of 16 channels in twos and fours, four inputs at a time, edges."""
    rng, out = np.random.default_rng(7), []

    def one(x: tuple[int, ...], name: str, **attrs: object) -> None:
        net = Net(x, Q, seed=len(out))
        net.add(name, **attrs)
        out.append(as_job(f"{name} {x} {attrs}", net))

    for rows in range(1, 27):
        one((rows, int(rng.integers(1, 40))), "linear", out_features=int(rng.integers(1, 90)))
    for O in (1, 4, 15, 16, 17, 31, 32, 33, 48, 63, 64, 65, 80, 96, 128):
        one((int(rng.integers(1, 70)),), "linear", out_features=O)
        ends = ((1, 5), (0, 2), (1, 3), (4, 9), (4, 9), (1, 20))
        kernel, padding, stride, H, W, C = (int(rng.integers(*r)) for r in ends)
        case = {"kernel_size": kernel, "padding": padding, "stride": stride}
        one((H, W, C), "conv2d", out_channels=O, **case)
        one((H, W, O), "depthwise_conv2d", **case)
    for C in (8, 12, 24):
        one((5, 6, C), "conv2d", out_channels=2 * C, kernel_size=3, padding=1, groups=4)
        one((9, 8, C), "conv2d", out_channels=20, kernel_size=3, dilation=2, padding=2)
    one((33, 31, 16), "conv2d", out_channels=80, kernel_size=1)
    return out


@cache
def pooled() -> list[Job]:
    """A convolution and the pool that is joined with it."""
    out = []
    for C, O, side in ((1, 8, 7), (3, 16, 9), (4, 33, 6), (16, 64, 8), (20, 70, 11), (32, 32, 4)):
        for kernel, padding in ((3, 1), (1, 0), (5, 0)):
            if side + 2 * padding < kernel + 2:  # less than two positions
                continue
            net = Net((side, side + 1, C), Q, seed=len(out))
            net.add("conv2d", out_channels=O, kernel_size=kernel, padding=padding, activation="relu")
            net.add("maxpool2d", kernel_size=2, stride=2)
            net.add("flatten")
            net.add("linear", out_features=5)
            out.append(as_job(f"pooled {C} {O} {side} {kernel}", net))
    return out


def todo(name: str) -> list[Job]:
    return {"nets": nets, "products": products, "pooled": pooled}.get(name, lambda: jobs(name))()


@cache
def results(build: str, name: str, kernels: int) -> list[bytes]:
    with TemporaryDirectory() as folder:
        return [r.bytes for r in run(build, todo(name), Path(folder), fast=(kernels, CHOOSE))]


def compare(build: str, name: str, kernels: int) -> None:
    for got, j in zip(results(build, name, kernels), todo(name), strict=True):
        assert got == j.want.tobytes() or near(j, got), j.what


@pytest.mark.parametrize("name", [*NAMES, "nets", "products", "pooled"])
@pytest.mark.parametrize("kernels", HERE)
@pytest.mark.parametrize("build", BUILDS)
def test_every_set_of_kernels_gives_the_bytes_of_the_definition(build, kernels, name):
    compare(build, name, HERE[kernels])


@pytest.mark.parametrize("name", ["nets", "products", "pooled", "add", "maxpool2d", "global_avg_pool"])
@pytest.mark.parametrize("machine", [*MACHINES])
def test_other_machines_give_the_bytes_of_the_definition(machine, name):
    compare(machine, name, MACHINES[machine][3])
