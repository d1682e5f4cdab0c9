"""ln_preprocess.c against its definition, bit for bit, and against values worked out by hand."""

from __future__ import annotations

import itertools
import random
import subprocess

import cbuild
import numpy as np
import preprocess_twin as twin
import pytest

SIZES = [
    ((1, 1), (1, 1)), ((1, 1), (5, 4)), ((1, 9), (4, 3)), ((9, 1), (3, 4)), ((1, 300), (7, 7)),
    ((300, 1), (7, 7)), ((4, 4), (4, 4)), ((5, 7), (5, 7)), ((2, 2), (9, 9)), ((3, 5), (17, 33)),
    ((16, 16), (8, 8)), ((17, 15), (16, 16)), ((15, 17), (16, 16)), ((31, 47), (28, 28)),
    ((64, 48), (28, 28)), ((48, 64), (1, 1)), ((40, 40), (1, 28)), ((40, 40), (28, 1)),
    ((3, 200), (28, 28)), ((200, 3), (28, 28)), ((33, 21), (10, 40)), ((21, 33), (40, 10)),
    ((100, 99), (33, 32)), ((2, 3), (3, 2)), ((7, 7), (6, 8)), ((29, 27), (28, 28)),
]  # fmt: skip
RULES = list(itertools.product(range(3), range(3), (1, 2, 3), range(3)))  # resize, fit, color, invert


