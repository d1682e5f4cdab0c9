"""edge-serial against a board that is a program of this PC: the same firmware sources behind a pseudo-terminal."""

from __future__ import annotations

import os
import struct
import threading
import time
import zlib
from dataclasses import replace

import bins
import cv2
import firmware
import numpy as np
import pytest

from litenet.pyruntime import serial_verify
from litenet.pyruntime.chip_file import identity, stripped
from litenet.pyruntime.engine import InferenceEngine
from litenet.pyruntime.serial_cli import main
from litenet.pyruntime.serial_device import Device, random_input
from litenet.pyruntime.serial_frame import Frame, Reader, encode
from litenet.pyruntime.serial_link import Link, RefusedError, Request, SerialError, open_port

pytest.importorskip("serial", reason="pyserial is not installed")
pty = pytest.importorskip("pty", reason="there are no pseudo-terminals")


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """(the board's program, its .bin)"""
    model = firmware.header(bins.digits().bytes(), tmp_path_factory.mktemp("digits"), "digits")
    return firmware.build("host", model, 65536), model.with_suffix(".bin")


@pytest.fixture
def port(digits):
    with firmware.running("host", digits[0]) as name:
        yield name


def run(capsys, *argv):
    status = main([str(a) for a in argv])
    out, err = capsys.readouterr()
    return status, out, err


# ---------------------------------------------------------------- what it answers


def test_the_board_tells_what_it_is(digits, port, capsys):
    status, out, err = run(capsys, "info", port)
    assert (status, err) == (0, "")
    assert "host_sim: LiteNet" in out and f"{len(stripped(digits[1].read_bytes())):,} bytes (built in)" in out
    assert "4 operators" in out and "arena 18,816, input 3,136, output 40 bytes" in out


def test_every_output_is_that_of_the_pc_bit_for_bit(digits, port, capsys):
    status, out, _ = run(capsys, "verify", port, digits[1], "--samples", 40, "--exact")
    assert status == 0
    assert "40 samples (2 golden): 40 the same bit for bit" in out


def test_it_names_what_is_in_a_picture(digits, port, tmp_path, capsys):
    picture = tmp_path / "five.png"
    cv2.imwrite(str(picture), np.random.default_rng(1).integers(0, 256, (40, 30), np.uint8))
    status, out, _ = run(capsys, "infer", port, digits[1], picture)
    assert status == 0
    with InferenceEngine(digits[1], kernels="portable") as engine:
        y = engine.predict_image(cv2.imread(str(picture), cv2.IMREAD_UNCHANGED)[..., None])
        assert f"five.png  {engine.labels[int(y.argmax())]} " in out and "ms on the board" in out


def test_a_run_is_timed_and_its_memory_measured(port, capsys):
    status, out, _ = run(capsys, "bench", port, "--runs", 3)
    assert status == 0
    assert "mean of 3" in out and "a run touches 18,816 of 18,816 bytes of arena" in out


def test_monitor_shows_the_frames_that_come(capsys):
    with Fake() as fake:
        threading.Timer(0.2, lambda: fake.send(encode(Frame(0x84, 5, b"\0\1")) + b"noise\0")).start()
        status, out, err = run(capsys, "monitor", fake.name, "--seconds", 0.8)
    assert status == 0
    assert "type 0x84 sequence 5 00 01" in out and "1 damaged" in err


# ---------------------------------------------------------------- differences


def damaged(data: bytes, op: int) -> bytes:
    """The model with one weight of operator `op` changed, and checksums that hold."""
    at = struct.unpack_from("<I", data, 64)[0] + 32 * struct.unpack_from("<H", data, 90)[0] + 64 * op
    weights = struct.unpack_from("<I", data, at + 16)[0]
    out = bytearray(data)
    out[weights + 2] ^= 0x40  # of the first bias
    struct.pack_into("<I", out, 16, zlib.crc32(bytes(out[128:])))
    struct.pack_into("<I", out, 12, 0)
    struct.pack_into("<I", out, 12, zlib.crc32(bytes(out[:128])))
    return bytes(out)


