"""Reading picture files: right pixels, upright, and one sentence for whatever cannot be read."""

from __future__ import annotations

import csv
import hashlib
import io
import struct
import tarfile
import zlib
from functools import cache
from pathlib import Path

import cv2
import numpy as np
import pytest

from litenet.pyruntime import ImageError, decode, sniff

DATA = Path(__file__).resolve().parent.parent.parent / "shared" / "data" / "images"
needs_samples = pytest.mark.skipif(not DATA.exists(), reason="the sample pictures (shared/data/images) are not here")


@cache
def samples() -> dict[str, bytes]:
    with tarfile.open(DATA / "test_images.tar") as tar:
        return {m.name: tar.extractfile(m).read() for m in tar if m.isfile()}


@cache
def manifest() -> dict[str, dict[str, str]]:
    with (DATA / "manifest.csv").open(encoding="utf-8", newline="") as file:
        return {row["name"]: row for row in csv.DictReader(file)}


def refusal(source, name=None) -> str:
    """The sentence of a refusal: one line, ended by a full stop."""
    with pytest.raises(ImageError) as caught:
        decode(source, name)
    text = str(caught.value)
    assert "\n" not in text and text.endswith("."), text
    return text


def readable(source) -> bool:
    try:
        pixels, layout = decode(source)
    except ImageError as error:
        assert str(error).endswith(".") and "\n" not in str(error)
        return False
    assert pixels.dtype == np.uint8 and pixels.ndim == 3 and pixels.flags.c_contiguous
    assert layout == ("gray", "gray_alpha", "bgr", "bgra")[pixels.shape[2] - 1]
    return True


# ---- the sample pictures


@needs_samples
def test_every_sample_is_read_or_refused_in_a_sentence():
    read = {name for name, data in samples().items() if readable(data)}
    refused = set(samples()) - read
    assert len(samples()) == 332
    corrupt = {name for name in samples() if name.startswith("pngsuite/x")}
    assert corrupt <= refused
    sound = ("jpeg", "webp/", "pnm/", "gif/", "png/", "bmp/suite_good/", "pngsuite/")
    good = {name for name in samples() if name.startswith(sound)}
    # 12 bits a sample, arithmetic coding; GIF came with OpenCV 4.11
    assert good - corrupt - read <= {"jpeg/monkey12.jpg", "jpeg/testimgari.jpg", "gif/hopper.gif"}
    assert {n for n in samples() if n.startswith("damaged/truncated_") and n.endswith(".png")} <= refused
    assert "damaged/truncated_jpeg.jpg" in refused
    assert "damaged/decompression_bomb.gif" in refused


@needs_samples
def test_png_and_bmp_samples_have_exactly_the_right_pixels():
    order = {"L": "gray", "RGB": "bgr", "RGBA": "bgra"}
    compared = 0
    for name, row in manifest().items():
        if row["format"] not in ("PNG", "BMP") or row["pillow_decode"] != "ok" or row["pillow_mode"] not in order:
            continue
        if "depth16" in row["detail"] or "bpp16" in row["detail"] or row["exif_orientation"] not in ("", "1"):
            continue  # other roundings; not turned
        try:
            pixels, layout = decode(samples()[name], name)
        except ImageError:
            assert name.startswith("damaged/")
            continue
        if layout != order[row["pillow_mode"]]:
            continue  # the manifest leaves a PNG's transparent colour out
        rgb = pixels if layout == "gray" else pixels[..., [2, 1, 0, 3][: pixels.shape[2]]]
        assert hashlib.md5(rgb.tobytes()).hexdigest() == row["pillow_pixels_md5"], name
        compared += 1
    assert compared >= 70


@needs_samples
@pytest.mark.parametrize("kind", ["jpg", "webp"])
def test_all_orientations_of_one_photo_look_alike(kind):
    folder = {"jpg": "jpeg", "webp": "webp"}[kind]
    upright = decode(samples()[f"{folder}/hopper.{kind}"]).pixels.astype(int)
    for n in range(2, 9):
        turned = decode(samples()[f"{folder}/hopper_orientation_{n}.{kind}"]).pixels.astype(int)
        assert turned.shape == upright.shape
        assert np.abs(turned - upright).mean() < 8, n  # saved anew with losses
        assert np.abs(turned[:, ::-1] - upright).mean() > 25, n


