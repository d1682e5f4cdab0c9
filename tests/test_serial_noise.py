"""A line that flips, loses and repeats: no answer is lost and none is wrong, on a PC and under emulation."""

from __future__ import annotations

import struct

import firmware
import numpy as np
import pytest
from firmware_nets import NETS
from noisy_line import KINDS, noisy

from litenet.pyruntime.engine import InferenceEngine
from litenet.pyruntime.serial_cli import main
from litenet.pyruntime.serial_device import Device, random_input
from litenet.pyruntime.serial_link import Link, Request, open_port

pytest.importorskip("serial", reason="pyserial is not installed")
EVERY = 600  # bytes between two accidents: a long frame in three is hit
# machine: (seconds until a request is sent again, one input in so many is sent; the others are made there, of a seed).
# The emulated line takes one byte at a time.
MANNERS = {"host": (0.05, 2), "mps2-an386": (0.2, 8)}


@pytest.fixture(scope="module")
def board(tmp_path_factory):
    """board(machine): (image, .bin) of a small int8 net."""
    made = {}

    def get(machine: str):
        if machine not in made:
            model = firmware.header(NETS["tinymaix_int8"](), tmp_path_factory.mktemp(machine), "tinymaix")
            made[machine] = firmware.build(machine, model, 65536 if machine == "host" else 0), model.with_suffix(".bin")
        return made[machine]

    return get


@pytest.mark.parametrize(
    ("machine", "requests"),
    [("host", 150), *(pytest.param(m, 10_000, marks=pytest.mark.slow) for m in ("host", "mps2-an386"))],
)
def test_noise_loses_no_answer_and_gives_no_wrong_one(board, machine, requests):
    image, model = board(machine)
    engine, answers, asked, (wait, whole) = InferenceEngine(model, kernels="portable"), 0, [0], MANNERS[machine]
    with firmware.running(machine, image) as port, noisy(port, 1, EVERY, first=1500) as line:
        with Link(open_port(line.name), line.name, wait=2.0) as link:  # an emulator takes its time to start
            device, ask, link.wait = Device(link), link.ask, wait

            def counted(*args, **more):
                asked[0] += 1
                return ask(*args, **more)

            link.ask = counted
            while asked[0] < requests:
                x = random_input(answers + 1, engine.input_shape, np.dtype(np.int8))
                ran = device.run(x.tobytes(), seed=answers + 1 if answers % whole else None)
                assert ran.output[:10] == engine.predict(x, raw=True).tobytes()
                answers += 1
        met = line.accidents()
        print(f"{machine}: {asked[0]} requests, {link.repeats} of them sent again; {answers} answers, all right; "
              f"{line.to_board.passed + line.to_tool.passed} bytes, {sum(met.values())} accidents: {dict(met)}; "
              f"{link.noise} damaged frames dropped here")  # fmt: skip
    assert link.repeats > requests / 50 and sum(met.values()) > requests / 20
    assert requests < 1000 or all(met[kind] > 100 for kind in KINDS)


def test_a_board_is_verified_and_given_a_new_model_through_noise(board, tmp_path, capsys):
    image, model = board("host")
    with firmware.running("host", image) as port, noisy(port, 3, EVERY) as line:
        given = [line.name, str(model), "--wait", "0.05", "--samples", "10"]
        assert main(["verify", *given]) == 0
        assert "10 the same bit for bit" in capsys.readouterr().out
        assert main(["flash-model", *given]) == 0
        assert sum(line.accidents().values()) > 5


def test_a_board_whose_newest_number_was_damaged_or_lost_is_greeted_anew(board):
    """As after a reset: it takes what it is asked for late copies of old requests."""
    with firmware.running("host", board("host")[0]) as port, Link(open_port(port), port, wait=0.05) as link:
        link.hello()
        link._sequence += 30_000
        link.ask(Request.READ, struct.pack("<IH", 0, 1))
        link._sequence -= 30_000
        link.ask(Request.READ, struct.pack("<IH", 0, 1))
        assert link.repeats == 3
