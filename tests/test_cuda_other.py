"""The CUDA kernels that are no matrix product, run on the CPU, against the NumPy definitions in float64."""

import dataclasses
from math import prod

import cushim
import numpy as np
import nvrtc
import pytest
from closeness import assert_close
from cuda_examples import EXTRA, MATRIX, TRAINED, Draw, Example, nan, step, tolerance

from litenet.trainer.kernels import calls_other as other
from litenet.trainer.kernels import grids
from litenet.trainer.ops import OPS, activations, backward_needs, parameters

SOME = [  # two or three of each operator
    p for p in TRAINED if p.values[1] in [*OPS[p.values[0]].CASES[1:3], *EXTRA.get(p.values[0], [])[:1]]
]


@pytest.mark.parametrize(("name", "case"), MATRIX)
def test_inference_gives_what_the_definition_gives(name, case):
    e = Example(name, case)
    want, _ = e.define(train=False)
    arrays = e.env | {"y": nan(want.shape)}
    e.launch("forward", e.s, arrays)
    assert_close(arrays["y"], want, *tolerance(e))
    for role in e.module.OP.inplace:
        arrays = {k: v.copy() for k, v in e.env.items()}
        cushim.run_all(other.CALLS[name]("forward", e.s), arrays | {"y": arrays[role], "step": step()})
        assert_close(arrays[role], want, *tolerance(e))


