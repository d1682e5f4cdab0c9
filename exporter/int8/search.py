"""Which ranges, weights and biases suit one net: tried on its own samples, kept where the output comes nearer.

What counts is the signal-to-noise ratio of the net's scores in decibels: 10 log10 (sum of squares of the float scores /
sum of squares of the differences). Scores are what a last softmax reads, else the outputs. All is counted in
multiplications, not seconds, so that the same samples give the same file each time on one machine.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from litenet.trainer.graph import Graph, Node
from litenet.trainer.int8 import net as nets
from litenet.trainer.int8 import ops
from litenet.trainer.int8.net import Net
from litenet.trainer.int8.scheme import Quant

from ..fold import run
from ..format import Preprocessing
from . import bias, equalise
from .graphs import WEIGHTED, tied
from .lower import Weights, lower
from .ranges import BATCH, METHODS, Range, assign, observe, ranges

LEAST_GAIN = 0.05  # decibels a change must bring
SAME = 0.02  # of a range: what its ends may be apart from another's that counts as the same
WORK = 150e9  # multiplications that one search may take in trials
LOOK, SEEN = 60e9, 64  # multiplications of one look at the samples; and how many are seen in any case
FEWEST, MOST = 16, 256  # samples a trial looks at
CANDIDATES, MOST_FREED = 6, 8  # layers that are tried as floats in one round; and that become such in all


@dataclass(frozen=True)
class Subject:
    """What is to become whole numbers. graph: activations apart. x: what goes in as the float net takes it, float32;
    frames: the same as bytes, where the input is a picture. fixed: quants that are given, by tensor."""

    graph: Graph
    weights: Weights
    frame: Preprocessing
    x: np.ndarray
    frames: np.ndarray | None
    fixed: Mapping[int, Quant] = field(default_factory=dict)

    def first(self, count: int) -> Subject:
        return replace(self, x=self.x[:count], frames=None if self.frames is None else self.frames[:count])


@dataclass(frozen=True)
class Choice:
    """weights: as given, or equalised. methods and chosen: the range of each tensor, and how it was found.
    corrections: added to biases. floats: nodes that stay float32."""

    weights: Weights
    methods: dict[int, str]
    chosen: dict[int, Range]
    floats: frozenset[str]
    corrections: dict[str, np.ndarray] = field(default_factory=dict)
    equalised: bool = False

    def net(self, of: Subject) -> Net:
        quants = assign(of.graph, self.weights, self.chosen, self.floats, of.fixed)
        return lower(of.graph, self.weights, quants, self.floats, of.frame, self.corrections)


def entering(net: Net, of: Subject) -> np.ndarray:
    """The samples as this net takes them: pictures by whole numbers where it does."""
    if net.picture is not None and of.frames is not None:
        return ops.frame(of.frames.reshape(len(of.frames), *net.graph.input_shape), *net.picture)
    return nets.enter(net, of.x)


def score_tensors(graph: Graph) -> list[int]:
    made = {n.output: n for n in graph.nodes}
    return [made[t].inputs[0] if t in made and made[t].op == "softmax" else t for t in graph.outputs]


def float_scores(of: Subject) -> np.ndarray:
    """(N, all scores) of the float net."""
    parts = []
    for at in range(0, len(of.x), BATCH):
        held = run(of.graph, of.weights, of.x[at : at + BATCH])
        parts.append(np.concatenate([held[t].reshape(len(held[t]), -1) for t in score_tensors(of.graph)], 1))
    return np.concatenate(parts)


def decibels(want: np.ndarray, got: np.ndarray) -> float:
    """Signal over noise; 200 where nothing differs."""
    signal = float((want.astype(np.float64) ** 2).sum())
    noise = float(((want.astype(np.float64) - got) ** 2).sum())
    if not math.isfinite(noise):
        return -200.0
    return 200.0 if noise == 0 else max(10 * math.log10(max(signal, 1e-30) / noise), -200.0)


class Trials:
    """Runs choices on the same samples and remembers the best, with every tensor of it, so that the next trial
    calculates only what differs."""

    def __init__(self, of: Subject):
        self.of, self.want = of, float_scores(of)
        self.score, self.got = -math.inf, self.want
        self.choice: Choice | None = None
        self.net: Net | None = None
        self.tensors: dict[int, np.ndarray] = {}
        self.tried = 0

    def try_out(self, choice: Choice, gain: float = LEAST_GAIN) -> float:
        """Its score; if that is better than the best by `gain`, it is the best from now on."""
        net = choice.net(self.of)
        score, got, tensors = self.rate(net)
        self.tried += 1
        if score >= self.score + gain or self.choice is None:
            self.score, self.got, self.choice, self.net, self.tensors = score, got, choice, net, tensors
        return score

    def rate(self, net: Net) -> tuple[float, np.ndarray, dict[int, np.ndarray]]:
        """(decibels, the scores, every tensor) of a net."""
        tensors = self.outputs(net)
        found = [nets.real(net, t, tensors[t]) for t in score_tensors(net.graph)]
        got = np.concatenate([y.reshape(len(y), -1) for y in found], 1)
        return decibels(self.want, got), got, tensors

    def outputs(self, net: Net) -> dict[int, np.ndarray]:
        """Every tensor; those of the best that cannot differ are taken over."""
        old = self.net
        same_graph = old is not None and [n.name for n in old.graph.nodes] == [n.name for n in net.graph.nodes]
        tensors = {net.graph.input: entering(net, self.of)}
        if old is None or not same_graph or old.quants.get(net.graph.input) != net.quants.get(net.graph.input):
            old = None
        kept = {net.graph.input} if old is not None else set()
        for n in net.graph.nodes:
            if old is not None and kept.issuperset(n.inputs) and _equal(old, net, n):
                kept.add(n.output)
                tensors[n.output] = self.tensors[n.output]
            else:
                tensors[n.output] = nets.step(net, n, [tensors[t] for t in n.inputs])
        return tensors


def _equal(a: Net, b: Net, n: Node) -> bool:
    return (
        a.numbers.get(n.name) == b.numbers.get(n.name)
        and all(a.quants.get(t) == b.quants.get(t) for t in (*n.inputs, n.output))
        and all(np.array_equal(a.weights[name], b.weights[name]) for name in n.params.values())
    )


@dataclass(frozen=True)
class Found:
    """choice, what it scores in decibels, and what else was tried: (text, decibels)."""

    choice: Choice
    score: float
    tried: int
    tries: list[tuple[str, float]]
    trials: Trials


def given(of: Subject, floats: Collection[str]) -> Found:
    """No search: every scale that training had is in of.fixed, and the weights are its own."""
    chosen = dict.fromkeys(range(len(of.graph.tensors)), (0.0, 0.0)) | {t: q.range for t, q in of.fixed.items()}
    trials = Trials(of.first(samples_for(of.graph, len(of.x))))
    choice = Choice(of.weights, dict.fromkeys(of.fixed, "trained"), chosen, frozenset(floats))
    return Found(choice, trials.try_out(choice), 1, [("as trained", trials.score)], trials)


def samples_for(graph: Graph, available: int) -> int:
    """How many samples a trial looks at, so that trying every range of every tensor stays within WORK."""
    macs = max(sum(graph.macs(n) for n in graph.nodes), 1)
    trials = 8 + len(METHODS) * len(graph.nodes) / 2
    return int(min(max(WORK / (macs * trials), FEWEST), MOST, available))


def search(of: Subject, floats: Collection[str]) -> Found:
    """Every method for all tensors at once, plain and equalised; then each group of tensors alone; then the biases."""
    apart = frozenset(floats)
    macs = max(sum(of.graph.macs(n) for n in of.graph.nodes), 1)
    of = of.first(int(max(LOOK / macs, SEEN)))
    groups = tied(of.graph, apart)
    few = of.first(samples_for(of.graph, len(of.x)))
    trials = Trials(few)
    tries: list[tuple[str, float]] = []
    other = equalise.equalised(of.graph, of.weights, of.x)
    every = [(False, of.weights)] + ([(True, other)] if other is not None else [])
    cuts: dict[bool, dict[str, dict[int, Range]]] = {}
    for is_equalised, weights in every:
        cuts[is_equalised] = ranges(observe(of.graph, weights, of.x, groups), groups)
        for name, chosen in cuts[is_equalised].items():
            chosen = _picture_range(of, groups, chosen)
            choice = Choice(weights, dict.fromkeys(chosen, name), chosen, apart, {}, is_equalised)
            tries.append((name + (", equalised" if is_equalised else ""), trials.try_out(choice)))
    best = trials.choice
    assert best is not None
    _each_group(of, trials, cuts[best.equalised], groups)
    found = _biases(trials)
    if found is not None:
        tries.append(("biases corrected", found))
    assert trials.choice is not None
    return Found(trials.choice, trials.score, trials.tried, tries, trials)


def quants_of(graph: Graph, weights: Weights, x: np.ndarray, floats: Collection[str]) -> dict[int, Quant]:
    """A scale for every tensor, by the method that is best for the whole net: what training with whole numbers begins
    with. x: float32, as the net takes it."""
    of = Subject(graph, weights, Preprocessing(), x, None)
    groups = tied(graph, floats)
    trials = Trials(of.first(samples_for(graph, len(x))))
    for name, chosen in ranges(observe(graph, weights, x, groups), groups).items():
        trials.try_out(Choice(weights, dict.fromkeys(chosen, name), chosen, frozenset(floats)))
    assert trials.choice is not None
    return assign(graph, weights, trials.choice.chosen, floats, {})


def _picture_range(of: Subject, groups: Mapping[int, int], chosen: dict[int, Range]) -> dict[int, Range]:
    """A picture's bytes are 256 steps already: its range is theirs, whatever the samples hold."""
    if of.frames is None or of.frame.color == "none":
        return chosen
    ends = [((0 - m) / s, (255 - m) / s) for m, s in zip(of.frame.mean, of.frame.std, strict=True)]
    whole = min(lo for lo, _ in ends), max(hi for _, hi in ends)
    return chosen | {t: whole for t, r in groups.items() if r == groups[of.graph.input]}


