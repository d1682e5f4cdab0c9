"""The plan: every launch of a step in order, and for every tensor the place it has in ONE block of memory.

A training step is  load, forward..., loss, backward...(, update...), clip, update.  Each launch reads and writes
*values*. A value that only renames another (a flatten) or may overwrite one that nobody needs any more shares its
*buffer*; a buffer lives from the launch that first writes it to the launch that last reads it. Buffers that never
live together share bytes. What outlives the step (weights, optimiser state, statistics) stands at the front.

    [ control | weights | state | optimiser | gradients ] [ transient buffers, placed by arena.py ]
      persistent: the same in every plan of one net                           offsets differ from plan to plan

`update="immediate"` hands each gradient to the optimiser as soon as it is complete, so gradients die young;
`update="end"` keeps them all (needed for clipping by the global norm, accumulation, and the step-by-step mode).
Both give the same bits.

A tensor of `recompute` is dropped after its last forward use. Where the backward pass needs it, a launch of kind
"again" computes it once more from what is kept, into a value called NAME~ .
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from .aids import AVERAGE
from .graph import Graph
from .ops import Shape
from .plan_draft import Draft
from .plan_parts import ALIGN, FIXED, ITEM, PERSISTENT, VECTOR, Buffer, Launch, Needs, Plan, Value

__all__ = [
    "ALIGN", "FIXED", "ITEM", "PERSISTENT", "VECTOR", "Buffer", "Launch", "Needs", "Plan", "Value", "draft_training",
    "plan_device", "plan_inference", "plan_training",
]  # fmt: skip


def plan_training(
    graph: Graph,
    batch: int,
    states: Iterable[str] = (),
    update: str = "end",
    target: tuple[Shape, str] = ((), "i32"),
    needs: Needs | None = None,
    storage: str = "f32",
    recompute: Iterable[str] = (),
) -> Plan:
    """The plan of one training step of `batch` samples.

    states: names of the optimiser's per-weight arrays. target: (shape without batch, dtype) of what the loss
    compares with. storage: f32 or f16, of activations and their gradients. recompute: names of tensors that are
    dropped after their last forward use and computed again for the backward pass; the bits are the same.
    Any batch works; a shorter last batch uses the front of each array.
    """
    return draft_training(graph, batch, states, update, target, needs, storage, recompute).finish(True, update)


def draft_training(
    graph: Graph,
    batch: int,
    states: Iterable[str],
    update: str,
    target: tuple[Shape, str],
    needs: Needs | None,
    storage: str,
    recompute: Iterable[str],
) -> Draft:
    """What plan_training places: for those who ask for lifetimes alone (budget.py)."""
    states = tuple(states)
    draft = Draft(graph, batch, needs=needs, training=True, storage=storage, recompute=recompute)
    draft.persistent(states, gradients=update == "end")
    draft.load(target)
    for node in graph.nodes:
        draft.forward(node, training=True)
    draft.loss()
    for node in reversed(graph.nodes):
        draft.backward(node, update)
    if update == "end":
        weights = {p.name: p.name for p in graph.trainable}
        grads = {f"d:{p.name}": f"d:{p.name}" for p in graph.trainable}
        draft.launch("clip", "clip", None, grads, {})
        draft.launch("update", "update", None, grads | weights, {})
    if AVERAGE in states:
        moving = {p.name: p.name for p in (*graph.trainable, *graph.statistics)}
        draft.launch("average", "average", None, moving, {})
    return draft


def plan_inference(
    graph: Graph,
    batch: int = 1,
    states: Iterable[str] = (),
    gradients: bool = False,
    needs: Needs | None = None,
    storage: str = "f32",
    target: tuple[Shape, str] | None = None,
) -> Plan:
    """The plan of the forward pass alone; with a target, of the loss as well, which may then overwrite the output.
    states, gradients and needs keep a training plan's persistent layout."""
    draft = Draft(graph, batch, needs=needs, storage=storage)
    draft.persistent(states, gradients)
    return _forward_only(draft, target)


def plan_device(graph: Graph, alignment: int = 16, types: Mapping[int, str] | None = None) -> Plan:
    """The plan of one inference on a device: weights stay in the file, input and outputs are the caller's, so that
    the arena holds nothing but what lies between. types: "i8" of the tensors that are."""
    draft = Draft(graph, 1, alignment, external=True, types=types)
    for p in graph.params.values():
        draft.declare(p.name, p.shape, "f32", "external", p.layer)
    return _forward_only(draft)


def _forward_only(draft: Draft, target: tuple[Shape, str] | None = None) -> Plan:
    draft.load(target)
    for node in draft.graph.nodes:
        draft.forward(node, training=False)
    if target is not None:
        draft.loss()
    return draft.finish(False, "none")
