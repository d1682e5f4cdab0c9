"""Charts as HTML: lines in an SVG that stretches to its box, labels as text beside it, so that nothing needs a script
to be seen and a phone shows letters of the same size as a desk.

Each is a <figure> whose caption says what it shows in words, for those who do not see it. The page's script adds a
cursor to line charts (page.html); it reads their points from the SVG.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, isfinite, log10

from .figures import Bin

SIZE = 1000  # units of an SVG, both ways
COLOURS = 6  # page.html has so many, --c0 and on
MOST_POINTS = 600  # of a line; longer ones are thinned, first and last point kept


@dataclass(frozen=True)
class Series:
    """One line. values: None or not finite is a gap. at: the x of the first value."""

    name: str
    values: Sequence[float | None]
    colour: int = 0
    dashed: bool = False
    at: int = 1


@dataclass(frozen=True)
class Axis:
    """low and high in the values' units; ticks as (value, text). log: by decades."""

    low: float
    high: float
    ticks: list[tuple[float, str]]
    log: bool = False

    def place(self, value: float) -> float:
        """0 at the low end, 1 at the high one."""
        if self.log:
            return (log10(max(value, self.low)) - log10(self.low)) / (log10(self.high) - log10(self.low))
        return (value - self.low) / (self.high - self.low)


def lines(
    title: str, series: Sequence[Series], log: bool = False, percent: bool = False, mark: int | None = None
) -> str:
    """A figure of lines over the epochs; "" where no line has a point. mark: an epoch to point out."""
    series = [s for s in series if any(_good(v, log) for v in s.values)]
    if not series:
        return ""
    known = [v for s in series for v in s.values if _good(v, log) and v is not None]
    y = _log_axis(min(known), max(known)) if log else _axis(min(known), max(known), percent)
    first, last = min(s.at for s in series), max(s.at + len(s.values) - 1 for s in series)
    x = _epochs(first, last)
    drawn = [f'<line class="grid" x1="0" x2="{SIZE}" y1="{_y(y, v)}" y2="{_y(y, v)}"/>' for v, _ in y.ticks]
    if mark is not None:
        drawn.append(f'<line class="best" x1="{_x(x, mark)}" x2="{_x(x, mark)}" y1="0" y2="{SIZE}"/>')
    for s in series:
        drawn.append(_line(s, x, y, log, percent))
    keys = "".join(
        f'<span class="key"><svg width="22" height="10" aria-hidden="true"><line class="s{s.colour}{_dash(s)}" x1="0" '
        f'x2="22" y1="5" y2="5"/></svg>{escape(s.name)}</span>'
        for s in series
    )
    said = f"{title}. " + "; ".join(f"{s.name}: {_story(s, percent, log)}" for s in series) + "."
    return (
        f'<figure class="chart"><figcaption><b>{escape(title)}</b> {keys}</figcaption>'
        f'{plot("".join(drawn), x, y, said, cursor=True)}<p class="read" aria-live="polite"></p></figure>'
    )


def plot(drawn: str, x: Axis, y: Axis, said: str, cursor: bool = False) -> str:
    """The box of a chart with its labels. said: what it shows, in words."""
    more = ' tabindex="0" data-cursor' if cursor else ""
    across = "".join(f'<span class="x" style="left:{100 * x.place(v):.2f}%">{escape(t)}</span>' for v, t in x.ticks)
    up = "".join(f'<span class="y" style="top:{100 - 100 * y.place(v):.2f}%">{escape(t)}</span>' for v, t in y.ticks)
    return (
        f'<div class="plot" role="img" aria-label="{escape(said)}"{more}>'
        f'<svg viewBox="0 0 {SIZE} {SIZE}" preserveAspectRatio="none" aria-hidden="true">{drawn}</svg>'
        f"{across}{up}</div>"
    )


def reliability(bins: Sequence[Bin]) -> str:
    """Accuracy against confidence: what a calibrated net is right about follows the diagonal. The darker a bar, the
    more samples it stands for."""
    x = Axis(0, 1, [(k / 5, f"{20 * k} %") for k in range(6)])
    most = max((b.samples for b in bins), default=1) or 1
    drawn = [f'<line class="grid" x1="0" x2="{SIZE}" y1="{_y(x, v)}" y2="{_y(x, v)}"/>' for v, _ in x.ticks]
    for b in bins:
        if b.accuracy is None or b.confidence is None:
            continue
        left, wide = SIZE * b.low, SIZE * (b.high - b.low)
        tip = f"{b.samples:,} answers, {100 * b.confidence:.1f} % sure, {100 * b.accuracy:.1f} % right"
        drawn.append(
            f'<rect class="bar" x="{left + 4:.0f}" width="{wide - 8:.0f}" y="{SIZE * (1 - b.accuracy):.0f}" '
            f'height="{SIZE * b.accuracy:.0f}" style="opacity:{0.3 + 0.7 * (b.samples / most) ** 0.5:.2f}">'
            f"<title>{tip}</title></rect>"
            f'<line class="gap" x1="{left + wide / 2:.0f}" x2="{left + wide / 2:.0f}" '
            f'y1="{SIZE * (1 - b.accuracy):.0f}" y2="{SIZE * (1 - b.confidence):.0f}"/>'
        )
    drawn.append(f'<line class="ideal" x1="0" y1="{SIZE}" x2="{SIZE}" y2="0"/>')
    said = (
        "Reliability diagram: for each bin of confidence, how often the answers were right; the table has the numbers."
    )
    return f'<figure class="chart square">{plot("".join(drawn), x, x, said)}</figure>'


