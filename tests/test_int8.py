"""int8 in C: every operator and whole nets, byte for byte what the NumPy definition and the page's reader give."""

import shutil
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import cbuild
import numpy as np
import pytest
import reader
from c_jobs import BIG_ENDIAN, BUILDS, Job, run
from int8_nets import Net, joined
from test_c_ops import EDGES, random_case

from litenet.exporter.format import write
from litenet.trainer.int8.scheme import Quant
from litenet.trainer.ops import OPS

NAMES = [name for name, m in OPS.items() if m.OP.in_files and m.OP.int8 is not None]
BINARY = ("add", "mul", "concat")
RANDOM_CASES, RANDOM_NETS = 25, 12
Q = Quant(0.0625, -7)


def case_net(name: str, case: dict[str, Any], over: int | None, seed: int) -> tuple[Net, dict[int, int] | None]:
    """One operator, its inputs made by tables of random numbers; `over`: it writes over that input."""
    given = {k: v for k, v in case.items() if k != "x"}
    if name != "activation" and given.get("activation") not in ("relu", "relu6"):
        given.pop("activation", None)
    net = Net(tuple(case["x"]), Q if name != "quantize" else None, seed)
    inputs = [0]
    if over is not None:
        inputs = [net.add("activation")]
    if name in BINARY:
        row = name == "mul" and len(case["x"]) == 3 and seed % 2 == 0 and over != 1
        inputs.append(net.add("global_avg_pool" if row else "activation", inputs[0]))
    y = net.add(name, *inputs, **given)
    if over is None:
        return net, None
    net.add("reshape" if name == "dequantize" else "flatten")
    room = -(-int(np.prod(case["x"])) // 16) * 16
    offsets = {t: room * k for k, t in enumerate(range(1, y))} | {y: room * over, y + 1: 0}
    return net, offsets


def as_job(what: str, net: Net, offsets: dict[int, int] | None = None, outputs: tuple[int, ...] = ()) -> Job:
    x = net.input()
    values = net.values(x)
    want = np.frombuffer(joined([values[i] for i in outputs or (-1,)]), np.uint8)
    return Job(what, what, write(net.model(outputs, offsets, golden=1)), x, want, 0, 0)


@cache
def jobs(name: str) -> list[Job]:
    op, rng = OPS[name].OP, np.random.default_rng(op_id := OPS[name].OP.id)
    if op.crosses:
        cases: list[dict[str, Any]] = [{"x": x} for x in ((1,), (17,), (3, 5), (4, 3, 33))]
    else:
        cases = [*OPS[name].CASES, *EDGES.get(name, []), *(random_case(name, rng) for _ in range(RANDOM_CASES))]
    out = []
    for i, case in enumerate(cases):
        if name == "softmax" and case["x"][-1] > 32767:
            continue
        for over in (None, *(k for k, role in enumerate(op.inputs) if role in op.inplace)):
            net, offsets = case_net(name, case, over, seed=1000 * op_id + i)
            out.append(as_job(f"{name} {case} over {over}", net, offsets))
    return out


@cache
def nets() -> list[Job]:
    return [as_job(f"net {seed}", *random_net(seed)) for seed in range(RANDOM_NETS)]


def random_net(seed: int) -> tuple[Net, None, tuple[int, ...]]:
    """A stem, branches that join again, sometimes floats in between, and two outputs."""
    rng = np.random.default_rng(seed)
    C = int(rng.choice([1, 3, 4, 12, 16]))
    mixed = seed % 3 == 0
    net = Net((int(rng.integers(6, 14)), int(rng.integers(6, 14)), C), None if seed % 4 == 1 else Q, seed)
    if net.quants[0] is None:
        net.add("quantize")
    width = int(rng.choice([4, 8, 20, 33]))
    stride = int(rng.integers(1, 3))
    a = net.add("conv2d", out_channels=width, kernel_size=3, padding=1, stride=stride, activation="relu")
    b = net.add("depthwise_conv2d", kernel_size=3, padding=1, activation="relu6")
    b = net.add("conv2d", out_channels=width, kernel_size=1)
    both = net.add("add", a, b, activation="relu")
    c = net.add("maxpool2d", both, kernel_size=3, padding=1)
    d = net.add("avgpool2d", both, kernel_size=3, padding=1, count_include_pad=int(rng.integers(2)))
    if mixed:
        net.add("dequantize", d)
        net.add("conv2d", out_channels=width, kernel_size=1, activation="relu")
        d = net.add("quantize")
    net.add("concat", c, d, axis=2)
    net.add("batchnorm")
    net.add("prelu")
    gate = net.add("global_avg_pool")
    gate = net.add("activation", activation="sigmoid")
    net.add("mul", len(net.shapes) - 3, gate)
    pooled = net.add("global_avg_pool")
    net.add("linear", out_features=10)
    net.add("softmax")
    return net, None, (pooled, len(net.shapes) - 1)


@cache
def results(build: str, name: str, fast: tuple[int, int] | None = None) -> list[bytes]:
    todo = nets() if name == "nets" else jobs(name)
    with TemporaryDirectory() as folder:
        return [r.bytes for r in run(build, todo, Path(folder), fast=fast)]


@pytest.mark.parametrize("name", [*NAMES, "nets"])
@pytest.mark.parametrize("build", BUILDS)
def test_c_gives_the_bytes_of_the_definition(build, name):
    for got, j in zip(results(build, name), nets() if name == "nets" else jobs(name), strict=True):
        assert got == j.want.tobytes() or near(j, got), j.what


@pytest.mark.parametrize("name", [*NAMES, "nets"])
def test_a_big_endian_machine_gives_them_too(name):
    cbuild.need("s390x-linux-gnu-gcc")
    if shutil.which("qemu-s390x") is None:
        pytest.skip("qemu-s390x is not installed")
    todo = nets() if name == "nets" else jobs(name)
    for got, j in zip(results(BIG_ENDIAN, name), todo, strict=True):
        assert got == j.want.tobytes() or floats_turned(j, got) == j.want.tobytes() or near(j, got), j.what


def floats_turned(j: Job, got: bytes) -> bytes:
    """Of a job whose outputs are floats, each with its bytes the other way round."""
    f = reader.read(j.model)
    whole = any(t.i8 for t in f.tensors if t.flags == 2)
    return got if whole else np.frombuffer(got, ">f4").astype("<f4").tobytes()


def near(j: Job, got: bytes) -> bool:
    """Of a net with floats in it, whose sums round: int8 a step apart."""
    f = reader.read(j.model)
    if all(t.i8 for t in f.tensors[1:]) or j.what.startswith("quantize"):
        return False
    apart = np.frombuffer(got, np.int8).astype(int) - np.frombuffer(j.want.tobytes(), np.int8)
    return j.what.startswith("net") and np.abs(apart).max() <= 4


@pytest.mark.parametrize("name", [*NAMES, "nets"])
def test_the_pages_reader_gives_them_too(name):
    for j in nets() if name == "nets" else jobs(name):
        f = reader.read(j.model)
        each = reader.run_each(f, j.x)
        got = joined([each[t.first] for t in f.tensors if t.flags == 2])
        assert got == j.want.tobytes() or near(j, got), j.what
        reader.selftest(f)
