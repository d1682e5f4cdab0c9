"""Random graphs of every operator as whole numbers: the C runtime gives the definition's bytes."""

from dataclasses import replace

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="the package onnx is not installed (extra: import)")

from onnx_random import random_model  # noqa: E402

from litenet.exporter import format  # noqa: E402
from litenet.exporter.imported import Options, read  # noqa: E402
from litenet.exporter.int8 import graphs, search, write  # noqa: E402
from litenet.pyruntime import InferenceEngine  # noqa: E402
from litenet.trainer.int8 import net as nets  # noqa: E402


@pytest.mark.parametrize("seed", range(8))
def test_a_random_graph_gives_the_definitions_bytes(seed, tmp_path):
    onnx.save(random_model(seed), tmp_path / "net.onnx")
    found = read(tmp_path / "net.onnx", Options()).stored
    graph = graphs.separated(found.graph)
    x = np.random.default_rng(seed).standard_normal((24, *graph.input_shape)).astype(np.float32)
    subject = search.Subject(graph, found.weights, found.frame, x, None)
    net = search.search(subject, ()).choice.net(subject)
    made = write.model(net, write.plan(net), found.frame, {})
    q = search.entering(net, subject)[:6]
    made = replace(made, golden=write.golden(net, made, q[:1], None))
    with InferenceEngine(format.write(made)) as engine:
        engine.selftest()
        got = engine.predict(q, raw=True)
    tensors = nets.run(net, q)
    for y, t in zip(got if isinstance(got, tuple) else (got,), graph.outputs, strict=True):
        assert y.dtype == np.int8
        np.testing.assert_array_equal(y, tensors[net.graph.outputs[graph.outputs.index(t)]])
