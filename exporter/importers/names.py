"""Shorter names for the operators of an import: model/dense_1/MatMul is told by dense_1."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from litenet.trainer.graph import Graph

OPERATOR = re.compile(r"[A-Z]\w*((?:\.\w+)*)")  # MatMul, BiasAdd.2: what it does and what was added here


def short(names: Iterable[str]) -> dict[str, str]:
    """For each of these, which differ, the shortest of its forms that is no other's."""
    forms = {name: _forms(name) for name in names}
    at = dict.fromkeys(forms, 0)
    while True:
        found = {name: forms[name][k] for name, k in at.items()}
        claimed = Counter(found.values())
        unclear = [n for n, form in found.items() if claimed[form] > 1 and at[n] + 1 < len(forms[n])]
        if not unclear:
            return found
        for name in unclear:
            at[name] += 1


def _forms(name: str) -> list[str]:
    """Its last scopes, with and without the operator at the end, from the shortest to itself."""
    *scopes, last = [part for part in name.split("/") if part] or [name]
    found = {"/".join([*scopes[k:], last]) for k in range(len(scopes) + 1)}
    if scopes and (match := OPERATOR.fullmatch(last)):
        found = {"/".join(scopes[k:]) + match[1] for k in range(len(scopes))} | (found - {last})
    return [*sorted(found - {name}, key=lambda form: (len(form), form)), name]


def shortened(graph: Graph) -> tuple[Graph, dict[str, str]]:
    """The graph with its operators' names short, and these by what they were."""
    found = short(n.name for n in graph.nodes)
    nodes = tuple(replace(n, name=found[n.name], layer=found.get(n.layer, n.layer)) for n in graph.nodes)
    return replace(graph, nodes=nodes), found