@needs_samples
def test_turned_photos_of_one_scene_agree():
    first = decode(samples()["jpeg_exif_photo/Landscape_1.jpg"]).pixels
    assert first.shape == (1200, 1800, 3)
    for n in (3, 6, 8):
        other = decode(samples()[f"jpeg_exif_photo/Landscape_{n}.jpg"]).pixels
        assert np.abs(other.astype(int) - first).mean() < 8
    assert decode(samples()["jpeg_exif_photo/Portrait_6.jpg"]).pixels.shape == (1800, 1200, 3)
    assert decode(samples()["jpeg/orientation_rectangle.jpg"]).pixels.shape == (2, 1, 3)


@needs_samples
def test_damaged_samples_with_bytes_changed_never_do_more_than_refuse():
    rng = np.random.default_rng(11)
    names = [n for n, data in samples().items() if len(data) < 8000]
    for _ in range(600):
        data = bytearray(samples()[names[rng.integers(len(names))]])
        for _ in range(int(rng.integers(1, 5))):
            data[rng.integers(len(data))] = rng.integers(256)
        readable(bytes(data))


# ---- pictures made here


def encoded(suffix: str, pixels: np.ndarray) -> bytes:
    done, data = cv2.imencode(suffix, pixels)
    assert done
    return data.tobytes()


def png(width, height, depth, color, rows: bytes, *extra: tuple[bytes, bytes]) -> bytes:
    """A PNG by hand: rows with their filter bytes; extra chunks before the pixels."""

    def chunk(name: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, 0))
    middle = b"".join(chunk(*e) for e in extra)
    return b"\x89PNG\r\n\x1a\n" + head + middle + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def exif(orientation: int, order: str = "<") -> bytes:
    mark = b"II*\0" if order == "<" else b"MM\0*"
    return mark + struct.pack(order + "IHHHIHHI", 8, 1, 0x0112, 3, 1, orientation, 0, 0)


def test_colour_grey_and_alpha_keep_their_channels():
    rng = np.random.default_rng(1)
    for shape, layout in (((5, 7), "gray"), ((5, 7, 3), "bgr"), ((5, 7, 4), "bgra")):
        pixels = rng.integers(0, 256, shape, np.uint8)
        got = decode(encoded(".png", pixels))
        assert got.layout == layout
        np.testing.assert_array_equal(got.pixels, pixels.reshape(5, 7, -1))


def test_sixteen_bits_become_eight_by_rounding():
    values = np.array([[0, 128, 129, 257, 32767, 65406, 65407, 65535]], np.uint16)
    assert decode(encoded(".png", values)).pixels[0, :, 0].tolist() == [0, 0, 1, 1, 127, 254, 255, 255]


def test_the_largest_sample_of_a_pnm_is_white():
    assert decode(b"P5 3 1 15\n\0\7\17").pixels[0, :, 0].tolist() == [0, 119, 255]
    assert decode(b"P5 2 1 1023\n\1\0\3\377").pixels[0, :, 0].tolist() == [64, 255]
    assert decode(b"P6 1 1 3\n\1\2\3").pixels.tolist() == [[[255, 170, 85]]]
    assert decode(b"P2 3 1 15\n0 7 15\n").pixels[0, :, 0].tolist() == [0, 119, 255]
    assert decode(b"P2 2 1 1023\n256 1023\n").pixels[0, :, 0].tolist() == [64, 255]
    assert "largest sample is 0" in refusal(b"P5 1 1 0\n\0")


def test_a_palette_becomes_colours():
    palette = bytes([10, 20, 30, 200, 100, 50])
    got = decode(png(2, 1, 1, 3, b"\0\x40", (b"PLTE", palette)))
    assert got.pixels.tolist() == [[[30, 20, 10], [50, 100, 200]]]


