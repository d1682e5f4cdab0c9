"""From a float graph to a net of whole numbers: ranges, ties, equalisation, biases, and what is float again."""

from dataclasses import replace

import numpy as np
import pytest
from int8_graphs import GRAY, Maker, chain, everything, floats

from litenet.exporter import format
from litenet.exporter.fold import run
from litenet.exporter.int8 import bias, equalise, graphs, halves, layers, ranges, search, write
from litenet.exporter.int8.ranges import Histogram
from litenet.pyruntime import InferenceEngine
from litenet.trainer.int8 import net as nets
from litenet.trainer.int8 import scheme
from litenet.trainer.int8.scheme import Quant, asymmetric


def whole(subject, floats=(), method="min-max"):
    """The net with the same kind of range everywhere."""
    groups = graphs.tied(subject.graph, floats)
    cuts = ranges.ranges(ranges.observe(subject.graph, subject.weights, subject.x, groups), groups)
    choice = search.Choice(subject.weights, {}, cuts[method], frozenset(floats))
    return choice.net(subject)


def in_c(net, subject, count=8):
    """The C runtime's outputs for the first samples, and the definition's, both as the file has them."""
    made = write.model(net, write.plan(net), subject.frame, {})
    x = search.entering(net, subject)[:count]
    made = replace(made, golden=write.golden(net, made, x[:2], None if subject.frames is None else subject.frames[:2]))
    tensors = nets.run(net, x)
    with InferenceEngine(format.write(made)) as engine:
        engine.selftest()
        got = engine.predict(x, raw=True)
    return got if isinstance(got, tuple) else (got,), [tensors[t] for t in net.graph.outputs]


@pytest.mark.parametrize("seed", range(4))
def test_every_operator_gives_the_definitions_bytes_in_c_and_is_near_float(seed):
    subject = everything(seed).subject(16)
    net = whole(subject)
    assert set(net.quants) == {net.graph.input, *(n.output for n in net.graph.nodes)}
    got, want = in_c(net, subject)
    assert got[0].dtype == np.int8
    np.testing.assert_array_equal(got[0], want[0])
    held = floats(subject)[subject.graph.outputs[0]]
    tensors = nets.run(net, search.entering(net, subject))
    assert search.decibels(held, nets.real(net, net.graph.outputs[0], tensors[net.graph.outputs[0]])) > 20


def test_pictures_go_in_by_whole_numbers():
    subject = chain().subject(16, GRAY)
    net = whole(subject)
    assert net.picture is not None
    got, want = in_c(net, subject)
    np.testing.assert_array_equal(got[0], want[0])


def test_mixed_files_have_quantize_and_dequantize_where_the_worlds_meet():
    subject = chain().subject(16)
    names = [n.name for n in subject.graph.nodes]
    net = whole(subject, {names[2]})
    assert [n.op for n in net.graph.nodes].count("dequantize") == 1
    assert [n.op for n in net.graph.nodes].count("quantize") == 1
    got, want = in_c(net, subject)
    assert np.abs(got[0].astype(int) - want[0].astype(int)).max() <= 1  # a float layer may round on the other side
    first = whole(subject, {names[0]})
    assert first.graph.input not in first.quants and first.picture is None
    last = whole(subject, {names[-1]})
    assert last.graph.outputs[0] not in last.quants
    np.testing.assert_allclose(in_c(last, subject)[0][0], in_c(last, subject)[1][0], atol=1e-5)


def test_activations_stand_alone_and_go_back_into_float_layers():
    m = Maker((6,))
    m.add("linear", out_features=5, activation="gelu")
    m.add("linear", out_features=4, activation="relu")
    apart = graphs.separated(m.graph())
    assert [n.op for n in apart.nodes] == ["linear", "activation", "linear"]
    assert apart.nodes[0].attrs.activation == "none" and apart.nodes[2].attrs.activation == "relu"
    again = graphs.joined(apart, {n.name for n in apart.nodes})
    assert [n.attrs.activation for n in again.nodes] == ["gelu", "relu"]
    assert [n.op for n in graphs.joined(apart, ()).nodes] == ["linear", "activation", "linear"]
    x = np.random.default_rng(1).standard_normal((3, 6)).astype(np.float32)
    np.testing.assert_array_equal(run(apart, m.weights, x)[2], run(m.graph(), m.weights, x)[2])


