"""Which tensors may lie in one place: small plans, each with the verdict of the page's section "Memory"."""

import pytest
import reader
from attack_builds import BUILDS
from test_open import verdicts

from litenet.exporter.format import Model, OpRec, TensorRec, write
from litenet.trainer.ops import OPS, make_attrs

RELU = make_attrs(OPS["activation"].OP, {"activation": "relu"})
CUBE, ROW = (2, 2, 4), (16,)


def plan(ops, shapes, offsets, outputs):
    """A model of these operators; offsets of the tensors in the arena, outputs by number."""
    records = [OpRec(op, inputs, i + 1, RELU if op == "activation" else None) for i, (op, inputs) in enumerate(ops)]
    for i, (op, _) in enumerate(ops):
        if records[i].attrs is None:
            records[i] = OpRec(op, records[i].inputs, i + 1, make_attrs(OPS[op].OP, {}))
    tensors = [
        TensorRec(shape, offset=offsets.get(i, 0), input=i == 0, output=i in outputs) for i, shape in enumerate(shapes)
    ]
    return write(Model(tensors, records))


PLANS = {
    "over an input that is read later": (
        False,
        plan([("activation", (0,)), ("activation", (1,)), ("add", (2, 1))], [ROW] * 4, {}, {3}),
    ),
    "over an input of another size": (
        False,
        plan(
            [("activation", (0,)), ("global_avg_pool", (0,)), ("mul", (1, 2)), ("softmax", (3,))],
            [CUBE, CUBE, (4,), CUBE, CUBE], {1: 64}, {4},
        ),
    ),
    "over its second input, of the same size": (
        True,
        plan([("activation", (0,)), ("activation", (0,)), ("mul", (1, 2)), ("softmax", (3,))], [ROW] * 5, {1: 64}, {4}),
    ),
    "a view of the input": (True, plan([("flatten", (0,)), ("activation", (1,))], [CUBE, ROW, ROW], {}, {2})),
    "a view that is an output": (True, plan([("activation", (0,)), ("flatten", (1,))], [CUBE, CUBE, ROW], {}, {2})),
    "a view of an output": (
        True,
        plan([("activation", (0,)), ("flatten", (1,)), ("activation", (2,))], [CUBE, CUBE, ROW, ROW], {}, {1, 3}),
    ),
    "a view, and its input read later": (
        True,
        plan(
            [("activation", (0,)), ("flatten", (1,)), ("softmax", (2,)), ("global_avg_pool", (1,))],
            [CUBE, CUBE, ROW, ROW, (4,)], {}, {3, 4},
        ),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PLANS)
def test_a_plan_is_taken_where_nothing_alive_is_overwritten(name, tmp_path):
    holds, data = PLANS[name]
    driver = next(iter(BUILDS.values())).driver()
    ((status, text),) = verdicts(driver, [data], tmp_path)
    assert status == ("LN_OK" if holds else "LN_OVERLAP"), text
    if holds:
        reader.read(data)
    else:
        with pytest.raises(reader.RefusedError, match="two tensors in one place"):
            reader.read(data)
