"""What the README tells a reader to do is what the tools do."""

import re
import shlex
from pathlib import Path

import pytest

from litenet.exporter.cli import _parser as export_parser
from litenet.pyruntime.cli import main as edge_infer
from litenet.trainer import check_data
from litenet.trainer.cli import _plan_parser, _train_parser
from litenet.trainer.report.commands import COMMANDS as LATER

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
TEXT = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
FOUND = set(re.findall(r"(?:^\$ |^|`)(edge-(?:train|export|infer) [^`#\n]*[^`#\s])", TEXT, re.MULTILINE))
COMMANDS = sorted(c for c in FOUND if re.search(r"[./]", c))  # the others only name an option
MAKE = sorted(set(re.findall(r"^make ([a-z][a-z-]*)", TEXT, re.MULTILINE)))


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_of_the_pages_are_understood(command):
    tool, *arguments = shlex.split(command)
    arguments = [a for a in arguments if a != "..."]
    if tool == "edge-train":
        own = {"plan": _plan_parser, "check-data": check_data.parser, **{name: made[0] for name, made in LATER.items()}}
        first = arguments[0] if arguments[0] in own else ""
        own.get(first, _train_parser)().parse_args(arguments[bool(first) :])
    elif tool == "edge-export":
        export_parser().parse_args(arguments)
    else:
        missing = [a for a in arguments if not a.startswith("-")]
        assert missing, command
        assert edge_infer(arguments) == 1  # understood, and there is no such model


def test_there_are_commands_to_check():
    assert len(COMMANDS) >= 5
    assert {"demo", "test"} <= set(MAKE)


@pytest.mark.parametrize("target", MAKE)
def test_make_targets_of_the_pages_exist(target):
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_the_pages_name_exist(page):
    text = page.read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)#:]+)\)", text)
    paths = re.findall(r"`((?:trainer|exporter|runtime_c|pyruntime|examples|tests|benchmarks|docs)/[\w./]*\w)`", text)
    for name in links:
        assert (page.parent / name).exists(), name
    for name in paths:
        assert (ROOT / name).exists() or "NAME" in name, name