@pytest.fixture
def difference(port, tmp_path, capsys, monkeypatch):
    """difference(model, op): what verify says where one weight of that operator is another on the board."""

    def said(model, op: int) -> str:
        other = tmp_path / "other.bin"
        other.write_bytes(damaged(model.read_bytes(), op))
        monkeypatch.setattr(serial_verify, "same_model", lambda *args: None)  # it would be noticed there
        status, out, _ = run(capsys, "verify", port, other, "--samples", 4)
        assert status == 1
        return out

    return said


@pytest.mark.parametrize(("op", "named"), [(0, "conv2d0 (conv2d, operator 0)"), (3, "linear3 (linear, operator 3)")])
def test_the_first_operator_that_differs_is_named(digits, difference, op, named):
    out = difference(digits[1], op)
    assert "sample 1 (golden) differs by" in out and f"the first operator that differs: {named}" in out
    assert "build its firmware" not in out  # it runs the LiteNet of this PC


def test_a_board_that_differs_and_runs_another_version_is_told_so(digits, difference, monkeypatch):
    known = Device._info
    monkeypatch.setattr(Device, "_info", lambda self: replace(known(self), runtime="0.0.9"))
    assert "the board runs LiteNet 0.0.9, this PC 0." in difference(digits[1], 0)


def test_another_model_than_the_boards_is_refused(digits, port, tmp_path, capsys):
    other = tmp_path / "other.bin"
    other.write_bytes(bins.digits(seed=5).bytes())
    status, _, err = run(capsys, "verify", port, other)
    assert status == 1
    assert "the board runs another model than" in err and err.count("\n") == 1


def test_random_inputs_of_the_board_and_the_pc_are_the_same(port):
    with Link(open_port(port), port) as link:
        device = Device(link)
        for seed in (1, 2, 0xFFFFFFFF):
            x = random_input(seed, (28, 28, 1), np.dtype(np.float32))
            assert device.run(x.tobytes(), seed=seed).output == device.run(x.tobytes()).output
            assert -2 <= x.min() < -1.9 and 1.9 < x.max() < 2


# ---------------------------------------------------------------- what can go wrong


class Fake:
    """A pseudo-terminal with a thread at its other end: answer(bytes) gives what comes back."""

    def __init__(self, answer=lambda data: b""):
        self.master, self.slave = pty.openpty()
        self.name, self.answer, self.open = os.ttyname(self.slave), answer, True
        self.thread = threading.Thread(target=self._work, daemon=True)
        self.thread.start()

    def _work(self):
        while self.open:
            try:
                self.send(self.answer(os.read(self.master, 4096)))
            except OSError:
                return

    def send(self, data: bytes):
        if data:
            os.write(self.master, data)

    def unplug(self):
        self.open = False
        os.close(self.slave)
        os.close(self.master)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        if self.open:
            self.unplug()


def failed(capsys, *argv) -> str:
    """The one sentence (or two) of a command that must fail, within seconds."""
    began = time.monotonic()
    status, out, err = run(capsys, *argv)
    assert (status, out) == (1, "")
    assert time.monotonic() - began < 20
    assert err.startswith("edge-serial: ") and err.count("\n") == 1 and "Traceback" not in err
    return err


def test_a_port_that_does_not_exist_is_one_sentence(capsys):
    assert "does not exist" in failed(capsys, "info", "/dev/ttyNOTHING9")


def test_a_port_in_use_is_one_sentence(port, capsys):
    with Link(open_port(port), port):
        assert "is in use" in failed(capsys, "info", port)
    assert run(capsys, "info", port)[0] == 0  # and it has been released


def test_silence_is_one_sentence(capsys):
    with Fake() as fake:
        assert "no answer: is this the right port" in failed(capsys, "info", fake.name, "--wait", 0.02)


