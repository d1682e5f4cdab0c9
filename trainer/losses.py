"""The losses: each gives the mean loss over the batch and its gradient.

    z  (N,...,C)  the network's output: logits, not probabilities; float32 or float64
    t  class numbers (N,...), integers; mse and bce also take values of z's own shape
    -> (loss as Python float, dz with z's shape and dtype)
Class numbers are trusted to lie in 0..C-1: the data side has checked them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .errors import UserError
from .fields import ANY, Field, Options
from .ops.activations import sigmoid

Result = tuple[float, np.ndarray]


def cross_entropy(
    z: np.ndarray,
    t: np.ndarray,
    label_smoothing: float = 0.0,
    class_weights: np.ndarray | None = None,
    share: float = 1.0,
) -> Result:
    """Softmax and negative log-likelihood in one, without overflow, because the maximum is subtracted first.

        l_i = - sum_c q_ic log p_ic        log p_ic = z_ic - max_c z_ic - log sum_c e^(z_ic - max_c z_ic)
        q_ic = w_c ((1 - s) [c = t_i] + s / C)       loss = sum_i l_i / W,  W = sum_i w_(t_i)
        dz_ic = (p_ic sum_c q_ic - q_ic) / W
    s is label_smoothing (Szegedy et al., CVPR 2016), w are class_weights (all 1 if None). As in PyTorch, the
    mean is weighted. A batch whose weights are all 0 has loss 0.
    A batch that is mixed with itself in opposite order (data/mix.py) has a second class u_i = t_(N-1-i):
        q_ic = w_c ((1 - s) (share [c = t_i] + (1 - share) [c = u_i]) + s / C)
    """
    rows, index = _rows(z), np.arange(t.size)
    t, C, s = t.reshape(-1), z.shape[-1], z.dtype.type(label_smoothing)
    logp = rows - rows.max(-1, keepdims=True)
    e = np.exp(logp)
    total = e.sum(-1, keepdims=True)
    logp -= np.log(total)
    w = np.ones(C, z.dtype) if class_weights is None else np.asarray(class_weights, z.dtype)
    of_class = (1 - s) * w[t]  # q at the true class, without the smoothing
    of_other = None
    if share != 1:
        of_class, of_other = of_class * z.dtype.type(share), of_class[::-1] * z.dtype.type(1 - share)
    each = -of_class * logp[index, t]
    q_sum = of_class
    if of_other is not None:
        each = each - of_other * logp[index, t[::-1]]
        q_sum = q_sum + of_other
    if label_smoothing:
        each = each - (logp @ w) * (s / C)
        q_sum = q_sum + w.sum() * (s / C)
    W = float(w[t].sum(dtype=np.float64))
    if W == 0:
        return 0.0, np.zeros_like(z)
    dz = np.multiply(e, q_sum[:, None] / total, out=e)
    dz[index, t] -= of_class
    if of_other is not None:
        dz[index, t[::-1]] -= of_other
    if label_smoothing:
        dz -= w * (s / C)
    dz /= z.dtype.type(W)
    return float(each.sum(dtype=np.float64) / W), dz.reshape(z.shape)


def logit_margin(z: np.ndarray, t: np.ndarray, m: float = 0.3) -> Result:
    """The multiclass hinge of Crammer and Singer (JMLR 2001): the true logit should lead the next by m.

    l_i = max(0, m - z_it + max_(j != t) z_ij)
    dz_it = -1/N, dz_ij = +1/N where l_i > 0, with the first j that has the maximum
    """
    rows, t = _rows(z), t.reshape(-1)
    N, index = len(rows), np.arange(len(t))
    others = rows.copy()
    others[index, t] = -np.inf
    rival = others.argmax(-1)
    each = np.maximum(z.dtype.type(m) - rows[index, t] + others[index, rival], 0)
    dz, share = np.zeros_like(rows), z.dtype.type(1 / N) * (each > 0)
    dz[index, rival] += share
    dz[index, t] -= share
    return float(each.mean(dtype=np.float64)), dz.reshape(z.shape)


def mse(z: np.ndarray, t: np.ndarray) -> Result:
    """The mean of (z - t)^2 over all values; class numbers count as one-hot rows. dz = 2 (z - t) / size."""
    d = z - targets(z, t)
    return float(np.mean(np.square(d), dtype=np.float64)), d * z.dtype.type(2 / z.size)


def bce(z: np.ndarray, t: np.ndarray) -> Result:
    """Binary cross-entropy of sigmoid(z), mean over all values; class numbers count as one-hot rows, for one
    output as 0 or 1. Written so that e is never raised to a positive power:

        l = max(z, 0) - z t + log(1 + e^-|z|)          dz = (sigmoid(z) - t) / size
    """
    y = targets(z, t)
    each = np.maximum(z, 0) - z * y + np.log1p(np.exp(-np.abs(z)))
    return float(each.mean(dtype=np.float64)), (sigmoid(z) - y) * z.dtype.type(1 / z.size)


def targets(z: np.ndarray, t: np.ndarray) -> np.ndarray:
    """t in z's shape and dtype: as it is if it has as many values, else one-hot rows of class numbers."""
    if t.size == z.size:
        return t.reshape(z.shape).astype(z.dtype, copy=False)
    return np.eye(z.shape[-1], dtype=z.dtype)[t.reshape(-1)].reshape(z.shape)


