"""Augmentation: its definition against pictures changed one by one, its numbers, its kernel, and its way into a run."""

import json
from dataclasses import replace
from types import SimpleNamespace

import cushim
import cv2
import numpy as np
import nvrtc
import pytest
from nets import SMALL, net

from litenet.trainer import rng
from litenet.trainer.cli import main
from litenet.trainer.data import CompressedDataLoader, to_input
from litenet.trainer.data.augment import Augmentation, apply, augment, draw
from litenet.trainer.data.dataset import Dataset
from litenet.trainer.errors import UserError
from litenet.trainer.kernels.calls_load import load_calls
from litenet.trainer.kernels.calls_step import STEP
from litenet.trainer.loop import Events, Progress, fit
from litenet.trainer.settings import settings_for
from litenet.trainer.trainer import Trainer

SPECS = [
    Augmentation("horizontal"),
    Augmentation("vertical"),
    Augmentation("alternate", 2),
    Augmentation("none", 3, "reflect"),
    Augmentation("none", 0, "zero", 1),
    Augmentation("both", 3, "zero", 3),
    Augmentation("alternate", 1, "reflect", 2),
]
SEED, STEP_NUMBER = 0x123456789ABCDEF0, 0xFEDCBA9876543210


def name(spec):
    return f"{spec.flip}, translate {spec.translate} {spec.pad_mode}, cutout {spec.cutout}"


def pictures(n, shape, dtype="u8"):
    draw = np.random.default_rng(7)
    x = draw.integers(0, 256, (n, *shape)).astype(np.uint8)
    return x if dtype == "u8" else draw.standard_normal((n, *shape), np.float32)


def scale(C):
    return 100 + 10 * np.arange(C, dtype=np.float32), 60 + np.arange(C, dtype=np.float32)


def by_hand(picture, words, mirror, spec, mean, std):
    """One picture, pixel by pixel."""
    (H, W, _), t, out = picture.shape, spec.translate, np.zeros(picture.shape, np.float32)
    shift = words[1] * (2 * t + 1) ** 2 >> 32
    down, right = shift // (2 * t + 1) - t, shift % (2 * t + 1) - t
    top, left = (words[2] * H >> 32) - spec.cutout // 2, (words[3] * W >> 32) - spec.cutout // 2
    for i in range(H):
        for j in range(W):
            u, v = i - down, j - right
            if spec.pad_mode == "reflect":  # in the first and in the last pixel, which stand once
                u, v = H - 1 - abs(H - 1 - abs(u)), W - 1 - abs(W - 1 - abs(v))
            cut = i in range(top, top + spec.cutout) and j in range(left, left + spec.cutout)
            if cut or u not in range(H) or v not in range(W):
                continue
            u = H - 1 - u if spec.flip in ("vertical", "both") and words[0] >> 30 & 1 else u
            value = picture[u, W - 1 - v if mirror else v].astype(np.float32)
            out[i, j] = value if mean is None else (value - mean) / std
    return out


def expected(x, spec, seed, step, indices, epoch, mean=None, std=None):
    words = rng.bits(seed, rng.AUGMENT, step, 4 * len(x)).reshape(-1, 4).tolist()
    out = np.empty(x.shape, np.float32)
    for n, picture in enumerate(x):
        mirror = spec.flip in ("horizontal", "both") and words[n][0] >> 31
        if spec.flip == "alternate":
            first = rng.bits(seed, rng.FLIP, 0, 4 * int(indices[n]) + 1)[-1] >> 31
            mirror = (int(first) + epoch) % 2
        out[n] = by_hand(picture, words[n], mirror, spec, mean, std)
    return out


# ---- the definition


@pytest.mark.parametrize("spec", SPECS, ids=name)
@pytest.mark.parametrize("shape", [(4, 4, 1), (5, 7, 3), (9, 4, 4)])
@pytest.mark.parametrize("dtype", ["u8", "f32"])
def test_pictures_become_what_they_become_one_by_one(spec, shape, dtype):
    x, index = pictures(13, shape, dtype), np.random.default_rng(1).permutation(40)[:13]
    normalise = scale(shape[-1]) if dtype == "u8" else ()
    for epoch in (0, 1):
        want = expected(x, spec, SEED, STEP_NUMBER, index, epoch, *normalise)
        got = augment(x, spec, SEED, STEP_NUMBER, index, epoch, *normalise)
        assert got.dtype == np.float32
        assert got.tobytes() == want.tobytes()
        into = np.full(x.shape, np.nan, np.float32)
        assert augment(x, spec, SEED, STEP_NUMBER, index, epoch, *(normalise or (None, None)), into) is into
        assert into.tobytes() == want.tobytes()