@pytest.mark.parametrize(
    ("depth", "row", "key"), [(8, b"\x05\x06\x05", 5), (2, b"\x18", 0), (16, b"\0\5\0\6\1\5", 5), (1, b"\x40", 0xFF00)]
)
def test_the_transparent_grey_of_a_png_becomes_alpha(depth, row, key):
    got = decode(png(3, 1, depth, 0, b"\0" + row, (b"tRNS", struct.pack(">H", key))))
    transparent = {8: [0, 255, 0], 2: [0, 255, 255], 16: [0, 255, 255], 1: [0, 255, 0]}[depth]
    if depth == 2:  # samples 0, 1, 2
        assert got.pixels[0, :, 0].tolist() == [0, 85, 170]
    assert got.layout == "gray_alpha"
    assert got.pixels[0, :, 1].tolist() == transparent


@pytest.mark.parametrize("order", ["<", ">"])
def test_png_orientation_is_honoured(order):
    stored = b"\0\1\2\3\0\4\5\6"  # 2 rows, 3 columns
    want = {
        1: [[1, 2, 3], [4, 5, 6]], 2: [[3, 2, 1], [6, 5, 4]], 3: [[6, 5, 4], [3, 2, 1]], 4: [[4, 5, 6], [1, 2, 3]],
        5: [[1, 4], [2, 5], [3, 6]], 6: [[4, 1], [5, 2], [6, 3]], 7: [[6, 3], [5, 2], [4, 1]],
        8: [[3, 6], [2, 5], [1, 4]], 0: [[1, 2, 3], [4, 5, 6]], 9: [[1, 2, 3], [4, 5, 6]],
    }  # fmt: skip
    for orientation, rows in want.items():
        got = decode(png(3, 2, 8, 0, stored, (b"eXIf", exif(orientation, order))))
        assert got.pixels[..., 0].tolist() == rows


def bmp(width, height, bits, rows: bytes, masks=(), header=40) -> bytes:
    compression = 3 if masks else 0
    info = struct.pack("<IiiHHIIIIII", header, width, height, 1, bits, compression, len(rows), 0, 0, 0, 0)
    info += struct.pack(f"<{len(masks)}I", *masks)
    info += bytes(max(0, header - len(info)))
    return b"BM" + struct.pack("<IHHI", 14 + len(info) + len(rows), 0, 0, 14 + len(info)) + info + rows


def test_bmp_masks_are_followed():
    word = struct.pack("<I", 0x11223344)
    plain = decode(bmp(1, 1, 32, word, (0xFF0000, 0xFF00, 0xFF)))
    assert (plain.layout, plain.pixels.tolist()) == ("bgr", [[[0x44, 0x33, 0x22]]])
    turned = decode(bmp(1, 1, 32, word, (0xFF, 0xFF00, 0xFF0000)))
    assert turned.pixels.tolist() == [[[0x22, 0x33, 0x44]]]
    alpha = decode(bmp(1, 1, 32, word, (0xFF0000, 0xFF00, 0xFF, 0xFF000000), header=56))
    assert (alpha.layout, alpha.pixels.tolist()) == ("bgra", [[[0x44, 0x33, 0x22, 0x11]]])
    ten = decode(bmp(1, 1, 32, struct.pack("<I", 0x3FF << 20 | 512), (0x3FF << 20, 0x3FF << 10, 0x3FF)))
    assert ten.pixels.tolist() == [[[128, 0, 255]]]


def test_bmp_rows_run_up_or_down_and_sixteen_bits_reach_white():
    rows = struct.pack("<HHHH", 0x7FFF, 0, 0x7C00, 0)  # the second value pads the row
    assert decode(bmp(1, 2, 16, rows)).pixels.tolist() == [[[0, 0, 255]], [[255, 255, 255]]]
    assert decode(bmp(1, -2, 16, rows)).pixels.tolist() == [[[255, 255, 255]], [[0, 0, 255]]]


# ---- refusals