def _rows(z: np.ndarray) -> np.ndarray:
    return z.reshape(-1, z.shape[-1])


@dataclass(frozen=True)
class Loss:
    """One entry of LOSSES. `classification`: t must be class numbers."""

    function: Callable[..., Result]
    fields: tuple[Field, ...]
    classification: bool


LOSSES = {
    "cross_entropy": Loss(
        cross_entropy,
        (
            Field("label_smoothing", "number", 0, 0.999, 0.0, doc="share of the target that all classes get"),
            Field("class_weights", "numbers", 0, 1e6, counts=ANY, words=("auto",),
                  doc="one weight for each class; auto: such that classes with few samples count as much"),
        ),
        True,
    ),
    "logit_margin": Loss(
        logit_margin,
        (Field("m", "number", 0, 1e6, 0.3, doc="by how much the true class should lead"),),
        True,
    ),
    "mse": Loss(mse, (), False),
    "bce": Loss(bce, (), False),
}
FIELDS = {name: loss.fields for name, loss in LOSSES.items()}


@dataclass(frozen=True)
class BoundLoss:
    """A loss with its settings: loss(z, t) -> (mean loss, dz). share: of a mixed batch, for cross_entropy only."""

    name: str
    settings: dict[str, Any]
    classification: bool

    def __call__(self, z: np.ndarray, t: np.ndarray, share: float = 1.0) -> Result:
        mixed = {} if share == 1 else {"share": share}
        return LOSSES[self.name].function(z, t, **self.settings, **mixed)

    def check_outputs(self, outputs: int, where: str) -> None:
        """Refuse settings that do not fit a network of so many outputs."""
        weights = self.settings.get("class_weights")
        if isinstance(weights, str):
            raise UserError(
                f"{where}: class_weights is auto, which takes the training data to decide.\n"
                "  Train with edge-train, or give one number for each class."
            )
        if weights is not None and len(weights) != outputs:
            raise UserError(
                f"{where}: class_weights has {len(weights)} numbers, but the network has {outputs} outputs.\n"
                "  Give one weight for each class."
            )

    def predictions(self, z: np.ndarray, t: np.ndarray | None = None) -> np.ndarray | None:
        """The class numbers a user would read from z; None where z is no choice among classes.

        mse and bce are one only if t holds class numbers (or z has the one output of a yes-or-no bce).
        """
        if self.name == "bce" and z.shape[-1] == 1:
            return (z[..., 0] > 0).astype(np.int64)
        as_classes = t is not None and t.dtype.kind in "iu" and t.ndim == z.ndim - 1 and z.shape[-1] > 1
        return z.argmax(-1) if self.classification or as_classes else None


def make_loss(options: Options, where: str = "loss") -> BoundLoss:
    """The loss a blueprint names."""
    settings = dict(options.fields)
    if not isinstance(settings.get("class_weights", ""), str):
        weights = np.atleast_1d(np.asarray(settings["class_weights"], np.float64))
        if not weights.any():
            raise UserError(f"{where}: all class_weights are 0.\n  Give at least one class a weight above 0.")
        settings["class_weights"] = weights
    return BoundLoss(options.type, settings, LOSSES[options.type].classification)
