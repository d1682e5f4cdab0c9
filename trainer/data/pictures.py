"""Pictures to the net's frames, by the C code that devices run: training and inference see the same bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .dataset import Dataset

if TYPE_CHECKING:
    from ...pyruntime.preprocess import Preprocessing

LAYOUTS = {1: "gray", 3: "rgb", 4: "rgba"}  # what the channels of a data set's pictures are


def frame_of(input_shape: tuple[int, ...], picture: tuple[int, ...]) -> tuple[int, int, int]:
    """(H, W, C) of the frames a net of this (NHWC) input takes: its own, or the pictures' where its input is flat."""
    H, W, C = input_shape if len(input_shape) == 3 else picture
    return H, W, C


def rules(wishes: dict[str, Any], channels: int) -> dict[str, Any]:
    """The words of a blueprint's preprocessing, with what holds where it says nothing."""
    color = wishes.get("color", "none")
    return {
        "resize": wishes.get("resize", "area"),
        "fit": wishes.get("fit", "stretch"),
        "color": color if color != "none" else ("gray" if channels == 1 else "rgb"),
        "invert": wishes.get("invert", "never"),
        "pad": wishes.get("pad", 0),
    }


def to_frames(ds: Dataset, wishes: dict[str, Any], input_shape: tuple[int, ...]) -> Dataset:
    """The data set with its pictures fitted, coloured and inverted as the blueprint asks; itself if nothing changes."""
    if not ds.is_picture or ds.x.shape[-1] not in LAYOUTS:
        return ds
    H, W, C = frame_of(input_shape, ds.x.shape[1:])
    if C not in (1, 3):
        return ds
    words = rules(wishes, C)
    same = ds.x.shape[1:] == (H, W, C) and words["invert"] == "never" and words["color"] != "bgr"
    if same:
        return ds
    from litenet.pyruntime.preprocess import Preprocessing

    recipe: Preprocessing = Preprocessing(**words)
    layout = LAYOUTS[ds.x.shape[-1]]
    x = np.empty((len(ds.x), H, W, C), np.uint8)
    for i, picture in enumerate(ds.x):
        x[i] = recipe.frame(picture, H, W, layout)
    return Dataset(x, ds.y, ds.labels, ds.name, ds.source)
