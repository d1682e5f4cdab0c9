"""What a picture file says of itself, read from its bytes before any decoder sees it.

Decoders are large and trusting: a file of 44 bytes can ask for gigabytes, and a picture cut short comes back
half grey without a word. So kind, size and completeness are read here first.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from struct import error as StructError  # noqa: N812
from struct import unpack_from

from .errors import ImageError

FORMATS = "PNG, JPEG, BMP, GIF, WebP or PNM"


@dataclass(frozen=True)
class Header:
    """`complete` is False when bytes are missing at the end. `orientation` is EXIF's: 1 to 8, 1 as stored."""

    kind: str
    width: int
    height: int
    complete: bool = True
    orientation: int = 1
    gray_key: int | None = None  # PNG: the grey sample that means transparent, as stored
    depth: int = 8  # PNG, JPEG: bits a sample
    white: int | None = None  # PNM: the largest sample, where OpenCV does not scale by it
    channels: int = 0  # JPEG: 1 grey, 3 colour, 4 inks; 0 elsewhere


def read(data: bytes) -> Header:
    """The header of a picture; ImageError for anything else. Its text lacks the subject, the file's name."""
    if not data:
        raise ImageError(f"is empty; expected a picture ({FORMATS})")
    for start, reader in READERS:
        if data.startswith(start):
            try:
                return reader(data)
            except (StructError, IndexError):
                raise ImageError(
                    f"ends inside the {reader.__name__[1:].upper()} header, after {len(data)} bytes; "
                    "the file was cut short: copy it again"
                ) from None
    raise ImageError(f"is {_other(data)}; expected a picture ({FORMATS})")


def _other(data: bytes) -> str:
    """What a file that is no picture of ours looks like, in words."""
    head = data[:512].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    for start, name in OTHERS:
        if head.startswith(start):
            return name
    brand = data[8:12] if data[4:8] == b"ftyp" else b""
    if brand in (b"heic", b"heix", b"mif1", b"msf1"):
        return "a HEIC photo: convert it to JPEG first"
    if brand:
        return "an AVIF picture or a video: convert it to PNG first"
    if not re.search(rb"[^\t\n\r\x20-\x7e\x80-\xff]", data[:512]):
        return "a text file"
    return "of an unknown format"


OTHERS = (
    (b"<!doctype html", "an HTML page (a failed download?)"),
    (b"<html", "an HTML page (a failed download?)"),
    (b"version https://git-lfs", "a git-lfs pointer: fetch the file itself with `git lfs pull`"),
    (b"<svg", "an SVG drawing: convert it to PNG first"),
    (b"<?xml", "an XML file"),
    (b"%pdf", "a PDF document: convert it to PNG first"),
    (b"ii*\0", "a TIFF picture: convert it to PNG first"),
    (b"mm\0*", "a TIFF picture: convert it to PNG first"),
    (b"pk\3\4", "a zip archive"),
    (b"\x1f\x8b", "a gzip archive"),
    (b"lnet", "a LiteNet model, which stands first on the command line"),
)


def _png(data: bytes) -> Header:
    width, height, depth, color = unpack_from(">IIBB", data, 16)
    header = Header("PNG", width, height, complete=False, depth=depth)
    for name, at, end in _chunks(data, 8, ">I4s", extra=4):
        if end > len(data):
            break
        if name == b"IEND":
            return replace(header, complete=True)
        if name == b"tRNS" and color == 0:
            header = replace(header, gray_key=unpack_from(">H", data, at)[0])
        if name == b"eXIf":
            header = replace(header, orientation=_orientation(data[at:end]))
    return header


def _webp(data: bytes) -> Header:
    if data[8:12] != b"WEBP":
        raise ImageError(f"is a RIFF file but no WebP picture; expected a picture ({FORMATS})")
    kind, (a, b) = data[12:16], unpack_from("<HH", data, 26)
    if kind == b"VP8 ":
        width, height = a & 0x3FFF, b & 0x3FFF
    elif kind == b"VP8L":
        bits = unpack_from("<I", data, 21)[0]
        width, height = (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    else:
        width, height = (int.from_bytes(data[at : at + 3], "little") + 1 for at in (24, 27))
    header = Header("WebP", width, height, complete=unpack_from("<I", data, 4)[0] + 8 <= len(data))
    for name, at, end in _chunks(data, 12, "<4sI"):
        if name == b"EXIF":
            return replace(header, orientation=_orientation(data[at:end].removeprefix(b"Exif\0\0")))
    return header


def _chunks(data: bytes, at: int, layout: str, extra: int = 0) -> Iterator[tuple[bytes, int, int]]:
    """(name, start, end) of each chunk's content; `extra` bytes of checksum follow it. WebP pads to even."""
    while at + 8 <= len(data):
        first, second = unpack_from(layout, data, at)
        name, size = (second, first) if layout[0] == ">" else (first, second)
        yield name, at + 8, at + 8 + size
        at += 8 + size + (extra or size & 1)


MARKER = re.compile(rb"\xff[^\x00\xff\xd0-\xd7]")  # any but a stuffed byte, a fill byte and a restart


def _jpeg(data: bytes) -> Header:
    """Walk the segments to the end marker. Pixel data, and junk between segments, are passed over."""
    header, orientation, at = None, 1, 2
    while found := MARKER.search(data, at):
        marker, at = found[0][1], found.end()
        if marker == 0xD9:
            break
        if marker in (0x01, 0xD8):  # these stand alone
            continue
        if at + 2 > len(data):
            found = None
            break
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC) and header is None:
            depth, height, width, channels = unpack_from(">BHHB", data, at + 2)
            header = Header("JPEG", width, height, depth=depth, channels=channels)
        if marker == 0xE1 and data[at + 2 : at + 8] == b"Exif\0\0":
            orientation = _orientation(data[at + 8 : at + int.from_bytes(data[at : at + 2], "big")])
        at += int.from_bytes(data[at : at + 2], "big")
    if header is None:
        raise IndexError
    return replace(header, complete=found is not None, orientation=orientation)


