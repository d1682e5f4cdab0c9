"""The pieces that pages are made of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby


@dataclass(frozen=True)
class Section:
    """body: HTML below the heading. half: it may stand beside the one after it, or before it, if that may as well."""

    id: str
    title: str
    body: str
    half: bool = False

    @property
    def html(self) -> str:
        head = f'<h2 id="{self.id}-title">{escape(self.title)}</h2>'
        return f'<section id="{self.id}" aria-labelledby="{self.id}-title">{head}\n{self.body}</section>'


def laid_out(sections: Iterable[Section]) -> str:
    """One below the other; halves that follow each other side by side, where there is room."""
    out = []
    for half, group in groupby(sections, key=lambda section: section.half):
        parts = [section.html for section in group]
        out += ['<div class="two">', *parts, "</div>"] if half and len(parts) > 1 else parts
    return "\n\n".join(out)


def card(name: str, value: str, note: str) -> str:
    return f"<div><dt>{escape(name)}</dt><dd>{escape(value)}<small>{escape(note)}</small></dd></div>"


def table(
    heads: Sequence[str],
    rows: Iterable[Sequence[str]],
    left: Iterable[int] = (),
    sort: Sequence[Sequence[float | None]] | None = None,
    raw: Iterable[int] = (),
) -> str:
    """Rows of text; the first cell of each is its heading. left: columns aligned to the left besides the first; raw:
    columns that are HTML already. sort: the number of each cell, by which a click on a heading sorts."""
    to_left, html = set(left), set(raw)
    top = "".join(
        f'<th scope="col"{_class(c == 0 or c in to_left)}>{f"<button>{escape(h)}</button>" if sort else escape(h)}</th>'
        for c, h in enumerate(heads)
    )
    body = []
    for r, row in enumerate(rows):
        cells = [text if c in html else escape(text) for c, text in enumerate(row)]
        numbers = [f' data-v="{-1 if v is None else v:.6g}"' for v in sort[r]] if sort else [""] * len(cells)
        body.append(
            f'<tr><th scope="row"{numbers[0]}>{cells[0]}</th>'
            + "".join(f"<td{_class(c in to_left)}{numbers[c]}>{cells[c]}</td>" for c in range(1, len(cells)))
            + "</tr>"
        )
    inner = f"<thead><tr>{top}</tr></thead><tbody>{''.join(body)}</tbody>"
    return f'<div class="table" tabindex="0"><table>{inner}</table></div>'


def _class(left: bool) -> str:
    return ' class="left"' if left else ""
