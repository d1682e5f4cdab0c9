"""Every operator's C against its definition: each entry of CASES, and random shapes around the kernels' tiles.

A case becomes a small `.bin` written by the exporter's own format and packing, so that the whole way is tested:
packing, opening, the shape rule in C, the kernel. Many cases go through one C process. It is built several times,
with two compilers, with and without vector types, under sanitizers and optimised; all must give the same bits.
"""

import re
import struct
import subprocess
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import cbuild
import numpy as np
import pytest
from closeness import assert_close

from litenet.exporter.format import Model, OpRec, TensorRec, write
from litenet.exporter.pack import pack, packed_type
from litenet.trainer.ops import OPS, Attrs, Shape, ShapeError, activations, make_attrs, parameters

NAMES = [name for name, m in OPS.items() if not m.OP.training_only]
# name: compiler, sanitizers, flags
BUILDS: dict[str, tuple[str, bool, tuple[str, ...]]] = {
    "gcc": ("gcc", True, ()),
    "clang": ("clang", True, ()),
    "gcc-no-vectors": ("gcc", True, ("-DLN_NO_VECTORS",)),
    "gcc-O3": ("gcc", False, ("-O3",)),
    "clang-O3": ("clang", False, ("-O3",)),
}
FIRST = "gcc"
SIZES = [1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 20, 31, 32, 33, 37, 49]  # around 4 rows, 4, 8 and 16 channels
RANDOM_CASES = 40

# Where the kernels' own blocks end: lists of 50 spans, 128 zeros, 32 taps on the stack, 32 gathered pixels.
EDGES: dict[str, list[dict[str, Any]]] = {
    "linear": [{"out_features": 33, "x": (n, 21)} for n in (1, 2, 3, 4, 5, 9)],
    "conv2d": [
        {"out_channels": 20, "kernel_size": 7, "padding": 3, "x": (5, 6, 2)},
        {"out_channels": 18, "kernel_size": 8, "padding": 4, "x": (6, 6, 1)},
        {"out_channels": 5, "kernel_size": 9, "padding": 8, "x": (9, 10, 2), "activation": "relu"},
        {"out_channels": 17, "kernel_size": 3, "padding": 1, "x": (3, 3, 127)},
        {"out_channels": 17, "kernel_size": 3, "padding": 1, "x": (3, 2, 300)},
        {"out_channels": 19, "kernel_size": 5, "padding": 2, "x": (2, 3, 300)},
        {"out_channels": 21, "kernel_size": 8, "dilation": [1, 2], "x": (9, 18, 3)},
        {"out_channels": 66, "kernel_size": 3, "padding": 1, "groups": 3, "x": (3, 5, 9)},
        {"out_channels": 3, "kernel_size": 2, "padding": [7, 0, 0, 9], "stride": 2, "x": (1, 3, 3)},
        {"out_channels": 4, "kernel_size": [1, 3], "padding": [0, 4, 0, 4], "dilation": [1, 4], "x": (2, 1, 4)},
    ],
    "depthwise_conv2d": [
        {"kernel_size": 6, "padding": 3, "x": (7, 6, 17), "activation": "relu"},
        {"kernel_size": [2, 33], "padding": [1, 32, 0, 16], "x": (3, 9, 20), "activation": "sigmoid"},
        {"kernel_size": [40, 1], "padding": [20, 0, 20, 0], "stride": [3, 1], "x": (5, 2, 16)},
        {"kernel_size": 2, "padding": [9, 0, 0, 9], "x": (1, 2, 5)},
    ],
    "embed_projection": [
        {"embed_dim": 35, "x": (4, 8, 5)},
        {"embed_dim": 35, "x": (3, 11, 3)},
        {"embed_dim": 20, "x": (13, 10, 6), "keep_channels": 1, "activation": "tanh"},
        {"embed_dim": 4, "x": (1, 129, 9), "keep_channels": 1},
    ],
    "maxpool2d": [{"kernel_size": 16, "padding": 15, "x": (3, 3, 18)}],
    "softmax": [{"x": (1000,)}],
    "layernorm": [{"x": (1000,)}, {"x": (5, 129)}],
}


@dataclass(frozen=True)
class Job:
    """One model, its input, and what must come out."""

    what: str
    op: str
    model: Model
    x: np.ndarray
    want: np.ndarray
    at: int  # which operator of the model is meant
    macs: int


