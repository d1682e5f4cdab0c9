"""Figures against numbers worked out by hand: confusion, precision, recall, log loss, calibration, worst mistakes."""

from math import log

import numpy as np
import pytest

from litenet.pyruntime import answers
from litenet.trainer.fields import Options
from litenet.trainer.losses import make_loss
from litenet.trainer.report.figures import calibration, confused, figures, probabilities, worst

P = np.array([[0.8, 0.1, 0.1], [0.3, 0.6, 0.1], [0.1, 0.9, 0.0], [0.2, 0.7, 0.1], [0.0, 0.25, 0.75], [0.5, 0.2, 0.3]])
Y = np.array([0, 0, 1, 1, 2, 2])


def test_six_answers_give_the_figures_worked_out_by_hand():
    found = figures(P, Y)
    assert found.confusion.tolist() == [[1, 1, 0], [0, 2, 0], [1, 0, 1]]
    assert found.samples == 6
    assert found.accuracy == pytest.approx(4 / 6)
    assert found.precision == pytest.approx([1 / 2, 2 / 3, 1])
    assert found.recall == pytest.approx([1 / 2, 1, 1 / 2])
    assert found.f1 == pytest.approx([1 / 2, 4 / 5, 2 / 3])
    assert found.macro_f1 == pytest.approx((1 / 2 + 4 / 5 + 2 / 3) / 3)
    assert found.log_loss == pytest.approx(-sum(map(log, (0.8, 0.3, 0.9, 0.7, 0.75, 0.3))) / 6)
    assert found.confidence == pytest.approx((0.8 + 0.6 + 0.9 + 0.7 + 0.75 + 0.5) / 6)
    assert found.top5 is None
    # by bins of 1/15: 0.5 and 0.6 wrong, 0.7 right, 0.75 and 0.8 together right, 0.9 right
    assert found.ece == pytest.approx((0.5 + 0.6 + 0.3 + 2 * 0.225 + 0.1) / 6)


def test_the_bins_hold_each_answer_once_and_their_upper_edge():
    bins = calibration(np.array([0.0, 0.1, 0.2, 0.2001, 1.0]), np.array([0, 0, 1, 1, 1]), 5)
    assert [b.samples for b in bins] == [3, 1, 0, 0, 1]
    assert (bins[0].confidence, bins[0].accuracy) == pytest.approx((0.1, 1 / 3))
    assert (bins[2].confidence, bins[2].accuracy, bins[2].gap) == (None, None, 0)
    assert (bins[4].low, bins[4].high) == pytest.approx((0.8, 1.0))


def test_a_calibrated_net_has_no_calibration_error():
    confidence = np.repeat([0.6, 0.8, 1.0], 50)
    right = np.concatenate([np.arange(50) < 30, np.arange(50) < 40, np.arange(50) < 50])
    p, y = np.stack([confidence, 1 - confidence], 1), np.where(right, 0, 1)
    assert figures(p, y).ece == pytest.approx(0, abs=1e-12)
    assert figures(np.stack([np.ones(150), np.zeros(150)], 1), y).ece == pytest.approx(1 - 120 / 150)


def test_a_class_that_never_occurs_or_is_never_answered_has_no_figure_of_its_own():
    found = figures(P[:4], Y[:4])  # class 2 neither occurs nor is answered
    assert (found.precision[2], found.recall[2], found.f1[2]) == (None, None, None)
    assert found.macro_f1 == pytest.approx((2 / 3 + 4 / 5) / 2)
    assert figures(P[1:2], Y[1:2]).precision[0] is None
    assert figures(P[1:2], Y[1:2]).recall == [0, None, None]


def test_among_the_first_five_counts_the_five_most_probable():
    p = np.array([[0.3, 0.25, 0.2, 0.1, 0.08, 0.07]] * 2)
    assert figures(p, np.array([4, 5])).top5 == 0.5


def test_the_worst_mistakes_are_those_whose_truth_was_least_probable():
    found = figures(P, Y)
    assert worst(P, Y, found.answers, 5).tolist() == [1, 5]
    p = P.copy()
    p[5] = [0.9, 0.1, 0.0]
    assert worst(p, Y, found.answers, 5).tolist() == [5, 1]
    assert worst(p, Y, found.answers, 1).tolist() == [5]
    right = np.array([0, 2, 3, 4])
    assert worst(P[right], Y[right], found.answers[right], 2).tolist() == [2, 3]  # 70 and 75 % sure


def test_the_most_frequent_mistakes_come_first_and_right_answers_never():
    assert confused(np.array([[90, 1, 0], [7, 0, 2], [0, 2, 5]]), 3) == [(1, 0, 7), (1, 2, 2), (2, 1, 2)]
    assert confused(np.diag([3, 4]), 3) == []


@pytest.mark.parametrize(
    ("loss", "last", "outputs"),
    [("cross_entropy", "none", 3), ("cross_entropy", "softmax", 3), ("logit_margin", "none", 3), ("bce", "none", 3),
     ("bce", "sigmoid", 3), ("bce", "none", 1), ("bce", "sigmoid", 1)],
)  # fmt: skip
def test_scores_mean_what_edge_infer_makes_of_them(loss, last, outputs):
    class Layer:
        op, activation = ("softmax", "none") if last == "softmax" else ("linear", last)

    class Engine:
        metadata, layers, output_shape = {"loss": loss}, [Layer], (outputs,)

    scores = np.random.default_rng(0).normal(size=(20, outputs)).astype(np.float32)
    if last == "softmax":
        scores = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    if last == "sigmoid":
        scores = 1 / (1 + np.exp(-scores))
    got = probabilities(scores, make_loss(Options(loss, {})), last)
    want = np.stack([answers.probabilities(Engine, row) for row in scores])
    assert got.shape == want.shape
    assert np.abs(got - want).max() <= 1e-7
