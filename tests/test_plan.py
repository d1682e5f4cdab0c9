"""The planner: offsets worked out by hand, no two live buffers overlapping, and nothing read after it is dead."""

import numpy as np
import pytest
from nets import EVERYTHING, SMALL, graph_of, net, random_layers

from litenet.trainer import memory
from litenet.trainer.arena import align, max_live, place
from litenet.trainer.errors import UserError
from litenet.trainer.fuse import for_inference, for_training
from litenet.trainer.plan import plan_device, plan_inference, plan_training
from litenet.trainer.trainer import Trainer


def test_buffers_are_placed_as_worked_out_by_hand():
    """launch    0 1 2 3
    a 300        # #           largest first: a at 0, d at 0 (a is dead by then),
    b 100          # #         c at 300, above d, and b above both a (launch 1) and c (launch 2)
    c 200            # #
    d 300              #
    """
    lifetimes = [(300, 0, 1), (100, 1, 2), (200, 2, 3), (300, 3, 3)]
    offsets, total, bound = place(lifetimes, 100)
    by_size = [0, 500, 300, 0]  # 600 in all; in order of first use: a 0, b 300, c 0, d 200, which is 500
    assert offsets != by_size
    assert (offsets, total, bound) == ([0, 300, 0, 200], 500, 500)


def test_a_gap_of_the_right_size_is_taken_before_a_larger_one():
    lifetimes = [(400, 0, 9), (300, 0, 4), (200, 0, 9), (170, 0, 4), (160, 0, 9), (150, 5, 9)]
    offsets, total, bound = place(lifetimes, 10)
    assert offsets == [0, 400, 700, 900, 1070, 900]  # the last: not into the 300 bytes at 400
    assert (total, bound) == (1230, 1230)


def test_sizes_are_rounded_up_to_the_alignment():
    assert [align(n, 64) for n in (0, 1, 64, 65)] == [0, 64, 64, 128]
    offsets, total, _ = place([(1, 0, 0), (65, 0, 0)], 64)
    assert (sorted(offsets), total) == ([0, 128], 192)
    assert place([], 64) == ([], 0, 0)


def test_training_step_of_a_small_net_is_planned_as_worked_out_by_hand():
    """conv(1->4, 3x3)+relu, maxpool 2, flatten, linear 64->3 on 8x8, batch 2; 256-byte units, plain SGD at the end.

    launch            0 load  1 conv  2 pool  3 linear  4 loss  5 linear'  6 pool'  7 conv'
    input   512         # ------------------------------------------------------------ #
    target  256         # ------------------------------- #
    conv   2048                 # ---------------------------------------------------- #   relu's mask
    pool    512                         # ------------------------ #
    index   256 (128)                   # -------------------------------- #
    logits  256 (24)                           # -- #-------- #    d logits overwrites logits
    d pool  512                                               # ---------- #
    d conv 2048                                                            # --------- #
    Most is alive at launch 6: 512 + 2048 + 256 + 512 + 2048 = 5376.
    """
    graph = for_training(graph_of(SMALL), "cross_entropy")
    plan = plan_training(graph, 2)
    names = [launch.name for launch in plan.launches]
    assert names == ["load", "layer_0.forward", "layer_1.forward", "layer_3.forward", "loss", "layer_3.backward",
                     "layer_1.backward", "layer_0.backward", "clip", "update"]  # fmt: skip
    live = {b.name: (b.bytes, b.first, b.last) for b in plan.buffers if not b.persistent}
    assert live == {
        "input": (512, 0, 7),
        "target": (8, 0, 4),
        "layer_0": (2048, 1, 7),
        "layer_1": (512, 2, 5),
        "layer_1:index": (128, 2, 6),
        "layer_3": (24, 3, 5),
        "d:layer_2": (512, 5, 6),
        "d:layer_0": (2048, 6, 7),
    }
    # weights 36+4+192+3 floats, each tensor from a multiple of 16 bytes, each kind from a multiple of 256
    weights = 144 + 16 + 768 + 12
    assert plan.persistent_bytes == 2 * align(weights, 256)  # weights and gradients
    assert plan.lower_bound - plan.persistent_bytes == 5376
    assert plan.arena_bytes == plan.lower_bound


def test_gradients_that_are_used_up_at_once_need_no_lasting_place():
    graph = for_training(graph_of(SMALL), "cross_entropy")
    end, immediate = plan_training(graph, 2), plan_training(graph, 2, update="immediate")
    assert {b.kind for b in end.buffers} - {b.kind for b in immediate.buffers} == {"gradients"}
    assert immediate.arena_bytes < end.arena_bytes
    names = [launch.name for launch in immediate.launches]
    assert names.index("layer_3.weight.update") < names.index("layer_1.backward")


def overlaps(plan):
    """Pairs of buffers that are alive during one launch and share bytes."""
    placed = [b for b in plan.buffers if b.kind != "external" and b.bytes]
    return [
        (p.name, q.name)
        for i, p in enumerate(placed)
        for q in placed[:i]
        if p.first <= q.last and q.first <= p.last and p.offset < q.offset + q.bytes and q.offset < p.offset + p.bytes
    ]


