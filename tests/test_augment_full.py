"""Rotation, zoom, colours, mixup and cutmix: what they are, and that the kernels give the same bits."""

import json
from dataclasses import replace

import cushim
import numpy as np
import pytest
from closeness import assert_close
from nets import SMALL, net
from test_augment import SEED, STEP_NUMBER, parsed, pictures, scale, step

from litenet.trainer import losses
from litenet.trainer.data import warp
from litenet.trainer.data.augment import Augmentation, apply, augment, color_factors, draw
from litenet.trainer.data.batches import to_input
from litenet.trainer.data.mix import STEPS, UNMIXED, Mix, draw_mix, mix
from litenet.trainer.errors import UserError
from litenet.trainer.fields import Options
from litenet.trainer.kernels.calls_load import load_calls
from litenet.trainer.kernels.calls_step import loss_calls

SPECS = [
    Augmentation(rotate=180),
    Augmentation("both", 2, "reflect", 3, rotate=30, scale=0.75),
    Augmentation("alternate", 1, scale=0.4),
    Augmentation("horizontal", brightness=0.3, contrast=0.5, saturation=1.0, tint=0.4, cutout=2),
    Augmentation(tint=1.0),
    Augmentation(rotate=12, brightness=0.2, mixup=0.4),
    Augmentation("vertical", 1, cutmix=1.0),
    Augmentation(scale=0.2, saturation=0.5, mixup=1.0, cutmix=0.5),
]


def name(spec):
    return ", ".join(f"{k} {v}" for k, v in spec.__dict__.items() if v != getattr(Augmentation(), k))


# ---- turning and zooming


def test_angles_and_zooms_are_those_of_floating_point():
    draw_from = np.random.default_rng(1)
    angle, zoom = draw_from.integers(-(1 << 23), 1 << 23, 5000), draw_from.integers(1 << 14, 7 << 14, 5000)
    cos, sin = warp.matrix(angle, zoom)
    turn = angle * 2 * np.pi / warp.TURN
    assert np.abs(cos - warp.ONE * np.cos(turn) * warp.ONE / zoom).max() <= 3
    assert np.abs(sin - warp.ONE * np.sin(turn) * warp.ONE / zoom).max() <= 3


@pytest.mark.parametrize("quarters", [0, 1, 2, 3])
def test_a_quarter_turn_only_moves_pixels(quarters):
    x = pictures(1, (7, 7, 3))[0]
    cos, sin = warp.matrix(np.array([quarters << 22]), np.array([warp.ONE]))
    values, blank = warp.sample(x, int(cos[0]), int(sin[0]), 0, 0, False, False, False)
    assert np.array_equal(values, np.rot90(x, quarters))
    assert not blank.any()


def by_float(x, angle, zoom, dy, dx, reflect):
    """One picture, pixel by pixel, in float64."""
    (H, W, _), out, blank = x.shape, np.zeros(x.shape), np.zeros(x.shape[:2], bool)
    turn, size = angle * 2 * np.pi / warp.TURN, zoom / warp.ONE

    def pixel(u, v):
        if reflect:
            u, v = (abs((k + n - 1) % max(2 * (n - 1), 1) - (n - 1)) for k, n in ((u, H), (v, W)))
        return x[np.clip(u, 0, H - 1), np.clip(v, 0, W - 1)].astype(float)

    for i in range(H):
        for j in range(W):
            di, dj = i - dy - (H - 1) / 2, j - dx - (W - 1) / 2
            u = (np.cos(turn) * di + np.sin(turn) * dj) / size + (H - 1) / 2
            v = (np.cos(turn) * dj - np.sin(turn) * di) / size + (W - 1) / 2
            p, q = int(np.floor(u)), int(np.floor(v))
            a, b = u - p, v - q
            out[i, j] = (1 - a) * ((1 - b) * pixel(p, q) + b * pixel(p, q + 1)) + a * (
                (1 - b) * pixel(p + 1, q) + b * pixel(p + 1, q + 1)
            )
            blank[i, j] = not reflect and not (-0.5 <= u < H - 0.5 and -0.5 <= v < W - 0.5)
    return out, blank