def attrs_of(name: str, case: dict[str, Any]) -> Attrs:
    return make_attrs(OPS[name].OP, {k: v for k, v in case.items() if k != "x"})


def weights_of(name: str, a: Attrs, x: Shape, dtype: str, rng: np.random.Generator) -> dict[str, np.ndarray | None]:
    """Weights that the file holds exactly, of the size that initialisation gives."""
    out: dict[str, np.ndarray | None] = {}
    for w in OPS[name].OP.weights:
        if w.needs and not getattr(a, w.needs):
            out[w.name] = None
            continue
        values = rng.standard_normal(w.shape(a, x))
        if w.fans:
            values /= np.sqrt(w.fans(a, x)[0])
        if w.name == "running_var":
            values = np.abs(values) + 0.5
        half = dtype == "f16" and packed_type(OPS[name].OP, dtype) == "f16"
        out[w.name] = values.astype(np.float16 if half else np.float32).astype(np.float64)
    return out


def forward(name: str, a: Attrs, arrays: dict[str, np.ndarray | None]) -> np.ndarray:
    return OPS[name].forward(a, *(arrays[p] for p in parameters(OPS[name].forward)))


NONE = make_attrs(OPS["activation"].OP, {})
SECOND = make_attrs(OPS["batchnorm"].OP, {})