@pytest.mark.parametrize(("name", "case"), TRAINED)
def test_training_also_gives_the_auxiliaries(name, case):
    e = Example(name, case)
    want, aux = e.define(train=True)
    for inplace in (None, *e.module.OP.inplace):
        arrays = {k: v.copy() for k, v in e.env.items()} | e.empty(aux)
        if inplace:
            arrays["y"] = arrays[inplace]
        if inplace:
            scratch = {"scratch": nan((other.SCRATCH.get(name, lambda *_: 0)("train", e.s) // 4 + 1,))}
            cushim.run_all(other.CALLS[name]("train", e.s), arrays | scratch | {"step": step()})
        else:
            e.launch("train", e.s, arrays)
        assert_close(arrays["y"], want, *tolerance(e))
        for role, value in aux.items():
            assert_close(arrays[role], value, *tolerance(e))


def ways(name):
    """How a gradient can be asked for."""
    yield from ("plain", "older gradients")
    if OPS[name].OP.backward_inplace:
        yield "in place"
    if any(w.trainable for w in OPS[name].OP.weights):
        yield "no dx"


@pytest.mark.parametrize(
    ("name", "case", "way"), [pytest.param(*p.values, w, id=f"{p.id}-{w}") for p in TRAINED for w in ways(p.values[0])]
)
def test_backward_gives_the_gradients_of_the_definition(name, case, way, half=False):
    e = Example(name, case, half=half)
    y, aux = e.define(train=True)
    kept = {k: v.astype(np.float32) if v.dtype == np.float64 else v for k, v in aux.items()}
    kept["y"] = y.astype(e.real)
    f = e.module.backward
    known = e.wide(dy=e.dy, **kept)
    want = {k: v for k, v in f(e.a, *(known.get(p) for p in parameters(f))).items() if k in e.env}
    params = set(want) - set(e.module.OP.inputs)
    if way == "no dx":
        want = {k: want[k] for k in params}
    needed = {k: (e.env | kept)[k] for k in backward_needs(name, e.a) if k in e.env | kept}
    arrays = needed | {"dy": e.dy.copy()}
    sms = {"older gradients": 1, "in place": 132}.get(way, 0)  # few and many blocks
    s = dataclasses.replace(e.s, want=frozenset(want), sms=sms)
    if way == "older gradients":
        s = dataclasses.replace(s, adds=frozenset(want) - params, accumulate=True)
        for role in want:
            older = e.draw.standard_normal(want[role].shape, np.float32)
            older = older if role in params else older.astype(e.real)
            want[role] = want[role] + older
            arrays[f"d:{role}"] = older
            if role not in params:
                arrays[f"add:{role}"] = older
    else:
        arrays |= {f"d:{k}": nan(v.shape, np.float32 if k in params else e.real) for k, v in want.items()}
    if way == "in place":
        arrays["d:x"] = arrays["dy"]
    e.launch("backward", s, arrays)
    absolute, relative = (max(t, 1e-6) for t in tolerance(e))
    for role, value in want.items():
        grown = 1 + e.dy.size / value.size / 50  # sums of many terms
        assert_close(arrays[f"d:{role}"].astype(np.float64), value, absolute * grown, relative * grown)


@pytest.mark.parametrize("half", [False, True], ids=["float", "half"])
@pytest.mark.parametrize(("name", "case"), SOME)
def test_a_forward_pass_done_again_gives_the_bits_of_training(name, case, half):
    """From the inputs, the parameters and, where training changes state, what it kept; it changes nothing but y."""
    e = Example(name, case, half=half)
    _, aux = e.define(train=True)
    arrays = e.env | e.empty(aux)
    e.launch("train", e.s, arrays)
    again = getattr(e.module, "forward_again", e.module.forward)
    given = {k: v.copy() for k, v in arrays.items() if k in parameters(again)} | {"y": nan(e.dy.shape, e.real)}
    e.launch("again", e.s, given)
    for role, value in given.items():
        assert value.tobytes() == arrays[role].tobytes(), role


@pytest.mark.parametrize(("name", "case"), SOME)
def test_activations_may_be_stored_in_half_precision(name, case):
    e = Example(name, case, half=True)
    want, aux = e.define(train=True)
    arrays = e.env | e.empty(aux)
    e.launch("train", e.s, arrays)
    for role, value in (aux | {"y": want}).items():
        assert arrays[role].dtype != np.float64
        assert_close(arrays[role].astype(np.float64), value, *tolerance(e))
    arrays = {k: v.copy() for k, v in e.env.items()} | {"y": nan(want.shape, e.real)}
    e.launch("forward", e.s, arrays)
    assert_close(arrays["y"].astype(np.float64), e.define(train=False)[0], *tolerance(e))
    for way in ways(name):
        test_backward_gives_the_gradients_of_the_definition(name, case, way, half=True)


@pytest.mark.parametrize("name", ["batchnorm", "layernorm"])
def test_a_large_mean_costs_no_digits_of_the_variance(name):
    for case in [c for c in (*OPS[name].CASES, *EXTRA[name]) if prod(c["x"]) > 60]:
        e = Example(name, case)
        e.env["x"] = (e.env["x"] + 4096).astype(np.float32)
        _, aux = e.define(train=True)
        arrays = e.env | e.empty(aux)
        e.launch("train", e.s, arrays)
        assert_close(arrays["inv_std"], aux["inv_std"], 0, 2e-5)
        assert_close(arrays["mean"], aux["mean"], 0, 1e-6)


@pytest.mark.parametrize("name", ["avgpool2d", "depthwise_conv2d", "global_avg_pool", "maxpool2d"])
def test_more_rows_than_a_grid_can_have_are_strided_over(name, monkeypatch):
    for module in (grids, other):
        monkeypatch.setattr(module, "MAX_Y", 2)
    for case in OPS[name].CASES[:4]:
        test_inference_gives_what_the_definition_gives(name, case)
        test_backward_gives_the_gradients_of_the_definition(name, case, "plain")


@pytest.mark.parametrize("name", sorted(other.SCRATCH))
def test_scratch_of_a_batch_serves_every_shorter_one(name):
    for case in [{"x": (60, 36)}, {"x": (60, 5)}, {"x": (13, 520)}]:
        if name == "depthwise_conv2d":
            case = {"kernel_size": 3, "padding": 1, "x": (*case["x"], 4)}
        e = Example(name, case, N=1)
        want = frozenset({*e.module.OP.inputs, *(w.name for w in e.module.OP.weights if w.trainable)})
        for direction in ("train", "backward"):
            bytes_of = [
                other.SCRATCH[name](direction, dataclasses.replace(e.s, N=N, sms=132, want=want)) for N in range(1, 300)
            ]
            assert bytes_of == sorted(bytes_of), direction


def test_fewer_rows_are_never_cut_into_more_ranges_than_there_is_room_for():
    most = 0
    for R in range(1, 8300):
        cut = grids.columns(R, 32, 528, 128, 2, 4)
        most = max(most, cut.ranges)
        assert cut.bound >= most
        assert (cut.ranges - 1) * cut.chunk < R <= cut.ranges * cut.chunk


def test_maxpool_gives_the_gradient_to_the_first_of_equal_values():
    e = Example("maxpool2d", {"kernel_size": 3, "stride": 2, "padding": 1, "x": (6, 7, 4)})
    e.env["x"][...] = 1
    _, aux = e.define(train=True)
    arrays = e.env | e.empty(aux)
    e.launch("train", e.s, arrays)
    assert (arrays["index"] == aux["index"]).all()


def test_a_nan_comes_through_every_activation_and_pool():
    for name in activations.IDS:
        e = Example("activation", {"x": (5,), "activation": name}, N=1)
        e.env["x"][0, 2] = np.nan
        arrays = e.env | {"y": np.zeros_like(e.dy)}
        e.launch("forward", e.s, arrays)
        assert np.isnan(arrays["y"]).tolist() == [[False, False, True, False, False]], name
    e = Example("maxpool2d", {"kernel_size": 2, "stride": 2, "x": (4, 4, 1)}, N=1)
    e.env["x"][0, 1, 1, 0] = np.nan
    arrays = e.env | {"y": np.zeros_like(e.dy)}
    e.launch("forward", e.s, arrays)
    assert np.isnan(arrays["y"]).sum() == 1


# ---- random numbers


def test_dropout_draws_the_same_bits_as_the_definition():
    """A rate equal to one of the numbers keeps that value, a rate one step above drops it."""
    n = 4 * 9 + 3
    u = Draw.uniform((1, n))[0]
    for i in np.flatnonzero(u < 0.98)[::5]:
        for above, keeps in ((0.0, True), (2.0**-24, False)):
            e = Example("dropout", {"x": (n,), "rate": float(u[i]) + above}, N=1)
            e.env["x"][...] = 1
            arrays = e.env | {"y": nan((1, n))}
            e.launch("train", e.s, arrays)
            assert (arrays["y"][0, i] != 0) == keeps
            assert arrays["y"].tobytes() == e.define(train=True)[0].astype(np.float32).tobytes()


# ---- resources


def kernels(every):
    """(file, defines): one hot form of each file, or every one that is told apart by its registers."""
    yield "dropout.cu", {}
    for C in (64, 1024, 2048, 10, 999) if every else (64, 2048):
        team = grids.teams(C)
        yield "softmax.cu", team.macros
        yield "layernorm.cu", team.macros
        if team.lanes and team.per * team.V <= 16:
            yield "layernorm.cu", team.macros | {"WARPS": min(16, 4096 // (team.lanes * team.per * team.V))}
    yield "add.cu", {"ACT": 1}
    for act in (4, 1) if every else (4,):
        yield "activation.cu", {"ACT": act}
    for V in (4, 1) if every else (4,):
        yield "global_avg_pool.cu", {"VEC": V}
        for act in (1, 0, 6) if every else (1,):
            yield "batchnorm.cu", {"ACT": act, "VEC": V}
            yield "batchnorm.cu", {"ACT": act, "VEC": V, "ADD": 1}
        for stride in (1, 2) if every else (1,):
            window = {"SH": stride, "SW": stride, "KH": 3, "KW": 3, "PT": 1, "PL": 1, "VEC": V}
            yield "maxpool2d.cu", window
            yield "avgpool2d.cu", window | {"COUNT_PAD": 0}
            patch = {"QH": 3 - stride, "QW": 6 - 2 * stride, "ACT": 2, "DH": 1, "DW": 1}
            yield "depthwise_conv2d.cu", window | patch
    if every:
        yield "depthwise_conv2d.cu", window | patch | {"KH": 5, "KW": 5, "PT": 2, "PL": 2, "VEC": 2}


@pytest.mark.parametrize("stored", ["float", "Half"])
@pytest.mark.parametrize("arch", nvrtc.ARCHITECTURES)
def test_every_kernel_compiles_without_spills(arch, stored):
    for file, defines in kernels(every=arch in (50, 75)):
        _, log = nvrtc.compile(file, arch, defines if stored == "float" else defines | {"REAL": stored})
        for name, used in nvrtc.resources(log).items():
            assert used.shared <= 48 * 1024, name
            assert used.spills == 0 or arch not in (50, 75), f"{name} spills {used.spills} bytes on {arch}: {defines}"
