"""Folders of photos as a data set: what is found, how it is split, what the net sees, what a run makes of it."""

import json
import re

import cv2
import numpy as np
import pytest
from nets import net
from photos import folder, picture, write

from litenet.exporter.cli import main as edge_export
from litenet.pyruntime import decode
from litenet.pyruntime.cli import main as edge_infer
from litenet.pyruntime.preprocess import Preprocessing
from litenet.trainer.cli import main as edge_train
from litenet.trainer.data import CompressedDataLoader, open_source
from litenet.trainer.data.dataset import Dataset, _mapped, split
from litenet.trainer.data.photo_list import is_photos, scan
from litenet.trainer.data.photos import Frame, PhotoOptions, look, open_photos
from litenet.trainer.errors import UserError

FRAME = Frame((16, 16, 3))


@pytest.fixture
def options(tmp_path):
    return PhotoOptions(cache=tmp_path / "cache")


def kinds(found):
    return [finding.kind for finding in found]


# ---- what is found


def test_each_folder_is_a_class_and_numbers_in_names_count_as_numbers(tmp_path):
    for name in ("class10/a2.png", "class10/a10.png", "class2/deep/er/x.PNG"):
        write(tmp_path / name.lower(), picture(1))
    (tmp_path / "class2" / ".hidden.png").write_bytes(b"")
    (tmp_path / "class2" / "notes.txt").write_text("no picture")
    (tmp_path / "__MACOSX" / "class2").mkdir(parents=True)
    found = scan(tmp_path)
    assert found.labels == ("class2", "class10")
    assert [photo.name for photo in found.photos] == ["class2/deep/er/x.png", "class10/a2.png", "class10/a10.png"]
    assert [finding.line() for finding in found.findings] == ["1 file without a picture's name: passed over (1 .txt)"]


def test_a_given_split_is_kept_and_what_lies_beside_it_is_named(tmp_path):
    folder(tmp_path, each=2, parts=("train", "Val", "test"))
    (tmp_path / "docs").mkdir()
    found = scan(tmp_path)
    assert found.parted
    assert {photo.name.split("/")[0]: photo.part for photo in found.photos} == {
        "train": "train", "Val": "validation", "test": "test"
    }  # fmt: skip
    assert kinds(found.findings) == ["beside"]


def test_a_class_may_be_called_train(tmp_path):
    folder(tmp_path, classes=("train", "bus"), each=2)
    found = scan(tmp_path)
    assert found.labels == ("bus", "train")
    assert not found.parted


def test_an_archive_that_unfolds_to_a_folder_in_a_folder_is_read(tmp_path):
    folder(tmp_path / "photos-main" / "photos", each=2)
    assert scan(tmp_path).labels == ("cat", "dog")


def test_a_list_names_files_labels_and_parts(tmp_path):
    for n in range(4):
        write(tmp_path / "pictures" / f"{n},x.png", picture(n))
    text = 'path;label\n"pictures/0,x.png";cat\n'.replace(";", ",")
    text += '"pictures/1,x.png",dog\n"pictures/9.png",dog\n"pictures/1,x.png",dog\n'
    (tmp_path / "list.csv").write_text("\ufeff" + text, encoding="utf-8")
    assert is_photos(tmp_path / "list.csv")
    found = scan(tmp_path / "list.csv")
    assert [(photo.name, photo.label) for photo in found.photos] == [
        ("pictures/0,x.png", "cat"), ("pictures/1,x.png", "dog")
    ]  # fmt: skip
    assert kinds(found.findings) == ["missing", "twice"]
    (tmp_path / "parts.csv").write_text('"pictures/0,x.png",a,train\n"pictures/1,x.png",b,val\n')
    assert [photo.part for photo in scan(tmp_path / "parts.csv").photos] == ["train", "validation"]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a.png,cat\nb.png\n", "list.csv, line 2: 1 columns; expected path,label"),
        ("a.png,cat,held out\n", "list.csv, line 1: the part is 'held out'; expected train, validation or test"),
        ("a.png,cat\na.png,dog\n", "list.csv, line 2: a.png is 'dog' here, but was 'cat' before"),
        ("", "no pictures were found"),
    ],
)
def test_a_mistake_in_a_list_is_named_with_its_line(tmp_path, text, sentence):
    (tmp_path / "list.csv").write_text(text)
    with pytest.raises(UserError, match=re.escape(sentence)):
        scan(tmp_path / "list.csv")


def test_names_of_one_class_written_differently_are_joined_and_slips_are_named(tmp_path):
    for label, each in (
        ("early_blight", 3),
        ("Early blight", 1),
        ("leaf_mold", 1),
        ("leaf_mould", 1),
        ("a", 1),
        ("A", 1),
    ):
        for n in range(each):
            write(tmp_path / label / f"{label}{n}.png", picture(n))
    found = scan(tmp_path)
    assert found.labels == ("A", "a", "early_blight", "leaf_mold", "leaf_mould")
    lines = [finding.line() for finding in found.findings]
    assert 'the classes "A" and "a" are nearly the same name: kept apart' in lines
    assert (
        'the classes "Early blight" and "early_blight" are one name written differently: joined as "early_blight"'
        in lines
    )
    assert any(
        line.startswith('the class names "leaf_mold" (1) and "leaf_mould" (1) are one slip apart') for line in lines
    )
    assert len(lines) == 3


