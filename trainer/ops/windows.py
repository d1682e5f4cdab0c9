"""Sliding windows over NHWC images: what convolution and pooling share."""

from __future__ import annotations

import numpy as np

from .spec import Attr, Attrs, Shape, ShapeError, window_out

KERNEL = Attr("kernel_size", "u8", 1, 255, count=2, doc="taps of the window")
STRIDE = Attr("stride", "u8", 1, 255, 1, count=2, doc="positions from one window to the next")
POOL_STRIDE = Attr("stride", "u8", 1, 255, "kernel_size", count=2, doc="as for convolution; without it, kernel_size")
PADDING = Attr("padding", "u8", 0, 255, 0, count=4, doc="border added around the image")
DILATION = Attr("dilation", "u8", 1, 255, 1, count=2, doc="positions from one tap to the next")


def out_hw(a: Attrs, H: int, W: int, dilation: tuple[int, int] = (1, 1)) -> tuple[int, int]:
    """(Ho, Wo), or a ShapeError when not one window fits."""
    top, left, bottom, right = a.padding
    Ho = window_out(H, a.kernel_size[0], a.stride[0], top, bottom, dilation[0])
    Wo = window_out(W, a.kernel_size[1], a.stride[1], left, right, dilation[1])
    if Ho < 1 or Wo < 1:
        raise ShapeError(
            f"a window of {a.kernel_size[0]} x {a.kernel_size[1]} does not fit into an image of {H} x {W} "
            f"with padding {top}, {left}, {bottom}, {right}.\n"
            "Use a smaller kernel_size, more padding, or fewer pooling layers before it."
        )
    return Ho, Wo


def same_padding(size: int, kernel: int, stride: int, dilation: int) -> tuple[int, int]:
    """(before, after) so that the output has ceil(size / stride) positions; the odd one goes after."""
    total = max((-(-size // stride) - 1) * stride + dilation * (kernel - 1) + 1 - size, 0)
    return total // 2, total - total // 2


def pad(x: np.ndarray, padding: Shape, value: float = 0.0) -> np.ndarray:
    """x (N,H,W,C) with a border of `value`."""
    top, left, bottom, right = padding
    if not (top or left or bottom or right):
        return x
    N, H, W, C = x.shape
    out = np.full((N, H + top + bottom, W + left + right, C), value, x.dtype)
    out[:, top : top + H, left : left + W] = x
    return out


def unpad(x: np.ndarray, padding: Shape, H: int, W: int) -> np.ndarray:
    """The inverse of `pad`: a view of the H x W inside."""
    return x[:, padding[0] : padding[0] + H, padding[1] : padding[1] + W]


def taps(a: Attrs, padded: np.ndarray, Ho: int, Wo: int, dilation: tuple[int, int] = (1, 1)):
    """For each tap (u, v) of the window, the view (N,Ho,Wo,C) of what it sees: padded[:, i*s+u*d, j*s+v*d]."""
    (sh, sw), (dh, dw) = a.stride, dilation
    for u in range(a.kernel_size[0]):
        for v in range(a.kernel_size[1]):
            yield u, v, padded[
                :, u * dh : u * dh + (Ho - 1) * sh + 1 : sh, v * dw : v * dw + (Wo - 1) * sw + 1 : sw
            ]


def pool_shape(a: Attrs, x: Shape) -> Shape:
    """Shape rule of the pools; padding must leave each window at least one pixel of the image."""
    H, W, C = x
    top, left, bottom, right = a.padding
    if max(top, bottom) >= a.kernel_size[0] or max(left, right) >= a.kernel_size[1]:
        raise ShapeError(
            f"padding {top}, {left}, {bottom}, {right} is not smaller than the window of "
            f"{a.kernel_size[0]} x {a.kernel_size[1]}: some window would see no pixel.\n"
            "Use less padding or a larger kernel_size."
        )
    return (*out_hw(a, H, W), C)
