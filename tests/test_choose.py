"""Choosing kernel variants, and the text that goes to the compiler."""

import json
import re

import pytest
from nets import SMALL, graph_of
from shim_device import ShimDevice

from litenet.trainer.backends.device import shapes, workspace
from litenet.trainer.errors import UserError
from litenet.trainer.fuse import for_training
from litenet.trainer.kernels import calls_gemm
from litenet.trainer.kernels.choose import CANDIDATES, Choice
from litenet.trainer.kernels.source import FOLDER, source
from litenet.trainer.losses import make_loss
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


def test_the_variant_that_measured_fastest_is_used_and_remembered(tmp_path):
    device, path = Timed(3), tmp_path / "card" / "table.json"
    choice, s = Choice(device, path), linear_shapes(Timed(3))
    variants = calls_gemm.parts("linear", "backward", s)["backward"]
    assert len(variants) > 3
    assert choice.calls("linear", "backward", s) == list(variants[2].calls)
    assert choice.scratch("linear", "backward", s) == variants[2].scratch
    assert device.asked == min(len(variants), CANDIDATES)
    assert device.released == 1
    choice.save()
    again = Choice(Timed(1), path)
    assert again.calls("linear", "backward", s) == list(variants[2].calls)
    assert again.measured == 0
    assert list(json.loads(path.read_text()).values()) == [2]


def test_a_device_that_cannot_measure_takes_the_expected_best():
    device = ShimDevice()
    s = linear_shapes(device)
    assert Choice(device).calls("linear", "forward", s) == calls_gemm.CALLS["linear"]("forward", s)


def test_a_table_that_cannot_be_written_stops_nothing(tmp_path):
    (tmp_path / "file").write_text("")
    choice = Choice(Timed(1), tmp_path / "file" / "table.json")
    choice.calls("linear", "forward", linear_shapes(choice.device))
    choice.save()


def test_scratch_of_the_chosen_variants_lies_in_the_arena():
    device = ShimDevice()
    graph = for_training(graph_of(SMALL), "cross_entropy")
    plan = plan_training(graph, 8, needs=Needs({}, workspace(Choice(device), make_loss(_options()), True)))
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