@pytest.mark.parametrize("seed", range(25))
def test_no_two_live_buffers_overlap_in_random_nets(seed):
    rng = np.random.default_rng(seed)
    graph = graph_of(random_layers(rng, int(rng.integers(1, 9))), (int(rng.integers(1, 4)), 8, 8))
    states = [(), ("velocity",), ("m", "v")][seed % 3]
    trained, device = for_training(graph, "cross_entropy"), for_inference(graph)
    plans = [plan_training(trained, int(rng.integers(1, 9)), states, mode) for mode in ("end", "immediate")]
    plans += [plan_inference(device, 3), plan_device(device)]
    for plan in plans:
        assert overlaps(plan) == []
        assert plan.arena_bytes >= plan.lower_bound
        for b in plan.buffers:
            assert b.kind == "external" or b.offset + b.bytes <= plan.arena_bytes
            assert b.persistent or b.kind == "external" or b.offset % (16 if plan is plans[-1] else 256) == 0


@pytest.mark.parametrize("seed", range(12))
def test_dead_regions_may_be_filled_with_nan_and_change_no_bit(seed):
    """The NumPy backend trains and evaluates inside the arena; poison shows every read of a dead region."""
    rng = np.random.default_rng(100 + seed)
    layers = EVERYTHING if seed == 0 else random_layers(rng, 5)
    blueprint = net(layers, (2, 8, 8), optimizer=["sgd", "momentum", "adam"][seed % 3], learning_rate=0.01)
    mode = ("end", "immediate")[seed % 2]
    results = []
    x = np.random.default_rng(1).standard_normal((6, 8, 8, 2)).astype(np.float32)
    y = np.array([0, 1, 2, 0, 1, 2])
    for poison in (False, True):
        trainer = Trainer(blueprint, 6, seed=3, update=mode, poison=poison)
        for rows in (6, 6, 4):
            trainer.micro(x[:rows], y[:rows])
            if mode == "end":
                trainer.optimizer.update(trainer.model.weights, trainer.gradients)
        results.append((trainer.state_arrays(), trainer.infer(x[:5])))
    (plain, out), (poisoned, out2) = results
    assert np.isfinite(out).all()
    assert out.tobytes() == out2.tobytes()
    for name in plain:
        assert plain[name].tobytes() == poisoned[name].tobytes(), name


def test_poison_is_noticed_when_a_plan_frees_too_early():
    """The test above could not fail if poisoning did nothing: cut a lifetime short and see NaN come out."""
    from dataclasses import replace

    trainer = Trainer(net(SMALL), 2, poison=True)
    buffers = tuple(replace(b, last=2) if b.name == "input" else b for b in trainer.plan.buffers)
    trainer.plan = replace(trainer.plan, buffers=buffers)
    trainer.micro(np.ones((2, 8, 8, 1), np.float32), np.array([0, 1]))
    assert np.isnan(trainer.gradients["layer_0.weight"]).any()


def test_device_plan_holds_only_what_lies_between_input_and_output():
    plan = plan_device(for_inference(graph_of(SMALL)))
    assert plan.persistent_bytes == 0
    assert {b.name for b in plan.buffers if b.kind == "external"} >= {"input", "layer_3", "layer_0.weight"}
    assert plan.arena_bytes == 8 * 8 * 4 * 4 + 4 * 4 * 4 * 4  # conv and pool outputs


def test_reuse_ratios_follow_their_formulas():
    graph = for_training(graph_of(SMALL), "cross_entropy")
    plan = plan_training(graph, 2)
    found = memory.report(plan)
    forward = 512 + 8 + 2048 + 512 + 128 + 512 + 24  # input, target, conv, pool, its index, flatten, logits
    backward = 24 + 512 + 512 + 2048  # the gradients of logits, flatten, pool, conv
    assert found.reuse_by_bytes == pytest.approx(1 - found.transient / (forward + backward))
    assert 0 < found.reuse_by_count <= 1
    assert found.peak_launch == "layer_1.backward"
    assert sum(size for _, _, size in found.peak_owners) == 512 + 2048 + 128 + 512 + 2048
    assert sum(found.by_owner.values()) == sum(b.bytes for b in plan.buffers)
    assert max_live([(b.bytes, b.first, b.last) for b in plan.buffers if not b.persistent])[1] == 6


def test_largest_batch_is_exact():
    graph = for_training(graph_of(SMALL), "cross_entropy")

    def need(batch):
        return plan_training(graph, batch).arena_bytes

    for budget in (need(1), need(7), need(33) + 5):
        best = memory.largest_batch(need, budget)
        assert need(best) <= budget < need(best + 1)
    assert memory.largest_batch(need, need(1) - 1) == 0


@pytest.mark.parametrize(
    ("text", "size"), [("2GB", 2 * 10**9), ("512 MiB", 512 * 2**20), ("1.5g", 15 * 10**8), ("4096", 4096)]
)
def test_sizes_are_read_with_their_units(text, size):
    assert memory.parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "GB", "two", "2 elephants", "1..5GB"])
def test_sizes_that_mean_nothing_are_refused(text):
    with pytest.raises(UserError, match="2GB"):
        memory.parse_bytes(text)
