"""What may be written for a key of a blueprint: kind, range, default. And what is said when it does not fit.

Losses, optimizers and schedules declare their settings as Fields. The blueprint checks with them, and so does
a command for the options it takes (`where` is then the option).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

from . import blueprint_words
from .blueprint_text import Node, fail, to_number
from .blueprint_words import Words

ANY = ()  # counts of a list of any length


@dataclass(frozen=True)
class Field:
    """One key. Kinds: whole, number, flag, text, choice (one of `words`), wholes, numbers.

    wholes and numbers are one number, or a list whose length is in `counts`. For kinds of numbers, `words`
    are texts that may stand instead ("same").
    """

    name: str
    kind: str
    lo: float = -math.inf
    hi: float = math.inf
    default: Any = None
    required: bool = False
    words: tuple[str, ...] = ()
    counts: tuple[int, ...] = (1,)
    doc: str = ""
    foreign: Words = field(default_factory=dict)


@dataclass(frozen=True)
class Options:
    """A choice with settings, such as a loss: "mse", or {"type": "cross_entropy", "label_smoothing": 0.1}."""

    type: str
    fields: dict[str, Any] = field(default_factory=dict)

    def plain(self) -> Any:
        """As JSON: the name alone where there are no settings."""
        return {"type": self.type, **self.fields} if self.fields else self.type


def check(f: Field, given: Any, where: str) -> Any:
    """The value of field `f` as int, float, bool, str, or list of numbers; a UserError if it does not fit."""
    found = given.plain() if isinstance(given, Node) else given
    if f.kind == "text":
        text = given.text if isinstance(given, Node) else given
        if isinstance(text, str) and text:
            return text
    elif f.kind == "flag":
        if isinstance(found, bool) or (isinstance(found, (int, float)) and found in (0, 1)):
            return bool(found)
    elif isinstance(found, str) and (f.kind == "choice" or found in f.words):
        if found not in f.words:
            unknown(where, f.name, found, f.words, f.foreign, f"{f.name} can be")
        return found
    elif f.kind in ("whole", "number"):
        if (number := _number(f, found)) is not None:
            return number
    elif f.kind in ("wholes", "numbers"):
        items = found if isinstance(found, list) else [found]
        numbers = [_number(f, item) for item in items]
        if numbers and None not in numbers and (f.counts == ANY or len(items) in f.counts):
            return numbers if isinstance(found, list) else numbers[0]
    remedy = f"{f.name}: {f.doc}." if f.doc else "Correct it, or leave it out."
    return fail(where, f"{f.name} is {show(found)}, but {expected(f)} is expected", remedy)


def check_all(
    fields: Iterable[Field],
    entries: Mapping[str, Any],
    where: str,
    owner: str,
    words: Words,
    also: tuple[str, ...] = (),
) -> dict[str, Any]:
    """Every entry checked against its field. Unknown keys (`also` names more that may be there) and missing
    ones are refused; `owner` is whose keys they are."""
    known = {f.name: f for f in fields}
    for key in entries:
        if key not in known and key not in also:
            unknown(where, "the key", key, (*also, *known), words, f"{owner} takes")
    for f in known.values():
        if f.required and f.name not in entries:
            fail(where, f"{f.name} is missing", f"{f.name}: {f.doc}; {expected(f)}.")
    return {name: check(f, entries[name], where) for name, f in known.items() if name in entries}


def entries_of(node: Node, what: str, where: str) -> dict[str, Node]:
    """The entries of a mapping, without those that are null: they count as not written."""
    if not isinstance(node.value, dict):
        sentence = f"{what} is {show(node.plain())}, but a mapping is expected"
        fail(where, sentence, 'A mapping is {"key": value, ...}.')
    return {key: item for key, item in node.value.items() if item.value is not None}


def read_options(
    node: Node,
    table: Mapping[str, tuple[Field, ...]],
    what: str,
    where: str,
    words: Words,
    also: tuple[str, ...] = (),
) -> Options:
    """A name, or a mapping with `type` and its settings in `table`. Keys in `also` are skipped."""
    entries = entries_of(node, what, where) if isinstance(node.value, dict) else {"type": node}
    if "type" not in entries:
        fail(where, f"{what} has no type", f'Add "type": "...", one of {", ".join(table)}.')
    kind = entries.pop("type")
    if not isinstance(kind.value, str):
        sentence = f"{what} is {show(kind.plain())}, but a name is expected"
        fail(where, sentence, f"{what} can be {', '.join(table)}.")
    if kind.value not in table:
        unknown(where, what, kind.value, table, words, f"{what} can be")
    settings = check_all(
        table[kind.value], entries, f"{where} ({kind.value})", kind.value, blueprint_words.OPTION, also
    )
    return Options(kind.value, settings)


def unknown(where: str, what: str, word: str, allowed: Iterable[str], words: Words, takes: str) -> NoReturn:
    """Refuse a word that is not one of `allowed`, with the one that was probably meant."""
    names = list(allowed)
    near = blueprint_words.suggest(word, names, words)
    fail(
        where,
        f"{what} {show(word)} is unknown" + (f"; did you mean {near}?" if near else ""),
        f"{takes} {', '.join(names)}." if names else f"{takes} nothing.",
    )


def expected(f: Field) -> str:
    """What may stand for the field, in words."""
    if f.kind == "flag":
        return "true or false"
    if f.kind == "text":
        return "a text"
    if f.kind == "choice":
        return "one of " + ", ".join(f.words)
    text = f"a {'whole ' if f.kind.startswith('whole') else ''}number from {f.lo:.9g} to {_whole(f.hi)}"
    if f.kind in ("wholes", "numbers"):
        counts = [str(n) for n in f.counts if n > 1]
        text += f" or a list of {' or '.join(counts)} of them" if counts else " or a list of them"
    return text + "".join(f" or {show(word)}" for word in f.words)


def show(value: Any) -> str:
    """A value found in the user's text, as JSON, on one line and not too long."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:56] + " ..."


def _number(f: Field, item: Any) -> int | float | None:
    """A number of the field's kind and range, or None. Text may spell it, so that "64*7*7" can be quoted."""
    if isinstance(item, str):
        item = to_number(item)
    if isinstance(item, bool) or not isinstance(item, (int, float)) or not f.lo <= item <= f.hi:
        return None
    if f.kind.startswith("number"):
        return float(item)
    return int(item) if item == int(item) else None


def _whole(number: float) -> str:
    return str(int(number)) if number == int(number) else f"{number:.9g}"