@pytest.mark.parametrize("reflect", [False, True])
@pytest.mark.parametrize("shape", [(9, 6, 3), (5, 8, 1), (1, 4, 1)])
def test_pictures_are_sampled_between_four_pixels(shape, reflect):
    draw_from = np.random.default_rng(4)
    for x in pictures(6, shape):
        angle, zoom = int(draw_from.integers(-(1 << 23), 1 << 23)), int(draw_from.integers(1 << 14, 3 << 15))
        dy, dx = draw_from.integers(-2, 3, 2).tolist()
        cos, sin = warp.matrix(np.array([angle]), np.array([zoom]))
        got, blank = warp.sample(x, int(cos[0]), int(sin[0]), dy, dx, reflect, False, False)
        want, outside = by_float(x, angle, zoom, dy, dx, reflect)
        assert np.abs(got - want).max() <= 255 * 2 / 256 + 0.1  # a place is known to 1/256 of a pixel
        assert (blank != outside).sum() <= 1


def test_a_picture_is_mirrored_before_it_is_turned():
    x = pictures(1, (6, 5, 3))[0]
    for up, across in ((True, False), (False, True), (True, True)):
        given = x[:: -1 if up else 1, :: -1 if across else 1]
        a = warp.sample(x, 50_000, 30_000, 1, -1, True, up, across)
        b = warp.sample(np.ascontiguousarray(given), 50_000, 30_000, 1, -1, True, False, False)
        assert np.array_equal(a[0], b[0])


def test_a_shift_is_what_sampling_gives_without_a_turn():
    for x in pictures(3, (6, 7, 3)):
        for to in ((2, -3, True, True, False), (0, 1, False, False, True), (-2, 0, False, True, True)):
            for got, want in zip(warp.shift(x, *to), warp.sample(x, warp.ONE, 0, *to), strict=True):
                assert np.array_equal(got, want)


def test_a_shift_with_a_zoom_of_one_is_the_shift_of_whole_pixels():
    x, index = pictures(12, (6, 7, 3)), np.arange(12)
    for pad_mode in ("zero", "reflect"):
        spec = Augmentation("both", 2, pad_mode, 2)
        changes = draw(spec, 1, 2, index, 0, 6, 7)
        full = replace(spec, scale=1e-6)  # zooms are whole multiples of 2^-16: this one is 1
        assert np.array_equal(apply(x, spec, changes, *scale(3)), apply(x, full, changes, *scale(3)))


def test_angles_zooms_and_tints_are_spread_evenly():
    spec, n = Augmentation(rotate=45, scale=0.25, brightness=0.5, contrast=0.4, saturation=1.0, tint=0.1), 40_000
    to = draw(spec, 3, 4, np.arange(n), 0, 5, 4)
    columns = color_factors(spec, to, True)
    for values, low, high in (
        (to.angle * 360 / warp.TURN, -45, 45), (to.zoom / warp.ONE, 0.75, 1.25), (columns[:, 0], -127.5, 127.5),
        (columns[:, 1], 0.6, 1.4), (columns[:, 2], 0, 2), (columns[:, 3], 0.9, 1.1), (columns[:, 6], 0.9, 1.1),
    ):  # fmt: skip
        low, high = np.float32(low), np.float32(high)
        assert low <= values.min() <= low + 0.01 * (high - low)
        assert high - 0.01 * (high - low) <= values.max() <= high
        counts = np.histogram(values, 10, (low, high))[0]
        assert np.abs(counts * 10 / n - 1).max() <= 0.08
    numbers = np.stack([to.angle, to.zoom, *columns.T, to.top, to.left]).astype(float)
    assert np.abs(np.corrcoef(numbers) - np.eye(len(numbers))).max() <= 0.02


# ---- colours


def test_colours_change_about_grey_and_about_the_mean_pixel():
    x, spec = pictures(1, (4, 5, 3)), Augmentation(brightness=0.2, contrast=0.5, saturation=0.6, tint=0.3)
    mean, std = scale(3)
    factors = color_factors(spec, draw(spec, 1, 2, np.arange(1), 0, 4, 5), True)[0].astype(float)
    light, contrast, saturation = factors[:3]
    v = x[0].astype(float) * factors[3:6]
    grey = v.mean(-1, keepdims=True)
    v = grey + saturation * (v - grey)
    v = np.clip(mean + contrast * (v - mean) + light, 0, 255)
    assert_close(
        augment(x, spec, 1, 2, np.arange(1), 0, mean, std)[0], ((v - mean) / std).astype(np.float32), 1e-5, 1e-5
    )


