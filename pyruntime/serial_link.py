"""Requests to a board over a serial port: sent until they are answered, or refused with a sentence after a while.

Every request may be sent twice without harm (PROTOCOL.md), so a lost frame costs a wait and nothing else.
"""

from __future__ import annotations

import contextlib
import secrets
import struct
import time
from collections.abc import Callable
from enum import IntEnum
from typing import Any

from .serial_frame import VERSION, Frame, Reader, encode

BAUD = 115200
TRIES = 8
FIRST_TRIES = 5  # of the first request: is anybody there? 6.6 seconds, which a board that resets when it is opened has
GREET_AFTER = 3  # tries without an answer, then HELLO goes first: a board that was reset does not know the numbers
ANSWER_BIT = 0x80


class SerialError(Exception):
    """A board that does not do what it should. The text is one sentence or two: what happened, and what to do."""


class RefusedError(SerialError):
    """The board answered that it will not. code: an Answer; detail: the bytes that follow."""

    def __init__(self, text: str, code: int, detail: bytes):
        super().__init__(text)
        self.code, self.detail = code, detail


class Request(IntEnum):
    HELLO = 1
    INFO = 2
    WRITE = 3
    RUN = 4
    READ = 5
    OPERATORS = 6
    MEMORY = 7
    BENCH = 8
    LOAD = 9
    PART = 10
    TRY = 11
    KEEP = 12
    FILL = 13


class Answer(IntEnum):
    OK = 0
    UNKNOWN = 1
    LENGTH = 2
    RANGE = 3
    INPUT = 4
    RUNTIME = 5
    VERSION = 6
    NO_SLOT = 7
    FLASH = 8
    CHECKSUM = 9
    TOO_LARGE = 10


REFUSALS = {
    Answer.UNKNOWN: "does not know this request; its firmware is older than this tool: build it from the same LiteNet",
    Answer.LENGTH: "expects another length of this request; build its firmware from the same LiteNet as this tool",
    Answer.RANGE: "has no such place; is the model on it the one that was given?",
    Answer.NO_SLOT: "cannot take a model: its firmware reserves no region of flash for one",
    Answer.FLASH: "could not write its flash; it may be protected or worn out",
    Answer.CHECKSUM: "got another model than was sent; try again",
}


def open_port(name: str, baud: int = BAUD) -> Any:
    """The port, opened for this program alone. SerialError says why not."""
    serial = _pyserial()
    try:
        try:
            return serial.Serial(name, baud, timeout=0, write_timeout=5, exclusive=True)
        except ValueError as error:  # a baud rate this machine does not have
            raise SerialError(f"{name}: {baud} baud cannot be set here ({error}); 115200 is usual.") from None
    except serial.SerialException as error:
        text = str(error)
        if "xclusiv" in text or "busy" in text.lower() or "Access is denied" in text or "temporarily" in text:
            raise SerialError(f"{name} is in use: close the other program that has it (a serial monitor?).") from None
        if "ermission" in text:
            raise SerialError(
                f"{name} may not be opened by you; on Linux add yourself to its group (dialout) and log in again."
            ) from None
        raise SerialError(f"{name} does not exist or cannot be opened; `edge-serial ports` lists them.") from None


def _pyserial() -> Any:
    try:
        import serial
    except ImportError:
        raise SerialError("pyserial is not installed; `pip install 'litenet[serial]'` brings it.") from None
    return serial


