"""The optimizers: one tensor at a time, in place, each element on its own, as a kernel does it.

g is the gradient, w the weight, lr the learning rate of this step, t the number of this step, counted from 1.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from .errors import UserError
from .fields import Field, Options, check_all

_BLOCK = 1 << 15  # elements updated at a time, so that temporaries stay small and in cache

_DECAY = Field("weight_decay", "number", 0, 1, 0.0, doc="how strongly weights are pulled to zero")
_SGD = (
    Field("momentum", "number", 0, 0.9999, 0.0, doc="share of the last step that is kept"),
    Field("nesterov", "flag", default=False, doc="whether the gradient is taken ahead of the step"),
    _DECAY,
)
_ADAM = (
    Field("beta1", "number", 0, 0.9999, 0.9, doc="share of the mean gradient that is kept"),
    Field("beta2", "number", 0, 0.999999, 0.999, doc="share of the mean squared gradient that is kept"),
    Field("eps", "number", 1e-12, 1, 1e-8, doc="added to the root of the mean square"),
    _DECAY,
)
FIELDS = {"sgd": _SGD, "momentum": _SGD, "nesterov": _SGD, "adam": _ADAM, "adamw": _ADAM}

_DEFAULTS: dict[str, dict[str, Any]] = {  # where a name differs from the defaults of its fields
    "momentum": {"momentum": 0.9},
    "nesterov": {"momentum": 0.9, "nesterov": True},
    "adamw": {"weight_decay": 0.01},
}


@dataclass(frozen=True)
class Optimizer(ABC):
    """`states` names the arrays of w's shape and dtype that start as zeros and belong to one tensor."""

    name: str
    states: tuple[str, ...]
    weight_decay: float = 0.0

    def apply(
        self, w: np.ndarray, g: np.ndarray, state: Mapping[str, np.ndarray], lr: float, t: int, decay: bool
    ) -> None:
        """Update w and its state in place; g is only read. All are C-contiguous and of one dtype, in which
        every operation is done. decay False leaves out weight decay, as is usual for biases and norms."""
        parts = [array.reshape(-1) for array in (w, g, *(state[name] for name in self.states))]
        if not all(array.flags.c_contiguous for array in (w, *state.values())):
            raise ValueError("weights and states must be contiguous to be updated in place")
        wd = self.weight_decay if decay else 0.0
        for start in range(0, w.size, _BLOCK):
            self._block(*(part[start : start + _BLOCK] for part in parts), lr=float(lr), t=t, wd=wd)

    @abstractmethod
    def _block(self, w: np.ndarray, g: np.ndarray, *state: np.ndarray, lr: float, t: int, wd: float) -> None:
        """`apply` for some consecutive values, with the weight decay wd."""


@dataclass(frozen=True)
class SGD(Optimizer):
    """Stochastic gradient descent, with momentum (Polyak, 1964) or that of Nesterov (as in PyTorch, after
    Sutskever et al., "On the importance of initialization and momentum in deep learning", ICML 2013):

    g' = g + wd w      v = mu v + g'
    w -= lr g' without momentum, w -= lr v with it, w -= lr (g' + mu v) with nesterov
    """

    momentum: float = 0.0
    nesterov: bool = False

    def _block(self, w, g, *state, lr, t, wd):
        if wd:
            g = g + wd * w
        if not state:
            w -= lr * g
            return
        v = state[0]
        v *= self.momentum
        v += g
        w -= lr * (self.momentum * v + g) if self.nesterov else lr * v


@dataclass(frozen=True)
class Adam(Optimizer):
    """Adam (Kingma, Ba, ICLR 2015), or AdamW where `decoupled` (Loshchilov, Hutter, ICLR 2019):

    adam   g' = g + wd w         adamw  g' = g, w *= 1 - lr wd
    m = b1 m + (1 - b1) g'       v = b2 v + (1 - b2) g'^2
    w -= lr / (1 - b1^t) * m / (sqrt(v) / sqrt(1 - b2^t) + eps)
    """

    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    decoupled: bool = False

    def _block(self, w, g, *state, lr, t, wd):
        m, v = state
        if wd and self.decoupled:
            w *= 1 - lr * wd
        elif wd:
            g = g + wd * w
        m *= self.beta1
        m += (1 - self.beta1) * g
        v *= self.beta2
        step = g * g
        step *= 1 - self.beta2
        v += step
        np.sqrt(v, out=step)
        step *= 1 / (1 - self.beta2**t) ** 0.5
        step += self.eps
        np.divide(m, step, out=step)
        step *= lr / (1 - self.beta1**t)
        w -= step


def make_optimizer(options: Options, overrides: Mapping[str, Any] | None = None, where: str = "optimizer") -> Optimizer:
    """The optimizer a blueprint names. `overrides` win over its settings; None in them means not given."""
    name = options.type
    given = options.fields | {key: value for key, value in (overrides or {}).items() if value is not None}
    defaults = {f.name: f.default for f in FIELDS[name]} | _DEFAULTS.get(name, {})
    settings = defaults | check_all(FIELDS[name], given, f"{where} ({name})", name, {})
    if name in ("adam", "adamw"):
        return Adam(name, ("m", "v"), decoupled=name == "adamw", **settings)
    if settings["nesterov"] and not settings["momentum"]:
        raise UserError(f"{where} ({name}): nesterov is on, but momentum is 0.\n  Give a momentum, such as 0.9.")
    return SGD(name, ("velocity",) if settings["momentum"] else (), **settings)


def default_learning_rate(name: str) -> float:
    """The learning rate where a blueprint gives none."""
    return 0.001 if name in ("adam", "adamw") else 0.01