def job(name: str, case: dict[str, Any], dtype: str, over: int | None = None, seed: int = 0) -> Job:
    """The model of one case; `over`: the operator writes over its input of that number, in the arena.

    A second input is made from the first by a batchnorm.
    """
    module, shape, rng = OPS[name], tuple(case["x"]), np.random.default_rng(seed)
    a = attrs_of(name, case)
    y_shape = module.out_shape(a, *[shape] * len(module.OP.inputs))
    weights = weights_of(name, a, shape, dtype, rng)
    x = rng.standard_normal(shape).astype(np.float32)
    arrays = {**weights, "x": x[None].astype(np.float64)}

    tensors, ops = [TensorRec(shape, input=True)], []
    room = -(-4 * int(np.prod(shape)) // 16) * 16
    inputs, second = [0], len(module.OP.inputs) == 2
    if over is not None:
        tensors.append(TensorRec(shape, offset=0))
        ops.append(OpRec("activation", [0], 1, NONE))
        inputs = [1]
    if second:
        w2 = weights_of("batchnorm", SECOND, shape, "f32", rng)
        arrays["x2"] = forward("batchnorm", SECOND, {**w2, "x": arrays["x"]})
        tensors.append(TensorRec(shape, offset=room))
        ops.append(OpRec("batchnorm", inputs[:1], len(tensors) - 1, SECOND, pack("batchnorm", SECOND, w2)))
        inputs.append(len(tensors) - 1)
    at = len(ops)
    tensors.append(TensorRec(y_shape, output=over is None, offset=room * (over or 0)))
    ops.append(OpRec(name, inputs, len(tensors) - 1, a, pack(name, a, weights, packed_type(module.OP, dtype)),
                     packed_type(module.OP, dtype)))  # fmt: skip
    if over is not None:
        tensors.append(TensorRec(y_shape, output=True))
        ops.append(OpRec("activation", [len(tensors) - 2], len(tensors) - 1, NONE))
    what = f"{name} {case} {dtype}" + ("" if over is None else f" over input {over}")
    want = forward(name, a, arrays)[0]
    return Job(what, name, Model(tensors, ops), x, want, at, module.macs(a, shape, y_shape))


def random_case(name: str, rng: np.random.Generator) -> dict[str, Any]:
    """A case the shape rule allows, with small attributes and sizes around the tiles."""
    op = OPS[name].OP
    small = {"kernel_size": 4, "stride": 3, "padding": 2, "dilation": 2, "groups": 4}
    while True:
        case: dict[str, Any] = {}
        for attr in op.attrs:
            if attr.type == "f32":
                continue
            if attr.hi > 255 and attr.name not in small:
                values = [int(rng.choice(SIZES))]
            else:
                hi = min(attr.hi, small.get(attr.name, attr.hi))
                values = [int(v) for v in rng.integers(attr.lo, hi + 1, attr.count)]
            case[attr.name] = values if attr.count > 1 else values[0]
        if op.activation:
            case["activation"] = str(rng.choice([*activations.IDS]))
        image = (int(rng.integers(1, 9)), int(rng.integers(1, 9)), int(rng.choice(SIZES)))
        case["x"] = image[3 - int(rng.integers(1, 4)) :]
        try:
            OPS[name].out_shape(attrs_of(name, case), *[case["x"]] * len(op.inputs))
        except ShapeError:
            continue
        return case


@cache
def jobs(name: str) -> list[Job]:
    """All cases of one operator: in float32; in float16 where it stores its weights so; in place where it may."""
    op, rng = OPS[name].OP, np.random.default_rng(OPS[name].OP.id)
    cases = [*OPS[name].CASES, *EDGES.get(name, []), *(random_case(name, rng) for _ in range(RANDOM_CASES))]
    out = []
    for i, case in enumerate(cases):
        out.append(job(name, case, "f32", seed=i))
        if packed_type(op, "f16") == "f16":
            out.append(job(name, case, "f16", seed=i))
        out += [job(name, case, "f32", k, seed=i) for k, role in enumerate(op.inputs) if role in op.inplace]
    return out


@dataclass(frozen=True)
class Result:
    status: int
    record: int
    macs: tuple[int, ...]
    y: np.ndarray


def run(build: str, todo: list[Job], folder: Path, refused: bool = False) -> list[Result]:
    """All of them through one C process, which must open every model; or none, where they are to be refused."""
    compiler, sanitize, flags = BUILDS[build]
    sources = [cbuild.TESTS_C / "ops_driver.c", *cbuild.core()]
    driver = cbuild.program("ops_driver", sources, compiler, sanitize, flags)
    source, target = folder / "jobs", folder / "results"
    with source.open("wb") as f:
        for j in todo:
            model = write(j.model)
            f.write(struct.pack("<I", len(model)) + model + struct.pack("<I", j.x.size) + j.x.tobytes())
    done = subprocess.run([driver, source, target], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    data, at, results = target.read_bytes(), 0, []
    while at < len(data):
        status, record, ops = struct.unpack_from("<IiI", data, at)
        macs = struct.unpack_from(f"<{ops}Q", data, at + 12)
        (n,) = struct.unpack_from("<I", data, at + 12 + 8 * ops)
        at += 16 + 8 * ops + 4 * n
        results.append(Result(status, record, macs, np.frombuffer(data, "<f4", n, at - 4 * n)))
    assert len(results) == len(todo)
    for got, j in zip(results, todo, strict=True):
        assert (got.status != 0) == refused, f"{j.what}: status {got.status}, record {got.record}"
    return results


@cache
def results(build: str, name: str) -> list[Result]:
    with TemporaryDirectory() as folder:
        return run(build, jobs(name), Path(folder))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("build", BUILDS)
def test_c_agrees_with_the_definition_within_the_operators_tolerance(build, name):
    for got, j in zip(results(build, name), jobs(name), strict=True):
        try:
            assert_close(got.y.reshape(j.want.shape), j.want, *OPS[name].OP.tolerance)
        except AssertionError as error:
            raise AssertionError(f"{j.what}: {error}") from None


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("build", [b for b in BUILDS if b != FIRST])
def test_every_build_gives_the_same_bits(build, name):
    for got, first, j in zip(results(build, name), results(FIRST, name), jobs(name), strict=True):
        assert got.y.tobytes() == first.y.tobytes(), j.what


@pytest.mark.parametrize("name", NAMES)
def test_c_counts_the_multiply_accumulates_of_the_definition(name):
    for got, j in zip(results(FIRST, name), jobs(name), strict=True):
        assert got.macs[j.at] == j.macs, j.what


def one_op(name: str, given: dict[str, Any], x: np.ndarray, weights: dict[str, np.ndarray], dtype: str = "f32") -> Job:
    """A model of one operator for an input and weights of the test's own."""
    a = make_attrs(OPS[name].OP, given)
    shape = OPS[name].out_shape(a, x.shape)
    model = Model(
        [TensorRec(x.shape, input=True), TensorRec(shape, output=True)],
        [OpRec(name, [0], 1, a, pack(name, a, weights, dtype), dtype)],
    )
    with np.errstate(all="ignore"):
        arrays = {"bias": None, **weights, "x": x[None].astype(np.float64)}
        want = forward(name, a, arrays)[0]
    return Job(f"{name} {given}", name, model, x.astype(np.float32), want, 0, 0)


@pytest.mark.parametrize("build", BUILDS)
def test_every_finite_half_reaches_the_sums_exactly(build, tmp_path):
    """All halves, denormal ones too, through each register tile: y = 1 * w. The last of 63,490 fill a tail."""
    halves = np.arange(65536, dtype=np.uint16).view(np.float16)
    halves = np.append(halves[np.isfinite(halves)], [1.5, 2.5]).astype(np.float64)
    outer = {"out_features": halves.size, "bias": 0}
    todo = [one_op("linear", outer, np.ones((rows, 1)), {"weight": halves[:, None]}, "f16") for rows in (1, 4)]
    for n in (4, 12):  # panels that are all tail
        few = halves[: halves.size // n * n].reshape(n, -1)
        k = few.shape[1]
        one_hot = np.zeros((5, k))
        one_hot[np.arange(5), [0, 1, 5, k // 2, k - 1]] = 1
        tail = {"out_features": n, "bias": 0}
        todo += [one_op("linear", tail, x, {"weight": few}, "f16") for x in (one_hot, one_hot[:1])]
    todo.append(one_op("depthwise_conv2d", {"kernel_size": 1, "bias": 0}, np.ones((1, 1, halves.size)),
                       {"weight": halves[None, None]}, "f16"))  # fmt: skip
    for got, j in zip(run(build, todo, tmp_path), todo, strict=True):
        assert (got.y.reshape(j.want.shape) == j.want).all(), j.what


BIG = [0.0, -0.0, 1e-45, -1e-45, 1e-20, -1e-20, 87.0, -87.0, 1e4, -1e4, 3e38, -3e38]


@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("name", activations.IDS)
def test_activations_are_right_at_extremes(name, build, tmp_path):
    """NaN stays NaN, as in the definition; inf gives the limit; nothing else leaves the range of float32."""
    x = np.array([*BIG, np.inf, np.nan])
    j = one_op("activation", {"activation": name, "alpha": 0.25}, x, {})
    (got,) = run(build, [j], tmp_path)
    assert_close(got.y[:-1][np.isfinite(j.want[:-1])], j.want[:-1][np.isfinite(j.want[:-1])], 1e-5, 1e-5)
    assert got.y[-2] == j.want[-2]
    assert np.isnan(got.y[-1])


@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("C", [1, 5, 16, 21])
def test_nan_and_infinity_pass_through_pools_and_softmax_as_in_the_definition(C, build, tmp_path):
    rng = np.random.default_rng(C)
    x = rng.choice([np.nan, -np.inf, np.inf, 1.0, -2.0, 0.0], (6, 7, C), p=[0.05, 0.15, 0.1, 0.3, 0.2, 0.2])
    pool = {"kernel_size": 3, "stride": 2, "padding": 1}
    todo = [one_op(name, pool, x, {}) for name in ("maxpool2d", "avgpool2d")]
    todo += [one_op("softmax", {}, x.reshape(42, C), {}), one_op("global_avg_pool", {}, x, {})]
    for got, j in zip(run(build, todo, tmp_path), todo, strict=True):
        np.testing.assert_allclose(got.y.reshape(j.want.shape), j.want, rtol=1e-5, atol=1e-5, err_msg=j.what)


def test_a_large_mean_does_not_spoil_layernorm(tmp_path):
    """Values near 1000 that differ by hundredths: float32 holds them to 6e-5, and no more may be lost."""
    rng = np.random.default_rng(3)
    x = (1000 + 0.05 * rng.standard_normal((4, 200))).astype(np.float32)
    j = one_op("layernorm", {}, x, {"gamma": np.ones(200), "beta": np.zeros(200)})
    (got,) = run(FIRST, [j], tmp_path)
    assert_close(got.y.reshape(j.want.shape), j.want, 1e-5, 1e-5)


@pytest.mark.parametrize("size", [12544, 300 * 300])
def test_the_mean_of_a_large_image_is_accurate(size, tmp_path):
    side = int(size**0.5)
    x = np.random.default_rng(4).random((side, side, 3)).astype(np.float32)
    j = one_op("global_avg_pool", {}, x, {})
    (got,) = run(FIRST, [j], tmp_path)
    assert_close(got.y, j.want, 0, 2e-6)


# ---------------------------------------------------------------- what the shape rules in C refuse


@cache
def statuses() -> list[str]:
    """The names of ln_status, in order."""
    text = (cbuild.INCLUDE / "litenet.h").read_text()
    body = text[text.index("typedef enum ln_status {") :].split("}")[0]
    return re.findall(r"LN_[A-Z0-9_]+", re.sub(r"/\*.*?\*/", "", body))


def refusals(build: str, todo: list[Job], folder: Path) -> list[str]:
    return [statuses()[got.status] for got in run(build, todo, folder, refused=True)]


def last_shape(j: Job, shape: Shape) -> Job:
    """The same model with another output shape."""
    return replace(j, model=replace(j.model, tensors=[*j.model.tensors[:-1], TensorRec(shape, output=True)]))


@pytest.mark.parametrize("name", NAMES)
def test_an_output_of_another_shape_is_refused(name, tmp_path):
    todo = []
    for case in OPS[name].CASES:
        j = job(name, case, "f32")
        y = j.model.tensors[-1].shape
        todo += [last_shape(j, (*y[:k], y[k] + 1, *y[k + 1 :])) for k in range(len(y) - 1)]
        todo += [last_shape(j, y[:-1]) for _ in y[1:] if y[-1] == 1] + [last_shape(j, (*y, 1))]
        if OPS[name].OP.layout != "panels":  # where the last axis is the weights' own: the next test
            todo.append(last_shape(j, (*y[:-1], y[-1] + 1)))
    assert set(refusals(FIRST, todo, tmp_path)) <= {"LN_BAD_SHAPE"}


@pytest.mark.parametrize("name", [n for n in NAMES if OPS[n].OP.layout != "none"])
def test_weights_of_another_size_are_refused(name, tmp_path):
    todo = []
    for case in OPS[name].CASES:
        j = job(name, case, "f32")
        *before, op = j.model.ops
        for weights in (op.weights + bytes(4), op.weights[:-4], op.weights * 2, op.weights[: len(op.weights) // 2]):
            todo.append(replace(j, model=replace(j.model, ops=[*before, replace(op, weights=weights)])))
    assert set(refusals(FIRST, todo, tmp_path)) == {"LN_BAD_WEIGHTS"}


@pytest.mark.parametrize("name", NAMES)
def test_scratch_memory_that_no_operator_uses_is_refused(name, tmp_path):
    j = job(name, OPS[name].CASES[0], "f32")
    *before, op = j.model.ops
    wasteful = replace(j.model, ops=[*before, replace(op, scratch=(4096, 64))])
    assert refusals(FIRST, [replace(j, model=wasteful)], tmp_path) == ["LN_BAD_SCRATCH"]


def test_what_the_shape_rules_of_the_definitions_refuse_is_refused_in_c(tmp_path):
    def model(name: str, given: dict[str, Any], x: Shape, y: Shape, weights: bytes = b"") -> Job:
        ops = [OpRec(name, [0], 1, make_attrs(OPS[name].OP, given), weights)]
        tensors = [TensorRec(x, input=True), TensorRec(y, output=True)]
        return Job(f"{name} {given}", name, Model(tensors, ops), np.zeros(x, np.float32), np.zeros(y), 0, 0)

    conv = {"out_channels": 4, "kernel_size": 1}
    todo = [
        model("maxpool2d", {"kernel_size": 2, "padding": 2}, (5, 5, 4), (8, 8, 4)),
        model("avgpool2d", {"kernel_size": [2, 1], "padding": [0, 1, 0, 0]}, (5, 5, 4), (4, 6, 4)),
        model("maxpool2d", {"kernel_size": [17, 16]}, (20, 20, 1), (4, 5, 1)),
        model("conv2d", {**conv, "groups": 3}, (5, 5, 4), (5, 5, 3), bytes(64)),
        model("conv2d", {**conv, "groups": 3}, (5, 5, 3), (5, 5, 4), bytes(64)),
        model("conv2d", {**conv, "kernel_size": 9}, (5, 5, 3), (1, 1, 4), bytes(64)),
        model("conv2d", {**conv, "kernel_size": 3, "dilation": 255}, (5, 5, 3), (1, 1, 4), bytes(64)),
        model("depthwise_conv2d", {"kernel_size": 6}, (5, 5, 3), (1, 1, 3), bytes(64)),
        model("global_avg_pool", {}, (12,), (12,)),
        model("linear", {"out_features": 4}, (2, 3, 4), (2, 3, 4), bytes(64)),
    ]
    for status, j in zip(refusals(FIRST, todo, tmp_path), todo, strict=True):
        assert status == "LN_BAD_SHAPE", j.what
