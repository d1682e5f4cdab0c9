"""What the cases of operators cannot say: two inputs of different shapes, four axes, and builds without an operator."""

from pathlib import Path

import numpy as np
import pytest
from c_jobs import BUILDS, FIRST, Job, run
from closeness import assert_close
from test_c_shapes import refusals

from litenet.exporter.format import Model, OpRec, TensorRec
from litenet.exporter.pack import pack
from litenet.trainer.ops import OPS, make_attrs


def chain(what, x, *steps):
    """A job of operators that each read what `reads` says (tensor numbers, 0 the input), by their definitions."""
    values, tensors, ops, at = [x[None].astype(np.float64)], [TensorRec(x.shape, input=True)], [], 0
    for k, (name, reads, given) in enumerate(steps):
        a = make_attrs(OPS[name].OP, given)
        y = OPS[name].forward(a, *(values[i] for i in reads))
        assert y.shape[1:] == tuple(OPS[name].out_shape(a, *(values[i].shape[1:] for i in reads)))
        last = k + 1 == len(steps)
        tensors.append(TensorRec(y.shape[1:], offset=0 if last else at, output=last))
        ops.append(OpRec(name, reads, k + 1, a, pack(name, a, {})))
        at += -(-4 * y[0].size // 16) * 16
        values.append(y)
    return Job(what, steps[-1][0], Model(tensors, ops), x, values[-1][0], len(steps) - 1, 0)


def values(*shape):
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def jobs():
    found = []
    for C in (1, 3, 16, 21):
        image = values(4, 3, C)
        row = ("global_avg_pool", (0,), {})
        found.append(chain(f"mul by channel {C}", image, row, ("mul", (0, 1), {})))
        cut = ("slice", (0,), {"axis": 2, "size": max(1, C // 2)})
        found.append(chain(f"concat of unequal channels {C}", image, cut, ("concat", (1, 0), {"axis": 2})))
    rows = values(5, 9)
    found.append(chain("concat of unequal rows", rows, ("slice", (0,), {"size": 2}), ("concat", (0, 1), {"axis": 0})))
    four = ("reshape", (0,), {"shape": [2, 3, 4, 5]})
    x = values(6, 4, 5)
    for axes in ([3, 2, 1, 0], [0, 2, 1, 3], [1, 0, 3, 2]):
        found.append(chain(f"transpose {axes}", x, four, ("transpose", (1,), {"axes": axes})))
    found.append(chain("slice of four axes", x, four, ("slice", (1,), {"axis": 3, "begin": 1, "size": 2, "step": 3})))
    found.append(chain("pad of four axes", x, four, ("pad", (1,), {"before": [0, 1, 0, 2], "after": [1, 0, 0, 3]})))
    found.append(chain("concat of four axes", x, four, ("concat", (1, 1), {"axis": 1})))
    found.append(chain("mul of four axes", x, four, ("mul", (1, 1), {})))
    return found


@pytest.mark.parametrize("build", BUILDS)
def test_unequal_inputs_and_four_axes_give_what_the_definition_says(build, tmp_path):
    todo = jobs()
    for got, j in zip(run(build, todo, tmp_path), todo, strict=True):
        assert_close(got.y.reshape(j.want.shape), j.want, 1e-6, 1e-6)


def test_inputs_that_do_not_go_together_are_refused(tmp_path):
    def two(name, x2, y, given=None):
        """An operator of a (4,3,6) image and of a row or cut of it that has shape x2."""
        image = values(4, 3, 6)
        made = ("reshape", {"shape": [*x2, *[0] * (4 - len(x2))]}) if np.prod(x2) == 72 else ("global_avg_pool", {})
        a = make_attrs(OPS[made[0]].OP, made[1])
        tensors = [TensorRec(image.shape, input=True), TensorRec(x2), TensorRec(y, output=True)]
        ops = [OpRec(made[0], (0,), 1, a), OpRec(name, (0, 1), 2, make_attrs(OPS[name].OP, given or {}))]
        return Job(f"{name} with {x2}", name, Model(tensors, ops), image, np.zeros(y), 1, 0)

    todo = [
        two("mul", (72,), (4, 3, 6)),
        two("mul", (12, 6), (4, 3, 6)),
        two("concat", (6,), (4, 3, 12), {"axis": 2}),
        two("concat", (3, 4, 6), (7, 3, 6)),
        two("concat", (4, 3, 6), (8, 3, 6), {"axis": 3}),
        two("concat", (4, 3, 6), (9, 3, 6)),
    ]
    assert set(refusals(FIRST, todo, tmp_path)) == {"LN_BAD_SHAPE"}


def test_a_build_may_leave_operators_out(tmp_path, monkeypatch):
    monkeypatch.setitem(BUILDS, "few", ("gcc", True, ("-DLN_WITHOUT_RESIZE", "-DLN_WITHOUT_CONCAT")))
    x = values(4, 3, 2)
    missing = [chain("resize", x, ("resize", (0,), {"size": 3})), chain("concat", x, ("concat", (0, 0), {"axis": 0}))]
    assert refusals("few", missing, tmp_path) == ["LN_UNKNOWN_OP"] * 2
    there = chain("pad", x, ("pad", (0,), {"before": [1, 0, 0, 0]}))
    (got,) = run("few", [there], Path(tmp_path))
    assert_close(got.y.reshape(there.want.shape), there.want, 0, 0)
