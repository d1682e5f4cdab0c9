"""From blueprint to graph: shapes, names, parameters, patterns, fusing, and every sentence where they do not fit."""

from dataclasses import replace
from math import prod
from pathlib import Path

import pytest
from nets import SMALL, graph_of, lowered, net

from litenet.trainer import blueprint as blueprints
from litenet.trainer.errors import UserError
from litenet.trainer.graph import build

EXAMPLES = Path(__file__).parent.parent / "examples"

MLP = """{ "name": "mnist_mlp", "input_shape": [784],
  "layers": [
    { "type": "linear", "in_features": 784, "out_features": 256, "activation": "relu", "weight_init": "xavier" },
    { "type": "linear", "in_features": 256, "out_features": 128, "activation": "relu", "weight_init": "xavier" },
    { "type": "linear", "in_features": 128, "out_features": 10, "activation": "none", "weight_init": "xavier" } ],
  "loss": "cross_entropy", "optimizer": "sgd", "learning_rate": 0.01 }"""

ONE_POOL_CNN = """{ "name": "mnist_cnn", "input_shape": [1, 28, 28],
  "layers": [
    { "type": "conv2d", "in_channels": 1, "out_channels": 32, "kernel_size": 3, "stride": 1, "padding": 1,
      "activation": "relu", "algorithm": "winograd" // the algorithm is chosen here
    },
    { "type": "maxpool2d", "kernel_size": 2, "stride": 2 },
    { "type": "conv2d", "in_channels": 32, "out_channels": 64, "kernel_size": 3, "stride": 1, "padding": 1,
      "activation": "relu", "algorithm": "winograd" },
    { "type": "flatten" },
    { "type": "linear", "in_features": 64*7*7, "out_features": 128, "activation": "relu" },
    { "type": "linear", "in_features": 128, "out_features": 10, "activation": "none" } ] }"""


def shape(graph, layer):
    """What a layer puts out."""
    return graph.tensors[graph.layers[layer]].shape


def shapes(graph):
    return {layer: shape(graph, layer) for layer in graph.layers}


def node(graph, name):
    return next(n for n in graph.nodes if n.name == name)


def params(graph):
    return {name: p.shape for name, p in graph.params.items()}


def counted(graph):
    return sum(prod(p.shape) for p in graph.trainable)


def refused(layers, input_shape=(1, 8, 8), **more):
    with pytest.raises(UserError) as error:
        graph_of(layers, input_shape, **more)
    return str(error.value)


# ---- the nets people start with


def test_the_perceptron_of_the_article_has_the_shapes_and_235146_parameters_it_should_have():
    graph = build(blueprints.parse(MLP, "mnist_net.json"))
    assert shapes(graph) == {"layer_0": (256,), "layer_1": (128,), "layer_2": (10,)}
    assert params(graph) == {
        "layer_0.weight": (256, 784),
        "layer_0.bias": (256,),
        "layer_1.weight": (128, 256),
        "layer_1.bias": (128,),
        "layer_2.weight": (10, 128),
        "layer_2.bias": (10,),
    }
    assert counted(graph) == 235_146
    assert (graph.input_shape, graph.output_shape) == ((784,), (10,))
    assert [p.init for p in graph.params.values()] == ["xavier_uniform", "zeros"] * 3
    assert [p.decay for p in graph.params.values()] == [True, False] * 3
    assert graph.params["layer_0.weight"].fans == (784, 256)
    assert sum(graph.macs(n) for n in graph.nodes) == 784 * 256 + 256 * 128 + 128 * 10


def test_the_convolutional_example_has_the_shapes_and_421642_parameters_it_should_have():
    graph = build(blueprints.load(EXAMPLES / "mnist_cnn.json"))
    assert shapes(graph) == {
        "layer_0": (28, 28, 32),
        "layer_1": (14, 14, 32),
        "layer_2": (14, 14, 64),
        "layer_3": (7, 7, 64),
        "layer_4": (3136,),
        "layer_5": (128,),
        "layer_6": (10,),
    }
    assert params(graph) == {
        "layer_0.weight": (32, 3, 3, 1),
        "layer_0.bias": (32,),
        "layer_2.weight": (64, 3, 3, 32),
        "layer_2.bias": (64,),
        "layer_5.weight": (128, 3136),
        "layer_5.bias": (128,),
        "layer_6.weight": (10, 128),
        "layer_6.bias": (10,),
    }
    assert counted(graph) == 421_642
    assert graph.macs(node(graph, "layer_2")) == 14 * 14 * 64 * 3 * 3 * 32
    assert [n.algorithm for n in graph.nodes if n.op == "conv2d"] == ["auto", "auto"]