def test_what_was_cut_out_or_lies_outside_keeps_the_mean_pixel():
    x = pictures(4, (6, 6, 3))
    spec = Augmentation(translate=2, cutout=3, brightness=1.0, contrast=1.0)
    to = draw(spec, 5, 6, np.arange(4), 0, 6, 6)
    got = augment(x, spec, 5, 6, np.arange(4), 0, *scale(3))
    for n in range(4):
        i, j = max(int(to.top[n]), 0), max(int(to.left[n]), 0)
        assert (got[n, i, j] == 0).all()


# ---- mixing


def test_the_shares_follow_the_beta_distribution():
    for alpha in (0.2, 1.0):
        spec = Augmentation(mixup=alpha)
        shares = np.array([draw_mix(spec, 7, k, 8, 8).share for k in range(4000)])
        assert (shares >= 0.5).all()
        assert (shares * STEPS == np.round(shares * STEPS)).all()
        variance = np.mean((shares - 0.5) ** 2)  # of the distribution, which is symmetrical about a half
        assert variance == pytest.approx(1 / (4 * (2 * alpha + 1)), rel=0.06)


def test_the_rectangle_has_the_area_of_the_second_share():
    spec = Augmentation(cutmix=1.0)
    for k in range(300):
        how = draw_mix(spec, 3, k, 24, 40)
        assert how.share == np.float32(1 - how.height * how.width / 960)
        assert how.share >= 0.45
        assert 0 <= how.top <= how.top + how.height <= 24
        assert 0 <= how.left <= how.left + how.width <= 40
    both = Augmentation(mixup=0.5, cutmix=0.5)
    kinds = np.array([draw_mix(both, 3, k, 8, 8).blend < 1 for k in range(400)])
    assert 0.3 <= kinds.mean() <= 0.6
    assert draw_mix(Augmentation("both", rotate=3), 1, 2, 8, 8) == UNMIXED


def test_a_batch_is_mixed_with_itself_in_opposite_order():
    x = pictures(5, (4, 6, 3)).astype(np.float32)
    blended = x.copy()
    mix(blended, Mix(0.75, 0.75))
    assert_close(blended, 0.75 * x + 0.25 * x[::-1], 1e-4, 1e-6)
    cut = x.copy()
    mix(cut, Mix(0.5, 1.0, 1, 2, 2, 3))
    assert np.array_equal(cut[:, 1:3, 2:5], x[::-1, 1:3, 2:5])
    cut[:, 1:3, 2:5] = x[:, 1:3, 2:5]
    assert np.array_equal(cut, x)


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("weights", [None, np.array([0.5, 2.0, 1.0])])
def test_the_loss_of_a_mixed_batch_is_the_sum_of_two(smoothing, weights):
    z, t = np.random.default_rng(2).standard_normal((6, 3)), np.array([0, 2, 1, 1, 0, 2])
    got, dz = losses.cross_entropy(z, t, smoothing, weights, share=0.625)
    w = np.ones(3) if weights is None else weights
    logp = z - np.log(np.exp(z).sum(-1, keepdims=True))
    q = w * ((1 - smoothing) * (0.625 * np.eye(3)[t] + 0.375 * np.eye(3)[t[::-1]]) + smoothing / 3)
    assert got == pytest.approx(-(q * logp).sum() / w[t].sum(), rel=1e-12)
    for i in range(6):
        for c in range(3):
            moved = z.copy()
            moved[i, c] += 1e-6
            slope = (losses.cross_entropy(moved, t, smoothing, weights, share=0.625)[0] - got) / 1e-6
            assert dz[i, c] == pytest.approx(slope, abs=2e-6)
    assert (
        losses.cross_entropy(z, t, smoothing, weights, share=1.0)[0]
        == losses.cross_entropy(z, t, smoothing, weights)[0]
    )


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize(("R", "C"), [(1, 3), (7, 10), (40, 33)])
@pytest.mark.parametrize("settings", [{}, {"label_smoothing": 0.1, "class_weights": True}], ids=["plain", "weighted"])
def test_the_loss_kernel_takes_mixed_batches(R, C, settings, half):
    draw_from = np.random.default_rng(R)
    z = (3 * draw_from.standard_normal((R, C))).astype(np.float16 if half else np.float32)
    t = draw_from.integers(0, C, R).astype(np.int32)
    settings = dict(settings)
    if "class_weights" in settings:
        settings["class_weights"] = draw_from.uniform(0.5, 2, C).tolist()
    loss = losses.make_loss(Options("cross_entropy", settings))
    now = step(1, 0, 0, 0)
    now["share"] = 0.6875
    arrays = {
        "z": z, "target": t, "dz": np.zeros_like(z), "step": now, "history": np.zeros((2, 64, 4), np.float32),
        "class_weights": np.asarray(settings.get("class_weights", [1.0] * C), np.float32),
    }  # fmt: skip
    calls = loss_calls(loss, R, (C,), True, 2, mixed=True)
    if half:
        calls = [replace(call, kernel=replace(call.kernel, defines=(("REAL", "Half"),))) for call in calls]
    arrays["history"] = np.zeros((2, calls[0].grid[0], 4), np.float32)
    cushim.run_all(calls, arrays)
    want, dz = loss(z.astype(np.float64), t.astype(np.int64), 0.6875)
    assert arrays["history"][1, :, 0].sum() == pytest.approx(want, rel=1e-5)
    assert_close(arrays["dz"].astype(np.float64), dz, 1e-3 if half else 1e-6, 1e-3 if half else 1e-5)


