"""The net and its run, as sections of a page: layers in training, cost on a device, a step, how it was made."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from ..memory import bytes_text
from ..profile_page import time_text
from .charts import SIZE, Axis, plot, round_ticks, spark, value_text
from .cost import Cost
from .parts import Section, table

DEAD = 0.5  # share of a layer's units that never fire, from which it is pointed out
RATIO = (1e-5, 3e-2)  # update over weight, beyond which a layer learns too slowly or too wildly


def layers_section(rows: Sequence[dict[str, Any]]) -> Section | None:
    """Statistics of each layer, where the metrics have them: "layers" in a row is a list of {"name", "dead", "mean",
    "std", "gradient", "update_ratio"}, each of which may be missing."""
    history: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        for layer in row.get("layers") or []:
            history.setdefault(str(layer.get("name")), []).append(layer)
    if not history:
        return None
    shown, warnings = [], []
    for name, mine in history.items():
        last = mine[-1]

        def column(key: str, mine: list[dict[str, Any]] = mine) -> list[float | None]:
            return [layer.get(key) for layer in mine]

        dead, ratio = last.get("dead"), last.get("update_ratio")
        if dead is not None and dead >= DEAD:
            warnings.append(
                f"{100 * dead:.0f} % of {name} never fires: lower the learning rate, or use leaky_relu there."
            )
        if ratio is not None and not RATIO[0] <= ratio <= RATIO[1]:
            word = "hardly moves" if ratio < RATIO[0] else "is rewritten at every step"
            warnings.append(f"{name} {word}: an update is {ratio:.1e} of its weights (1e-3 is common).")
        share = "" if dead is None else f"{100 * dead:.1f} %{spark(column('dead'))}"
        spread = [_value(last.get(key)) for key in ("mean", "std")]
        moving = [f"{_value(last.get(key))}{spark(column(key), log=True)}" for key in ("gradient", "update_ratio")]
        shown.append([name, share, *spread, *moving])
    heads = ["layer", "dead", "mean output", "its deviation", "gradient norm", "update / weights"]
    said = "".join(f"<li>{escape(w)}</li>" for w in warnings)
    said = f'<ul class="warn">{said}</ul>' if said else ""
    return Section(
        "layers",
        "Layer by layer",
        "<p>In the last epoch; the lines show how it came to be, gradients and updates by powers of ten. Dead: outputs "
        f"that were 0 for every sample.</p>{said}{table(heads, shown, raw=(1, 4, 5))}",
    )


def _value(value: float | None) -> str:
    return "" if value is None else value_text(value)


def device_section(size: Cost) -> Section:
    rows = [
        [row.name, row.op, " x ".join(map(str, row.shape)), f"{row.macs:,}" if row.macs else "",
         f"{row.bytes:,}" if row.bytes else ""]
        for row in size.rows
    ]  # fmt: skip
    half = "" if size.half is None else f", {size.half:,} with --fp16"
    return Section(
        "device",
        "On a device",
        f"<p>What <code>edge-export</code> would write: {size.file:,} bytes of flash{half}, of which a firmware can "
        f"leave out the self-test (--no-golden); {size.arena:,} bytes of RAM a run, counted to the byte by the plan "
        f"that the device follows; {size.macs:,} multiply-accumulates.</p>"
        f"{table(['layer', 'operator', 'output', 'MACs', 'weight bytes'], rows, left=(1,))}",
    )


def blueprint_section(config: dict[str, Any]) -> Section:
    settings = [[key, json.dumps(value, ensure_ascii=False)] for key, value in config["settings"].items()]
    data = [[key, json.dumps(value, ensure_ascii=False)] for key, value in config["data"].items()]
    text = _compact(config["blueprint"])
    return Section(
        "blueprint",
        "Blueprint and settings",
        "<p>The blueprint as it was read, then what held: with the defaults, and with what the command line said.</p>"
        f'<pre tabindex="0">{escape(text)}</pre>'
        f"<details open><summary>Settings</summary>{table(['setting', 'value'], settings, left=(1,))}</details>"
        f"<details><summary>Data</summary>{table(['data', 'value'], data, left=(1,))}</details>",
    )


def _compact(blueprint: dict[str, Any]) -> str:
    """The blueprint as a person would write it: one layer a line."""
    parts = []
    for key, value in blueprint.items():
        if key == "layers":
            layers = ",\n".join("    " + json.dumps(layer, ensure_ascii=False) for layer in value)
            parts.append(f'  "layers": [\n{layers}\n  ]')
        else:
            parts.append(f"  {json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}")
    return "{\n" + ",\n".join(parts) + "\n}"


def environment_section(starts: Sequence[dict[str, Any]], config: dict[str, Any]) -> Section:
    if not starts:
        return Section("environment", "How it was made", f"<p>Seed {config['settings']['seed']}.</p>")
    last = starts[-1]
    rows = [[key, str(value)] for key, value in last.items() if value is not None and key not in ("command", "started")]
    commands = "\n".join(f"# {entry.get('started', '')}\n{entry.get('command', '')}" for entry in starts)
    return Section(
        "environment",
        "How it was made",
        f"<p>Seed {config['settings']['seed']}. The same command, data (hash "
        f"{escape(str(config['data'].get('hash')))}) and "
        f'machine give the same bits.</p><pre tabindex="0">{escape(commands)}</pre>'
        f"{table(['environment', 'value'], [['seed', str(config['settings']['seed'])], *rows], left=(1,))}",
    )


# ---- the step, where it was profiled

LANES = ("forward", "loss", "backward", "update")
NO_LAYER = "#8d99a6"


def profile_section(folder: Path) -> Section | None:
    """Time line and memory map of a step, from the profile.html that --profile wrote."""
    found = _profile(folder / "profile.html")
    if found is None:
        return None
    launches, buffers = (_rows(found[key]) for key in ("launches", "buffers"))
    slowest = max(launches, key=lambda row: row["us"])
    peak = found["plan"][found["peak"]]
    return Section(
        "step",
        "One step: time and memory",
        f"<p>A step of batch {found['batch']} took {time_text(found['step_us'])} on {escape(found['device'])}; the "
        f"longest launch is {escape(slowest['name'])}, {time_text(slowest['us'])}. The arena has "
        f"{bytes_text(found['arena'])}; no plan needs less than {bytes_text(found['lower_bound'])}; most is in use "
        f"during {escape(peak)}. profile.html beside this page has every launch.</p>"
        f"{_timeline(launches, found)}{_memory(buffers, found)}",
    )


def _profile(path: Path) -> dict[str, Any] | None:
    """The data of a profile page; None where there is none, or none of this kind."""
    try:
        text = path.read_text(encoding="utf-8")
        found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)
        data = json.loads(found.group(1)) if found else None
        wanted = {"launches", "buffers", "plan", "peak", "live", "arena", "lower_bound", "colours", "batch", "device"}
        return data if isinstance(data, dict) and wanted <= data.keys() else None
    except (OSError, ValueError):
        return None


def _rows(found: dict[str, Any]) -> list[dict[str, Any]]:
    return [dict(zip(found["keys"], row, strict=True)) for row in found["rows"]]


def _timeline(launches: list[dict[str, Any]], found: dict[str, Any]) -> str:
    total = sum(row["us"] for row in launches)
    drawn, now = [], 0.0
    height = SIZE / len(LANES)
    for row in launches:
        box = (SIZE * now / total, height * LANES.index(row["lane"]) + 20, SIZE * row["us"] / total, height - 40)
        drawn.append(_block(box, found["colours"].get(row["layer"]), f"{row['name']}: {time_text(row['us'])}"))
        now += row["us"]
    x = Axis(0, total, [(us, time_text(us) if us else "0") for us in round_ticks(total)])
    y_axis = Axis(0, len(LANES), [(len(LANES) - i - 0.5, lane) for i, lane in enumerate(LANES)])
    sums = {lane: sum(row["us"] for row in launches if row["lane"] == lane) for lane in LANES}
    said = "Time line of a step: " + ", ".join(f"{lane} {time_text(us)}" for lane, us in sums.items()) + "."
    drawing = plot("".join(drawn), x, y_axis, said)
    return f'<figure class="chart wide"><figcaption><b>The step in time</b></figcaption>{drawing}</figure>'


def _block(box: tuple[float, float, float, float], colour: str | None, says: str) -> str:
    """A rectangle at (x, y) of a width and a height, at least one unit each, that tells what it is."""
    x, y, wide, high = box
    return (
        f'<rect class="block" x="{x:.1f}" y="{y:.1f}" width="{max(1.0, wide):.1f}" height="{max(1.0, high):.1f}" '
        f'fill="{escape(colour or NO_LAYER)}"><title>{escape(says)}</title></rect>'
    )


def _memory(buffers: list[dict[str, Any]], found: dict[str, Any]) -> str:
    n, arena = len(found["plan"]), found["arena"]
    drawn = []
    for b in buffers:
        top, high = SIZE * (1 - (b["offset"] + b["bytes"]) / arena), SIZE * b["bytes"] / arena
        box = (SIZE * b["first"] / n, top, SIZE * (b["last"] + 1 - b["first"]) / n, high)
        says = f"{b['name']}: {b['kind']} of {b['owner']}, {b['bytes']:,} bytes"
        drawn.append(_block(box, found["colours"].get(b["owner"]), says))
    use = " ".join(
        f"{SIZE * k / n:.1f},{SIZE * (1 - b / arena):.1f} {SIZE * (k + 1) / n:.1f},{SIZE * (1 - b / arena):.1f}"
        for k, b in enumerate(found["live"])
    )
    drawn.append(f'<polyline class="use" points="{use}"/>')
    x = Axis(0, n, [(0, "first launch"), (n, "last launch")])
    y = Axis(0, arena, [(size, bytes_text(round(size)) if size else "0") for size in round_ticks(arena)])
    most = bytes_text(max(found["live"]))
    said = f"Memory map: {len(buffers)} buffers in {bytes_text(arena)}, over {n} launches; at most {most} in use."
    keys = "".join(
        f'<span class="key"><b class="swatch" style="background:{escape(colour)}"></b>{escape(owner)}</span>'
        for owner, colour in found["colours"].items()
    )
    return (
        '<figure class="chart wide tall"><figcaption><b>Who lives where in the arena</b> addresses upwards, launches '
        f"to the right; the line is what is in use. {keys}</figcaption>{plot(''.join(drawn), x, y, said)}</figure>"
    )
