"""Frames of the serial protocol: what arrives is what was sent, or nothing arrives."""

import random

from hypothesis import given
from hypothesis import strategies as st

from litenet.pyruntime.serial_frame import Frame, Reader, cobs, crc16, decode, encode, uncobs


def test_the_checksum_is_the_published_one():
    assert crc16(b"123456789") == 0x29B1


@given(st.binary(max_size=600))
def test_cobs_has_no_zero_and_comes_back(data):
    assert 0 not in cobs(data)
    assert uncobs(cobs(data)) == data


@given(st.integers(0, 255), st.integers(0, 65535), st.binary(max_size=240), st.binary(max_size=30))
def test_a_frame_comes_back_from_among_noise(kind, sequence, payload, noise):
    frame, reader = Frame(kind, sequence, payload), Reader()
    assert reader.feed(noise + encode(frame) + noise) == [frame]


def test_a_frame_comes_back_byte_by_byte():
    frame, reader = Frame(3, 7, bytes(range(200))), Reader()
    assert [f for byte in encode(frame) for f in reader.feed(bytes([byte]))] == [frame]
    assert reader.dropped == 0


def test_a_flipped_bit_is_noticed_wherever_it_is():
    sent = encode(Frame(4, 260, bytes(60)))
    for at in range(1, len(sent) - 1):
        for bit in range(8):
            damaged = bytearray(sent)
            damaged[at] ^= 1 << bit
            assert Reader().feed(bytes(damaged)) == []


def test_a_line_without_zeros_takes_no_memory():
    reader = Reader()
    for _ in range(1000):
        reader.feed(random.Random(0).randbytes(100).replace(b"\0", b"\1"))
    assert len(reader._held) <= 1100
    assert reader.dropped > 0


def test_what_is_cut_or_too_long_is_no_frame():
    body = encode(Frame(1, 2, b"abc"))[1:-1]
    assert decode(body) == Frame(1, 2, b"abc")
    assert all(decode(body[:n]) is None for n in range(len(body)))
    assert decode(body + b"\2x") is None