KINDS = {
    "png": lambda p: encoded(".png", p),
    "jpg": lambda p: encoded(".jpg", p),
    "bmp": lambda p: encoded(".bmp", p),
    "webp": lambda p: encoded(".webp", p),
    "ppm": lambda p: encoded(".ppm", p),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_picture_cut_anywhere_is_refused(kind):
    data = KINDS[kind](np.random.default_rng(2).integers(0, 256, (9, 11, 3), np.uint8))
    assert readable(data)
    spare = 4 if kind == "png" else 0  # the checksum of the end chunk holds no pixels
    for length in range(len(data) - spare):
        text = refusal(data[:length])
        assert "short" in text or "empty" in text or "format" in text or "text" in text or "PNM" in text, text


def test_a_gif_cut_within_its_first_picture_is_refused():
    lzw = b"\2\2\x44\1\0"  # code size, one sub-block, end
    data = b"GIF89a" + struct.pack("<HHBBB", 1, 1, 0x80, 0, 0) + bytes([0, 0, 0, 255, 255, 255])
    data += b"!\xf9\4\0\0\0\0\0" + b"," + struct.pack("<HHHHB", 0, 0, 1, 1, 0) + lzw
    assert sniff.read(data + b";").complete
    assert sniff.read(data).complete
    for length in range(13, len(data)):
        assert "too early" in refusal(data[:length])


def test_files_that_are_no_pictures_are_named(tmp_path):
    cases = {
        b"": "empty",
        b"hello, this is a note\n": "text file",
        b"<!DOCTYPE html><html>": "HTML",
        b"version https://git-lfs.github.com/spec/v1\n": "git-lfs",
        b"II*\0" + bytes(50): "TIFF",
        b"%PDF-1.7": "PDF",
        b"PK\3\4" + bytes(50): "zip",
        b"\0\0\0\x18ftypheic" + bytes(50): "HEIC",
        b"RIFF\x24\0\0\0WAVEfmt " + bytes(50): "RIFF",
        b"LNET\1\0\0\0" + bytes(150): "LiteNet model",
        bytes(range(256)): "unknown",
        b"P5\n# only a comment\n": "PNM",
    }
    for data, word in cases.items():
        path = tmp_path / "picture.jpg"
        path.write_bytes(data)
        text = refusal(path)
        assert word in text and text.startswith(str(path)), text
    assert "does not exist" in refusal(tmp_path / "none.png")
    assert "folder" in refusal(tmp_path)
    assert refusal(b"", "standard input").startswith("standard input is empty")


def test_pictures_that_would_fill_the_memory_are_refused_by_their_header():
    side = 60_000
    huge = {
        "PNG": b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0) + bytes(4),
        "BMP": bmp(side, side, 24, b""),
        "GIF": b"GIF89a" + struct.pack("<HHBBB", side, side, 0, 0, 0),
        "JPEG": b"\xff\xd8\xff\xc0\0\x11\x08" + struct.pack(">HH", side, side) + bytes(10) + b"\xff\xd9",
        "WebP": b"RIFF\x16\0\0\0WEBPVP8X\x0a\0\0\0\0\0\0\0" + 2 * (side - 1).to_bytes(3, "little"),
        "PNM": b"P5 60000 60000 255\n",
    }
    for kind, data in huge.items():
        text = refusal(data)
        assert f"{kind} of {side} x {side}" in text and "64 million" in text, text
    assert "70000 x 1" in refusal(b"P5 70000 1 255\n" + bytes(70_000))
    assert "0 x 5" in refusal(b"P5 0 5 255\n")


def test_a_file_longer_than_any_picture_is_not_read(tmp_path, monkeypatch):
    from litenet.pyruntime import image

    monkeypatch.setattr(image, "MAX_FILE_BYTES", 1000)
    (tmp_path / "long.png").write_bytes(bytes(1001))
    assert "larger" in refusal(tmp_path / "long.png")


def test_bytes_after_the_end_of_a_picture_do_no_harm():
    for kind, encode in KINDS.items():
        data = encode(np.full((4, 4, 3), 9, np.uint8))
        assert readable(data + b"trailing bytes"), kind


def test_a_jpeg_thumbnail_does_not_pass_for_the_end():
    """The end marker of a thumbnail, inside a segment, is not the end of the picture."""
    data = encoded(".jpg", np.random.default_rng(3).integers(0, 256, (16, 16, 3), np.uint8))
    thumbnail = b"\xff\xe1" + struct.pack(">H", 2 + len(data)) + data
    whole = data[:2] + thumbnail + data[2:]
    assert readable(whole)
    assert "too early" in refusal(whole[: len(whole) - 40])


def test_a_file_object_full_of_pictures_is_read_in_memory():
    buffer = io.BytesIO(encoded(".png", np.zeros((2, 3), np.uint8)))
    assert decode(buffer.getvalue()).pixels.shape == (2, 3, 1)