def test_what_happens_to_a_sample_depends_on_its_place_and_the_step_alone():
    x, spec, index = pictures(8, (6, 6, 3)), Augmentation("both", 2, "zero", 2), np.arange(8)
    whole = augment(x, spec, 1, 5, index, 0)
    assert np.array_equal(augment(x[:3], spec, 1, 5, index[:3], 0), whole[:3])
    assert np.array_equal(augment(x, spec, 1, 5, index + 9, 4), whole)
    for other in ((2, 5), (1, 6), (1 + (1 << 32), 5), (1, 5 + (1 << 32))):
        assert not np.array_equal(augment(x, spec, *other, index, 0), whole)


def test_flips_shifts_and_squares_come_equally_often():
    spec, n = Augmentation("both", 2, "zero", 3), 40_000
    to = draw(spec, 3, 4, np.arange(n), 0, 5, 4)
    for share in (to.mirror.mean(), to.upside_down.mean(), (to.mirror ^ to.upside_down).mean()):
        assert abs(share - 0.5) <= 0.01
    for values, first, count in ((to.dy, -2, 5), (to.dx, -2, 5), (to.top, -1, 5), (to.left, -1, 4)):
        assert values.min() == first
        seen = np.bincount(values - first, minlength=count)
        assert len(seen) == count
        assert np.abs(seen * count / n - 1).max() <= 0.05
    pairs = np.bincount(5 * (to.dy + 2) + to.dx + 2, minlength=25)
    assert np.abs(pairs * 25 / n - 1).max() <= 0.12
    numbers = np.stack([to.mirror, to.upside_down, to.dy, to.dx, to.top, to.left]).astype(float)
    assert np.abs(np.corrcoef(numbers) - np.eye(6)).max() <= 0.02


def test_the_alternate_flip_shows_each_picture_in_turn_from_both_sides():
    index = np.random.default_rng(0).permutation(5000)
    spec = Augmentation("alternate")
    mirrored = [draw(spec, 9, step, index, epoch, 4, 4).mirror for step, epoch in ((0, 0), (7, 1), (9, 2))]
    assert abs(mirrored[0].mean() - 0.5) <= 0.03
    assert np.array_equal(mirrored[1], ~mirrored[0])
    assert np.array_equal(mirrored[2], mirrored[0])
    assert np.array_equal(draw(spec, 9, 3, index[::-1], 0, 4, 4).mirror, mirrored[0][::-1])
    assert not np.array_equal(draw(spec, 8, 0, index, 0, 4, 4).mirror, mirrored[0])


def test_without_changes_pictures_are_only_normalised():
    x = pictures(3, (4, 5, 3))
    assert np.array_equal(augment(x, Augmentation(), 0, 0, np.arange(3), 0, *scale(3)), to_input(x, *scale(3)))
    still = draw(Augmentation(), 0, 0, np.arange(3), 0, 4, 5)
    assert np.array_equal(apply(x, Augmentation(), still), x)


@pytest.mark.parametrize(
    ("spec", "shape", "sentence"),
    [
        (Augmentation("vertical"), (7,), "augmentation changes pictures, but a sample is 7 values"),
        (Augmentation(translate=4), (9, 4, 1), "translate is 4, but the pictures are 9 x 4 pixels"),
        (Augmentation(cutout=3), (3, 5, 3), "cutout is 3, but the pictures are 3 x 5 pixels"),
    ],
)
def test_what_is_no_picture_or_too_small_is_refused(spec, shape, sentence):
    with pytest.raises(UserError, match=sentence):
        augment(np.zeros((2, *shape), np.float32), spec, 0, 0, np.arange(2), 0)


# ---- the kernel


