"""Grad-CAM against gradients by differences, in float64; what it means for the nets it was made for."""

import numpy as np
import pytest
from nets import EVERYTHING, evaluate64, graph_of

from litenet.trainer.report.gradcam import explainer

CONV = {"type": "conv2d", "out_channels": 5, "kernel_size": 3, "padding": 1}
GAP = [{**CONV, "activation": "relu"}, {"type": "global_avg_pool"}, {"type": "linear", "out_features": 4}]
DENSE = [
    {**CONV, "activation": "relu"},
    {"type": "maxpool2d", "kernel_size": 2, "stride": 2},
    {"type": "flatten"},
    {"type": "linear", "out_features": 9, "activation": "gelu"},
    {"type": "batchnorm", "activation": "relu"},
    {"type": "dropout", "rate": 0.5},
    {"type": "dual_path"},
    {"type": "linear", "out_features": 3},
]
TO_ONE_PIXEL = [
    {**CONV, "activation": "tanh"},
    {"type": "maxpool2d", "kernel_size": 4},
    {"type": "conv2d", "out_channels": 6, "kernel_size": 2, "activation": "silu"},
    {"type": "flatten"},
    {"type": "linear", "out_features": 3},
    {"type": "softmax"},
]
EMBED = [
    {"type": "embed_projection", "embed_dim": 7},
    {"type": "dual_path"},
    {"type": "linear", "out_features": 3},
]


def made(layers, shape=(2, 8, 8), seed=0):
    """(graph as the blueprint has it, explainer, float64 weights, pictures)."""
    rng = np.random.default_rng(seed)
    full = graph_of(layers, shape)
    weights = {}
    for p in full.params.values():
        w = rng.normal(size=p.shape) * 0.5
        weights[p.name] = np.abs(w) + 0.5 if p.name.endswith(("running_var", "gamma")) else w
    return full, explainer(full, weights), weights, rng.normal(size=(3, *full.input_shape))


def by_differences(found, weights, x, classes, tensor):
    """d(score)/d(tensor) by central differences: what the definitions say, with no backward of any operator."""
    values = evaluate64(found.graph, weights, x)[tensor]
    out, step = np.zeros_like(values), 1e-5
    flat = out.reshape(len(x), -1)
    for i in range(flat.shape[1]):
        ends = []
        for sign in (1, -1):
            moved = values.copy()
            moved.reshape(len(x), -1)[:, i] += sign * step
            scores = evaluate64(found.graph, weights, x, given={tensor: moved})[found.graph.outputs[0]]
            ends.append(scores[np.arange(len(x)), classes])
        flat[:, i] = (ends[0] - ends[1]) / (2 * step)
    return values, out


@pytest.mark.parametrize("layers", [GAP, DENSE, TO_ONE_PIXEL, EVERYTHING], ids=["gap", "dense", "one pixel", "all"])
def test_the_map_is_the_feature_map_weighted_by_its_mean_gradient(layers):
    _, found, weights, x = made(layers)
    classes = np.array([0, 2, 1])
    values, g = by_differences(found, weights, x, classes, found.tensor)
    want = np.einsum("nijc,nc->nij", values, g.mean((1, 2)))
    assert found.embedding is None
    assert want.shape[1:] == found.graph.tensors[found.tensor].shape[:2]
    assert np.abs(found.raw(x, classes) - want).max() <= 1e-6 * np.abs(want).max()


def test_after_a_global_average_it_is_the_class_activation_map():
    _, found, weights, x = made(GAP)
    features = evaluate64(found.graph, weights, x)[found.tensor]
    w = weights["layer_2.weight"]
    assert (found.layer, features.shape) == ("layer_0", (3, 8, 8, 5))
    for k in range(4):
        want = features @ w[k] / 64
        assert np.abs(found.raw(x, np.full(3, k)) - want).max() <= 1e-12
        maps = found.maps(x, np.full(3, k))
        positive = np.maximum(want, 0)
        assert np.abs(maps - positive / positive.max((1, 2), keepdims=True)).max() <= 1e-12


def test_the_last_map_that_is_more_than_a_pixel_is_looked_at():
    _, found, *_ = made(TO_ONE_PIXEL)
    assert (found.layer, found.graph.tensors[found.tensor].shape) == ("layer_1", (2, 2, 5))
    assert found.graph.nodes[-1].op == "linear"  # the softmax squeezes gradients


@pytest.mark.parametrize("keep", [0, 1])
def test_an_embedding_falls_apart_into_the_pixels_it_was_summed_from(keep):
    layers = [{**EMBED[0], "keep_channels": keep}, *EMBED[1:]]
    _, found, weights, x = made(layers, (3, 4, 6))
    classes = np.array([1, 0, 2])
    h, g = by_differences(found, weights, x, classes, found.tensor)
    raw = found.raw(x, classes)
    assert raw.shape == (3, 4, 6)
    assert np.abs(raw.sum((1, 2)) - (h * g).sum(1)).max() <= 1e-6
    moved = x.copy()  # a pixel's part is what its value contributes
    moved[:, 1, 2] = 0
    without = evaluate64(found.graph, weights, moved)[found.tensor]
    assert np.abs(raw[:, 1, 2] - ((h - without) * g).sum(1)).max() <= 1e-6


def test_a_yes_or_no_output_speaks_for_one_class_and_against_the_other():
    _, found, _, x = made([*GAP[:2], {"type": "linear", "out_features": 1}])
    assert np.abs(found.raw(x, np.ones(3, int)) + found.raw(x, np.zeros(3, int))).max() == 0


def test_where_nothing_spoke_for_a_class_the_map_is_empty_and_not_a_number_too_many():
    full, _, weights, x = made(GAP)
    weights["layer_2.weight"][0] = -1
    maps = explainer(full, weights).maps(x, np.zeros(3, int))
    assert (maps == 0).all()


def test_a_net_without_places_has_no_map():
    assert explainer(graph_of([{"type": "linear", "out_features": 3}], (8,)), {}) is None
    assert explainer(graph_of([{"type": "flatten"}, {"type": "linear", "out_features": 3}], (1, 4, 4)), {}) is None
    pooled = [{"type": "maxpool2d", "kernel_size": 2}, {"type": "flatten"}, {"type": "linear", "out_features": 3}]
    assert explainer(graph_of(pooled, (1, 4, 4)), {}) is None
