"""Choosing kernel variants, and the text that goes to the compiler."""

import json
import re
from dataclasses import replace

import pytest
from nets import SMALL, graph_of
from shim_device import ShimDevice

from litenet.trainer.backends.device import shapes, workspace
from litenet.trainer.errors import UserError
from litenet.trainer.fuse import for_training
from litenet.trainer.kernels import calls_gemm
from litenet.trainer.kernels.call import Ref
from litenet.trainer.kernels.choose import CANDIDATES, Choice, algorithm_of, by_time, candidates
from litenet.trainer.kernels.source import FOLDER, source
from litenet.trainer.machine import Machine
from litenet.trainer.plan import Needs, plan_training
from litenet.trainer.session import start


class Timed(ShimDevice):
    """A device on which the n-th variant of each part is the fastest."""

    def __init__(self, fastest):
        super().__init__()
        self.fastest, self.asked, self.released = fastest, 0, 0

    def measure(self, launches):
        assert all(address is not None for _, addresses in launches[:1] for address in addresses[:1])
        self.asked += 1
        return 1.0 if self.asked % 100 != self.fastest else 0.5

    def release(self, address):
        self.released += 1


def linear_shapes(device):
    graph = for_training(graph_of([{"type": "linear", "out_features": 40}], (300,)), "cross_entropy")
    return shapes(graph, graph.nodes[0], 64, device.sms, want=frozenset({"weight", "bias", "x"}))


def chosen_calls(choice, op, direction, s):
    return choice.calls(op, direction, s, choice.scratch(op, direction, s))


def test_the_variant_that_measured_fastest_is_used_and_remembered(tmp_path):
    device, path = Timed(3), tmp_path / "card" / "table.json"
    choice, s = Choice(device, path), linear_shapes(Timed(3))
    variants = calls_gemm.parts("linear", "backward", s)["backward"]
    assert len(variants) > 3
    assert chosen_calls(choice, "linear", "backward", s) == list(variants[2].calls)
    assert choice.scratch("linear", "backward", s) == variants[2].scratch
    assert device.asked == min(len(variants), CANDIDATES)
    assert device.released == 1
    choice.save()
    again = Choice(Timed(1), path)
    assert chosen_calls(again, "linear", "backward", s) == list(variants[2].calls)
    assert again.measured == 0
    (order,) = json.loads(path.read_text()).values()
    assert order[0] == [2, 5e5]  # microseconds
    assert sorted(place for place, _ in order) == list(range(min(len(variants), CANDIDATES)))


def test_a_device_that_cannot_measure_takes_the_expected_best():
    device = ShimDevice()
    s = linear_shapes(device)
    assert chosen_calls(Choice(device), "linear", "forward", s) == calls_gemm.CALLS["linear"]("forward", s)


def test_a_table_that_cannot_be_written_stops_nothing(tmp_path):
    (tmp_path / "file").write_text("")
    choice = Choice(Timed(1), tmp_path / "file" / "table.json")
    choice.scratch("linear", "forward", linear_shapes(choice.device))
    choice.save()


def test_of_variants_as_good_as_the_fastest_that_of_least_memory_comes_first():
    assert by_time([1.00, 1.005, 1.02, 0.99], [50, 1, 0, 40]) == [1, 3, 0, 2]


def test_scratch_of_the_chosen_variants_lies_in_the_arena():
    device = ShimDevice()
    graph = for_training(graph_of(SMALL), "cross_entropy")
    plan = plan_training(graph, 8, needs=Needs({}, workspace(Choice(device))))
    scratch = [b for b in plan.buffers if b.kind == "scratch"]
    assert scratch
    for b in scratch:
        assert b.first == b.last  # dead after its launch
        assert b.offset + b.bytes <= plan.arena_bytes


def _options():
    from litenet.trainer.fields import Options

    return Options("cross_entropy")


@pytest.mark.parametrize("file", sorted(p.name for p in FOLDER.glob("*.cu")))
def test_headers_are_put_in_once_and_lines_keep_their_numbers(file):
    text = source(file)
    assert '#include "' not in text
    for header in FOLDER.glob("*.cuh"):
        assert text.count(f'#line 1 "{header.name}"') <= 1
    own = (FOLDER / file).read_text().splitlines()
    lines, name, number = {}, None, 0
    for line in text.splitlines():
        marker = re.match(r'#line (\d+) "(.+)"', line)
        if marker:
            name, number = marker.group(2), int(marker.group(1))
            continue
        lines[name, number] = line
        number += 1
    for i, line in enumerate(own, 1):
        if not line.startswith("#include"):
            assert lines[file, i] == line


def test_cuda_without_cupy_is_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "cupy", None)
    from nets import net

    blueprint = net([{"type": "flatten"}, {"type": "linear", "out_features": 10}])
    with pytest.raises(UserError, match="needs CuPy, which is not installed"):
        start(blueprint, "digits", {}, tmp_path / "run", machine=Machine("cuda"))
    assert not (tmp_path / "run").exists()