def step(cursor, seed, micro, epoch):
    out = np.zeros(1, STEP)
    out["seed"], out["micro"] = [[seed & 0xFFFFFFFF, seed >> 32]], [[micro & 0xFFFFFFFF, micro >> 32]]
    out["cursor"], out["epoch"] = cursor, epoch
    return out


@pytest.mark.parametrize("spec", SPECS, ids=name)
@pytest.mark.parametrize("shape", [(4, 4, 1), (5, 7, 3), (33, 35, 4)])
@pytest.mark.parametrize("dtype", ["u8", "f32"])
def test_the_kernel_gives_the_bits_of_the_definition(spec, shape, dtype):
    count, batch, (H, W, C) = 11, 4, shape
    data, (mean, std) = pictures(count, shape, dtype), scale(C)
    labels, order = np.arange(50, 50 + count, dtype=np.int32), np.random.default_rng(2).permutation(count)
    for cursor, rows, backwards in ((0, 4, False), (1, 4, True), (2, 3, False)):
        index = order[cursor * batch :][:rows]
        arrays = {
            "set": data, "labels": labels, "order": order.astype(np.int32), "mean": mean, "std": std,
            "step": step(cursor, SEED, STEP_NUMBER, cursor), "x": np.full((rows, *shape), np.nan, np.float32),
            "target": np.zeros(rows, np.int32),
        }  # fmt: skip
        normalise = dtype == "u8" or cursor == 1
        calls = load_calls(dtype, rows, batch, count, H * W * C, C, 1, normalise, augment=spec, width=W)
        if cursor == 2:  # a grid and a block of any other size
            calls = [replace(call, grid=(2, 3, 1), block=(32, 1, 1)) for call in calls]
        cushim.run_all(calls, arrays, backwards)
        want = augment(data[index], spec, SEED, STEP_NUMBER, index, cursor, *((mean, std) if normalise else ()))
        assert arrays["x"].tobytes() == want.tobytes()
        assert (arrays["target"] == labels[index]).all()


def test_the_kernel_takes_a_batch_from_the_host_and_the_samples_numbers_beside_it():
    data, index, spec = pictures(5, (6, 5, 3)), np.array([90, 7, 3000, 11, 12]), Augmentation("alternate", 1)
    arrays = {
        "set": data, "numbers": index.astype(np.int32), "step": step(999, 5, 6, 1), "mean": scale(3)[0],
        "std": scale(3)[1], "x": np.full(data.shape, np.nan, np.float32),
    }  # fmt: skip
    cushim.run_all(load_calls("u8", 5, 8, 5, 90, 3, cursor=False, augment=spec, width=5), arrays)
    assert arrays["x"].tobytes() == augment(data, spec, 5, 6, index, 1, *scale(3)).tobytes()


@pytest.mark.parametrize("spec", [None, Augmentation("both", 2, "zero", 2)], ids=["plain", "augmented"])
def test_the_batch_may_be_stored_in_half_precision(spec):
    data, (mean, std) = pictures(4, (6, 6, 2)), scale(2)
    arrays = {
        "set": data, "mean": mean, "std": std, "step": step(0, 5, 6, 0), "x": np.full(data.shape, np.nan, np.float16)
    }  # fmt: skip
    cushim.run_all(load_calls("u8", 4, 4, 4, 72, 2, half=True, augment=spec, width=6), arrays)
    want = to_input(data, mean, std) if spec is None else augment(data, spec, 5, 6, np.arange(4), 0, mean, std)
    assert arrays["x"].tobytes() == want.astype(np.float16).tobytes()


def test_a_large_batch_of_large_pictures_is_shared_by_many_blocks():
    call = load_calls("u8", 300, 300, 400, 128 * 100 * 3, 3, augment=Augmentation("vertical"), width=100)[0]
    assert (call.grid, call.block) == ((300, 13, 1), (256, 1, 1))
    small = load_calls("u8", 3, 3, 4, 40, 1, augment=Augmentation("vertical"), width=8)[0]
    assert (small.grid, small.block) == ((3, 1, 1), (64, 1, 1))


