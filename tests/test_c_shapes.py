"""What the shape rules in C refuse: outputs, weights and scratch memory that do not go with the operator."""

import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import cbuild
import numpy as np
import pytest
from c_jobs import FIRST, NAMES, Job, job, run

from litenet.exporter.format import Model, OpRec, TensorRec
from litenet.trainer.ops import OPS, Shape, make_attrs


@cache
def statuses() -> list[str]:
    """The names of ln_status, in order."""
    text = (cbuild.INCLUDE / "litenet.h").read_text()
    body = text[text.index("typedef enum ln_status {") :].split("}")[0]
    return re.findall(r"LN_[A-Z0-9_]+", re.sub(r"/\*.*?\*/", "", body))


def refusals(build: str, todo: list[Job], folder: Path) -> list[str]:
    return [statuses()[got.status] for got in run(build, todo, folder, refused=True)]


def last_shape(j: Job, shape: Shape) -> Job:
    """The same model with another output shape."""
    return replace(j, model=replace(j.model, tensors=[*j.model.tensors[:-1], TensorRec(shape, output=True)]))


@pytest.mark.parametrize("name", NAMES)
def test_an_output_of_another_shape_is_refused(name, tmp_path):
    todo = []
    for case in OPS[name].CASES:
        j = job(name, case, "f32")
        y = j.model.tensors[-1].shape
        todo += [last_shape(j, (*y[:k], y[k] + 1, *y[k + 1 :])) for k in range(len(y) - 1)]
        todo += [last_shape(j, y[:-1]) for _ in y[1:] if y[-1] == 1] + [last_shape(j, (*y, 1))]
        if OPS[name].OP.layout != "panels":  # where the last axis is the weights' own: the next test
            todo.append(last_shape(j, (*y[:-1], y[-1] + 1)))
    assert set(refusals(FIRST, todo, tmp_path)) <= {"LN_BAD_SHAPE"}


@pytest.mark.parametrize("name", [n for n in NAMES if OPS[n].OP.layout != "none"])
def test_weights_of_another_size_are_refused(name, tmp_path):
    todo = []
    for case in OPS[name].CASES:
        j = job(name, case, "f32")
        *before, op = j.model.ops
        for weights in (op.weights + bytes(4), op.weights[:-4], op.weights * 2, op.weights[: len(op.weights) // 2]):
            todo.append(replace(j, model=replace(j.model, ops=[*before, replace(op, weights=weights)])))
    assert set(refusals(FIRST, todo, tmp_path)) == {"LN_BAD_WEIGHTS"}


@pytest.mark.parametrize("name", NAMES)
def test_scratch_memory_that_no_operator_uses_is_refused(name, tmp_path):
    j = job(name, OPS[name].CASES[0], "f32")
    *before, op = j.model.ops
    wasteful = replace(j.model, ops=[*before, replace(op, scratch=(4096, 64))])
    assert refusals(FIRST, [replace(j, model=wasteful)], tmp_path) == ["LN_BAD_SCRATCH"]


def test_what_the_shape_rules_of_the_definitions_refuse_is_refused_in_c(tmp_path):
    def model(name: str, given: dict[str, Any], x: Shape, y: Shape, weights: bytes = b"") -> Job:
        ops = [OpRec(name, [0], 1, make_attrs(OPS[name].OP, given), weights)]
        tensors = [TensorRec(x, input=True), TensorRec(y, output=True)]
        return Job(f"{name} {given}", name, Model(tensors, ops), np.zeros(x, np.float32), np.zeros(y), 0, 0)

    conv = {"out_channels": 4, "kernel_size": 1}
    todo = [
        model("maxpool2d", {"kernel_size": 2, "padding": 2}, (5, 5, 4), (8, 8, 4)),
        model("avgpool2d", {"kernel_size": [2, 1], "padding": [0, 1, 0, 0]}, (5, 5, 4), (4, 6, 4)),
        model("maxpool2d", {"kernel_size": [17, 16]}, (20, 20, 1), (4, 5, 1)),
        model("conv2d", {**conv, "groups": 3}, (5, 5, 4), (5, 5, 3), bytes(64)),
        model("conv2d", {**conv, "groups": 3}, (5, 5, 3), (5, 5, 4), bytes(64)),
        model("conv2d", {**conv, "kernel_size": 9}, (5, 5, 3), (1, 1, 4), bytes(64)),
        model("conv2d", {**conv, "kernel_size": 3, "dilation": 255}, (5, 5, 3), (1, 1, 4), bytes(64)),
        model("depthwise_conv2d", {"kernel_size": 6}, (5, 5, 3), (1, 1, 3), bytes(64)),
        model("global_avg_pool", {}, (12,), (12,)),
        model("linear", {"out_features": 4}, (2, 3, 4), (2, 3, 4), bytes(64)),
    ]
    for status, j in zip(refusals(FIRST, todo, tmp_path), todo, strict=True):
        assert status == "LN_BAD_SHAPE", j.what