class Driver:
    """The sanitized C program: run(jobs) -> one (status, frame) for each."""

    def __init__(self, compiler):
        sources = [cbuild.TESTS_C / "preprocess_driver.c", cbuild.SRC / "ln_preprocess.c"]
        self.program = cbuild.program("preprocess_driver", sources, compiler)

    def run(self, jobs):
        """Each job: (rules, pixels, layout, H, W)."""
        given = b""
        for rules, pixels, layout, H, W in jobs:
            numbers = (*rules, layout, *pixels.shape[:2], H, W)
            given += " ".join(map(str, numbers)).encode() + b"\n" + pixels.tobytes()
        done = subprocess.run([self.program], input=given, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr.decode()[-3000:]
        out, at = [], 0
        for rules, _, _, H, W in jobs:
            status, at = done.stdout[at], at + 1
            shape = (H, W, 1 if rules[2] == twin.GRAY else 3)
            size = 0 if status else H * W * shape[2]
            frame = np.frombuffer(done.stdout[at : at + size], np.uint8)
            out.append((status, None if status else frame.reshape(shape)))
            at += size
        assert at == len(done.stdout)
        return out


@pytest.fixture(scope="module", params=cbuild.COMPILERS)
def driver(request):
    return Driver(request.param)


def picture(rng, h, w, layout):
    """Noise, ramps or two-level pictures: each shows other mistakes."""
    shape = (h, w, twin.CHANNELS[layout])
    kind = rng.integers(4)
    if kind == 0:
        return rng.integers(0, 256, shape, np.uint8)
    if kind == 1:
        return rng.choice(np.array([0, 255], np.uint8), shape)
    if kind == 2:
        return np.broadcast_to(np.linspace(0, 255, w).astype(np.uint8)[None, :, None], shape).copy()
    return np.full(shape, rng.integers(256), np.uint8)


def compare(driver, jobs):
    jobs = list(jobs)
    for (status, got), (rules, pixels, layout, H, W) in zip(driver.run(jobs), jobs, strict=True):
        assert status == 0
        want = twin.frame(rules, pixels, layout, H, W)
        np.testing.assert_array_equal(got, want, err_msg=f"rules {rules}, layout {layout}, {pixels.shape} to {(H, W)}")


def every_combination(sizes, seed=1):
    rng = np.random.default_rng(seed)
    for ((h, w), (H, W)), rules, layout in itertools.product(sizes, RULES, range(1, 7)):
        yield (*rules, int(rng.integers(256))), picture(rng, h, w, layout), layout, H, W


def test_the_c_code_gives_the_bytes_of_the_definition_for_sampled_combinations(driver):
    compare(driver, sampled(1500))


def sampled(count):
    """Of all combinations, `count`; the same ones each time."""
    names = list(itertools.product(SIZES, RULES, range(1, 7)))
    rng = np.random.default_rng(7)
    for ((h, w), (H, W)), rules, layout in random.Random(7).sample(names, count):
        yield (*rules, int(rng.integers(256))), picture(rng, h, w, layout), layout, H, W


@pytest.mark.slow
def test_the_c_code_gives_the_bytes_of_the_definition_for_all_combinations(driver):
    jobs = every_combination(SIZES)
    while batch := list(itertools.islice(jobs, 1000)):
        compare(driver, batch)


def test_every_rule_and_layout_agrees_on_one_odd_size(driver):
    compare(driver, every_combination([((9, 14), (5, 6))], seed=2))


def test_random_sizes_agree(driver):
    rng = np.random.default_rng(3)
    jobs = []
    for _ in range(300):
        h, w, H, W = (int(2 ** rng.uniform(0, 6)) for _ in range(4))
        rules = (*RULES[rng.integers(len(RULES))], int(rng.integers(256)))
        layout = int(rng.integers(1, 7))
        jobs.append((rules, picture(rng, h, w, layout), layout, H, W))
    compare(driver, jobs)


def test_the_longest_sides_do_not_wrap(driver):
    """White stays white: a sum of weights times 255 that wrapped would not."""
    for h, w in ((1, 65535), (65535, 1)):
        white = np.full((h, w, 1), 255, np.uint8)
        frames = [(1, 1), (2, 3), (h, w), (max(1, h - 1), max(1, w - 1))]
        for resize, (H, W) in itertools.product(range(3), frames):
            rules = (resize, twin.STRETCH, twin.GRAY, twin.NEVER, 0)
            ((status, got),) = driver.run([(rules, white, 1, H, W)])
            assert status == 0
            assert (got == 255).all()


def test_a_large_picture_agrees_with_the_plain_mean(driver):
    """Area to one pixel is the rounded mean, with a denominator beyond 32 bits."""
    pixels = np.random.default_rng(5).integers(0, 256, (4099, 4111, 1), np.uint8)
    ((status, got),) = driver.run([((twin.AREA, twin.STRETCH, twin.GRAY, twin.NEVER, 0), pixels, 1, 1, 1)])
    total = int(pixels.sum(dtype=np.int64))
    assert status == 0
    assert got[0, 0, 0] == (total + pixels.size // 2) // pixels.size


# ---- worked out by hand

GRAY_LAYOUT, RGB_LAYOUT, RGBA_LAYOUT, BGR_LAYOUT = 1, 3, 4, 5


def one(driver, rules, rows, layout, H, W):
    pixels = np.array(rows, np.uint8)
    pixels = pixels.reshape(*pixels.shape[:2], -1)
    ((status, got),) = driver.run([(rules, pixels, layout, H, W)])
    assert status == 0
    return got[..., 0].tolist() if rules[2] == twin.GRAY else got.tolist()


def gray(resize=twin.AREA, fit=twin.STRETCH, invert=twin.NEVER, pad=0):
    return resize, fit, twin.GRAY, invert, pad


def test_area_weights_source_pixels_by_their_overlap(driver):
    # 3 pixels to 2: target 0 sees all of pixel 0 and half of pixel 1: (2*10 + 1*40) / 3 = 20
    assert one(driver, gray(), [[10, 40, 100]], GRAY_LAYOUT, 1, 2) == [[20, 80]]


def test_area_rounds_halves_up(driver):
    assert one(driver, gray(), [[0, 1], [0, 1]], GRAY_LAYOUT, 1, 1) == [[1]]  # mean 0.5
    assert one(driver, gray(), [[0, 0], [0, 1]], GRAY_LAYOUT, 1, 1) == [[0]]  # mean 0.25


def test_bilinear_has_pixel_centres_at_halves(driver):
    # 2 to 4: centres at -1/4 (clamped), 1/4, 3/4, 5/4 (clamped)
    assert one(driver, gray(twin.BILINEAR), [[0, 100]], GRAY_LAYOUT, 1, 4) == [[0, 25, 75, 100]]
    # downscaling 4 to 2 takes the two pixels around each centre, no wider
    assert one(driver, gray(twin.BILINEAR), [[0, 10, 20, 90]], GRAY_LAYOUT, 1, 2) == [[5, 55]]


def test_nearest_takes_the_pixel_under_the_centre(driver):
    assert one(driver, gray(twin.NEAREST), [[1, 2, 3, 4, 5]], GRAY_LAYOUT, 1, 2) == [[2, 4]]
    assert one(driver, gray(twin.NEAREST), [[1, 2]], GRAY_LAYOUT, 1, 5) == [[1, 1, 2, 2, 2]]


def test_crop_takes_the_centre(driver):
    # 1 x 5 to a square: the part is 1 wide, from (5-1)/2 = 2
    assert one(driver, gray(fit=twin.CROP), [[1, 2, 3, 4, 5]], GRAY_LAYOUT, 1, 1) == [[3]]
    assert one(driver, gray(fit=twin.CROP), [[1], [2], [3], [4]], GRAY_LAYOUT, 1, 1) == [[2]]


def test_letterbox_bars_are_pad_and_are_not_inverted(driver):
    got = one(driver, gray(fit=twin.LETTERBOX, invert=twin.ALWAYS, pad=9), [[10, 20, 30]], GRAY_LAYOUT, 3, 3)
    assert got == [[9, 9, 9], [245, 235, 225], [9, 9, 9]]


def test_auto_inverts_dark_ink_on_white_paper_and_leaves_the_reverse(driver):
    paper = [[255, 255, 255], [255, 0, 255], [255, 255, 255]]
    slate = [[0, 0, 0], [0, 255, 0], [0, 0, 0]]
    assert one(driver, gray(invert=twin.AUTO), paper, GRAY_LAYOUT, 3, 3) == slate
    assert one(driver, gray(invert=twin.AUTO), slate, GRAY_LAYOUT, 3, 3) == slate


def test_auto_leaves_a_border_that_is_exactly_in_the_middle(driver):
    # 2 * (127 + 128) = 510 = 255 * 2: not above
    assert one(driver, gray(invert=twin.AUTO), [[127, 128]], GRAY_LAYOUT, 1, 2) == [[127, 128]]
    assert one(driver, gray(invert=twin.AUTO), [[128, 128]], GRAY_LAYOUT, 1, 2) == [[127, 127]]


def test_grey_follows_the_eye(driver):
    primaries = [[[255, 0, 0], [0, 255, 0], [0, 0, 255], [255, 255, 255]]]
    assert one(driver, gray(), primaries, RGB_LAYOUT, 1, 4) == [[76, 150, 29, 255]]
    assert one(driver, gray(), primaries, BGR_LAYOUT, 1, 4) == [[29, 150, 76, 255]]


def test_transparent_pixels_become_white(driver):
    half = [[[0, 100, 200, 128], [0, 100, 200, 0], [0, 100, 200, 255]]]
    want = [[[127, 177, 227], [255, 255, 255], [0, 100, 200]]]
    assert one(driver, (twin.AREA, twin.STRETCH, twin.RGB, twin.NEVER, 0), half, RGBA_LAYOUT, 1, 3) == want


def test_red_and_blue_change_places_as_the_model_wants(driver):
    color = (twin.AREA, twin.STRETCH, twin.BGR, twin.NEVER, 0)
    assert one(driver, color, [[[1, 2, 3]]], RGB_LAYOUT, 1, 1) == [[[3, 2, 1]]]
    assert one(driver, color, [[[1, 2, 3]]], BGR_LAYOUT, 1, 1) == [[[1, 2, 3]]]
    assert one(driver, color, [[7]], GRAY_LAYOUT, 1, 1) == [[[7, 7, 7]]]


# ---- refusals

LN_OK = 0


def status_of(driver, rules, layout, h, w, H, W):
    """h or w may be 0; the pixels are then missing too."""
    pixels = np.zeros((h, w, twin.CHANNELS.get(layout, 1)), np.uint8)
    return driver.run([(rules, pixels, layout, H, W)])[0][0]


def status_number(name):
    """The value of an enum constant, counted in litenet.h."""
    text = (cbuild.INCLUDE / "litenet.h").read_text()
    body = text.split("typedef enum ln_status {")[1].split("}")[0]
    body = "".join(part.split("*/")[-1] for part in body.split("/*"))
    names = [entry.split("=")[0].strip() for entry in body.split(",")]
    return names.index(name)


@pytest.mark.parametrize(
    "sizes",
    [(0, 5, 3, 3), (5, 0, 3, 3), (5, 5, 0, 3), (5, 5, 3, 0),
     (1, 65536, 3, 3), (65536, 1, 3, 3), (1, 1, 65536, 1), (1, 1, 1, 65536)],
)  # fmt: skip
def test_sizes_outside_1_to_65535_are_refused(driver, sizes):
    assert status_of(driver, gray(), GRAY_LAYOUT, *sizes) == status_number("LN_BAD_IMAGE_SIZE")


@pytest.mark.parametrize("layout", [0, 7, 200])
def test_unknown_layouts_are_refused(driver, layout):
    assert status_of(driver, gray(), layout, 2, 2, 2, 2) == status_number("LN_BAD_CHANNELS")


@pytest.mark.parametrize("rules", [(3, 0, 1, 0, 0), (0, 3, 1, 0, 0), (0, 0, 4, 0, 0), (0, 0, 1, 3, 0)])
def test_unknown_rules_are_refused(driver, rules):
    assert status_of(driver, rules, GRAY_LAYOUT, 2, 2, 2, 2) == status_number("LN_BAD_PREPROCESS")


def test_a_model_without_pictures_refuses_one(driver):
    assert status_of(driver, (0, 0, 0, 0, 0), GRAY_LAYOUT, 2, 2, 2, 2) == status_number("LN_NO_PREPROCESS")