@pytest.mark.parametrize("arch", nvrtc.ARCHITECTURES)
def test_the_kernel_compiles_without_spills(arch):
    for real in ("float", "Half"):
        augments = [{"AUGMENT": 1, "FULL": full, "MIX": mix} for full, mix in ((0, 0), (1, 0), (1, 1))]
        for defines in (*augments, {"VEC": 4}, {"VEC": 1}):
            _, log = nvrtc.compile("load.cu", arch, defines | {"REAL": real})
            for kernel, used in nvrtc.resources(log).items():
                assert used.spills == 0, f"{kernel} spills {used.spills} bytes on {arch}: {defines}"


# ---- in a blueprint

GOOD = [
    ('{"flip": true}', {"flip": "horizontal"}),
    ('{"flip": false, "cutout": 2}', {"flip": "none", "cutout": 2}),
    ('{"flip": "alternate", "translate": 2, "pad_mode": "reflect", "cutout": 3}',
     {"flip": "alternate", "translate": 2, "pad_mode": "reflect", "cutout": 3}),
    ("{}", {}),
    ("false", None),
    ("null", None),
]  # fmt: skip


def parsed(text, shape=(1, 8, 8)):
    return net(["flatten", {"type": "linear", "out_features": 3}], shape, augmentation=json.loads(text))


@pytest.mark.parametrize(("text", "want"), GOOD)
def test_a_blueprint_says_what_happens_to_pictures(text, want):
    blueprint = parsed(text)
    assert blueprint.train.get("augmentation") == want
    assert blueprint == net(**{"layers": None} | {k: v for k, v in blueprint.resolved.items() if k != "name"})
    spec = Augmentation(**(want or {}))
    assert settings_for(blueprint, {}).make_augmentation() == (None if spec.idle else spec)


@pytest.mark.parametrize(
    ("text", "sentence", "remedy"),
    [
        ("true", "augmentation is true, but a mapping is expected", "mapping is"),
        ('{"crop": 4}', 'the key "crop" is unknown; did you mean translate?', "augmentation takes flip, translate"),
        ('{"mirror": true}', "did you mean flip?", "augmentation takes"),
        ('{"rotate": 200}', "rotate is 200, but a number from 0 to 180 is expected", "turns about the middle"),
        ('{"shear": 3}', 'the key "shear" is unknown.', "augmentation takes"),
        ('{"rotation": 3}', "did you mean rotate?", "augmentation takes"),
        ('{"mixup": 0.01}', "mixup is 0.01; below 0.05 hardly anything is mixed", "Use 0.2"),
        ('{"flip": "leftright"}', "did you mean horizontal?", "flip can be none, horizontal"),
        ('{"flip": 2}', "flip is 2, but one of none, horizontal", "mirrors half"),
        ('{"translate": 2, "pad_mode": "constant"}', "did you mean zero?", "pad_mode can be zero, reflect"),
        ('{"pad_mode": "reflect"}', "pad_mode is given, but translate is not", "Add translate"),
        ('{"translate": -1}', "translate is -1, but a whole number from 0 to 255 is expected", "shifts"),
        ('{"translate": 8}', "translate is 8, but the pictures are 8 x 8 pixels", "less than 8"),
        ('{"cutout": 8}', "cutout is 8, but the pictures are 8 x 8 pixels", "less than 8"),
    ],
)
def test_a_mistake_in_it_is_named_with_its_line_and_what_to_do(text, sentence, remedy):
    with pytest.raises(UserError) as error:
        parsed(text)
    first, second = str(error.value).split("\n")
    assert first.startswith("net.json, line 1 (augmentation): ")
    assert sentence in first
    assert remedy in second


# ---- in training


def patterns(n=24):
    x = pictures(n, (8, 8, 1))
    return Dataset(x, np.arange(n, dtype=np.int64) % 3)


def trained(augmentation, batch=4):
    blueprint = net(SMALL, (1, 8, 8), augmentation=augmentation, learning_rate=0.05)
    settings = settings_for(blueprint, {"epochs": 3, "batch_size": batch})
    trainer = Trainer(blueprint, batch, 3, (120.0,), (70.0,), settings.update)
    seen, micro = [], trainer.micro
    trainer.micro = lambda x, y, **more: (
        seen.append((trainer.micro_step, trainer.epoch, x.copy())) or micro(x, y, **more)
    )
    order, run_batch = [], trainer.run_batch
    trainer.run_batch = lambda data, index, *more: order.append(index) or run_batch(data, index, *more)
    fit(trainer, patterns(), patterns(9), settings, Progress(), Events())
    return trainer, seen, order