def test_a_board_that_falls_silent_is_one_sentence(digits, capsys):
    """As when it is switched off, but not its adapter: it answers HELLO, INFO and no more."""
    told = bytes(1) + struct.pack("<BIIIIHIIIB", 0, identity(digits[1].read_bytes()), 9, 3136, 40, 4, 16, 1000, 0, 0)

    def answer(data):
        answers = {Request.HELLO: b"\0\xf0\0", Request.INFO: told + b"\x050.1.0\4fake"}
        frames = [f for f in Reader().feed(data) if f.type in answers]
        return b"".join(encode(Frame(f.type | 0x80, f.sequence, answers[f.type])) for f in frames)

    with Fake(answer) as fake:
        assert "has stopped answering" in failed(capsys, "verify", fake.name, digits[1], "--wait", 0.02)


def test_garbage_as_of_a_wrong_baud_rate_is_one_sentence(capsys):
    with Fake(lambda data: bytes(b ^ 0x9E for b in data) * 2) as fake:
        assert "none that make sense: is the baud rate" in failed(capsys, "info", fake.name, "--wait", 0.02)


def test_another_protocol_version_is_one_sentence(capsys):
    def answer(data):
        return b"".join(encode(Frame(f.type | 0x80, f.sequence, b"\0\0\0", version=9)) for f in Reader().feed(data))

    with Fake(answer) as fake:
        assert "speaks protocol 9, this tool 1" in failed(capsys, "info", fake.name)


def test_a_board_that_is_pulled_out_is_one_sentence(capsys):
    with Fake() as fake:
        threading.Timer(0.3, fake.unplug).start()
        assert "is gone" in failed(capsys, "info", fake.name, "--wait", 1)


def test_a_firmware_that_lacks_a_request_says_so(port):
    with Link(open_port(port), port) as link:
        link.hello()
        with pytest.raises(RefusedError, match="older than this tool"):
            link.ask(99)
        with pytest.raises(RefusedError, match="another length"):
            link.ask(Request.RUN, b"1")
        with pytest.raises(RefusedError, match="no such place"):
            link.ask(Request.WRITE, struct.pack("<I", 1 << 20) + b"1")


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_an_input_that_is_no_number_is_refused_by_the_board(port, value):
    with Link(open_port(port), port) as link:
        device, x = Device(link), np.zeros((28, 28, 1), np.float32)
        x[27, 27] = value
        with pytest.raises(RefusedError, match="the board's runtime refuses: the input holds NaN or infinity"):
            device.run(x.tobytes())


def test_a_late_copy_of_an_old_request_changes_nothing(digits, port):
    """As a line with a buffer may deliver it: the input that a run was meant for stays."""
    with Link(open_port(port), port) as link:
        device = Device(link)
        x = random_input(3, (28, 28, 1), np.dtype(np.float32))
        device.run(x.tobytes())
        old = encode(Frame(Request.WRITE, (link._sequence - 3) & 0xFFFF, struct.pack("<I", 0) + bytes(100)))
        link.port.write(old)
        time.sleep(0.1)
        link.ask(Request.RUN, struct.pack("<I", zlib.crc32(x.tobytes())))  # RefusedError if the input were another


def test_no_port_is_no_failure_without_words(capsys, monkeypatch):
    from serial.tools import list_ports

    monkeypatch.setattr(list_ports, "comports", list)
    status, out, err = run(capsys, "ports")
    assert (status, out) == (1, "") and "no serial port was found" in err


def test_a_bad_command_line_is_refused(capsys):
    for argv in (["info"], ["verify", "p", "m.bin", "--samples", "0"], ["nothing"], ["info", "p", "--wait", "nan"]):
        with pytest.raises(SystemExit) as stop:
            main(argv)
        assert stop.value.code == 2


# ---------------------------------------------------------------- a new model


