"""Fused for training and for inference: the nodes that are left, and the same answers."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from closeness import assert_close
from nets import EVERYTHING, evaluate64, graph_of, lowered, random_layers

from litenet.trainer.errors import UserError
from litenet.trainer.fuse import for_inference, for_training, without_training_only
from litenet.trainer.init import fill
from litenet.trainer.ops import OPS, activations

EXAMPLES = Path(__file__).parent.parent / "examples"

# ---- fusing


def linear(**more):
    return {"type": "linear", "out_features": 4, **more}


@pytest.mark.parametrize("activation", [a for a in activations.IDS if a != "none"])
def test_an_activation_is_fused_in_training_if_its_output_decides_its_gradient(activation):
    graph = graph_of([linear(activation=activation)], (3,))
    trained, device = for_training(graph, "mse"), for_inference(graph)
    for fused, expected in ((trained, activation in activations.FROM_OUTPUT), (device, True)):
        assert (len(fused.nodes) == 1) is expected
        assert fused.nodes[0].attrs.activation == (activation if expected else "none")
        assert fused.nodes[-1].output == graph.outputs[0]
        assert fused.nodes[0].name == "layer_0"


def test_the_slope_of_leaky_relu_comes_along():
    graph = for_training(graph_of([linear(activation="leaky_relu", alpha=0.25)], (3,)), "mse")
    assert graph.nodes[0].attrs.alpha == 0.25


@pytest.mark.parametrize(
    "before",
    [
        {"type": "conv2d", "out_channels": 2, "kernel_size": 1},
        {"type": "depthwise_conv2d", "kernel_size": 1},
        {"type": "batchnorm"},
        {"type": "embed_projection", "embed_dim": 3},
        {"type": "residual", "layers": [{"type": "depthwise_conv2d", "kernel_size": 1}]},
    ],
)
def test_what_takes_an_activation_is_fused_with_the_layer_after_it(before):
    graph = for_training(graph_of([before, {"type": "relu"}]), "mse")
    assert [n.op for n in graph.nodes if n.op == "activation"] == []
    assert graph.nodes[-1].attrs.activation == "relu"


@pytest.mark.parametrize("before", ["maxpool2d", "layernorm", "global_avg_pool", "flatten"])
def test_what_takes_no_activation_is_left_alone(before):
    layer = {"type": before, "kernel_size": 2} if "pool2d" in before else {"type": before}
    graph = for_inference(graph_of([layer, {"type": "relu"}]))
    assert [n.op for n in graph.nodes] == [before, "activation"]


def test_an_operator_takes_one_activation_only():
    graph = for_training(graph_of([linear(activation="relu"), {"type": "tanh"}], (3,)), "mse")
    assert [(n.op, n.attrs.activation) for n in graph.nodes] == [("linear", "relu"), ("activation", "tanh")]


def test_a_sum_that_somebody_else_reads_is_not_fused_away():
    layers = [linear(out_features=3), {"type": "residual", "layers": [{"type": "relu"}, linear(out_features=3)]}]
    for graph in (for_training(graph_of(layers, (3,)), "mse"), for_inference(graph_of(layers, (3,)))):
        assert lowered(graph) == [
            "layer_0 = linear(input)",
            "layer_1.main.0 = activation(layer_0)",
            "layer_1.main.1 = linear(layer_1.main.0)",
            "layer_1 = add(layer_1.main.1, layer_0)",
        ]
        assert graph.nodes[0].attrs.activation == "none"


def test_a_sum_that_is_an_output_of_the_net_is_not_fused_away():
    graph = graph_of([linear(), {"type": "relu"}], (3,))
    assert len(for_inference(graph).nodes) == 1
    both = replace(graph, outputs=(graph.layers["layer_0"], graph.layers["layer_1"]))
    assert [n.op for n in for_inference(both).nodes] == ["linear", "activation"]


def test_dropout_is_gone_at_inference_and_its_readers_read_what_it_read():
    drop = {"type": "dropout", "rate": 0.5}
    graph = graph_of([drop, linear(), drop, drop, {"type": "relu"}, linear(), drop], (3,))
    bare = without_training_only(graph)
    assert lowered(bare) == [
        "layer_1 = linear(input)",
        "layer_4 = activation(layer_1)",
        "layer_5 = linear(layer_4)",
    ]
    assert bare.outputs == (graph.layers["layer_5"],)
    assert bare.layers["layer_3"] == graph.layers["layer_1"]
    assert lowered(for_inference(graph)) == ["layer_4 = linear(input)", "layer_5 = linear(layer_4)"]
    assert [n.op for n in for_training(graph, "mse").nodes].count("dropout") == 4


def test_a_last_softmax_is_left_to_the_cross_entropy_alone():
    graph = graph_of([linear(), {"type": "softmax"}], (3,))
    trained = for_training(graph, "cross_entropy")
    assert [n.op for n in trained.nodes] == ["linear"]
    assert trained.outputs == (graph.layers["layer_0"],)
    for loss in ("mse", "bce", "logit_margin"):
        assert [n.op for n in for_training(graph, loss).nodes] == ["linear", "softmax"]
    assert [n.op for n in for_inference(graph).nodes] == ["linear", "softmax"]
    inside = graph_of([linear(), {"type": "softmax"}, linear()], (3,))
    assert [n.op for n in for_training(inside, "cross_entropy").nodes] == ["linear", "softmax", "linear"]


@pytest.mark.parametrize("seed", range(8))
def test_fusing_changes_no_result(seed):
    """float64, operator by operator, fused against not fused."""
    layers = EVERYTHING if seed == 0 else random_layers(np.random.default_rng(seed), 6)
    graph = graph_of(layers, (2, 8, 8))
    rng = np.random.default_rng(seed)
    arrays = {p.name: fill(p.shape, p.init, p.fans, 1, i) for i, p in enumerate(graph.params.values())}
    for name in arrays:  # running statistics and shifts that are not the identity
        arrays[name] = arrays[name] + rng.uniform(0, 0.2, arrays[name].shape)
    x = rng.standard_normal((3, *graph.input_shape))
    want = evaluate64(graph, arrays, x)[graph.outputs[0]]
    device, trained = for_inference(graph), for_training(graph, "mse")
    assert len(device.nodes) <= len(trained.nodes) <= len(graph.nodes)
    assert not any(OPS[n.op].OP.training_only for n in device.nodes)
    for fused in (device, trained):
        assert_close(evaluate64(fused, arrays, x)[fused.outputs[0]], want, 1e-12, 1e-12)
    assert np.abs(want).max() > 1e-3


@pytest.mark.parametrize("wish", [{"kernel_size": 5}, {"stride": 2}, {"dilation": 2}, {"groups": 2}])
def test_winograd_is_refused_where_it_has_no_formulas(wish):
    layer = {"type": "conv2d", "out_channels": 4, "kernel_size": 3, "padding": 2, "algorithm": "winograd"} | wish
    with pytest.raises(UserError, match=r"layers\[0\].*algorithm is winograd, which needs a 3 x 3 kernel") as caught:
        graph_of([layer], (2, 9, 9))
    assert '"algorithm": "auto"' in str(caught.value)
    assert graph_of([layer | {"algorithm": "auto"}], (2, 9, 9))
