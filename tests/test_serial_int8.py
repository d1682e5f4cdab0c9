"""Every command of edge-serial on a board whose model is int8."""

from __future__ import annotations

import cv2
import firmware
import numpy as np
import pytest
from int8_nets import picture_model, pictures
from test_serial import damaged, difference, run  # noqa: F401  (difference: a fixture)

from litenet.exporter import records
from litenet.pyruntime.engine import InferenceEngine

pytest.importorskip("serial", reason="pyserial is not installed")
META = {"labels": ["ant", "bee", "cat", "dog"], "loss": "cross_entropy", "name": "little"}


@pytest.fixture(scope="module")
def little(tmp_path_factory):
    """(the board's program, its .bin)"""
    model = firmware.header(picture_model(pictures(), **META), tmp_path_factory.mktemp("little"), "little")
    return firmware.build("host", model, 65536), model.with_suffix(".bin")


@pytest.fixture
def port(little):
    with firmware.running("host", little[0]) as name:
        yield name


def test_it_tells_what_it_is_and_is_timed(little, port, capsys):
    status, out, err = run(capsys, "info", port)
    assert (status, err) == (0, "")
    assert "3 operators" in out and "input 360, output 4 bytes" in out
    status, out, _ = run(capsys, "bench", port, "--runs", 3)
    program = records.read(little[1].read_bytes())
    assert status == 0 and f"a run touches {program.touched()} of {program.arena_bytes} bytes of arena" in out


def test_every_output_is_that_of_the_pc_byte_for_byte(little, port, capsys):
    status, out, _ = run(capsys, "verify", port, little[1], "--samples", 200)
    assert status == 0
    assert "200 samples (2 golden): 200 the same bit for bit" in out


def test_it_names_what_is_in_a_picture(little, port, tmp_path, capsys):
    picture = tmp_path / "animal.png"
    cv2.imwrite(str(picture), np.random.default_rng(1).integers(0, 256, (40, 30, 3), np.uint8))
    status, out, _ = run(capsys, "infer", port, little[1], picture)
    assert status == 0
    with InferenceEngine(little[1], kernels="portable") as engine:
        y = engine.predict_image(cv2.imread(str(picture)))
        assert f"animal.png  {engine.labels[int(y.argmax())]} " in out and "ms on the board" in out


@pytest.mark.parametrize(("op", "named"), [(0, "conv2d0 (conv2d, operator 0)"), (2, "linear2 (linear, operator 2)")])
def test_the_first_operator_that_differs_is_named(little, difference, op, named):  # noqa: F811
    out = difference(little[1], op)
    assert "at most 0 is allowed" in out and f"the first operator that differs: {named}" in out


def test_a_new_model_is_loaded_proved_and_kept(little, port, tmp_path, capsys):
    new = tmp_path / "new.bin"
    new.write_bytes(damaged(little[1].read_bytes(), 2))
    status, out, err = run(capsys, "flash-model", port, new)
    assert (status, err) == (0, "") and "10 samples right, kept" in out
    assert "loaded, in slot 1" in run(capsys, "info", port)[1]
    assert run(capsys, "verify", port, new, "--samples", 3)[0] == 0
    assert "runs another model than" in run(capsys, "verify", port, little[1])[2]