def convolution_shapes(device):
    layer = {"type": "conv2d", "out_channels": 32, "kernel_size": 3, "padding": 1}
    graph = for_training(graph_of([layer], (32, 12, 12)), "cross_entropy")
    return shapes(graph, graph.nodes[0], 16, device.sms, want=frozenset(("x", "weight", "bias")))


KINDS = [("winograd", "winograd"), ("implicit", "implicit"), ("im2col", "implicit")]


@pytest.mark.parametrize(("algorithm", "kind"), KINDS)
def test_the_algorithm_of_the_blueprint_is_the_one_that_runs(algorithm, kind):
    """Each part of a convolution that has a variant of that algorithm takes one; nothing else is measured."""
    device = Timed(1)
    layer = {"type": "conv2d", "out_channels": 32, "kernel_size": 3, "padding": 1, "algorithm": algorithm}
    graph = for_training(graph_of([layer], (32, 12, 12)), "cross_entropy")
    for direction, want in (("forward", ()), ("backward", ("x", "weight", "bias"))):
        s = shapes(graph, graph.nodes[0], 16, device.sms, want=frozenset(want))
        assert s.algorithm == algorithm
        for variants in calls_gemm.parts("conv2d", direction, s).values():
            allowed = candidates(variants, algorithm)
            assert {algorithm_of(v.name) for v in allowed} == {kind}
            assert len(candidates(variants, "auto")) > len(allowed) or len(variants) > CANDIDATES


def test_little_scratch_memory_leaves_the_variants_that_need_little():
    device = ShimDevice()
    s = convolution_shapes(device)
    choice = Choice(device)
    most = choice.scratch("conv2d", "backward", s)
    assert choice.scratch("conv2d", "backward", s, 0) == 0 < most
    for limit in range(0, most, most // 9):
        need = choice.scratch("conv2d", "backward", s, limit)
        assert need <= limit
        calls = choice.calls("conv2d", "backward", s, need)
        assert calls == choice.calls("conv2d", "backward", s, need)  # what was planned is what is bound


def test_within_a_bound_the_fastest_that_keeps_it_is_taken():
    """The fastest of all needs more; measured once, the order tells the next."""
    device, choice = Timed(1), None
    s = convolution_shapes(device)
    (variants,) = [v for part, v in calls_gemm.parts("conv2d", "backward", s).items() if part == "dgrad"]
    device.measure = lambda launches: 1.0 / (1 + sum(call.grid[0] for call, _ in launches))
    choice = Choice(device)
    choice.scratch("conv2d", "backward", s)
    asked = choice.measured
    for limit in {v.scratch for v in variants}:
        choice.scratch("conv2d", "backward", s, limit)
    assert choice.measured == asked == 2


@pytest.mark.parametrize("op", ["conv2d", "linear"])
def test_each_part_can_be_done_without_scratch_memory(op):
    """So that a last batch of few samples runs in what was planned for a whole one, whatever that is."""
    device = ShimDevice()
    for sms in (4, 20, 132):
        s = replace(convolution_shapes(device) if op == "conv2d" else linear_shapes(device), sms=sms)
        for direction in ("forward", "backward"):
            for n in (1, 2, 3, 7, 16, 63, 64, 100):
                for variants in calls_gemm.parts(op, direction, replace(s, N=n)).values():
                    assert min(v.scratch for v in variants) == 0


def test_parts_have_scratch_memory_of_their_own_so_that_they_can_run_at_once():
    device = ShimDevice()
    s = convolution_shapes(device)
    chosen = [variants[0] for variants in calls_gemm.parts("conv2d", "backward", s).values()]
    need = Choice(device).scratch("conv2d", "backward", s)
    assert need >= sum(v.scratch for v in chosen)
    calls, spans = chosen_calls(Choice(device), "conv2d", "backward", s), []
    for variant in chosen:
        mine = [arg for call in calls[: len(variant.calls)] for arg in call.args if isinstance(arg, Ref)]
        spans.append([(arg.offset, arg.offset + arg.bytes) for arg in mine if arg.role == "scratch"])
        calls = calls[len(variant.calls) :]
    one, other = spans
    assert one and other and not calls
    assert all(a_end <= b or b_end <= a for a, a_end in one for b, b_end in other)


def test_a_damaged_table_is_measured_anew(tmp_path):
    path = tmp_path / "table.json"
    for text in ("", "[1, 2]", '{"a": "b"}', "{", '{"a": [1, 0]}'):
        path.write_text(text)
        assert Choice(ShimDevice(), path).table == {}


def test_the_choices_of_an_earlier_run_hold_whatever_the_table_says(tmp_path):
    device, path = Timed(3), tmp_path / "table.json"
    choice, s = Choice(device, path), linear_shapes(device)
    want = chosen_calls(choice, "linear", "backward", s)
    choice.save()
    given = dict(choice.used)
    assert len(given) == 1
    path.write_text(json.dumps({key: sorted(order) for key, order in given.items()}))
    assert chosen_calls(Choice(Timed(1), path), "linear", "backward", s) != want
    assert chosen_calls(Choice(Timed(1), path, given), "linear", "backward", s) == want