def test_each_batch_of_a_run_is_augmented_by_its_step_and_epoch_and_evaluation_is_not():
    spec = {"flip": "alternate", "translate": 2, "cutout": 2}
    trainer, seen, order = trained(spec)
    assert [(s, e) for s, e, _ in seen] == [(k, k // 6) for k in range(18)]
    for (micro_step, epoch, x), index in zip(seen, order, strict=True):
        rows = patterns().x[index]
        want = augment(rows, Augmentation(**spec), 3, micro_step, index, epoch, (120.0,), (70.0,))
        assert x.tobytes() == want.tobytes()
    plain, seen, _ = trained(None)
    assert all(x.dtype == np.uint8 for _, _, x in seen)
    assert not np.array_equal(plain.model.weights, trainer.model.weights)
    plain.load_arrays(trainer.state_arrays(), "memory")
    assert np.array_equal(plain.infer(patterns().x[:4]), trainer.infer(patterns().x[:4]))
    assert plain.evaluate(patterns().x, patterns().y).loss == trainer.evaluate(patterns().x, patterns().y).loss


def test_a_set_without_pictures_is_refused_before_a_folder_is_made(tmp_path, capsys):
    np.savez(tmp_path / "rows.npz", x=np.zeros((20, 64), np.float32), y=np.arange(20) % 3)
    (tmp_path / "net.json").write_text(json.dumps(parsed('{"flip": true}', (64,)).resolved))
    out = tmp_path / "run"
    assert main([str(tmp_path / "net.json"), "--data", str(tmp_path / "rows.npz"), "--out", str(out)]) == 1
    assert "augmentation changes pictures, but a sample is 64 values" in capsys.readouterr().err
    assert not out.exists()


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_the_loader_augments_for_a_loop_of_ones_own(tmp_path, dtype):
    x = pictures(10, (6, 6, 1))
    np.savez(tmp_path / "some.npz", x=x, y=np.arange(10) % 3)
    wishes = {"flip": True, "translate": 2}
    loader = CompressedDataLoader(tmp_path / "some.npz", 4, dtype, seed=5, augmentation=wishes)
    batches = [*loader, *loader]
    spec = Augmentation("horizontal", 2)
    for k, batch in enumerate(batches):
        want = augment(x[batch.indices], spec, 5, k, batch.indices, k // 2, (127.5,), (127.5,))
        assert batch.x.tobytes() == want.tobytes()
    into = np.empty((4, 6, 6, 1), np.float32)
    again = CompressedDataLoader(tmp_path / "some.npz", 4, dtype, seed=5, into=into, augmentation=wishes)
    assert next(iter(again)).x.tobytes() == batches[0].x.tobytes()
    assert np.shares_memory(next(iter(again)).x, into)
    with pytest.raises(UserError, match='the key "hflip" is unknown; did you mean flip?'):
        CompressedDataLoader(tmp_path / "some.npz", 4, augmentation={"hflip": True})
    with pytest.raises(UserError, match="cutout is 6, but the pictures are 6 x 6 pixels"):
        CompressedDataLoader(tmp_path / "some.npz", 4, augmentation={"cutout": 6})


# ---- the preview


@pytest.fixture
def here(tmp_path):
    """A blueprint and a set of 40 colour pictures of 20 x 10 pixels, each of one colour with a dark left edge."""
    y = np.arange(40) % 3
    x = np.zeros((40, 20, 10, 3), np.uint8)
    x[:, :, 2:] = np.array([[250, 0, 0], [0, 250, 0], [0, 0, 250]], np.uint8)[y][:, None, None]
    np.savez(tmp_path / "colours.npz", x=x, y=y)

    def blueprint(**more):
        layers = ["flatten", {"type": "linear", "out_features": 3}]
        spec = net(layers, (3, 20, 10), labels=["red", "green", "blu\u00e9"], batch_size=16, **more).resolved
        (tmp_path / "net.json").write_text(json.dumps(spec))
        return [str(tmp_path / "net.json"), "--data", str(tmp_path / "colours.npz")]

    return SimpleNamespace(folder=tmp_path, blueprint=blueprint, png=tmp_path / "seen.png")


def test_the_preview_shows_samples_as_they_are_and_below_as_they_are_changed(here, capsys):
    words = here.blueprint(augmentation={"flip": "alternate"}, validation_split=0)
    assert main([*words, "--preview", str(here.png)]) == 0
    assert capsys.readouterr().out == f"{here.png} shows what the net sees\n"
    assert sorted(p.name for p in here.folder.iterdir()) == ["colours.npz", "net.json", "seen.png"]
    sheet = cv2.imread(str(here.png))[..., ::-1]
    high, wide = 20 * 7, 10 * 7  # enlarged to at least 64 pixels
    assert sheet.shape == (2 + 2 * (14 + 4 * (high + 2)), 2 + 8 * (wide + 2), 3)
    index = rng.permutation(0, rng.SHUFFLE, 0, 40)
    for n in range(16):
        top, left = 2 + n // 8 * (14 + 4 * (high + 2)) + 14, 2 + n % 8 * (wide + 2)
        tiles = [sheet[top + k * (high + 2) :][:high, left : left + wide] for k in range(4)]
        colour = np.eye(3)[index[n] % 3] * 250
        assert (tiles[0][:, 14:] == colour).all()
        assert (tiles[0][:, :14] == 0).all()
        mirror = bool(draw(Augmentation("alternate"), 0, 0, index[n : n + 1], 0, 20, 10).mirror[0])
        for epoch in range(3):
            want = tiles[0][:, ::-1] if mirror ^ bool(epoch % 2) else tiles[0]
            assert np.abs(tiles[1 + epoch].astype(int) - want).max() <= 1
        assert (sheet[top - 14 : top, left : left + wide] < 128).any()  # the name of its class


def test_without_augmentation_the_preview_shows_more_samples(here):
    assert main([*here.blueprint(validation_split=0), "--preview", str(here.png)]) == 0
    sheet = cv2.imread(str(here.png))
    assert sheet.shape == (2 + 5 * (14 + 142), 2 + 8 * 72, 3)  # all 40 of them


def test_the_preview_has_the_colours_of_the_data_also_for_a_net_that_takes_them_in_another_order(here):
    shown = []
    for color in ("rgb", "bgr"):
        words = here.blueprint(preprocessing={"color": color}, augmentation={"translate": 3, "cutout": 4})
        assert main([*words, "--preview", str(here.png)]) == 0
        shown.append(cv2.imread(str(here.png)))
    assert np.array_equal(*shown)


def test_grey_pictures_and_float_ones_are_previewed_too(tmp_path):
    for x in (pictures(20, (8, 8, 1)), pictures(20, (8, 8, 2), "f32")):
        np.savez(tmp_path / "some.npz", x=x, y=np.arange(20) % 3, layout="NHWC")
        blueprint = net(SMALL, x.shape[:0:-1], augmentation={"translate": 1}, batch_size=4)
        (tmp_path / "net.json").write_text(json.dumps(blueprint.resolved))
        words = [str(tmp_path / "net.json"), "--data", str(tmp_path / "some.npz")]
        assert main([*words, "--preview", str(tmp_path / "seen.png")]) == 0
        sheet = cv2.imread(str(tmp_path / "seen.png"))
        assert sheet.shape == (2 + 2 * (14 + 4 * 66), 2 + 8 * 66, 3)
        assert (sheet[16:80:8, 2:66:8, 0] == sheet[16:80:8, 2:66:8, 2]).all()


def test_a_preview_that_cannot_be_made_is_refused_in_a_sentence(here, capsys):
    words = here.blueprint()
    for more, sentence in (
        (["--preview", "seen.jpg"], "seen.jpg: the preview is a PNG picture."),
        (["--preview", str(here.folder / "no" / "seen.png")], "could not be written"),
    ):
        assert main([*words, *more]) == 1
        assert sentence in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["--resume", "run", "--preview", "seen.png"])
    assert "leave --resume away" in capsys.readouterr().err
    np.savez(here.folder / "colours.npz", x=np.zeros((40, 600), np.float32), y=np.arange(40) % 3)
    assert main([*words, "--preview", str(here.png)]) == 1
    assert "holds no pictures" in capsys.readouterr().err
