"""NumPy archives: x_train, y_train, x_test, y_test as Keras writes them, or x with y under the usual names.

Pickled objects are never read: numpy.load is called without them, and a file that holds some is refused.
"""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np

from ..errors import UserError
from .dataset import Dataset, Splits

TRAIN = (
    ("x_train", "y_train"),
    ("train_images", "train_labels"),
    ("x", "y"),
    ("data", "labels"),
    ("images", "labels"),
    ("data", "target"),
    ("arr_0", "arr_1"),
)
TEST = (("x_test", "y_test"), ("test_images", "test_labels"))
NAMES = ("label_names", "class_names", "names")
LAYOUTS = ("NHWC", "NCHW")
CHANNELS = (1, 3, 4)  # what an axis of channels can be as long as; other sizes need `layout`


def read_npz(
    path: Path, layout: str | None = None, name: str = "", labels: tuple[str, ...] | None = None
) -> Splits:
    """`layout`, here or as an array of that name in the file, says how (N, ., ., .) arrays are to be read;
    without it they are read when only one reading is possible."""
    arrays, train, test = _load(path)
    layout = layout or (str(arrays["layout"]) if "layout" in arrays else None)
    if layout is not None and layout.upper() not in LAYOUTS:
        raise UserError(f"{path}: layout is {layout!r}; it can be {' or '.join(LAYOUTS)}")
    labels = labels or _names(arrays)
    name = name or path.stem
    parts = []
    for pair in (train, test):
        if pair is not None:
            x, y = (arrays[key] for key in pair)
            parts.append(
                Dataset(
                    _x(path, pair[0], x, layout), _y(path, pair[1], y), labels, name, f"{path} [{pair[0]}]"
                )
            )
    if test is not None and parts[0].shape != parts[1].shape:
        raise UserError(
            f"{path}: {train[0]} has samples of shape {parts[0].shape}, but those of {test[0]} have "
            f"{parts[1].shape}; both parts must be alike"
        )
    return Splits(parts[0], parts[1] if test is not None else None)


def _load(path: Path) -> tuple[dict[str, np.ndarray], tuple[str, str], tuple[str, str] | None]:
    """The arrays that are used and no others; the names of the training pair and of the test pair, if any."""
    try:
        if not zipfile.is_zipfile(path):
            raise UserError(f"{path}: not an .npz file; save arrays x and y with numpy.savez")
        with np.load(path, allow_pickle=False) as archive:
            held = list(archive.files)
            train, test = _first(held, TRAIN), _first(held, TEST)
            if train is None:
                raise UserError(
                    f"{path}: holds {', '.join(held) or 'nothing'}; expected x and y, or x_train, y_train, "
                    "x_test and y_test"
                )
            used = {*train, *(test or ()), *NAMES, "layout"}
            return {key: np.asarray(archive[key]) for key in held if key in used}, train, test
    except UserError:
        raise
    except Exception as fault:  # whatever a damaged archive makes NumPy stumble over
        if "allow_pickle" in str(fault):
            raise UserError(
                f"{path}: holds Python objects, which are not read because they can run code; save plain "
                "arrays of numbers with numpy.savez"
            ) from fault
        raise UserError(
            f"{path}: not a readable .npz file ({fault}); save it again with numpy.savez"
        ) from fault


def _first(held: list[str], pairs: tuple[tuple[str, str], ...]) -> tuple[str, str] | None:
    return next((pair for pair in pairs if pair[0] in held and pair[1] in held), None)


def _names(arrays: dict[str, np.ndarray]) -> tuple[str, ...] | None:
    for key in NAMES:
        if key in arrays and arrays[key].dtype.kind == "U" and arrays[key].ndim == 1:
            return tuple(arrays[key].tolist())
    return None


def _x(path: Path, key: str, x: np.ndarray, layout: str | None) -> np.ndarray:
    """uint8 (N,H,W,C) for whole numbers 0..255, else float32 (N,H,W,C) or (N,D)."""
    if x.ndim not in (2, 3, 4) or x.dtype.kind not in "buif":
        raise UserError(
            f"{path}: {key} has shape {x.shape} and type {x.dtype}; expected numbers as (samples, values), "
            "(samples, height, width) or (samples, height, width, channels)"
        )
    if x.ndim == 3:
        x = x[..., None]
    elif x.ndim == 4 and _layout(path, key, x.shape, layout) == "NCHW":
        x = x.transpose(0, 2, 3, 1)
    if x.ndim == 2 or x.dtype.kind == "f":
        with np.errstate(over="ignore"):  # too large becomes infinite, which Dataset refuses with its place
            return np.ascontiguousarray(x, np.float32)
    if x.dtype == bool:
        return x.astype(np.uint8) * np.uint8(255)
    if x.size and not (x.min() >= 0 and x.max() <= 255):
        raise UserError(
            f"{path}: {key} holds whole numbers from {x.min()} to {x.max()}; pictures have 0 to 255, other "
            "values are stored as float32"
        )
    return np.ascontiguousarray(x, np.uint8)


def _layout(path: Path, key: str, shape: tuple[int, ...], layout: str | None) -> str:
    if layout is not None:
        return layout.upper()
    last, second = shape[3] in CHANNELS, shape[1] in CHANNELS
    if last == second:
        raise UserError(
            f"{path}: {key} has shape {shape}, which can be read as (samples, height, width, channels) or as "
            '(samples, channels, height, width); add layout="NHWC" or layout="NCHW" to the arrays in the file'
        )
    return "NHWC" if last else "NCHW"


def _y(path: Path, key: str, y: np.ndarray) -> np.ndarray:
    """int64 (N,) for whole numbers, float32 otherwise; a column (N,1) of classes is flattened."""
    if y.dtype.kind in "ui":
        if y.ndim == 2 and y.shape[1] == 1:
            y = y[:, 0]
        if y.ndim != 1:
            raise UserError(
                f"{path}: {key} has shape {y.shape} and type {y.dtype}; give one class number a sample, or "
                "float32 targets"
            )
        return y.astype(np.int64)
    if y.dtype.kind != "f" or y.ndim == 0:
        raise UserError(
            f"{path}: {key} has shape {y.shape} and type {y.dtype}; expected whole class numbers or float32 "
            "targets"
        )
    with np.errstate(over="ignore"):
        return y.astype(np.float32)
