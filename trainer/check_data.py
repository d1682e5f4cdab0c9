"""edge-train check-data: what a folder of photos holds, what is wrong with it, and what training would do about it."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .errors import UserError

EVERY = 0.2  # seconds between two words of progress


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        "edge-train check-data",
        description="Look at photos before any training: unreadable files, odd modes, duplicates, labels, the split.",
        epilog="exit status: 0 looked at, also where there is something to remark; 1 there is nothing to train on",
    )
    made.add_argument("photos", help="a folder with one folder of pictures a class, or a CSV of path,label")
    add_photo_options(made)
    made.add_argument("--seed", type=int, default=0, help="what the split follows from (default 0)")
    made.add_argument("--json", action="store_true", help="one JSON object, with every file that is meant")
    return made


def add_photo_options(made: argparse.ArgumentParser) -> None:
    """What edge-train and edge-train check-data both take."""
    made.add_argument(
        "--group", metavar="PATTERN", help="photos whose names share this regular expression stay together"
    )
    made.add_argument("--test-split", type=float, metavar="X", help="share of photos kept for the test (default 0.1)")
    made.add_argument(
        "--cache", type=Path, metavar="DIR", help="where decoded photos are kept (default: the user's cache)"
    )
    made.add_argument(
        "--workers", type=int, metavar="N", help="processes that decode photos (default: one a processor)"
    )


def photo_options(options: argparse.Namespace) -> Any:
    """PhotoOptions of a command line; its seed is set elsewhere."""
    from .data.photos import PhotoOptions

    share = 0.1 if options.test_split is None else options.test_split
    if not 0 <= share < 1:
        raise UserError(f"--test-split is {share:g}; it is a share from 0 to below 1.\n  Try 0.1.")
    if options.workers is not None and options.workers < 1:
        raise UserError(f"--workers is {options.workers}; at least one process is needed.\n  Leave it away.")
    return PhotoOptions(options.group, share, 0, options.cache, options.workers or 0)


def progress(quiet: bool) -> Callable[[str, int, int], None] | None:
    """Says on a terminal how far things are."""
    if quiet or not sys.stderr.isatty():
        return None
    last = [0.0]

    def say(what: str, done: int, of: int) -> None:
        now = time.monotonic()
        if done == of or now - last[0] > EVERY:
            last[0] = now
            end = "\r" + " " * 70 + "\r" if done == of else ""
            print(f"\r{what}: {done:,} of {of:,} {end}", end="", file=sys.stderr, flush=True)

    return say


def report(found: Any) -> None:
    """Says what preflight found."""
    print("\n".join(found.lines()), file=sys.stderr, flush=True)


def run(options: argparse.Namespace) -> int:
    from dataclasses import replace

    from .data.load import holds_photos
    from .data.photos import look

    source = Path(options.photos).expanduser()
    if not holds_photos(options.photos):
        what = "there is no such folder or file" if not source.exists() else "these are no photos in a folder a class"
        raise UserError(f"{options.photos}: {what}.\n  Give a folder with one folder of pictures a class, or a CSV.")
    wanted = replace(photo_options(options), seed=options.seed)
    try:
        found, parts = look(source, wanted, fresh=True, progress=progress(options.json))
    except OSError as fault:
        where = fault.filename or source
        raise UserError(f"{where}: cannot be read ({fault.strerror}).\n  Check its permissions.") from None
    split = {part: int((parts == part).sum()) for part in ("train", "validation", "test") if (parts == part).any()}
    if options.json:
        print(json.dumps(found.as_dict() | {"split": split}))
        return 0
    print(f"{options.photos}: " + "\n".join(found.lines()))
    made = "given" if found.listing.parted else f"made with seed {options.seed}"
    print(f"split, {made}: " + ", ".join(f"{part} {count:,}" for part, count in split.items()))
    return 0
