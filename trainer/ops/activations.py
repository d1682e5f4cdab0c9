"""The activations, as a field of linear, convolution and add, and as an operator of their own.

`apply(name, h)` is the definition. The derivative is taken from the output y where y decides it, so that a fused
operator keeps only y; the others (gelu, silu, hard_swish) need the input h and are never fused in training.

    relu max(h,0) · relu6 min(max(h,0),6) · leaky_relu h>0 ? h : alpha h · sigmoid 1/(1+e^-h) · tanh
    gelu h Phi(h), Phi(h) = (1 + erf(h/sqrt 2))/2 · gelu_tanh h (1 + tanh(sqrt(2/pi)(h + 0.044715 h^3)))/2
    silu h sigmoid(h) · hard_swish h relu6(h+3)/6
"""

from __future__ import annotations

import numpy as np

IDS = {
    "none": 0,
    "relu": 1,
    "relu6": 2,
    "leaky_relu": 3,
    "gelu": 4,
    "sigmoid": 5,
    "tanh": 6,
    "silu": 7,
    "hard_swish": 8,
    "gelu_tanh": 9,
}
FROM_OUTPUT = frozenset({"none", "relu", "relu6", "leaky_relu", "sigmoid", "tanh"})

SQRT1_2 = 0.7071067811865476
GELU_K = 0.7978845608028654  # sqrt(2/pi)
GELU_C = 0.044715


def apply(name: str, h: np.ndarray, alpha: float = 0.01) -> np.ndarray:
    """activation(h), element by element, in h's own precision."""
    if name == "none":
        return h
    if name == "relu":
        return np.maximum(h, 0)
    if name == "relu6":
        return np.minimum(np.maximum(h, 0), 6)
    if name == "leaky_relu":
        return np.where(h > 0, h, h.dtype.type(alpha) * h)
    if name == "sigmoid":
        return sigmoid(h)
    if name == "tanh":
        return np.tanh(h)
    if name == "gelu":
        return h * phi_cdf(h)
    if name == "gelu_tanh":
        return 0.5 * h * (1 + np.tanh(GELU_K * (h + GELU_C * h * h * h)))
    if name == "silu":
        return h * sigmoid(h)
    if name == "hard_swish":
        return h * np.minimum(np.maximum(h + 3, 0), 6) / 6
    raise KeyError(name)


def backward_from_output(name: str, dy: np.ndarray, y: np.ndarray, alpha: float = 0.01) -> np.ndarray:
    """dh where y = activation(h), from y alone."""
    if name == "none":
        return dy
    if name == "relu":
        return dy * (y > 0)
    if name == "relu6":
        return dy * ((y > 0) & (y < 6))
    if name == "leaky_relu":
        return np.where(y > 0, dy, dy.dtype.type(alpha) * dy)
    if name == "sigmoid":
        return dy * y * (1 - y)
    if name == "tanh":
        return dy * (1 - y * y)
    raise KeyError(name)


def backward_from_input(name: str, dy: np.ndarray, h: np.ndarray) -> np.ndarray:
    """dh where y = activation(h), for the activations whose derivative the output does not decide."""
    if name == "gelu":
        pdf = np.exp(-0.5 * h * h) * 0.3989422804014327  # 1/sqrt(2 pi)
        return dy * (phi_cdf(h) + h * pdf)
    if name == "gelu_tanh":
        t = np.tanh(GELU_K * (h + GELU_C * h * h * h))
        return dy * (0.5 * (1 + t) + 0.5 * h * (1 - t * t) * GELU_K * (1 + 3 * GELU_C * h * h))
    if name == "silu":
        s = sigmoid(h)
        return dy * (s + h * s * (1 - s))
    if name == "hard_swish":
        return dy * np.where(h <= -3, 0, np.where(h >= 3, 1, h / 3 + 0.5)).astype(dy.dtype)
    raise KeyError(name)


def sigmoid(h: np.ndarray) -> np.ndarray:
    """1/(1+e^-h) without overflow: e is only raised to -|h|."""
    e = np.exp(-np.abs(h))
    return np.where(h >= 0, 1, e) / (1 + e)


def phi_cdf(h: np.ndarray) -> np.ndarray:
    """Phi(h) = (1 + erf(h / sqrt 2)) / 2, the standard normal distribution function."""
    return 0.5 * (1 + erf(h * SQRT1_2))


# Chebyshev interpolants in s, from 50-digit arithmetic; together within 1e-15 of erf everywhere.
# |x| <= 1: erf(x) = x P(s), s = 2x^2 - 1.   |x| > 1: erf(x) = 1 - e^(-x^2) Q(s), t = 1/(1+x/2), s = 4.5t - 2.
_ERF_P = (
    1.45438870794651157e-14, -3.80788240631949552e-13,
    9.16761959686580632e-12, -2.03522840582576898e-10, 4.11580058320814911e-9, -7.51156928659172683e-8,
    1.22338273835989686e-6, -0.0000175371694411248655, 0.000217517156041599315, -0.0022854855611441132,
    0.0198524966889837074, -0.140536089022717119, 0.965468738669867308,
)  # fmt: skip
_ERF_Q = (
    2.38759823985195521e-15, -4.15221185553017749e-14, 9.98483233137918882e-14,
    5.01347185156292404e-13, -3.42909597731129593e-12, 2.52783079641680244e-12, 5.41291047443830229e-11,
    -2.18056085932409201e-10, -4.2546287978919805e-10, 5.71736270054974622e-9, -4.92877800769767676e-9,
    -1.2334635353834595e-7, 3.44018880462444198e-7, 2.9555218657403108e-6, -0.0000121399509668190856,
    -0.000107255602577493335, 0.000289407304179815745, 0.0067146485610600474, 0.042607845112681572,
    0.167281530277038009, 0.210806364061143581,
)  # fmt: skip


def erf(x: np.ndarray) -> np.ndarray:
    """The error function, 2/sqrt(pi) times the integral of e^(-u^2) from 0 to x."""
    ax = np.minimum(np.abs(x), 7)
    near = x * np.polyval(_ERF_P, 2 * np.minimum(ax * ax, 1) - 1)
    far = 1 - np.exp(-ax * ax) * np.polyval(_ERF_Q, 4.5 / (1 + ax / 2) - 2)
    return np.where(ax <= 1, near, np.copysign(far, x)).astype(x.dtype)
