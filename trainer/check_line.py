"""One finding of edge-check: a line, as text of 80 columns or as an object."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from math import isfinite
from textwrap import wrap
from typing import Any

OK, WARN, FAIL = "OK", "WARN", "FAIL"
WIDTH, NAME, START = 80, 14, 21  # columns: of all, of the name, where the text begins


@dataclass(frozen=True)
class Line:
    """text: what was found. advice: what to do about it, or nothing. facts: the same in numbers, for programs."""

    name: str
    status: str
    text: str
    advice: str = ""
    facts: dict[str, Any] = field(default_factory=dict)

    def render(self) -> str:
        head, indent = f"[{self.status}]".ljust(START - NAME) + self.name.ljust(NAME), " " * START
        lines = _wrapped(self.text, head, indent)
        if self.advice:
            lines += _wrapped(self.advice, indent + "> ", indent + "  ")
        return "\n".join(lines)

    def as_dict(self, group: str) -> dict[str, Any]:
        return {"group": group, "name": self.name, "status": self.status, "text": self.text, "advice": self.advice,
                "facts": _finite(self.facts)}  # fmt: skip


def _wrapped(text: str, first: str, later: str) -> list[str]:
    """Lines of at most WIDTH columns; paths and options stay whole, so that they can be copied."""
    return wrap(text, WIDTH, initial_indent=first, subsequent_indent=later, break_long_words=False,
                break_on_hyphens=False)  # fmt: skip


def _finite(value: Any) -> Any:
    """JSON has no infinity and no NaN: None stands for them."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not isfinite(value) else value


def guarded(name: str, check: Callable[..., Iterable[Line]], *given: Any, status: str = FAIL) -> Iterator[Line]:
    """The lines of a check; what it did not foresee becomes a line too. status: how bad that is."""
    try:
        yield from check(*given)
    except Exception as error:
        said = " ".join(str(error).split())
        text = f"could not be checked: {type(error).__name__}" + (f": {said[:300]}" if said else "")
        yield Line(name, status, text, "This is not foreseen: please report it with this line.")