class Link:
    """One conversation with a board. port: what open_port gives. wait: seconds for the first answer to a request;
    each further try waits half as long again. Use it as a context manager: the port is released in any case."""

    def __init__(self, port: Any, name: str = "", wait: float = 0.5):
        self.port, self.name, self.wait = port, name or str(getattr(port, "port", "the board")), wait
        self.payload = 64  # of a frame, until HELLO has said more
        self.repeats = 0
        self.answered = False
        self._reader = Reader()
        self._sequence = secrets.randbelow(1 << 16)

    def __enter__(self) -> Link:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        with contextlib.suppress(Exception):  # a port that was pulled out
            self.port.close()

    @property
    def noise(self) -> int:
        """Damaged frames seen so far."""
        return self._reader.dropped

    def hello(self) -> None:
        """Begin: learn whether a LiteNet board listens, and how long its frames may be."""
        answer = self.ask(Request.HELLO, secrets.token_bytes(4), tries=FIRST_TRIES)
        if len(answer) != 2:
            raise SerialError(f"{self.name}: the board's first answer has {len(answer)} bytes; 2 are expected.")
        self.payload = struct.unpack("<H", answer)[0]

    def ask(self, request: int, payload: bytes = b"", patience: float = 0.0, tries: int = TRIES) -> bytes:
        """The answer's payload, without its first byte, which is 0. patience: seconds that the board may work on it."""
        self._sequence = (self._sequence + 1) & 0xFFFF
        sent = encode(Frame(int(request), self._sequence, payload))
        wait = self.wait
        for attempt in range(tries):
            self.repeats += attempt > 0
            if attempt >= GREET_AFTER and request != Request.HELLO:
                self._write(encode(Frame(Request.HELLO, self._sequence, secrets.token_bytes(4))))
            self._write(sent)
            answer = self._answer(request, wait + patience)
            if answer is not None:
                self.answered = True
                return self._checked(request, answer)
            wait *= 1.5
        raise SerialError(self._silence())

    def _write(self, data: bytes) -> None:
        self._guard(lambda: self.port.write(data))

    def _answer(self, request: int, seconds: float) -> Frame | None:
        until = time.monotonic() + seconds
        while True:
            for frame in self._reader.feed(self._guard(self._some)):
                ours = frame.type == request | ANSWER_BIT and frame.sequence == self._sequence
                if ours or (frame.version != VERSION and frame.type & ANSWER_BIT):
                    return frame
            if time.monotonic() >= until:
                return None

    def _some(self) -> bytes:
        """What has come, after a short wait for it."""
        self.port.timeout = 0.01
        return self.port.read(max(1, self.port.in_waiting))

    def _guard(self, action: Callable[[], Any]) -> Any:
        try:
            return action()
        except OSError as error:  # pyserial's own errors are among them
            if "imeout" in str(error):
                raise SerialError(f"{self.name} does not take what is sent; is the board held in reset?") from None
            raise SerialError(
                f"{self.name} is gone: was the cable pulled out, or the board reset? Plug it in and try again."
            ) from None

    def _checked(self, request: int, frame: Frame) -> bytes:
        if frame.version != VERSION:
            raise SerialError(
                f"{self.name}: the board speaks protocol {frame.version}, this tool {VERSION}; "
                "install the LiteNet that its firmware was built from, or build it anew."
            )
        if not frame.payload:
            raise SerialError(f"{self.name}: the board's answer is empty; build its firmware from the same LiteNet.")
        code, detail = frame.payload[0], frame.payload[1:]
        if code == Answer.OK:
            return detail
        if code == Answer.RUNTIME and detail:
            raise RefusedError(f"{self.name}: the board's runtime refuses: {status_text(detail[0])}.", code, detail)
        if code == Answer.VERSION:
            raise SerialError(f"{self.name}: the board speaks another protocol than this tool ({VERSION}).")
        why = REFUSALS.get(Answer(code)) if code in set(Answer) else None
        name = Request(request).name.lower() if request in set(Request) else str(request)
        raise RefusedError(f"{self.name}: {name}: the board {why or f'refuses (code {code})'}.", code, detail)

    def _silence(self) -> str:
        """Why nothing may have come."""
        if self.answered:
            return f"{self.name}: the board has stopped answering: was it switched off, or does its program hang?"
        if self._reader.bytes:
            return (
                f"{self.name}: bytes come, but none that make sense: is the baud rate the board's, and does it run "
                "LiteNet's firmware?"
            )
        return (
            f"{self.name}: no answer: is this the right port, is the baud rate the board's, and does it run LiteNet's "
            "firmware?"
        )


def status_text(status: int) -> str:
    """What a status of the runtime means."""
    from ._litenet import ffi, lib

    return ffi.string(lib.ln_status_text(status)).decode()
