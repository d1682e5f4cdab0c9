"""Joining convolutions with the pools behind them: which, what stays as it was, and what it saves."""

import numpy as np
import pytest
from closeness import assert_close
from nets import POOL, evaluate64, graph_of

from litenet.trainer.fuse import for_training, fuse_pools
from litenet.trainer.init import fill
from litenet.trainer.ops import activations
from litenet.trainer.plan import plan_inference, plan_training

END = [{"type": "flatten"}, {"type": "linear", "out_features": 3}]


def conv(**more):
    return {"type": "conv2d", "out_channels": 4, "kernel_size": 3, "padding": 1, "activation": "relu", **more}


def fused(layers, shape=(2, 8, 8)):
    return fuse_pools(for_training(graph_of(layers, shape), "cross_entropy"))


def ops(graph):
    return [n.op for n in graph.nodes]


def test_each_convolution_takes_the_pool_behind_it():
    graph = fused([conv(), POOL, conv(out_channels=5), conv(name="last"), {**POOL, "name": "pool"}, *END])
    assert ops(graph) == ["conv2d_pool", "conv2d", "conv2d_pool", "flatten", "linear"]
    node = graph.nodes[2]
    assert (node.name, node.layer, node.params) == ("last", "last", {"weight": "last.weight", "bias": "last.bias"})
    assert graph.tensors[node.output].shape == (2, 2, 4)
    assert graph.layers["pool"] == node.output and "last" not in graph.layers


@pytest.mark.parametrize("activation", [a for a in activations.IDS if a != "none"])
def test_an_activation_comes_along_unless_its_gradient_needs_its_input(activation):
    graph = fused([conv(activation=activation), POOL, *END])
    joined = activation in activations.FROM_OUTPUT
    assert ops(graph)[0] == ("conv2d_pool" if joined else "conv2d")
    assert graph.nodes[0].attrs.activation == (activation if joined else "none")


@pytest.mark.parametrize("activation", sorted(activations.FROM_OUTPUT))
@pytest.mark.parametrize("alpha", [0.0, 0.25, 1.0])
def test_no_activation_that_may_be_joined_ever_decreases(activation, alpha):
    h = np.linspace(-9, 9, 2001)
    assert (np.diff(activations.apply(activation, h, alpha)) >= 0).all()


APART = [
    pytest.param([conv(), {**POOL, "stride": 1}], (2, 8, 8), id="windows that overlap"),
    pytest.param([conv(), {**POOL, "kernel_size": 3, "stride": 3}], (2, 9, 9), id="windows of 3"),
    pytest.param([conv(), {**POOL, "padding": 1}], (2, 8, 8), id="a padded pool"),
    pytest.param([conv(), POOL], (2, 7, 8), id="a row left over"),
    pytest.param([conv(), POOL], (2, 8, 7), id="a column left over"),
    pytest.param([conv(stride=2), POOL], (2, 8, 8), id="a stride"),
    pytest.param([conv(dilation=2, padding=2), POOL], (2, 8, 8), id="a dilation"),
    pytest.param([conv(groups=2), POOL], (2, 8, 8), id="groups"),
    pytest.param([conv(), {"type": "batchnorm"}, POOL], (2, 8, 8), id="something between"),
    pytest.param([conv(), {"type": "avgpool2d", "kernel_size": 2, "stride": 2}], (2, 8, 8), id="another pool"),
    pytest.param([conv(), {"type": "residual", "layers": [conv()]}, POOL], (2, 8, 8), id="a second reader"),
]


@pytest.mark.parametrize(("layers", "shape"), APART)
def test_what_does_not_fit_stays_apart(layers, shape):
    assert "conv2d_pool" not in ops(fused([*layers, *END], shape))


SLOW = [(conv(kernel_size=5, padding=2), (2, 8, 8)), (conv(padding=2), (2, 8, 128))]


@pytest.mark.parametrize(("slow", "shape"), SLOW)
def test_what_has_no_fast_data_gradient_is_joined_where_no_gradient_goes_before_it(slow, shape):
    assert ops(fused([slow, POOL, *END], shape))[0] == "conv2d_pool"
    assert ops(fused([conv(), slow, POOL, *END], shape))[:3] == ["conv2d", "conv2d", "maxpool2d"]


def test_what_the_net_puts_out_is_the_same():
    graph = for_training(graph_of([conv(), POOL, conv(activation="tanh"), POOL, *END], (2, 8, 8)), "cross_entropy")
    arrays = {p.name: fill(p.shape, p.init, p.fans, 1, i) for i, p in enumerate(graph.params.values())}
    x = np.random.default_rng(0).standard_normal((3, 8, 8, 2))
    for training in (False, True):
        want, got = (evaluate64(g, arrays, x, training) for g in (graph, fuse_pools(graph)))
        assert_close(got[graph.outputs[0]], want[graph.outputs[0]], 1e-12, 1e-12)
        assert len(got) == len(want) - 2


def test_neither_the_convolutions_output_nor_its_gradient_takes_memory():
    """16 x 16 images, 32 channels, batch 4: two arrays of 32 KB a sample go, a byte for each winner comes."""
    layers = [conv(), conv(out_channels=32), POOL, *END]
    apart = for_training(graph_of(layers, (2, 16, 16)), "cross_entropy")
    plans = [plan_training(g, 4) for g in (apart, fuse_pools(apart))]
    names = [{v.name: v for v in plan.values.values()} for plan in plans]
    assert "layer_1" in names[0] and "d:layer_1" in names[0]
    assert "layer_1" not in names[1] and "d:layer_1" not in names[1]
    assert names[1]["layer_1:index"].bytes == 4 * 8 * 8 * 32
    full = 4 * 16 * 16 * 32 * 4
    assert plans[1].arena_bytes < plans[0].arena_bytes - full
    assert plan_inference(fuse_pools(apart), 4).arena_bytes < plan_inference(apart, 4).arena_bytes - full // 2
