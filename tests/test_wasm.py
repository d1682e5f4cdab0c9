"""The runtime in WebAssembly, under Node: the portable core, and the kernels for its vectors beside it.

Operators one by one run in test_fast.py, which has "wasm" among its processors.
"""

from __future__ import annotations

import shutil

import bins
import cbuild
import numpy as np
import pytest
from c_jobs import MACHINES, NAMES, Job, run
from closeness import assert_close
from joined_nets import Net
from test_c_ops import jobs
from test_fast import DIRECT, WINOGRAD_2, WINOGRAD_4, pooled, products

from litenet.trainer.ops import OPS

KERNELS = MACHINES["wasm"][3]


@pytest.fixture(autouse=True)
def needs_node_and_a_linker():
    cbuild.need("clang")
    for program in ("node", "wasm-ld"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")


def whole_nets() -> list[Job]:
    """Models with golden answers, float32 and float16, and a dozen with pooled convolutions."""
    rng, out = np.random.default_rng(4), []
    for make in (bins.mlp, bins.digits, bins.colors):
        for half in (False, True):
            net = make(half=half)
            x = rng.standard_normal(net.shape).astype(np.float32)
            out.append(Job(f"{make.__name__} {half}", "", net.bytes(), x, net.definition(x), 0, 0))
    for seed in range(12):
        net, x = pooled(seed)
        out.append(Job(f"pooled {seed}", "", net.bytes(2), x, net.definition(x), 0, 0))
    return out


@pytest.mark.parametrize("fast", [None, (KERNELS, 0), (KERNELS, DIRECT), (KERNELS, WINOGRAD_2), (KERNELS, WINOGRAD_4)])
def test_whole_nets_give_their_golden_answers(fast, tmp_path):
    todo = whole_nets()
    for got, j in zip(run("wasm", todo, tmp_path, fast=fast), todo, strict=True):
        assert_close(got.y.reshape(j.want.shape), j.want, 1e-4, 1e-4)


def test_the_portable_core_agrees_with_the_definition_within_the_operators_tolerance(tmp_path):
    for name in NAMES:
        todo = jobs(name)
        for got, j in zip(run("wasm", todo, tmp_path), todo, strict=True):
            assert_close(got.y.reshape(j.want.shape), j.want, *OPS[name].OP.tolerance)


def test_vector_kernels_agree_with_the_portable_core_for_every_number_of_rows_and_channels(tmp_path):
    todo = products()
    slow, fast = (run("wasm", todo, tmp_path, fast=fast) for fast in (None, (KERNELS, DIRECT)))
    for want, got, j in zip(slow, fast, todo, strict=True):
        assert_close(got.y, want.y, 2e-5, 2e-5)
        assert_close(got.y.reshape(j.want.shape), j.want, 2e-5, 2e-5)


def test_a_pool_of_four_with_a_nan_gives_nan_wherever_it_is(tmp_path):
    """The pool of a convolution is made in registers; the driver compares with the operators one by one."""
    todo = []
    for place in range(4):
        for activation in ("none", "relu", "relu6"):
            net = Net((4, 6, 3), place)
            net.add("conv2d", out_channels=20, kernel_size=1, activation=activation)
            net.add("maxpool2d", kernel_size=2)
            x = net.rng.standard_normal(net.shapes[0]).astype(np.float32)
            x[2 + place // 2, place % 2, 1] = np.nan
            todo.append(net.job(f"{activation}, NaN at {place}", x))
    for got, j in zip(run("wasm", todo, tmp_path, fast=(KERNELS, DIRECT)), todo, strict=True):
        assert np.isnan(j.want[1, 0]).all(), j.what
        assert np.isfinite(j.want[0]).all()
        np.testing.assert_allclose(got.y.reshape(j.want.shape), j.want, rtol=1e-5, atol=1e-5, err_msg=j.what)