def spark(values: Sequence[float | None], log: bool = False) -> str:
    """A line the height of a row, for a table; the numbers stand beside it."""
    good = [v for v in values if _good(v, log) and v is not None]
    if len(good) < 2:
        return ""
    scale = [log10(v) if log else v for v in good]
    low, high = min(scale), max(scale)
    span = (high - low) or 1.0
    step = 100 / (len(good) - 1)
    points = " ".join(f"{i * step:.1f},{18 - 16 * (v - low) / span:.1f}" for i, v in enumerate(scale))
    box = 'viewBox="0 0 100 20" preserveAspectRatio="none" aria-hidden="true"'
    return f'<svg class="spark" {box}><polyline points="{points}"/></svg>'


# ---- axes


def _axis(low: float, high: float, percent: bool = False) -> Axis:
    """From a round number to a round number, 0 included where it is not far."""
    if low > 0 and (low < 0.4 * high or low == high) and not percent:
        low = 0.0
    if low == high:
        low, high = low - abs(low or 1), high + abs(high or 1)
    step = _round_step((high - low) / 4)
    start, end = floor(low / step + 1e-9), ceil(high / step - 1e-9)
    if percent:
        end = min(end, round(1 / step))
        start, end = (start, end) if end > start else (end - 1, end)
    ticks = [(k * step, _number(k * step, step, percent)) for k in range(start, end + 1)]
    return Axis(ticks[0][0], ticks[-1][0], ticks)


def _log_axis(low: float, high: float) -> Axis:
    first, last = floor(log10(low)), ceil(log10(high))
    last = last if last > first else first + 1
    every = max(1, ceil((last - first) / 5))
    return Axis(10.0**first, 10.0**last, [(10.0**k, _decade(k)) for k in range(first, last + 1, every)], True)


def _epochs(first: int, last: int) -> Axis:
    if first == last:
        return Axis(first - 1, last + 1, [(first, str(first))])
    step = max(1, int(_round_step((last - first) / 5)))
    ticks = [k for k in range(first, last + 1) if k % step == 0 and k - first >= step / 2]
    ticks = [k for k in ticks if last - k >= step / 2]
    return Axis(first, last, [(k, str(k)) for k in [first, *ticks, last]])


def round_ticks(end: float, count: int = 4) -> list[float]:
    """0 and round numbers after it, up to `end`."""
    step = _round_step(end / count)
    return [k * step for k in range(floor(end / step + 1e-9) + 1)]


def _round_step(raw: float) -> float:
    power = 10.0 ** floor(log10(raw))
    return next(k * power for k in (1, 2, 5, 10) if k * power >= raw * (1 - 1e-9))


def _number(value: float, step: float, percent: bool = False) -> str:
    if percent:
        return f"{100 * value:.{max(0, -floor(log10(100 * step) + 1e-9))}f} %"
    if step >= 1e5 or step < 1e-5:
        return f"{value:.3g}"
    return f"{value:.{max(0, -floor(log10(step) + 1e-9))}f}"


def _decade(k: int) -> str:
    return f"{10.0**k:g}" if -4 < k < 5 else f"1e{k}"


# ---- lines


def _line(s: Series, x: Axis, y: Axis, log: bool, percent: bool) -> str:
    """A polyline for each run of values, a dot for one that stands alone. data-v holds the points for the cursor."""
    points = [(s.at + i, v) for i, v in enumerate(s.values)]
    if len(points) > MOST_POINTS:
        keep = {round(i * (len(points) - 1) / (MOST_POINTS - 1)) for i in range(MOST_POINTS)}
        points = [p for i, p in enumerate(points) if i in keep]
    runs: list[list[str]] = [[]]
    for at, v in points:
        if v is None or not _good(v, log):
            runs.append([])
        else:
            runs[-1].append(f"{_x(x, at)},{_y(y, v)}")
    drawn = ""
    for run in runs:
        if run:
            drawn += f'<polyline points="{" ".join(run if len(run) > 1 else run * 2)}"/>'
    said = ";".join(
        f"{at},{_x(x, at)},{_y(y, v)},{value_text(v, percent)}" for at, v in points if v is not None and _good(v, log)
    )
    return f'<g class="s{s.colour}{_dash(s)}" data-name="{escape(s.name)}" data-v="{said}">{drawn}</g>'


def _dash(s: Series) -> str:
    return " dashed" if s.dashed else ""


def _x(x: Axis, value: float) -> str:
    return f"{SIZE * x.place(value):.4g}"


def _y(y: Axis, value: float) -> str:
    return f"{SIZE * (1 - y.place(value)):.4g}"


def _story(s: Series, percent: bool, log: bool) -> str:
    good = [v for v in s.values if v is not None and _good(v, log)]
    return f"from {value_text(good[0], percent)} to {value_text(good[-1], percent)}"


def value_text(value: float, percent: bool = False) -> str:
    return f"{100 * value:.2f} %" if percent else f"{value:.4g}"


def _good(value: float | None, log: bool) -> bool:
    return value is not None and isfinite(value) and (value > 0 or not log)
