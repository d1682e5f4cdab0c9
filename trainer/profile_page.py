"""A profile as one HTML page that needs nothing else, and as a Chrome trace (chrome://tracing, ui.perfetto.dev).

The page's tables are written here and can be read without scripts; profile_page.html draws the pictures from the
profile, which the page carries as JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from html import escape
from math import cos, pi, sin
from pathlib import Path
from typing import Any

from .checkpoint import write_atomically
from .memory import bytes_text
from .profile import LaunchTime, LayerTotal, Profile

GREY = {"input": "#8d99a6", "loss": "#8d99a6", "update": "#8d99a6", "step": "#8d99a6"}  # owners that are no layer
LANES = ("forward", "loss", "backward", "update")


def write(profile: Profile, folder: Path) -> tuple[Path, Path]:
    """profile.html and profile.json in `folder`; each is there whole or not at all."""
    files = ("profile.html", page(profile)), ("profile.json", json.dumps(chrome_trace(profile)))
    for name, text in files:
        write_atomically(folder / name, lambda file, text=text: file.write(text.encode()))
    return folder / "profile.html", folder / "profile.json"


def page(profile: Profile) -> str:
    """The whole page. Its size grows with the number of launches: between 1 and 2 kB for each."""
    colours = layer_colours(profile)
    parts = {
        "STYLE": Path(__file__).with_name("page.css").read_text(encoding="utf-8"),
        "TITLE": escape(f"{profile.net}: one training step"),
        "NET": escape(profile.net),
        "ABOUT": escape(_about(profile)),
        "CARDS": "\n".join(_cards(profile)),
        "LAYERS": "\n".join(_layer_rows(profile, colours)),
        "LAUNCHES": "\n".join(_launch_rows(profile, colours)),
        "HOW": escape(_how(profile)),
        "DATA": json.dumps(_data(profile, colours), separators=(",", ":")).replace("<", "\\u003c"),
    }
    text = Path(__file__).with_name("profile_page.html").read_text(encoding="utf-8")
    for key, value in parts.items():
        text = text.replace(f"<!--{key}-->", value)
    return text


def _data(profile: Profile, colours: dict[str, str]) -> dict[str, Any]:
    """The profile as the page's script reads it: long lists as tables, and each different kernel once."""
    kernels = list(dict.fromkeys(kernel for launch in profile.launches for kernel in launch.kernels))
    number = {kernel: i for i, kernel in enumerate(kernels)}
    launches = [vars(row) | {"kernels": [number[kernel] for kernel in row.kernels]} for row in profile.launches]
    rest = {name: value for name, value in asdict(profile).items() if name not in ("launches", "buffers")}
    tables = {"kernels": map(vars, kernels), "launches": launches, "buffers": map(vars, profile.buffers)}
    return _rounded(rest | {name: _table(rows) for name, rows in tables.items()} | {"colours": colours})


