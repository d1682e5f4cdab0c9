"""What a net got right and wrong, as sections of a page: mistakes as pictures, confusion, classes, calibration."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from html import escape

import cv2
import numpy as np

from litenet.pyruntime.overlay import colours

from .charts import reliability
from .figures import Figures, confused
from .judged import CONFUSED, Judged, errors, mistake, percent
from .parts import Section, table

MOST_CLASSES = 30  # of a confusion matrix with numbers; a larger one is drawn
HALF_CLASSES = 12  # up to here confusion and classes have room side by side
MOST_SIDE = 224  # pixels of a picture's longer side in the page; larger ones are scaled down
PNG_SIDE = 64  # pictures up to here are stored without loss


def answers_sections(judged: Judged) -> Iterator[Section]:
    f = judged.figures
    if f is None:
        found = errors(judged)
        text = f"mean squared error {found['mse']:.6g}, mean absolute error {found['mae']:.6g}"
        body = f"{_notes(judged)}<p>On {escape(judged.data)}: {text}.</p>"
        yield Section("answers", "What it got right and wrong", body)
        return
    yield Section(
        "mistakes",
        "Worst mistakes" if len(judged.worst) and _wrong(judged) else "Nearest to a mistake",
        _mistakes(judged),
    )
    half = len(judged.labels) <= HALF_CLASSES
    yield Section("confusion", "Confusion", _confusion(judged, f), half)
    yield Section("classes", "Class by class", _classes(judged, f), half)
    yield Section("calibration", "Calibration", _calibration(f))


def _notes(judged: Judged) -> str:
    return "".join(f"<p>{escape(note)}.</p>" for note in judged.notes)


def _wrong(judged: Judged) -> bool:
    return bool(judged.figures is not None and judged.figures.answers[judged.worst[0]] != judged.y[judged.worst[0]])


# ---- mistakes


def _mistakes(judged: Judged) -> str:
    assert judged.figures is not None
    index = judged.worst
    said, truth = judged.figures.answers[index], judged.y[index]
    wrong = _wrong(judged)
    words = (
        "The answers that were furthest from the truth." if wrong else
        "There is no mistake; of these answers it was the least sure."
    )  # fmt: skip
    pictures = None if judged.frames is None else judged.frames(index)
    heat: list[np.ndarray | str | None] = [None, None]
    if pictures is not None:
        heat = [judged.maps(index, said), judged.maps(index, truth) if wrong else None]
    why = ""
    if isinstance(heat[0], str):
        why = f" {heat[0][:1].upper()}{heat[0][1:].rstrip('.')}."
    elif pictures is not None:
        why = " Each picture as the net sees it, then with what spoke for its answer"
        why += ", then with what spoke for the truth." if wrong else "."
    items = []
    for i, at in enumerate(index):
        m = mistake(judged, int(at))
        shown = ""
        if pictures is not None:
            tiles = _Tiles(pictures[i], f"picture-{at}")
            drawn = tiles.plain(f"{m['sample']}, {m['truth']}")
            for maps, words_for in zip(heat, (m["answer"], m["truth"]), strict=True):
                if isinstance(maps, np.ndarray):
                    drawn += tiles.under(maps[i], f"what spoke for {words_for}")
            shown = f'<div class="tiles">{drawn}</div>'
        line = (
            f"<b>{escape(m['truth'])}</b> taken for <b>{escape(m['answer'])}</b>"
            if wrong
            else f"<b>{escape(m['truth'])}</b>"
        )
        more = f"{100 * m['probability']:.1f} % sure"
        if wrong:
            more += f", {100 * m['probability_of_truth']:.2g} % for {escape(m['truth'])}"
        items.append(f"<li>{shown}<span>{line}</span><small>{more}<br>{escape(m['sample'])}</small></li>")
    return f'{_notes(judged)}<p>{words}{why}</p><ul class="mistakes">{"".join(items)}</ul>'


class _Tiles:
    """One picture, drawn several times and stored once. name: its id in the page."""

    def __init__(self, rgb: np.ndarray, name: str):
        self.rgb, self.name, (self.H, self.W) = rgb, name, rgb.shape[:2]

    def plain(self, says: str) -> str:
        pixels = ' class="pixels"' if _small(self.rgb) else ""
        return self._tile(f'<image id="{self.name}"{pixels} {self._box} href="{_picture(self.rgb)}"/>', says)

    def under(self, heat: np.ndarray, says: str) -> str:
        """With a map over it."""
        over = f'<image class="heat" {self._box} preserveAspectRatio="none" href="{_png(colours(heat))}"/>'
        return self._tile(f'<use href="#{self.name}"/>{over}', says)

    @property
    def _box(self) -> str:
        return f'width="{self.W}" height="{self.H}"'

    def _tile(self, inside: str, says: str) -> str:
        return (
            f'<svg class="tile" viewBox="0 0 {self.W} {self.H}" role="img" aria-label="{escape(says)}">{inside}</svg>'
        )


def _small(rgb: np.ndarray) -> bool:
    return max(rgb.shape[:2]) <= PNG_SIDE


def _picture(rgb: np.ndarray) -> str:
    """uint8 (H,W,3) as a data URI; tall or wide ones keep their shape."""
    if _small(rgb):
        return _png(rgb)
    scale = min(1.0, MOST_SIDE / max(rgb.shape[:2]))
    if scale < 1:
        size = (max(1, round(rgb.shape[1] * scale)), max(1, round(rgb.shape[0] * scale)))
        rgb = cv2.resize(rgb, size, interpolation=cv2.INTER_AREA)
    data = cv2.imencode(".jpg", np.ascontiguousarray(rgb[..., ::-1]), [cv2.IMWRITE_JPEG_QUALITY, 82])[1]
    return f"data:image/jpeg;base64,{b64encode(data.tobytes()).decode()}"


def _png(pixels: np.ndarray) -> str:
    """uint8 RGB or RGBA."""
    order = (2, 1, 0, 3)[: pixels.shape[2]]
    data = cv2.imencode(".png", np.ascontiguousarray(pixels[..., order]))[1]
    return f"data:image/png;base64,{b64encode(data.tobytes()).decode()}"


# ---- confusion, classes


def _confusion(judged: Judged, f: Figures) -> str:
    pairs = confused(f.confusion, CONFUSED)
    names = judged.labels
    often = "".join(f"<li>{escape(names[t])} taken for {escape(names[a])}: {n:,}</li>" for t, a, n in pairs)
    often = f"<p>Most frequent:</p><ol>{often}</ol>" if pairs else "<p>No mistake.</p>"
    if len(names) > MOST_CLASSES:
        return f"<p>Rows are the truth, columns the answers, in the order of the classes.</p>{_drawn(f)}{often}"
    share = f.confusion / np.maximum(f.confusion.sum(1, keepdims=True), 1)
    rows = []
    for t, name in enumerate(names):
        cells = "".join(
            f'<td class="{"hit" if t == a else "miss"}" style="--v:{share[t, a] ** 0.5:.3f}">{n:,}</td>' if n else
            "<td class=\"none\">0</td>" for a, n in enumerate(f.confusion[t])
        )  # fmt: skip
        rows.append(f'<tr><th scope="row">{escape(name)}</th>{cells}</tr>')
    heads = "".join(f'<th scope="col">{escape(name)}</th>' for name in names)
    return (
        "<p>Rows are the truth, columns the answers: a mistake stands beside the diagonal. Colour is the share of its "
        'row.</p><div class="table matrix" tabindex="0"><table><caption>Confusion matrix</caption>'
        f'<thead><tr><th scope="col" class="left">truth</th>{heads}</tr></thead><tbody>{"".join(rows)}</tbody>'
        "</table></div>"
        f"<details><summary>The most frequent mistakes</summary>{often}</details>"
    )


def _drawn(f: Figures) -> str:
    """A large matrix as a picture: one pixel a cell, the diagonal in blue, mistakes in red."""
    share = (f.confusion / np.maximum(f.confusion.sum(1, keepdims=True), 1)) ** 0.5
    level, hit = share[..., None], np.eye(len(share))[..., None]
    ink = hit * np.array([21, 88, 192.0]) + (1 - hit) * np.array([194, 24, 91.0])
    rgba = np.concatenate([np.broadcast_to(ink, (*share.shape, 3)), 40 + 215 * level], 2)
    rgba[..., 3] *= share > 0
    uri = _png((rgba + 0.5).astype(np.uint8))
    return f'<img class="matrix" src="{uri}" alt="Confusion matrix of {len(share)} classes">'


def _classes(judged: Judged, f: Figures) -> str:
    occur = f.confusion.sum(1)
    rows, numbers = [], []
    for k, name in enumerate(judged.labels):
        rates = (f.precision[k], f.recall[k], f.f1[k])
        rows.append([name, f"{occur[k]:,}", *(_bar(v) for v in rates)])
        numbers.append([float(k), float(occur[k]), *rates])
    heads = ["class", "samples", "precision", "recall", "F1"]
    return (
        "<p>Precision: of those given this answer, how many were it. Recall: of those that are it, how many were found."
        f" F1: their harmonic mean.</p>{table(heads, rows, sort=numbers, raw=(2, 3, 4))}"
    )


def _bar(share: float | None) -> str:
    if share is None:
        return "&ndash;"
    return f'<i class="share" style="--s:{100 * share:.0f}%"></i> <span>{percent(share)}</span>'


# ---- calibration


def _calibration(f: Figures) -> str:
    gap = f.confidence - f.accuracy
    tendency = (
        "neither too sure nor too careful" if abs(gap) < 0.01 else "too sure of itself" if gap > 0 else "too careful"
    )
    rows = [
        [f"{100 * b.low:.0f} to {100 * b.high:.0f} %", f"{b.samples:,}", percent(b.confidence), percent(b.accuracy)]
        for b in f.bins
        if b.samples
    ]
    heads = ["confidence", "answers", "mean confidence", "right"]
    return (
        f"<p>It is {100 * f.confidence:.1f} % sure on average and right {100 * f.accuracy:.1f} % of the time: "
        f"{tendency}. The expected calibration error (ECE, {len(f.bins)} bins) is {100 * f.ece:.2f} %, the log loss "
        f"{f.log_loss:.4f}. "
        "Bars show how often answers of a confidence were right; on the dashed line they would be right as often as "
        f"they are sure. A fine line joins each bar to how sure it was.</p>"
        f'<div class="beside">{reliability(f.bins)}{table(heads, rows)}</div>'
    )