def _each_group(of: Subject, trials: Trials, cuts: dict[str, dict[int, Range]], groups: Mapping[int, int]) -> None:
    """Each group of tensors in turn by every other method."""
    for r in sorted({groups[n.output] for n in of.graph.nodes}):
        members = [t for t, root in groups.items() if root == r]
        for name, chosen in cuts.items():
            best = trials.choice
            assert best is not None
            if _differ(chosen[r], best.chosen[r]):
                methods = best.methods | dict.fromkeys(members, name)
                trials.try_out(replace(best, methods=methods, chosen=best.chosen | dict.fromkeys(members, chosen[r])))


def _differ(a: Range, b: Range) -> bool:
    """Whether two ranges are worth a trial each: ends that are less than a fiftieth of the range apart are not."""
    return max(abs(a[0] - b[0]), abs(a[1] - b[1])) > SAME * (b[1] - b[0])


def free(trials: Trials, lost: Callable[[np.ndarray], float], allowed: float, wholes: Sequence[str]) -> list[str]:
    """While the best loses more than `allowed` (lost: of its scores, (N, all)), the layer becomes float that brings the
    scores nearest; of `wholes`, its int8 layers from the noisiest on, the first few are tried. Their names."""
    freed: list[str] = []
    while len(freed) < MOST_FREED and lost(trials.got) > allowed:
        best, before = trials.choice, trials.score
        assert best is not None
        for name in [n for n in wholes if n not in best.floats][:CANDIDATES]:
            trials.try_out(replace(best, floats=best.floats | {name}))
        if trials.score == before or trials.choice is None:
            break
        freed += sorted(trials.choice.floats - best.floats)
    return freed


def _biases(trials: Trials) -> float | None:
    best, net = trials.choice, trials.net
    assert best is not None and net is not None
    if not any(n.op in WEIGHTED and net.is_int8(n) for n in net.graph.nodes):
        return None
    held = run(trials.of.graph, best.weights, trials.of.x)
    found = bias.corrected(trials.of.graph, best.weights, net, held, entering(net, trials.of))
    return trials.try_out(replace(best, corrections=found))
