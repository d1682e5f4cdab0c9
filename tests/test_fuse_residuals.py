"""A batchnorm and the add behind it become one operator where a device trains: equal values, equal gradients."""

import numpy as np
import pytest
from closeness import assert_close
from nets import evaluate64, graph_of

from litenet.trainer.backends.numpy import NumpyBackend
from litenet.trainer.fuse import for_training, fuse_residuals
from litenet.trainer.init import fill
from litenet.trainer.plan import plan_training

CONV = {"type": "conv2d", "out_channels": 3, "kernel_size": 3, "padding": 1, "bias": False}
NORM = {"type": "batchnorm"}
TAIL = [{"type": "flatten"}, {"type": "linear", "out_features": 2}]


def residual(layers, **more):
    return {"type": "residual", "layers": layers, "activation": "relu", **more}


def ends(layers):
    """The operators of the fused graph that have two inputs."""
    graph = fuse_residuals(for_training(graph_of([CONV, *layers, *TAIL], (3, 4, 4)), "mse"))
    return [n.op for n in graph.nodes if len(n.inputs) == 2]


@pytest.mark.parametrize(
    ("layers", "want"),
    [
        pytest.param([residual([CONV, NORM])], ["batchnorm_add"], id="identity beside it"),
        pytest.param([residual([CONV, NORM], shortcut="projection")], ["batchnorm_add"], id="one on both sides"),
        pytest.param([residual([CONV, NORM], activation="none")], ["batchnorm_add"], id="no activation"),
        pytest.param([residual([NORM])], ["add"], id="both read one tensor"),
        pytest.param([residual([CONV, NORM, {"type": "relu"}])], ["add"], id="an activation between"),
        pytest.param([residual([CONV, NORM], activation="gelu")], ["batchnorm_add"], id="an activation that needs x"),
        pytest.param([NORM, residual([CONV])], ["add"], id="read twice"),
        pytest.param([residual([CONV])], ["add"], id="no batchnorm"),
    ],
)
def test_a_batchnorm_that_only_an_add_reads_takes_the_add_in(layers, want):
    assert ends(layers) == want


def resnet():
    graph = graph_of(
        [
            CONV,
            {**NORM, "activation": "relu"},
            residual([CONV, {**NORM, "activation": "relu"}, CONV, {**NORM, "name": "joined"}], name="block"),
            residual([{**CONV, "stride": 2, "out_channels": 5}, NORM], shortcut="projection"),
            *TAIL,
        ],
        (3, 4, 4),
    )
    return for_training(graph, "mse")


def filled(graph):
    arrays = {p.name: fill(p.shape, p.init, p.fans, 1, i) for i, p in enumerate(graph.params.values())}
    draw = np.random.default_rng(0)
    return {name: (v + draw.uniform(0, 0.2, v.shape)).astype(np.float32) for name, v in arrays.items()}


@pytest.mark.parametrize("training", [False, True])
def test_the_fused_graph_computes_the_same(training):
    plain = resnet()
    fused, arrays = fuse_residuals(plain), filled(plain)
    assert len(fused.nodes) == len(plain.nodes) - 2
    assert fused.params == plain.params
    x = np.random.default_rng(1).standard_normal((3, *plain.input_shape))
    want, got = (evaluate64(g, arrays, x, training)[g.outputs[0]] for g in (plain, fused))
    assert_close(got, want, 1e-13, 1e-13)
    assert plain.layers.keys() - fused.layers.keys() <= {"joined"}


def gradients(graph, arrays, x, dz):
    """Every parameter's gradient, by a plan over the NumPy definitions whose dead memory is poisoned."""
    plan = plan_training(graph, len(x), update="end")
    backend = NumpyBackend([plan], poison=True)
    for name, value in arrays.items():
        np.copyto(backend.array(plan, name), value)
    for i, launch in enumerate(plan.launches):
        if launch.kind == "load":
            np.copyto(backend.array(plan, launch.writes["x"]), x)
        elif launch.kind == "forward":
            backend.forward(plan, launch, len(x))
        elif launch.kind == "loss":
            np.copyto(backend.array(plan, launch.writes["dz"]), dz)
        elif launch.kind == "backward":
            backend.backward(plan, launch, len(x))
        elif launch.kind == "sum":
            backend.add(plan, launch, len(x))
        if launch.kind not in ("clip", "update"):
            backend.after(plan, i)
    return {p.name: backend.array(plan, f"d:{p.name}").copy() for p in graph.trainable}, plan


def test_the_fused_graph_has_the_same_gradients_in_fewer_launches():
    plain = resnet()
    arrays, draw = filled(plain), np.random.default_rng(2)
    x = draw.standard_normal((3, *plain.input_shape), np.float32)
    dz = draw.standard_normal((3, 2), np.float32)
    (want, before), (got, after) = (gradients(g, arrays, x, dz) for g in (plain, fuse_residuals(plain)))
    for name, value in want.items():
        assert_close(got[name], value, 1e-5, 1e-4)
    assert after.arena_bytes <= before.arena_bytes
    assert len(after.launches) == len(before.launches) - 4
