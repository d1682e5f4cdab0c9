"""Blueprint text to nodes that know their line: JSON as people write it, or YAML.

A text that starts with `{` or `[` is JSON, more generously than the standard: // and /* */ and # comments,
trailing commas, bare or single-quoted words, and products such as 64*7*7 where a number stands. Any other is
YAML, of which aliases, tags and second documents are refused. What a bare word means is decided here, for
both alike: true, false, null (or ~, or nothing), a number, a product of numbers, otherwise text. So 1e-3 is a
number, and `no` and 010 are not what YAML 1.1 makes of them.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import Any, NoReturn

try:
    import yaml
except ImportError:  # JSON blueprints need none
    yaml = None  # type: ignore[assignment]

from .errors import UserError

MAX_DEPTH = 32

_NUMBER = r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?"
_PRODUCT = rf"{_NUMBER}(?:[ \t]*\*[ \t]*{_NUMBER})+"
_IS_NUMBER = re.compile(rf"{_NUMBER}\Z|{_PRODUCT}\Z", re.ASCII)
_LONGEST_NUMBER = 100  # characters; longer ones stay text, and the check of the field refuses them

_TOKEN = re.compile(
    rf"""(?P<space> [\s\u200b\ufeff]+ )
    | (?P<comment> //[^\n]* | \#[^\n]* | /\*.*?\*/ )
    | (?P<string> "(?:[^"\\\n]|\\[^\n])*" | '(?:[^'\\\n]|\\[^\n])*' )
    | (?P<mark> [{{}}\[\],:] )
    | (?P<word> {_PRODUCT} | (?:[^\s\u200b\ufeff{{}}\[\],:"'\#/] | /(?![/*]))+ )""",
    re.VERBOSE | re.DOTALL,
)
_CLOSING = {"{": "}", "[": "]"}


@dataclass(frozen=True)
class Node:
    """One value of the text. `line` counts from 1 and is that of the key, where the value has one."""

    value: None | bool | int | float | str | list[Node] | dict[str, Node]
    line: int
    text: str = ""  # a scalar as it was written, without its quotes

    def plain(self) -> Any:
        """The value with lists and dicts of plain values instead of nodes."""
        if isinstance(self.value, list):
            return [item.plain() for item in self.value]
        if isinstance(self.value, dict):
            return {key: item.plain() for key, item in self.value.items()}
        return self.value


def read(text: str, where: str) -> Node:
    """The top node of a blueprint. `where` names the file in messages."""
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    tokens = (match for match in _TOKEN.finditer(text) if match.lastgroup not in ("space", "comment"))
    first = next(tokens, None)
    if first is not None and first.group() in ("{", "["):
        return _Json(text, where).document()
    return _Yaml(text, where).document()


def scalar(text: str) -> None | bool | int | float | str:
    """What a bare word means."""
    word = text.lower()
    if word in ("", "~", "null"):
        return None
    if word in ("true", "false"):
        return word == "true"
    number = to_number(text)
    return text if number is None else number


def to_number(text: str) -> int | float | None:
    """The number, or the product of numbers, that a text spells; None if it spells none."""
    if len(text) > _LONGEST_NUMBER or not _IS_NUMBER.match(text):
        return None
    factors = [factor.strip() for factor in text.split("*")]
    return math.prod(int(f) if f.lstrip("+-").isdigit() else float(f) for f in factors)


def fail(where: str, sentence: str, remedy: str) -> NoReturn:
    """Raise the error for a user's mistake: one sentence, and on the next line what would help."""
    raise UserError(f"{where}: {sentence}{'' if sentence.endswith('?') else '.'}\n  {remedy}")


def _put(mapping: dict[str, Node], key: str, value: Node, line: int, where: str) -> None:
    if key in mapping:
        first = mapping[key].line
        fail(f"{where}, line {line}", f'"{key[:40]}" is written twice, first in line {first}', "Keep one.")
    mapping[key] = Node(value.value, line, value.text)


def _too_deep(where: str, line: int) -> NoReturn:
    sentence = f"lists and mappings are nested more than {MAX_DEPTH} deep"
    fail(f"{where}, line {line}", sentence, "Use fewer levels.")


class _Json:
    """A reader of generous JSON, by recursive descent. self.at is the next token."""

    def __init__(self, text: str, where: str) -> None:
        self.text, self.where = text, where
        self.pos, self.line = 0, 1  # end of the next token and the line it is in
        self.kind, self.at = "start", ""
        self.hiding = 0  # line of the last // or # comment that holds brackets
        self._advance()

    def document(self) -> Node:
        top = self._value(1)
        if self.kind != "end":
            self._fail(f"{self._found()} follows after the end", "Check the brackets before it.")
        return top

    def _advance(self) -> None:
        """Read the next token, over spaces and comments."""
        while True:
            self.line += self.at.count("\n")
            if self.pos == len(self.text):
                self.kind, self.at = "end", ""
                return
            match = _TOKEN.match(self.text, self.pos)
            if match is None:
                self._no_token()
            self.kind, self.at, self.pos = str(match.lastgroup), match.group(), match.end()
            if self.kind == "comment" and not self.at.startswith("/*") and re.search(r"[{}\[\]]", self.at):
                self.hiding = self.line
            if self.kind not in ("space", "comment"):
                return

    def _no_token(self) -> NoReturn:
        if self.text[self.pos] == "/":
            self._fail("a comment that starts with /* never ends", "Write */ where it ends.")
        self._fail("a quoted text is not closed on its line", "Put the closing quote where the text ends.")

    def _value(self, depth: int) -> Node:
        line = self.line
        if self.kind in ("string", "word"):
            return self._scalar()
        if self.at not in _CLOSING:
            self._unexpected("a value")
        if depth > MAX_DEPTH:
            _too_deep(self.where, line)
        opening = self.at
        self._advance()
        return Node(self._list(line, depth) if opening == "[" else self._mapping(line, depth), line)

    def _list(self, opened: int, depth: int) -> list[Node]:
        items: list[Node] = []
        while self.at != "]":
            self._inside("[", opened)
            items.append(self._value(depth + 1))
            self._separator("[", opened)
        self._advance()
        return items

    def _mapping(self, opened: int, depth: int) -> dict[str, Node]:
        items: dict[str, Node] = {}
        while self.at != "}":
            self._inside("{", opened)
            line = self.line
            if self.kind not in ("string", "word"):
                self._unexpected("a key")
            key = self._scalar().text
            if self.at != ":":
                self._inside("{", opened)
                self._fail(f'after the key "{key[:40]}" stands {self._found()}', "Write a colon and the value.")
            self._advance()
            self._inside("{", opened)
            _put(items, key, self._value(depth + 1), line, self.where)
            self._separator("{", opened)
        self._advance()
        return items

    def _separator(self, opening: str, opened: int) -> None:
        """A comma, or the closing bracket, which is left to the caller."""
        if self.at == ",":
            self._advance()
        elif self.at != _CLOSING[opening]:
            self._inside(opening, opened)
            if self.at in ("}", "]"):
                self._fail(
                    f"{self.at} is found, but the {opening} of line {opened} is still open",
                    f"Put a {_CLOSING[opening]} before it.",
                )
            self._fail(f"a comma is missing before {self._found()}", "Put a comma between two entries.")

    def _inside(self, opening: str, opened: int) -> None:
        """Refuse the end of the text before a bracket is closed."""
        if self.kind != "end":
            return
        if self.hiding:
            fail(
                f"{self.where}, line {self.hiding}",
                "a comment hides the brackets that follow it on its line",
                "Break the line where the comment ends, or write the comment as /* ... */.",
            )
        self._fail(
            f"the text ends, but the {opening} of line {opened} is not closed",
            f"Put a {_CLOSING[opening]} where it ends.",
        )

    def _unexpected(self, wanted: str) -> NoReturn:
        self._fail(f"{self._found()} stands where {wanted} is expected", "Check what stands before it.")

    def _scalar(self) -> Node:
        token, line = self.at, self.line
        if self.kind == "word":
            if re.search("[“”„‟‘’‚]", token):
                self._fail(f"{self._found()} is in curly quotes", 'Use straight ones: "...".')
            self._advance()
            return Node(scalar(token), line, token)
        if token[0] == "'":
            token = '"' + token[1:-1].replace("\\'", "'").replace('"', '\\"') + '"'
        try:
            text = json.loads(token, strict=False)
            text.encode()  # refuses half of a surrogate pair
        except ValueError:
            self._fail(
                f"{self._found()} holds an escape that JSON does not know",
                'Known are \\" \\\\ \\/ \\b \\f \\n \\r \\t and \\uXXXX.',
            )
        self._advance()
        return Node(text, line, text)

    def _found(self) -> str:
        return "the end of the text" if self.kind == "end" else self.at[:40]

    def _fail(self, sentence: str, remedy: str) -> NoReturn:
        fail(f"{self.where}, line {self.line}", sentence, remedy)


class _Yaml:
    """PyYAML's events to nodes. Events come one by one, so nothing is read that is nested too deep."""

    def __init__(self, text: str, where: str) -> None:
        self.text, self.where = text, where

    def document(self) -> Node:
        if yaml is None:
            fail(self.where, "YAML needs PyYAML, which is not installed", "pip install 'litenet[train]', or use JSON.")
        try:
            self.events = yaml.parse(self.text, Loader=yaml.SafeLoader)
            self._next(yaml.StreamStartEvent)
            event = next(self.events)
            if isinstance(event, yaml.StreamEndEvent):
                return Node(None, 1)
            top = self._node(next(self.events), 1)
            self._next(yaml.DocumentEndEvent)
            event = next(self.events)
            if not isinstance(event, yaml.StreamEndEvent):
                self._fail(event, "a second document starts", "Keep one blueprint in a file, without ---.")
            return top
        except yaml.MarkedYAMLError as error:
            assert error.problem_mark is not None  # PyYAML's scanner and parser always give one
            self._unreadable(error.problem_mark.line + 1, str(error.problem))
        except yaml.reader.ReaderError as error:
            line = self.text.count("\n", 0, int(error.position)) + 1
            sentence = f"the character U+{error.character:04X} is found"
            fail(f"{self.where}, line {line}", sentence, "Remove it.")
        except (ValueError, OverflowError):  # PyYAML on an escape above U+10FFFF
            fail(self.where, "an escape such as \\U stands for no character", "Write the character itself.")

    def _next(self, kind: type) -> None:
        event = next(self.events)
        assert isinstance(event, kind), event

    def _node(self, event: Any, depth: int) -> Node:
        if isinstance(event, yaml.AliasEvent):
            self._fail(event, f"*{str(event.anchor)[:40]} is an alias, and aliases are not read", "Write the part out.")
        if event.tag:
            self._fail(event, f"the tag {event.tag[:80]} is not read", "Write the plain value.")
        line = _line_of(event)
        if isinstance(event, yaml.ScalarEvent):
            text = self._text(event)
            return Node(scalar(text) if event.style is None else text, line, text)
        if depth > MAX_DEPTH:
            _too_deep(self.where, line)
        if isinstance(event, yaml.SequenceStartEvent):
            items: list[Node] = []
            while not isinstance(event := next(self.events), yaml.SequenceEndEvent):
                items.append(self._node(event, depth + 1))
            return Node(items, line)
        mapping: dict[str, Node] = {}
        while not isinstance(event := next(self.events), yaml.MappingEndEvent):
            if not isinstance(event, yaml.ScalarEvent):
                self._fail(event, "a key is not a word", "Write one word and a colon.")
            value = self._node(next(self.events), depth + 1)
            _put(mapping, self._text(event), value, _line_of(event), self.where)
        return Node(mapping, line)

    def _text(self, event: Any) -> str:
        """The text of a scalar; a pair of escaped surrogates becomes its one character, as in JSON."""
        try:
            return event.value.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
        except UnicodeDecodeError:
            self._fail(event, "a text holds half of a surrogate pair", "Write the character itself.")

    def _unreadable(self, line: int, problem: str) -> NoReturn:
        remedy = "Check colons, dashes and indentation; a file that starts with { is read as JSON."
        if "\\t" in problem:
            problem, remedy = "a tab is used for indentation", "Use spaces."
        elif re.search(r"^\s*/[/*]", self.text, re.MULTILINE):
            remedy = "In YAML a comment starts with #, not with /."
        fail(f"{self.where}, line {line}", f"the YAML cannot be read: {problem}", remedy)

    def _fail(self, event: Any, sentence: str, remedy: str) -> NoReturn:
        fail(f"{self.where}, line {_line_of(event)}", sentence, remedy)


def _line_of(event: Any) -> int:
    return event.start_mark.line + 1