def test_pools_moves_and_concat_share_a_scale():
    m = Maker((4, 4, 2))
    a = m.add("conv2d", out_channels=2, kernel_size=1)
    b = m.add("maxpool2d", a, kernel_size=2)
    c = m.add("conv2d", b, out_channels=3, kernel_size=1)
    d = m.add("concat", b, c, axis=2)
    m.add("global_avg_pool", d)
    groups = graphs.tied(m.graph(), ())
    assert groups[a] == groups[b] != groups[c]
    assert groups[c] == groups[d]  # nobody else reads c
    assert groups[b] != groups[d]  # c reads b too
    pool = m.nodes[1].name
    assert graphs.tied(m.graph(), {pool})[a] != graphs.tied(m.graph(), {pool})[b]


def test_ranges_of_a_histogram():
    counts = np.zeros(ranges.BINS, np.int64)
    counts[: ranges.BINS // 2] = 100
    counts[-1] = 1  # one value far out
    h = Histogram(0.0, 8.0, counts)
    assert ranges.minmax(h) == (0.0, 8.0)
    lo, hi = ranges.percentile(1e-3)(h)
    assert lo == 0.0 and 3.9 < hi < 4.1
    lo, hi = ranges.least_error(h)
    assert lo == 0.0 and 3.9 < hi < 8.0
    even = Histogram(-1.0, 1.0, np.ones(ranges.BINS, np.int64))
    assert ranges.least_error(even) == (-1.0, 1.0)
    nothing = Histogram(0.0, 0.0, np.zeros(ranges.BINS, np.int64))
    assert all(cut(nothing) == (0.0, 0.0) for cut in ranges.METHODS.values())


def test_scales_are_wide_enough_for_their_multipliers():
    m = Maker((4,))
    m.add("linear", out_features=3, spread=500.0)
    graph = m.graph()
    quants = ranges.assign(graph, m.weights, {0: (-1.0, 1.0), 1: (-0.5, 0.5)}, (), {})
    assert quants[0] == asymmetric(-1.0, 1.0)
    assert quants[1].scale > asymmetric(-0.5, 0.5).scale
    fixed = ranges.assign(graph, m.weights, {0: (-1.0, 1.0), 1: (-9.0, 9.0)}, (), {0: Quant(0.5, 3)})
    assert fixed[0] == Quant(0.5, 3)
    s = chain()
    found = ranges.assign(s.graph(), s.weights, dict.fromkeys(range(8), (-4.0, 4.0)), (), {})
    assert found[7] == scheme.PROBABILITIES


def test_equalisation_keeps_the_function_and_levels_the_channels():
    m = chain(seed=3)
    m.weights["conv2d0.weight"] *= np.array([1, 10, 0.1, 1, 30, 0.5], np.float32)[:, None, None, None]
    subject = m.subject(16)
    found = equalise.equalised(subject.graph, m.weights, subject.x)
    assert found is not None
    before, after = run(subject.graph, m.weights, subject.x), run(subject.graph, found, subject.x)
    np.testing.assert_allclose(after[7], before[7], atol=1e-5)

    def spread(held):
        top = np.abs(held[1]).max((0, 1, 2))
        return top.max() / top.min()

    assert spread(after) < spread(before) / 3
    residual = Maker((4, 4, 3))
    a = residual.add("conv2d", out_channels=3, kernel_size=1)
    residual.add("add", a, 0)
    assert equalise.equalised(residual.graph(), residual.weights, np.ones((2, 4, 4, 3), np.float32)) is None


def test_bias_correction_puts_the_means_right():
    m = Maker((6, 6, 8), seed=5)
    m.add("depthwise_conv2d", kernel_size=3, padding=1)
    m.add("conv2d", out_channels=5, kernel_size=3, stride=2)
    m.add("embed_projection", embed_dim=4)
    m.add("linear", out_features=3)
    subject = m.subject(64)
    quants = {t: asymmetric(-v, v) for t, v in enumerate((3.0, 2.0, 1.5, 4.0, 5.0))}
    choice = search.Choice(m.weights, {}, {t: q.range for t, q in quants.items()}, frozenset())
    net = choice.net(subject)
    held = floats(subject)
    found = bias.corrected(subject.graph, m.weights, net, held, search.entering(net, subject))
    assert set(found) == {n.name for n in m.nodes}
    fixed = replace(choice, corrections=found).net(subject)

    def away(of):
        tensors = nets.run(of, search.entering(of, subject))
        t = of.graph.outputs[0]
        return np.abs((nets.real(of, t, tensors[t]) - held[t]).mean(0)).max() / of.quants[t].scale

    assert away(fixed) < 0.2 and away(fixed) < away(net)


def test_the_search_is_no_worse_than_any_one_method_and_the_same_every_time():
    subject = chain(seed=7).subject(64, GRAY)
    found = search.search(subject, ())
    assert found.score >= max(score for _, score in found.tries)
    assert {name.split(",")[0] for name, _ in found.tries} >= set(ranges.METHODS)
    again = search.search(subject, ())
    assert again.score == found.score and again.choice.methods == found.choice.methods
    table = layers.layers(found.trials)
    assert [row.name for row in table] == [n.name for n in subject.graph.nodes]
    assert all(row.whole and row.step and row.alone > 10 for row in table)
    assert min(table, key=lambda row: row.alone).name == layers.noisiest(table)[0]


def test_trials_calculate_anew_only_what_differs():
    subject = chain(seed=2).subject(16)
    groups = graphs.tied(subject.graph, ())
    cuts = ranges.ranges(ranges.observe(subject.graph, subject.weights, subject.x, groups), groups)
    trials = search.Trials(subject)
    first = search.Choice(subject.weights, {}, cuts["99.9 %"], frozenset())
    trials.try_out(first)
    kept = dict(trials.tensors)
    late = subject.graph.nodes[-2].output
    lo, hi = first.chosen[late]
    trials.try_out(replace(first, chosen=first.chosen | {late: (2 * lo, 2 * hi)}), gain=-1000)
    assert trials.tensors[1] is kept[1] and trials.tensors[late] is not kept[late]
    alone = search.Trials(subject)
    alone.try_out(trials.choice)
    assert alone.score == trials.score


def test_float_layers_have_weights_of_half_precision_where_the_scores_do_not_feel_it(monkeypatch):
    made = chain()
    subject = made.subject(32, GRAY)
    trials = search.Trials(subject)
    groups = graphs.tied(subject.graph, {"conv2d0", "linear5"})
    cuts = ranges.ranges(ranges.observe(subject.graph, subject.weights, subject.x, groups), groups)
    choice = search.Choice(subject.weights, {}, cuts["min-max"], frozenset({"conv2d0", "linear5"}))
    trials.try_out(choice)
    net = halves.halved(choice.net(subject), trials)
    assert net.half == {"conv2d0", "linear5"}
    model = write.model(net, write.plan(net), subject.frame, {})
    assert {op.weight_dtype for op in model.ops if op.op in ("conv2d", "linear")} == {"f16", "i8"}
    got, want = in_c(net, subject)
    assert np.abs(got[0].astype(int) - want[0].astype(int)).max() <= 1
    for name in ("conv2d0.weight", "linear5.weight"):
        assert np.array_equal(net.weights[name], net.weights[name].astype(np.float16).astype(np.float32))

    monkeypatch.setattr(halves, "COST", -1.0)  # not even as much as there was
    assert halves.halved(choice.net(subject), trials).half == frozenset()
    monkeypatch.setattr(halves, "COST", 100.0)
    subject.weights["conv2d0.bias"][0] = 1e6  # more than binary16 holds
    assert halves.halved(choice.net(subject), trials).half == {"linear5"}


def test_a_layer_that_hurts_becomes_float():
    m = chain(seed=4)
    m.weights["depthwise_conv2d2.weight"][..., 0] *= 500  # one channel drowns the others
    m.weights["conv2d3.weight"][..., 0] /= 500
    subject = m.subject(48)
    found = search.search(subject, ())
    before = found.trials.score
    wholes = layers.noisiest(layers.layers(found.trials))
    freed = search.free(found.trials, lambda got: 100.0 if found.trials.score < 60 else 0.0, 1.0, wholes)
    assert freed and found.trials.score > before
    assert found.trials.choice.floats == frozenset(freed)
    assert not search.free(found.trials, lambda got: 0.0, 1.0, wholes)


def test_layernorm_has_no_form():
    m = Maker((6,))
    m.add("linear", out_features=6)
    m.add("layernorm")
    assert [n.op for n in graphs.without_form(m.graph())] == ["layernorm"]