def _table(rows: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Rows of equal keys, with the keys said once."""
    rows = list(rows)
    return {"keys": list(rows[0]) if rows else [], "rows": [list(row.values()) for row in rows]}


def chrome_trace(profile: Profile) -> dict[str, Any]:
    """Complete events laid end to end, one thread a lane, a launch's kernels below it, and a counter of the arena's
    bytes in use."""
    threads = {lane: i for i, lane in enumerate(LANES, 1)}
    process = {"name": f"{profile.net}, batch {profile.batch}, on {profile.device}"}
    events: list[dict[str, Any]] = [{"ph": "M", "pid": 1, "tid": 0, "name": "process_name", "args": process}]
    for lane, tid in threads.items():
        events.append({"ph": "M", "pid": 1, "tid": tid, "name": "thread_name", "args": {"name": lane}})
        events.append({"ph": "M", "pid": 1, "tid": tid, "name": "thread_sort_index", "args": {"sort_index": tid}})
    now = 0.0
    for launch in profile.launches:
        place = {"pid": 1, "tid": threads[launch.lane], "ts": round(now, 3), "name": launch.name}
        if launch.at is not None:
            transient = profile.live[launch.at] - profile.persistent
            live = {"persistent": profile.persistent, "transient": transient}
            events.append(place | {"ph": "C", "tid": 0, "name": "bytes in use", "args": live})
        events.append(place | {"ph": "X", "dur": round(launch.us, 3), "cat": launch.lane, "args": _arguments(launch)})
        events += _kernel_events(launch, place)
        now += launch.us
    return {"traceEvents": events, "displayTimeUnit": "ns", "otherData": {"step_us": round(profile.step_us, 3)}}


def _kernel_events(launch: LaunchTime, place: dict[str, Any]) -> Iterable[dict[str, Any]]:
    """The kernels of a launch that has several, each with its share of the launch's time."""
    if len(launch.kernels) < 2:
        return
    at, scale = place["ts"], 0.999 * launch.us / sum(launch.kernel_us)  # a child must not outlast its parent
    for kernel, us in zip(launch.kernels, launch.kernel_us, strict=True):
        yield place | {"ph": "X", "ts": round(at, 4), "dur": round(us * scale, 4), "name": kernel.name, "cat": "kernel"}
        at += us * scale


def _arguments(launch: LaunchTime) -> dict[str, Any]:
    kernels = [
        f"{us:.2f} us {k.name} <<<{k.grid}, {k.block}>>> {k.variant}".rstrip()
        for k, us in zip(launch.kernels, launch.kernel_us, strict=True)
    ]
    return {
        "layer": launch.layer,
        "op": launch.op,
        "bytes": launch.read + launch.written,
        "flops": launch.flops,
        "GB/s": _significant(launch.gbs),
        "GFLOP/s": _significant(launch.gflops),
        "share": _significant(launch.share),
        "binds": launch.binds,
        **({"kernels": kernels} if kernels else {}),
    }


# ---- colours


def layer_colours(profile: Profile) -> dict[str, str]:
    """One colour for each owner: hues in the order of the layers, neighbours also apart in lightness."""
    owners = dict.fromkeys([*(row.name for row in profile.layers), *(b.owner for b in profile.buffers)])
    layers = [name for name in owners if name not in GREY]
    step = min(300 / max(len(layers), 1), 55)
    hues = {name: _oklch(0.76 if i % 2 else 0.68, 0.13, 255 - i * step) for i, name in enumerate(layers)}
    return {name: GREY.get(name) or hues[name] for name in owners}


def _oklch(lightness: float, chroma: float, hue: float) -> str:
    """OKLCH to #rrggbb, clipped: equal lightness looks equally light in every hue."""
    a, b = chroma * cos(hue * pi / 180), chroma * sin(hue * pi / 180)
    l, m, s = (
        (lightness + p * a + q * b) ** 3
        for p, q in ((0.3963377774, 0.2158037573), (-0.1055613458, -0.0638541728), (-0.0894841775, -1.2914855480))
    )
    rows = (
        (4.0767416621, -3.3077115913, 0.2309699292),
        (-1.2684380046, 2.6097574011, -0.3413193965),
        (-0.0041960863, -0.7034186147, 1.7076147010),
    )
    out = "#"
    for x, y, z in rows:
        c = min(1.0, max(0.0, x * l + y * m + z * s))
        c = 12.92 * c if c <= 0.0031308 else 1.055 * c ** (1 / 2.4) - 0.055
        out += f"{round(255 * c):02x}"
    return out


# ---- text


def _about(p: Profile) -> str:
    more = f", {p.accumulation} of them averaged for one update" if p.accumulation > 1 else ""
    return f"One training step of batch {p.batch}{more}, on {p.device}: {len(p.launches)} launches"


def _cards(p: Profile) -> Iterable[str]:
    rows = [("Step", time_text(p.step_us), f"{p.samples_per_second:,.0f} samples a second")]
    if p.replay_us is not None:
        rows.append(("Kernels alone", time_text(p.replay_us), f"as one graph; the host needs {time_text(p.host_us)}"))
    rows += [
        ("Launches, summed", time_text(p.sum_us), "each timed by itself" if p.replay_us is not None
         else f"medians; {time_text(p.host_us)} lie between them" if p.host_us > 0.001 * p.step_us else "medians"),
        ("Share of the limit", f"{100 * p.share:.0f} %",
         f"at its limit the step would take {time_text(p.share * p.step_us)}"),
        ("Arena", bytes_text(p.arena), f"no plan needs less than {bytes_text(p.lower_bound)}"),
        ("Memory moves", f"{number_text(p.peaks.gbs)} GB/s", f"measured: {p.peaks.gbs_by}"),
        ("Arithmetic", rate_text(p.peaks.gflops), f"measured: {p.peaks.gflops_by}"),
    ]  # fmt: skip
    for name, value, note in rows:
        yield f"<div><dt>{escape(name)}</dt><dd>{escape(value)}<small>{escape(note)}</small></dd></div>"


def _how(p: Profile) -> str:
    if p.kind == "cpu":
        return (
            "Times are medians of several steps, read between launches. NumPy makes copies (the columns of a "
            "convolution) that the limit does not count, so shares are low."
        )
    return (
        "Each launch is repeated by itself, so small nets find their data in the card's cache and may pass the "
        "measured bandwidth; Winograd convolutions need fewer multiplications than are counted and may pass the "
        "measured peak."
    )


def _layer_rows(p: Profile, colours: dict[str, str]) -> Iterable[str]:
    whole, longest = p.sum_us, max(sum(row.us.values()) for row in p.layers)
    for row in sorted(p.layers, key=lambda row: -sum(row.us.values())):
        us = sum(row.us.values())
        bars = "".join(
            f'<i class="{lane}" style="width:{100 * row.us[lane] / longest:.2f}%"></i>' for lane in LANES
            if lane in row.us
        )  # fmt: skip
        yield (
            f'<tr><th scope="row">{_swatch(colours[row.name])}{escape(row.name)}</th>'
            f'<td class="bars" style="--c:{colours[row.name]}" aria-hidden="true">{bars}</td>'
            f"<td>{us_text(us)}</td><td>{100 * us / whole:.1f}</td><td>{bytes_text(row.bytes)}</td>"
            f"<td>{_weights(row)}</td></tr>"
        )


def _weights(row: LayerTotal) -> str:
    return f"{row.weights:,}" if row.weights else ""


def _launch_rows(p: Profile, colours: dict[str, str]) -> Iterable[str]:
    """Slowest first. data-v holds the number a column is sorted by."""
    for i in sorted(range(len(p.launches)), key=lambda i: -p.launches[i].us):
        row = p.launches[i]
        kernels = "<br>".join(
            f"{escape(k.name)} {_dims(k.grid)} &times; {_dims(k.block)}, {us_text(us)} &micro;s"
            for k, us in zip(row.kernels, row.kernel_us, strict=True)
        )
        under = f"<small>{kernels}</small>" if kernels else ""
        cells = [
            (row.us, us_text(row.us)),
            (row.us, f"{100 * row.us / p.sum_us:.1f}"),
            (row.gap_us, us_text(row.gap_us)),
            (row.share, _bar(row.share)),
            (0, row.binds if row.read + row.written else ""),
            (row.read + row.written, bytes_text(row.read + row.written)),
            (row.gbs, number_text(row.gbs)),
            (row.flops, number_text(row.flops / 1e6) if row.flops else ""),
            (row.gflops, number_text(row.gflops) if row.flops else ""),
        ]
        body = "".join(f'<td data-v="{_significant(value)}">{text}</td>' for value, text in cells)
        yield (
            f'<tr data-i="{i}"><td data-v="{i}">{i + 1}</td>'
            f'<th scope="row">{_swatch(colours[row.layer])}{escape(row.name)}{under}</th>{body}</tr>'
        )


def _bar(share: float) -> str:
    filled = f"{100 * min(share, 1):.0f}%"
    return f'<i class="share" style="--s:{filled}"></i><span>{100 * share:.0f} %</span>'


def _swatch(colour: str) -> str:
    return f'<b class="swatch" style="background:{colour}"></b>'


def _dims(dims: tuple[int, int, int]) -> str:
    """(64, 1, 1) -> "64"; (64, 2, 1) -> "64 x 2"."""
    kept = list(dims)
    while len(kept) > 1 and kept[-1] == 1:
        kept.pop()
    return "&#8202;&middot;&#8202;".join(map(str, kept))


def number_text(x: float) -> str:
    """Three digits, or the whole number where it has more."""
    return f"{x:,.0f}" if x >= 100 else f"{x:.3g}"


def us_text(us: float) -> str:
    """Microseconds as the tables show them."""
    return f"{us:,.0f}" if us >= 100 else f"{us:.1f}" if us >= 1 else f"{us:.2f}"


def time_text(us: float) -> str:
    """12.3 -> "12.3 µs"; 45678.9 -> "45.7 ms"."""
    for unit, size in (("s", 1e6), ("ms", 1e3)):
        if us >= size:
            return f"{us / size:.3g} {unit}"
    return f"{us:.3g} µs"


def rate_text(gflops: float) -> str:
    return f"{gflops / 1e3:.3g} TFLOP/s" if gflops >= 1e4 else f"{number_text(gflops)} GFLOP/s"


def _significant(value: float) -> float:
    """Five digits are enough for a picture."""
    return float(f"{value:.5g}")


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return _significant(value)
    if isinstance(value, dict):
        return {k: _rounded(v) for k, v in value.items()}
    return [_rounded(v) for v in value] if isinstance(value, (list, tuple)) else value