def _orientation(exif: bytes) -> int:
    """EXIF tag 0x0112, or 1 where there is none or the record is damaged."""
    order = {b"II": "<", b"MM": ">"}.get(exif[:2])
    try:
        if order:
            at = unpack_from(order + "I", exif, 4)[0]
            for entry in range(unpack_from(order + "H", exif, at)[0]):
                tag, value = unpack_from(order + "H6xH", exif, at + 2 + 12 * entry)
                if tag == 0x0112:
                    return value if 1 <= value <= 8 else 1
    except StructError:
        pass
    return 1


def _bmp(data: bytes) -> Header:
    offset, header_bytes = unpack_from("<II", data, 10)
    if header_bytes == 12:
        width, height, _, bits = unpack_from("<HHHH", data, 18)
        compression = 0
    else:
        width, height, _, bits, compression = unpack_from("<iiHHI", data, 18)
    height = abs(height)
    pixels = (max(width, 0) * bits + 31) // 32 * 4 * height if compression in (0, 3, 6) else 0
    return Header("BMP", width, height, complete=offset + pixels <= len(data))


def _gif(data: bytes) -> Header:
    """Complete when the first picture is: later ones of an animation aren't used."""
    width, height, flags = unpack_from("<HHB", data, 6)
    at = 13 + (3 << (flags & 7) + 1 if flags & 0x80 else 0)
    header = Header("GIF", width, height, complete=False)
    while at < len(data) and data[at] in (0x21, 0x2C):
        is_picture = data[at] == 0x2C
        if is_picture:
            if at + 10 > len(data):
                break
            picture_width, picture_height, flags = unpack_from("<HHB", data, at + 5)
            if picture_width > width or picture_height > height:
                raise ImageError("is a GIF whose first picture is larger than its own screen; it is damaged")
            at += 11 + (3 << (flags & 7) + 1 if flags & 0x80 else 0)
        else:
            at += 2
        while at < len(data) and data[at]:  # sub-blocks: a size, then so many bytes
            at += 1 + data[at]
        if at >= len(data):
            break
        at += 1
        if is_picture:
            return replace(header, complete=True)
    return header


PNM = re.compile(rb"P([1-6])" + 2 * rb"(?:\s|#[^\n]*\n)+(\d{1,9})" + rb"(?:(?:\s|#[^\n]*\n)+(\d{1,9}))?\s")


def _pnm(data: bytes) -> Header:
    found = PNM.match(data[:4096])
    if found is None:
        raise ImageError(f"starts like a PNM picture but has no size; expected a picture ({FORMATS})")
    kind, width, height = (int(found[n]) for n in (1, 2, 3))
    if kind in (1, 4):  # one bit a pixel, no largest sample
        whole = kind == 1 or found.end(3) + 1 + (width + 7) // 8 * height <= len(data)
        return Header("PNM", width, height, whole)
    white = int(found[4] or 0)
    if not 1 <= white <= 65535:
        raise ImageError(f"is a PNM whose largest sample is {white}; expected 1 to 65535")
    row = width * (3 if kind == 6 else 1) * (2 if white > 255 else 1)
    whole = kind < 4 or found.end() + row * height <= len(data)
    return Header("PNM", width, height, whole, white=white if kind > 4 or white > 255 else None)


READERS: tuple[tuple[bytes, Callable[[bytes], Header]], ...] = (
    (b"\x89PNG\r\n\x1a\n", _png),
    (b"\xff\xd8", _jpeg),
    (b"BM", _bmp),
    (b"GIF87a", _gif),
    (b"GIF89a", _gif),
    (b"RIFF", _webp),
    *((b"P%d" % kind, _pnm) for kind in range(1, 7)),
)
