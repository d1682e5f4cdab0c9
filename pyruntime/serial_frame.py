"""Frames on a serial line, as firmware_examples/common/PROTOCOL.md has them. Nothing here knows of ports."""

from __future__ import annotations

import struct
from dataclasses import dataclass

VERSION = 1
HEAD = struct.Struct("<BBHH")  # version, type, sequence, length of the payload
LONGEST = 1024  # bytes between two zeros that can still be a frame


@dataclass(frozen=True)
class Frame:
    type: int
    sequence: int
    payload: bytes
    version: int = VERSION


def crc16(data: bytes) -> int:
    """CRC-16/CCITT-FALSE: polynomial 0x1021, start 0xFFFF; 0x29B1 over b"123456789"."""
    crc = 0xFFFF
    for byte in data:
        crc = ((crc << 8) & 0xFFFF) ^ _TABLE[crc >> 8 ^ byte]
    return crc


def _entry(byte: int) -> int:
    crc = byte << 8
    for _ in range(8):
        crc = (crc << 1) & 0xFFFF ^ (0x1021 if crc & 0x8000 else 0)
    return crc


_TABLE = [_entry(byte) for byte in range(256)]


def cobs(data: bytes) -> bytes:
    """data without a zero: each stretch up to a zero, or of 254 bytes, after its length and one."""
    out = bytearray()
    for part in data.split(b"\0"):
        while len(part) >= 254:
            out += b"\xff" + part[:254]
            part = part[254:]
        out += bytes([len(part) + 1]) + part
    return bytes(out)


def uncobs(data: bytes) -> bytes | None:
    """The inverse; None for what cobs does not give."""
    out, at = bytearray(), 0
    while at < len(data):
        n = data[at]
        if n == 0 or at + n > len(data):
            return None
        out += data[at + 1 : at + n]
        at += n
        if n < 255 and at < len(data):
            out.append(0)
    return bytes(out)


def encode(frame: Frame) -> bytes:
    """The bytes on the line, zeros at both ends included."""
    body = HEAD.pack(frame.version, frame.type, frame.sequence, len(frame.payload)) + frame.payload
    return b"\0" + cobs(body + struct.pack("<H", crc16(body))) + b"\0"


def decode(data: bytes) -> Frame | None:
    """What stands between two zeros; None if it is no whole frame with a right checksum."""
    body = uncobs(data)
    if body is None or len(body) < HEAD.size + 2:
        return None
    version, kind, sequence, length = HEAD.unpack_from(body)
    if len(body) != HEAD.size + length + 2 or crc16(body[:-2]) != struct.unpack("<H", body[-2:])[0]:
        return None
    return Frame(kind, sequence, body[HEAD.size : -2], version)


class Reader:
    """Frames out of a stream of bytes; what is damaged is dropped, and counted."""

    def __init__(self) -> None:
        self._held = bytearray()
        self.dropped = 0  # stretches between zeros that were no frames
        self.bytes = 0  # that came in all

    def feed(self, data: bytes) -> list[Frame]:
        found = []
        self.bytes += len(data)
        self._held += data
        *parts, rest = self._held.split(b"\0")
        for part in parts:
            frame = decode(bytes(part)) if part else None
            if frame is not None:
                found.append(frame)
            elif part:
                self.dropped += 1
        if len(rest) > LONGEST:
            self.dropped += 1
            rest = rest[:0]
        self._held = bytearray(rest)
        return found