def test_the_other_perceptron_example_counts_the_same():
    assert counted(build(blueprints.load(EXAMPLES / "mnist_mlp.json"))) == 235_146


def test_the_articles_cnn_with_one_pool_is_refused_with_the_pool_that_is_missing():
    with pytest.raises(UserError) as error:
        build(blueprints.parse(ONE_POOL_CNN, "mnist_cnn.json"))
    assert str(error.value) == (
        "mnist_cnn.json: layers[4] (linear), line 10: in_features is 3136, "
        "but layers[3] (flatten) gives 12544 (64*14*14).\n"
        "  3136 is 64*7*7: a second maxpool2d with stride 2 before the flatten would give it."
    )


# ---- shapes and names


@pytest.mark.parametrize(
    ("given", "axes"),
    [((3, 5, 7), (5, 7, 3)), ((4, 6), (4, 6)), ((9,), (9,))],
)
def test_a_blueprints_shape_is_turned_to_channels_last_once(given, axes):
    graph = graph_of([{"type": "activation", "activation": "relu"}], given)
    assert graph.input_shape == graph.output_shape == axes


@pytest.mark.parametrize("op", ["conv2d", "depthwise_conv2d", "maxpool2d", "avgpool2d"])
@pytest.mark.parametrize("stride", [1, 2, 3, [2, 1]])
@pytest.mark.parametrize("kernel", [1, 2, 3, 5, [3], [2, 5]])
def test_same_padding_keeps_one_position_for_each_stride_of_the_image(op, stride, kernel):
    layer = {"type": op, "kernel_size": kernel, "stride": stride, "padding": "same"}
    if op == "conv2d":
        layer["out_channels"] = 3
    for H, W in ((7, 8), (6, 9), (5, 5)):
        graph = graph_of([layer], (3, H, W))
        sh, sw = stride if isinstance(stride, list) else (stride, stride)
        assert graph.output_shape == (-(-H // sh), -(-W // sw), 3)
        top, left, bottom, right = graph.nodes[0].attrs.padding
        assert 0 <= bottom - top <= 1  # the odd row goes below
        assert 0 <= right - left <= 1


def test_same_padding_counts_the_reach_of_a_dilated_kernel():
    graph = graph_of([{"type": "conv2d", "out_channels": 1, "kernel_size": 3, "dilation": 2, "padding": "same"}])
    assert graph.output_shape == (8, 8, 1)
    assert graph.nodes[0].attrs.padding == (2, 2, 2, 2)


def test_a_pool_without_stride_steps_by_its_window_also_with_same_padding():
    graph = graph_of([{"type": "maxpool2d", "kernel_size": 3, "padding": "same"}])
    assert graph.output_shape == (3, 3, 1)
    assert graph.nodes[0].attrs.stride == (3, 3)
    assert graph.nodes[0].attrs.padding == (0, 0, 1, 1)  # three windows of three on eight rows


@pytest.mark.parametrize(
    ("padding", "attrs", "size"),
    [
        ("valid", (0, 0, 0, 0), (6, 6)),
        (1, (1, 1, 1, 1), (8, 8)),
        ([1, 2], (1, 2, 1, 2), (8, 10)),
        ([0, 1, 2, 3], (0, 1, 2, 3), (8, 10)),
    ],
)
def test_padding_may_be_written_in_each_form(padding, attrs, size):
    graph = graph_of([{"type": "conv2d", "out_channels": 2, "kernel_size": 3, "padding": padding}])
    assert graph.nodes[0].attrs.padding == attrs
    assert graph.output_shape == (*size, 2)


def test_same_padding_of_what_is_no_image_is_the_operators_refusal():
    text = refused([{"type": "conv2d", "out_channels": 2, "kernel_size": 3, "padding": "same"}], (9,))
    assert "conv2d needs an image" in text


def test_names_are_the_users_or_count_the_layers():
    graph = graph_of([{"type": "flatten"}, {"type": "linear", "out_features": 4, "activation": "gelu", "name": "head"}])
    assert list(graph.layers) == ["layer_0", "head"]
    assert [n.name for n in graph.nodes] == ["layer_0", "head", "head.gelu"]
    assert list(graph.params) == ["head.weight", "head.bias"]
    assert graph.tensors[graph.layers["head"]].name == "head"
    assert {n.layer for n in graph.nodes} == {"layer_0", "head"}


def test_a_layer_without_bias_has_one_parameter_less():
    graph = graph_of([{"type": "flatten"}, {"type": "linear", "out_features": 4, "bias": False}])
    assert list(graph.params) == ["layer_1.weight"]


def test_initialisers_follow_the_activation_unless_they_are_given():
    layers = [{"type": "linear", "out_features": 4, "activation": a} for a in ("relu", "tanh", "none")]
    layers.append({"type": "linear", "out_features": 4, "activation": "relu", "weight_init": "zeros"})
    inits = [p.init for p in graph_of(layers, (5,)).params.values() if p.name.endswith("weight")]
    assert inits == ["kaiming_normal", "xavier_uniform", "xavier_uniform", "zeros"]


def test_batchnorm_owns_statistics_that_are_not_trained():
    graph = graph_of([{"type": "batchnorm"}], (3, 4, 4))
    assert {p.name: p.trainable for p in graph.params.values()} == {
        "layer_0.gamma": True,
        "layer_0.beta": True,
        "layer_0.running_mean": False,
        "layer_0.running_var": False,
    }
    assert [p.name for p in graph.trainable] == ["layer_0.gamma", "layer_0.beta"]
    assert not any(p.decay for p in graph.trainable)


# ---- patterns


def test_a_residual_adds_its_input_to_what_its_layers_give():
    layers = [{"type": "residual", "activation": "relu", "layers": [
        {"type": "conv2d", "out_channels": 2, "kernel_size": 3, "padding": 1, "activation": "tanh"},
        {"type": "conv2d", "out_channels": 2, "kernel_size": 1}]}]  # fmt: skip
    graph = graph_of(layers, (2, 4, 4))
    assert lowered(graph) == [
        "layer_0.main.0.linear = conv2d(input)",
        "layer_0.main.0 = activation(layer_0.main.0.linear)",
        "layer_0.main.1 = conv2d(layer_0.main.0)",
        "layer_0.linear = add(layer_0.main.1, input)",
        "layer_0 = activation(layer_0.linear)",
    ]
    assert graph.output_shape == (4, 4, 2)
    assert list(graph.layers) == ["layer_0.main.0", "layer_0.main.1", "layer_0"]
    assert {n.layer for n in graph.nodes} == {"layer_0"}


@pytest.mark.parametrize("normed", [False, True])
def test_a_projection_is_a_convolution_with_the_batchnorm_its_main_path_ends_with(normed):
    main = [{"type": "conv2d", "out_channels": 6, "kernel_size": 3, "padding": 1, "stride": 2, "name": "mine"}]
    main += [{"type": "batchnorm", "name": "norm"}] * normed
    graph = graph_of([{"type": "residual", "shortcut": "projection", "layers": main}], (2, 7, 8))
    end, norm = ("norm", ["norm = batchnorm(mine)"]) if normed else ("mine", [])
    side = "layer_0.shortcut.norm" if normed else "layer_0.shortcut"
    assert lowered(graph) == [
        "mine = conv2d(input)",
        *norm,
        "layer_0.shortcut = conv2d(input)",
        *(["layer_0.shortcut.norm = batchnorm(layer_0.shortcut)"] * normed),
        f"layer_0 = add({end}, {side})",
    ]
    conv = node(graph, "layer_0.shortcut").attrs
    assert (conv.kernel_size, conv.stride, conv.padding) == ((1, 1), (2, 2), (0, 0, 0, 0))
    assert ("layer_0.shortcut.bias" in graph.params) is not normed
    assert graph.output_shape == (4, 4, 6)


def test_a_batchnorm_in_the_middle_of_the_main_path_asks_for_none_beside_it():
    main = [{"type": "batchnorm", "activation": "relu"}, {"type": "conv2d", "out_channels": 6, "kernel_size": 1}]
    graph = graph_of([{"type": "residual", "shortcut": "projection", "layers": main}])
    assert "layer_0.shortcut.norm.gamma" not in graph.params
    graph = graph_of([{"type": "residual", "shortcut": "projection", "layers": main[::-1]}])
    assert "layer_0.shortcut.norm.gamma" in graph.params  # it ends with the batchnorm's activation


def test_a_projection_of_a_row_is_a_linear_layer():
    layers = [{"type": "residual", "shortcut": "projection", "layers": [{"type": "linear", "out_features": 7}]}]
    graph = graph_of(layers, (5,))
    assert lowered(graph)[1] == "layer_0.shortcut = linear(input)"
    assert graph.params["layer_0.shortcut.weight"].shape == (7, 5)


def test_a_residual_may_have_a_shortcut_of_its_own_layers():
    layers = [{"type": "residual", "layers": [{"type": "linear", "out_features": 4}], "shortcut": [
        {"type": "linear", "out_features": 2}, {"type": "linear", "out_features": 4, "name": "up"}]}]  # fmt: skip
    assert lowered(graph_of(layers, (3,))) == [
        "layer_0.main.0 = linear(input)",
        "layer_0.shortcut.0 = linear(input)",
        "up = linear(layer_0.shortcut.0)",
        "layer_0 = add(layer_0.main.0, up)",
    ]


def test_residuals_may_stand_in_residuals():
    inner = {"type": "residual", "layers": [{"type": "linear", "out_features": 3}]}
    graph = graph_of([{"type": "residual", "layers": [inner, {"type": "linear", "out_features": 3}]}], (3,))
    assert lowered(graph) == [
        "layer_0.main.0.main.0 = linear(input)",
        "layer_0.main.0 = add(layer_0.main.0.main.0, input)",
        "layer_0.main.1 = linear(layer_0.main.0)",
        "layer_0 = add(layer_0.main.1, input)",
    ]


def test_dual_path_is_two_linear_layers_beside_one_summed_and_normed():
    graph = graph_of([{"type": "dual_path", "weight_init": "xavier"}], (6,))
    assert lowered(graph) == [
        "layer_0.up.linear = linear(input)",
        "layer_0.up = activation(layer_0.up.linear)",
        "layer_0.down = linear(layer_0.up)",
        "layer_0.side = linear(input)",
        "layer_0.add = add(layer_0.down, layer_0.side)",
        "layer_0 = layernorm(layer_0.add)",
    ]
    assert node(graph, "layer_0.up.gelu").attrs.activation == "gelu"
    assert graph.params["layer_0.up.weight"].shape == (24, 6)  # four times the width
    weights = [p for p in graph.params.values() if p.name.endswith("weight")]
    assert [p.init for p in weights] == ["xavier_uniform"] * 3


def test_dual_path_may_keep_its_input_as_the_second_path_and_say_how_wide_it_is():
    graph = graph_of([{"type": "dual_path", "side": "identity", "hidden_features": 5, "activation": "relu"}], (2, 6))
    assert lowered(graph)[-2:] == ["layer_0.add = add(layer_0.down, input)", "layer_0 = layernorm(layer_0.add)"]
    assert graph.params["layer_0.up.weight"].shape == (5, 6)
    assert graph.output_shape == (2, 6)


def test_inverted_residual_widens_filters_and_narrows_and_adds_its_input():
    graph = graph_of([{"type": "inverted_residual", "out_channels": 3}], (3, 5, 5))
    assert lowered(graph) == [
        "layer_0.expand = conv2d(input)",
        "layer_0.expand.norm.linear = batchnorm(layer_0.expand)",
        "layer_0.expand.norm = activation(layer_0.expand.norm.linear)",
        "layer_0.depthwise = depthwise_conv2d(layer_0.expand.norm)",
        "layer_0.depthwise.norm.linear = batchnorm(layer_0.depthwise)",
        "layer_0.depthwise.norm = activation(layer_0.depthwise.norm.linear)",
        "layer_0.project = conv2d(layer_0.depthwise.norm)",
        "layer_0.project.norm = batchnorm(layer_0.project)",
        "layer_0 = add(layer_0.project.norm, input)",
    ]
    assert graph.params["layer_0.expand.weight"].shape == (18, 1, 1, 3)
    assert graph.params["layer_0.depthwise.weight"].shape == (3, 3, 18)
    assert not any(name.endswith("bias") for name in graph.params)
    assert node(graph, "layer_0.expand.norm.relu6").attrs.activation == "relu6"


@pytest.mark.parametrize("change", [{"stride": 2}, {"out_channels": 4}])
def test_inverted_residual_adds_nothing_where_the_shapes_differ(change):
    graph = graph_of([{"type": "inverted_residual", "out_channels": 3} | change], (3, 5, 5))
    assert not any(n.op == "add" for n in graph.nodes)
    assert graph.layers["layer_0"] == node(graph, "layer_0.project.norm").output
    assert graph.output_shape == ((3, 3, 3) if "stride" in change else (5, 5, 4))


def test_inverted_residual_without_batchnorm_has_biases_and_without_expansion_one_convolution_less():
    layer = {"type": "inverted_residual", "out_channels": 3, "expand": 1, "batchnorm": False, "activation": "relu",
             "kernel_size": [3]}  # fmt: skip
    graph = graph_of([layer], (3, 5, 5))
    assert lowered(graph) == [
        "layer_0.depthwise.linear = depthwise_conv2d(input)",
        "layer_0.depthwise = activation(layer_0.depthwise.linear)",
        "layer_0.project = conv2d(layer_0.depthwise)",
        "layer_0 = add(layer_0.project, input)",
    ]
    assert {"layer_0.depthwise.bias", "layer_0.project.bias"} <= set(graph.params)


# ---- what does not fit


def cnn(pools, wanted):
    conv = {"type": "conv2d", "out_channels": 64, "kernel_size": 3, "padding": 1}
    pool = {"type": "maxpool2d", "kernel_size": 2, "stride": 2}
    return [conv, *[pool] * pools, {"type": "flatten"}, {"type": "linear", "in_features": wanted, "out_features": 10}]


@pytest.mark.parametrize(
    ("pools", "wanted", "remedy"),
    [
        (0, 64 * 14 * 14, "12544 is 64*14*14: a maxpool2d with stride 2 before the flatten would give it."),
        (1, 64 * 7 * 7, "3136 is 64*7*7: a second maxpool2d with stride 2 before the flatten would give it."),
        (2, 64 * 3 * 3, "576 is 64*3*3: a third maxpool2d with stride 2 before the flatten would give it."),
        (3, 64, "64 is 64*1*1: another maxpool2d with stride 2 before the flatten would give it."),
        (0, 64 * 7 * 7, "3136 is 64*7*7: 2 more maxpool2d with stride 2 before the flatten would give it."),
        (0, 64, "64 is the channels alone: a global_avg_pool instead of the flatten would give it."),
        (1, 64 * 28 * 28, "50176 is 64*28*28: one maxpool2d less would give it."),
        (0, 64 * 56 * 56, "Write 50176, or leave in_features out: it is inferred."),
        (1, 100, "Write 12544, or leave in_features out: it is inferred."),
    ],
)
def test_a_linear_layer_that_expects_another_image_is_told_what_would_make_it(pools, wanted, remedy):
    text = refused(cnn(pools, wanted), (1, 28, 28))
    side = 28 >> pools
    assert f"layers[{pools + 1}] (flatten) gives {64 * side * side} (64*{side}*{side})." in text
    assert text.split("\n")[1] == f"  {remedy}"
    assert f"layers[{pools + 2}] (linear)" in text


def test_in_features_against_the_input_itself():
    text = refused([{"type": "linear", "in_features": 9, "out_features": 2}], (8,))
    assert "in_features is 9, but the input has 8.\n  Write 8, or leave in_features out" in text


def test_in_features_behind_a_flatten_of_a_row():
    text = refused([{"type": "flatten"}, {"type": "linear", "in_features": 9, "out_features": 2}], (8,))
    assert "in_features is 9, but layers[0] (flatten) gives 8.\n  Write 8, or" in text


def test_in_channels_inside_a_residual_name_the_layer_before():
    inner = [{"type": "conv2d", "out_channels": 4, "kernel_size": 1},
             {"type": "conv2d", "in_channels": 3, "out_channels": 1, "kernel_size": 1}]  # fmt: skip
    text = refused([{"type": "residual", "layers": inner}])
    assert "layers[0].layers[1] (conv2d), line 1: in_channels is 3, but layers[0].layers[0] (conv2d) gives 4." in text


def test_an_operators_refusal_comes_with_place_and_remedy():
    assert refused([{"type": "linear", "out_features": 2}]) == (
        "net.json: layers[0] (linear), line 1: linear needs a row of values, but its input is 1 x 8 x 8 (C x H x W).\n"
        "  Put a flatten or a global_avg_pool before it."
    )
    layer = {"type": "conv2d", "out_channels": 4, "kernel_size": 1, "groups": 3}
    assert refused([layer], (4, 8, 8)) == (
        "net.json: layers[0] (conv2d), line 1: groups 3 must divide both the 4 input and the 4 output channels"
    )


def test_an_attribute_that_comes_out_of_range_is_named():
    layer = {"type": "conv2d", "out_channels": 1, "kernel_size": 255, "dilation": 5, "padding": "same"}
    assert refused([layer]) == (
        "net.json: layers[0] (conv2d), line 1: padding is 635; a whole number from 0 to 255 is expected."
    )


def test_a_net_without_layers_is_refused():
    with pytest.raises(UserError, match=r"net.json: no layer computes anything.\n  Add at least one"):
        build(replace(net(SMALL), layers=()))


def test_a_name_that_the_numbering_takes_is_refused():
    text = refused([{"type": "flatten", "name": "layer_1"}, {"type": "linear", "out_features": 2}])
    assert text.endswith("the name 'layer_1' is taken by an earlier layer.\n  Give it another name.")


@pytest.mark.parametrize("name", ["input", "target"])
def test_a_name_that_the_plan_uses_is_refused(name):
    text = refused([{"type": "flatten"}, {"type": "linear", "out_features": 2, "name": name}])
    assert f"layers[1] (linear), line 1: the name {name!r} is kept for what " in text


def test_only_the_last_layer_may_be_called_output():
    last = {"type": "linear", "out_features": 2, "name": "output"}
    graph = graph_of([{"type": "flatten"}, last])
    assert graph.layers["output"] == graph.outputs[0]
    text = refused([{"type": "flatten"}, last, {"type": "relu"}])
    assert "the name 'output' is that of what the net puts out" in text


def test_a_residual_whose_paths_differ_says_so():
    inner = {"type": "conv2d", "out_channels": 2, "kernel_size": 3}
    text = refused([{"type": "residual", "layers": [inner]}])
    assert text == (
        "net.json: layers[0] (residual), line 1: its layers give 2 x 6 x 6 (C x H x W), the shortcut 1 x 8 x 8 "
        "(C x H x W); they are added, so both must be equal.\n"
        '  Write "shortcut": "projection" for a 1x1 convolution that fits.'
    )
    text = refused([{"type": "residual", "layers": [inner], "shortcut": "projection"}])
    assert "the shortcut 2 x 4 x 4" in text
    assert text.endswith('No 1x1 convolution fits: write "padding": "same" in its layers, or a shortcut of layers.')


def test_a_dual_path_on_an_image_is_refused():
    text = refused([{"type": "dual_path"}])
    assert "(dual_path), line 1: it needs a row of values, but its input is 1 x 8 x 8" in text
    assert "Put a flatten, a global_avg_pool or an embed_projection before it." in text


def test_an_inverted_residual_on_a_row_is_refused():
    text = refused([{"type": "inverted_residual", "out_channels": 2}], (8,))
    assert text.endswith("(inverted_residual), line 1: it needs an image, but its input is 8 values.")