def test_a_new_model_is_loaded_proved_and_kept(digits, tmp_path, capsys):
    new, flash = tmp_path / "new.bin", tmp_path / "flash"
    new.write_bytes(bins.digits(seed=9).bytes())
    with firmware.running("host", digits[0], "--flash", str(flash)) as port:
        status, out, err = run(capsys, "flash-model", port, new)
        assert (status, err) == (0, "") and "10 samples right, kept" in out
        assert "loaded, in slot 1" in run(capsys, "info", port)[1]
    with firmware.running("host", digits[0], "--flash", str(flash)) as port:  # after power was off
        assert run(capsys, "verify", port, new, "--samples", 3)[0] == 0
        assert run(capsys, "flash-model", port, digits[1])[0] == 0  # into the other slot
        assert "loaded, in slot 2" in run(capsys, "info", port)[1]
    with firmware.running("host", digits[0], "--flash", str(flash)) as port:
        assert run(capsys, "verify", port, digits[1], "--samples", 3)[0] == 0


def test_power_lost_before_the_new_model_is_kept_leaves_the_old(digits, tmp_path, capsys):
    new, flash = stripped(bins.digits(seed=9).bytes()), tmp_path / "flash"
    with firmware.running("host", digits[0], "--flash", str(flash)) as port, Link(open_port(port), port) as link:
        device = Device(link)
        list(device.load(new))
        assert device.info.slot == 1
    with firmware.running("host", digits[0], "--flash", str(flash)) as port:
        assert run(capsys, "verify", port, digits[1], "--samples", 3)[0] == 0


def test_a_new_model_that_answers_otherwise_is_not_kept(digits, port, tmp_path, capsys, monkeypatch):
    new = tmp_path / "new.bin"
    new.write_bytes(bins.digits(seed=9).bytes())
    monkeypatch.setattr(InferenceEngine, "predict", lambda self, x, raw=False: np.zeros(10, np.float32))
    status, out, err = run(capsys, "flash-model", port, new)
    assert status == 1 and "differs by" in out and "the old model goes on" in err
    monkeypatch.undo()
    assert run(capsys, "verify", port, digits[1], "--samples", 3)[0] == 0


@pytest.mark.parametrize(
    ("net", "says"),
    [
        (bins.colors, "has the operators of the model it was built for"),
        (lambda: bins.Bin((200, 200, 1)).add("flatten").add("linear", out_features=2), "build it with ROOM="),
        (lambda: bins.Bin((600, 1)).add("flatten").add("linear", out_features=500), "region for models"),
    ],
    ids=["operators", "memory", "flash"],
)
def test_a_model_that_cannot_run_there_is_refused_and_the_old_goes_on(digits, port, tmp_path, capsys, net, says):
    new = tmp_path / "new.bin"
    new.write_bytes(net().bytes(golden=0))
    status, out, err = run(capsys, "flash-model", port, new)
    assert (status, out) == (1, "") and says in err
    assert run(capsys, "verify", port, digits[1], "--samples", 3)[0] == 0


def test_a_board_that_was_reset_while_it_was_sent_a_model_is_one_sentence(digits, port):
    with Link(open_port(port), port) as link:
        device = Device(link)
        sending = device.load(stripped(digits[1].read_bytes()))
        next(sending)
        link.ask(Request.LOAD, struct.pack("<II", 0, 0))  # as after a reset, no model is expected
        with pytest.raises(SerialError, match="it was reset. The old model goes on"):
            next(sending)


def test_what_is_sent_damaged_is_not_tried(port):
    with Link(open_port(port), port) as link:
        device = Device(link)
        link.ask(Request.LOAD, struct.pack("<II", 100, 12345))
        link.ask(Request.PART, struct.pack("<I", 0) + bytes(100))
        with pytest.raises(RefusedError, match="another model than was sent"):
            link.ask(Request.TRY)
        assert device.refresh().slot == 0


def test_an_engine_and_a_board_are_closed_when_a_command_fails(digits, port):
    with pytest.raises(SerialError), Link(open_port(port), port) as link:
        Device(link).run(b"123")
    Link(open_port(port), port).close()