@pytest.mark.parametrize("pair", [("class1", "class2"), ("healthy", "unhealthy"), ("cat", "cats"), ("horse", "mouse")])
def test_names_that_only_resemble_each_other_are_no_slips(tmp_path, pair):
    folder(tmp_path, classes=pair, each=1)
    assert scan(tmp_path).findings == ()


# ---- how it is split


def test_neighbours_stay_on_one_side_and_every_class_gives_its_share(tmp_path, options):
    folder(tmp_path / "p", each=90, size=(8, 8))
    found, parts = look(tmp_path / "p", options)
    for label in ("cat", "dog"):
        own = np.array([photo.label == label for photo in found.photos])
        assert abs((parts[own] == "test").sum() - 9) <= 2
        changes = (parts[own][1:] != parts[own][:-1]).sum()
        assert changes <= 6  # three ranges of three, not nine single photos
    again, other = look(tmp_path / "p", options), look(tmp_path / "p", PhotoOptions(seed=1, cache=options.cache))
    assert (again[1] == parts).all()
    assert (other[1] != parts).any()
    assert again[0].looked_at == 0


def test_a_pattern_says_which_photos_belong_together(tmp_path):
    for n in range(60):
        write(tmp_path / "p" / ("cat" if n % 2 else "dog") / f"leaf{n // 6}_{n}.png", picture(n))
    found, parts = look(tmp_path / "p", PhotoOptions(group=r"(leaf\d+)_", test_split=0.3, cache=tmp_path / "c"))
    sides = {}
    for photo, part in zip(found.photos, parts, strict=True):
        sides.setdefault(photo.path.stem.split("_")[0], set()).add(str(part))
    assert len(sides) == 10
    assert all(len(side) == 1 for side in sides.values())
    assert 0 < (parts == "test").sum() <= 30
    with pytest.raises(UserError, match=r"--group \(: not a regular expression"):
        look(tmp_path / "p", PhotoOptions(group="(", cache=tmp_path / "c"))


def test_groups_are_never_divided_and_never_all_taken():
    draw = np.random.default_rng(3)
    for trial in range(50):
        n = int(draw.integers(4, 80))
        ds = Dataset(np.arange(n, dtype=np.float32)[:, None], draw.integers(0, 3, n), group=draw.integers(0, 12, n))
        train, held = split(ds, 0.25, trial)
        assert not set(train.group) & set(held.group)
        assert train.count + held.count == n
        assert train.count >= 1


def test_without_groups_the_split_is_what_it_was():
    ds = Dataset(np.arange(40, dtype=np.float32)[:, None], np.arange(40) % 4)
    alone = Dataset(ds.x, ds.y, group=np.arange(40))
    assert split(ds, 0.2, 5)[1].x.tolist() == split(alone, 0.2, 5)[1].x.tolist()


# ---- what the net sees


def test_frames_are_what_the_device_makes_of_the_files(tmp_path, options):
    folder(tmp_path / "p", each=8, suffix=".jpg")
    splits = open_photos(tmp_path / "p", options, Frame((10, 12, 1), {"fit": "crop", "invert": "always"}))
    recipe = Preprocessing(fit="crop", invert="always", color="gray")
    for ds in (splits.train, splits.test):
        for frame, name, y in zip(ds.x, ds.files, ds.y, strict=True):
            pixels, layout = decode(tmp_path / "p" / str(name))
            assert np.array_equal(frame, recipe.frame(pixels, 10, 12, layout))
            assert ds.labels[y] == str(name).split("/")[0]
    assert splits.train.count + splits.test.count == 16


def test_the_labels_of_a_blueprint_give_the_order_of_the_classes(tmp_path, options):
    folder(tmp_path / "p", each=3)
    splits = open_photos(tmp_path / "p", options, Frame((8, 8, 3), None, ("dog", "bird", "cat")))
    assert splits.train.labels == ("dog", "bird", "cat")
    assert {splits.train.labels[y] for y in splits.train.y[[str(f).startswith("dog") for f in splits.train.files]]} == {
        "dog"
    }
    with pytest.raises(UserError, match='the class "dog" is not among the labels of the blueprint'):
        open_photos(tmp_path / "p", options, Frame((8, 8, 3), None, ("cat", "fish")))