# ---- the kernel


def mixed_step(spec, cursor, epoch, H, W):
    now, how = step(cursor, SEED, STEP_NUMBER, epoch), draw_mix(spec, SEED, STEP_NUMBER, H, W)
    now["share"], now["blend"], now["box"] = how.share, how.blend, [[how.top, how.left, how.height, how.width]]
    return now


@pytest.mark.parametrize("spec", SPECS, ids=name)
@pytest.mark.parametrize("shape", [(4, 4, 1), (5, 7, 3), (33, 35, 4)])
@pytest.mark.parametrize("dtype", ["u8", "f32"])
def test_the_kernel_gives_the_bits_of_the_definition(spec, shape, dtype):
    count, batch, (H, W, C) = 11, 4, shape
    data, (mean, std) = pictures(count, shape, dtype), scale(C)
    labels, order = np.arange(50, 50 + count, dtype=np.int32), np.random.default_rng(2).permutation(count)
    for cursor, rows, backwards in ((0, 4, False), (2, 3, True)):
        index = order[cursor * batch :][:rows]
        arrays = {
            "set": data, "labels": labels, "order": order.astype(np.int32), "mean": mean, "std": std,
            "step": mixed_step(spec, cursor, cursor, H, W), "x": np.full((rows, *shape), np.nan, np.float32),
            "target": np.zeros(rows, np.int32),
        }  # fmt: skip
        normalise = dtype == "u8" or cursor == 2
        calls = load_calls(dtype, rows, batch, count, H * W * C, C, 1, normalise, augment=spec, width=W)
        cushim.run_all(calls, arrays, backwards)
        want = augment(data[index], spec, SEED, STEP_NUMBER, index, cursor, *((mean, std) if normalise else ()))
        assert arrays["x"].tobytes() == want.tobytes()
        assert (arrays["target"] == labels[index]).all()


# ---- in a blueprint


def test_mixing_needs_cross_entropy_and_few_channels():
    text = {"mixup": 0.2}
    with pytest.raises(UserError, match="mixup mixes classes, which mse does not take"):
        net(SMALL, (1, 8, 8), augmentation=text, loss="mse")
    with pytest.raises(UserError, match="take up to 4 channels, but the pictures have 5"):
        net(SMALL, (5, 8, 8), augmentation={"rotate": 10})
    assert parsed(json.dumps({"cutmix": 1})).train["augmentation"] == {"cutmix": 1.0}


def test_idle_settings_change_nothing():
    x = pictures(3, (4, 5, 3))
    assert Augmentation(pad_mode="reflect").idle
    assert not any(spec.idle for spec in SPECS)
    still = Augmentation(rotate=0.0, mixup=0.0)
    assert np.array_equal(augment(x, still, 0, 0, np.arange(3), 0, *scale(3)), to_input(x, *scale(3)))
