"""The page learning_rate.html of a run: the tests of --lr auto drawn, and the reason for the rate.."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from math import ceil, floor, log10

from .rate import NORMS, REFERENCE, Found

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 760, 260, 70, 20, 20, 40
STYLE = """body{font:15px/1.5 system-ui,sans-serif;max-width:50em;margin:2em auto;padding:0 1em;color:#222}
svg{max-width:100%;height:auto}text{font:12px system-ui,sans-serif;fill:#444}table{border-collapse:collapse}
td,th{padding:.2em 1em .2em 0;text-align:right}h1{font-size:1.4em}h2{font-size:1.1em}"""


def page(found: Found, net: str) -> str:
    """The whole page."""
    rates = [rate for rate, _ in found.sweep] + [w.rate for w in found.warm_ups]
    losses = [loss for _, loss in found.sweep]
    norms = [(w.rate, w.norm) for w in found.warm_ups if w.norm is not None]
    least = min(losses, default=1.0)
    ceiling = min(max(losses, default=2.0), 4 * least if least > 0 else max(losses, default=2.0))
    x = _log_axis(min(rates), max(rates), LEFT, WIDTH - RIGHT)
    y = _axis(least, max(ceiling, least + 1e-6), HEIGHT - BOTTOM, TOP)
    sweep = " ".join(f"{x(rate):.1f},{y(min(loss, ceiling)):.1f}" for rate, loss in found.sweep)
    first = _frame(x, min(rates), max(rates), y, _ticks(least, ceiling), "smoothed loss", found)
    first += f'<polyline points="{sweep}" fill="none" stroke="#1f5fa8" stroke-width="2"/>'
    values = [norm for _, norm in norms] + list(NORMS)
    lowest, highest = min(values) / 2, max(values) * 2
    y = _log_axis(lowest, highest, HEIGHT - BOTTOM, TOP)
    second = _frame(x, min(rates), max(rates), y, _decades(lowest, highest), "mean gradient norm", found, band=True)
    for rate, norm in norms:
        second += f'<circle cx="{x(rate):.1f}" cy="{y(norm):.1f}" r="5" fill="#1f5fa8"/>'
    rows = "".join(
        f"<tr><td>{w.rate:g}</td><td>{_text(w.norm)}</td><td>{_text(w.loss)}</td></tr>" for w in found.warm_ups
    )
    return f"""<!doctype html><html lang="en"><meta charset="utf-8"><title>Learning rate of {escape(net)}</title>
<style>{STYLE}</style><h1>Learning rate of {escape(net)}: {found.rate:g}</h1>
<p>Chosen for {found.samples} samples an update: {escape(found.why)}. For another batch scale it: {found.base:g} for
{REFERENCE} samples, that is {found.base:g} x batch / {REFERENCE}.</p>
<h2>A sweep: the rate grows with each update</h2>{_svg(first)}
<p>The loss was lost at {found.limit:.3g}; the dashed line is the rate that was chosen.</p>
<h2>Warm-ups of {found.updates} updates at constant rates</h2>{_svg(second)}
<p>The band is {NORMS[0]:g} to {NORMS[1]:g}, where the mean norm should settle.</p>
<table><tr><th>rate</th><th>mean norm, second half</th><th>mean loss, last quarter</th></tr>{rows}</table></html>
"""


def _svg(body: str) -> str:
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img">{body}</svg>'


def _frame(x: Callable, low: float, high: float, y: Callable, ticks: Sequence[float], label: str, found: Found,
           band: bool = False) -> str:  # fmt: skip
    """Axes, their numbers, and the chosen rate."""
    out = ""
    if band:
        top, width = y(NORMS[1]), WIDTH - LEFT - RIGHT
        out += f'<rect x="{LEFT}" y="{top:.1f}" width="{width}" height="{y(NORMS[0]) - top:.1f}" fill="#d9ead3"/>'
    for tick in _decades(low, high):
        out += f'<line x1="{x(tick):.1f}" x2="{x(tick):.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}" stroke="#eee"/>'
        out += f'<text x="{x(tick):.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{tick:g}</text>'
    for tick in ticks:
        out += f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(tick):.1f}" y2="{y(tick):.1f}" stroke="#eee"/>'
        out += f'<text x="{LEFT - 6}" y="{y(tick) + 4:.1f}" text-anchor="end">{tick:.3g}</text>'
    out += f'<text x="{LEFT}" y="{TOP - 6}">{label}</text>'
    out += f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 6}" text-anchor="end">learning rate</text>'
    at = f"{x(found.rate):.1f}"
    return out + f'<line x1="{at}" x2="{at}" y1="{TOP}" y2="{HEIGHT - BOTTOM}" stroke="#b33" stroke-dasharray="5 4"/>'


def _axis(low: float, high: float, start: float, end: float) -> Callable[[float], float]:
    return lambda v: start + (end - start) * (v - low) / (high - low)


def _log_axis(low: float, high: float, start: float, end: float) -> Callable[[float], float]:
    linear = _axis(log10(low), log10(high * 1.0001), start, end)
    return lambda v: linear(log10(v))


def _decades(low: float, high: float) -> list[float]:
    return [10.0**k for k in range(ceil(log10(low) - 1e-9), floor(log10(high) + 1e-9) + 1)]


def _ticks(low: float, high: float) -> list[float]:
    return [low + (high - low) * k / 4 for k in range(5)]


def _text(value: float | None) -> str:
    return "not finite" if value is None else f"{value:.4g}"