def test_photos_of_different_sizes_need_to_know_the_net(tmp_path, options):
    folder(tmp_path / "p", each=3)
    assert open_photos(tmp_path / "p", options, Frame()).train.shape == (24, 32, 3)
    assert open_photos(tmp_path / "p", options, Frame((24 * 32,))).train.shape == (24, 32, 1)
    write(tmp_path / "p" / "cat" / "large.png", picture(77, (40, 40)))
    with pytest.raises(UserError, match="different sizes"):
        open_photos(tmp_path / "p", options, Frame())
    with pytest.raises(UserError, match="the net takes 4 channels"):
        open_photos(tmp_path / "p", options, Frame((8, 8, 4)))


def test_the_loader_of_the_article_reads_photos(tmp_path):
    folder(tmp_path / "p", each=10)
    loader = CompressedDataLoader(
        tmp_path / "p", 4, dtype="float16", normalize=True, shape=(3, 8, 8), cache=tmp_path / "c"
    )
    batch = next(iter(loader))
    assert batch.x.shape == (4, 8, 8, 3)
    assert batch.x.dtype == np.float32
    assert -1 <= batch.x.min() < 0 < batch.x.max() <= 1
    assert loader.labels == ("cat", "dog")


def test_a_large_part_of_a_mapped_array_does_not_go_into_memory(tmp_path, monkeypatch):
    monkeypatch.setattr("litenet.trainer.data.dataset.MAPPED", 100)
    x = np.lib.format.open_memmap(tmp_path / "x.npy", "w+", np.uint8, (50, 4, 4, 3))
    x[...] = np.arange(50)[:, None, None, None]
    some = Dataset(x, np.arange(50) % 2).take([7, 3, 49])
    assert _mapped(some.x)
    assert not _mapped(np.zeros(3))
    assert some.x[:, 0, 0, 0].tolist() == [7, 3, 49]


# ---- a run

TINY = [{"type": "conv2d", "out_channels": 4, "kernel_size": 3, "stride": 2, "activation": "relu"}, "global_avg_pool",
        {"type": "linear", "out_features": 2}]  # fmt: skip


def blueprint(tmp_path, **more):
    path = tmp_path / "tiny.json"
    path.write_text(json.dumps(net(TINY, (3, 16, 16), batch_size=4, **more).resolved))
    return str(path)


def test_from_a_folder_to_answers_with_the_names_of_the_classes(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder(tmp_path / "p", classes=("ripe fruit", "rotten"), each=20, suffix=".jpg")
    given = [blueprint(tmp_path), "--data", "p", "--cache", "c", "--epochs", "2", "--out", "run"]
    assert edge_train(given) == 0
    said = capsys.readouterr().err
    assert "40 pictures of 2 classes" in said
    assert "16 x 16 x 3 bytes each" in said
    kept = json.loads((tmp_path / "run" / "photos.json").read_text())
    assert {part: len(names) for part, names in kept["parts"].items()} == {"train": 32, "validation": 4, "test": 4}
    assert edge_export(["run", "-o", "m.bin"]) == 0
    assert "test samples of p" in capsys.readouterr().out
    assert edge_infer(["m.bin", "p/rotten", "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(rows) == 20
    assert {row["label"] for row in rows} <= {"ripe fruit", "rotten"}
    assert edge_train(["--resume", "run", "--epochs", "3", "--quiet"]) == 0
    write(tmp_path / "p" / "rotten" / "new.jpg", picture(99))
    assert edge_train(["--resume", "run", "--epochs", "4", "--quiet"]) == 1
    assert "the data are not those the run" in capsys.readouterr().err


def test_a_validation_folder_is_used_instead_of_a_split(tmp_path, capsys):
    folder(tmp_path / "p", each=6, parts=("train", "val"))
    out = tmp_path / "run"
    given = [blueprint(tmp_path), "--data", str(tmp_path / "p"), "--cache", str(tmp_path / "c"), "--epochs", "1"]
    assert edge_train([*given, "--out", str(out), "--quiet"]) == 0
    assert "test:" not in capsys.readouterr().out
    parts = json.loads((out / "photos.json").read_text())["parts"]
    assert {part: {name.split("/")[0] for name in names} for part, names in parts.items()} == {
        "train": {"train"}, "validation": {"val"}
    }  # fmt: skip


def test_a_preview_shows_the_photos(tmp_path):
    folder(tmp_path / "p", each=10)
    seen = tmp_path / "seen.png"
    given = [
        blueprint(tmp_path, augmentation={"flip": True}),
        "--data",
        str(tmp_path / "p"),
        "--cache",
        str(tmp_path / "c"),
    ]
    assert edge_train([*given, "--preview", str(seen)]) == 0
    assert cv2.imread(str(seen)).shape[2] == 3


def test_a_folder_without_pictures_in_folders_is_told_from_one_with(tmp_path, capsys):
    write(tmp_path / "loose.png", picture(1))
    with pytest.raises(UserError, match="no data set that LiteNet knows"):
        open_source(tmp_path)
    assert edge_train(["check-data", str(tmp_path)]) == 1
    assert "no photos in a folder a class" in capsys.readouterr().err
    assert edge_train(["check-data", str(tmp_path / "nowhere")]) == 1
    assert "there is no such folder" in capsys.readouterr().err
