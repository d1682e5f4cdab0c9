"""Writes the operator tables of docs/import.md from the functions that read them, so that page and code cannot differ.

python -m litenet.exporter.importers.reference docs/import.md [--check]
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from . import onnx_nodes, onnx_qoperator, tflite_nodes


def table(handlers: Mapping[str, Callable[..., Any]]) -> str:
    """One row for each function: its operators, and the first line of its text."""
    rows: dict[Callable[..., Any], list[str]] = {}
    for name, function in handlers.items():
        rows.setdefault(function, []).append(name)
    lines = ["| operators | taken |", "| --- | --- |"]
    for function, names in rows.items():
        lines.append(f"| {', '.join(names)} | {(function.__doc__ or '').partition(chr(10))[0]} |")
    return "\n".join(lines)


def instead() -> str:
    lines = ["| not taken | what would do |", "| --- | --- |"]
    for name, text in (onnx_nodes.INSTEAD | onnx_qoperator.INSTEAD | tflite_nodes.INSTEAD).items():
        lines.append(f"| {name} | {text} |")
    return "\n".join(lines)


TABLES: dict[str, Callable[[], str]] = {
    "onnx": lambda: table({**onnx_nodes.HANDLERS, **onnx_qoperator.HANDLERS}),
    "tflite": lambda: table(tflite_nodes.HANDLERS),
    "instead": instead,
}


def page(text: str) -> str:
    """The page with its tables renewed; everything else as it was."""
    for name, made in TABLES.items():
        begin, end = f"<!-- generated {name} begin -->", f"<!-- generated {name} end -->"
        before, found, rest = text.partition(begin)
        _, closed, after = rest.partition(end)
        if not found or not closed:
            raise ValueError(f"the marks of the table {name!r} must stand in the page")
        text = f"{before}{begin}\n{made()}\n{end}{after}"
    return text


def main(argv: list[str] | None = None) -> int:
    arguments = sys.argv[1:] if argv is None else argv
    path, check = Path(arguments[0]), "--check" in arguments
    old = path.read_text(encoding="utf-8")
    new = page(old)
    if old != new and check:
        print(f"{path} is stale: run `make gen`", file=sys.stderr)
        return 1
    if old != new:
        path.write_text(new, encoding="utf-8", newline="\n")
        print(f"wrote {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
