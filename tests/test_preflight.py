"""What preflight remarks of photos, and the cache of what the net sees of them."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import cv2
import numpy as np
import pytest
from photos import folder, picture, write

from litenet.trainer.cli import main as edge_train
from litenet.trainer.data import frames as frames_module
from litenet.trainer.data import workers
from litenet.trainer.data.duplicates import Groups, _bits, near
from litenet.trainer.data.examine import examine
from litenet.trainer.data.frames import frames
from litenet.trainer.data.photo_list import scan
from litenet.trainer.data.photos import Frame, PhotoOptions, look, open_photos
from litenet.trainer.data.preflight import preflight
from litenet.trainer.errors import UserError

SHARED = Path(__file__).resolve().parent.parent.parent / "shared" / "data"
TOMATO, IMAGES = SHARED / "tomato_leaf", SHARED / "images" / "test_images.tar"


def said(found):
    return {finding.kind: (finding.line(), finding.files) for finding in found.findings}


# ---- single files


def test_a_picture_is_known_by_its_header_and_its_decoder(tmp_path):
    record = examine(write(tmp_path / "a.jpg", picture(1, (40, 60))))
    assert (record.error, record.kind, record.width, record.height, record.channels) == ("", "JPEG", 60, 40, 3)
    grey = examine(write(tmp_path / "a.png", picture(1, channels=1)))
    assert (grey.kind, grey.channels, grey.odd) == ("PNG", 1, ())


def test_oddities_are_seen(tmp_path):
    alpha = np.dstack([picture(1), np.full((24, 32), 255, np.uint8)])
    assert examine(write(tmp_path / "opaque.png", alpha)).odd == ()
    alpha[3, 3, 3] = 7
    assert examine(write(tmp_path / "alpha.png", alpha)).odd == ("alpha",)
    assert examine(write(tmp_path / "deep.png", picture(1).astype(np.uint16) * 257)).odd == ("deep",)
    jpeg = write(tmp_path / "turned.jpg", picture(1, (24, 32))).read_bytes()
    exif = b"Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0"
    (tmp_path / "turned.jpg").write_bytes(jpeg[:2] + b"\xff\xe1" + (len(exif) + 2).to_bytes(2, "big") + exif + jpeg[2:])
    turned = examine(tmp_path / "turned.jpg")
    assert (turned.odd, turned.width, turned.height) == (("rotated",), 24, 32)


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"", "is empty"),
        (b"<html>404</html>", "is an HTML page"),
        (b"version https://git-lfs.github.com/spec/v1\n", "is a git-lfs pointer"),
        (b"II*\0" + bytes(40), "is a TIFF picture"),
    ],
)
def test_what_is_no_picture_is_told_from_its_bytes(tmp_path, data, sentence):
    (tmp_path / "x.jpg").write_bytes(data)
    assert examine(tmp_path / "x.jpg").error.startswith(sentence)
    assert examine(tmp_path / "nowhere.jpg").error.startswith("cannot be read")


def test_a_bomb_is_refused_before_it_is_decoded(tmp_path):
    small = cv2.imencode(".png", np.zeros((4, 4), np.uint8))[1].tobytes()
    size = (60_000).to_bytes(4, "big") * 2
    (tmp_path / "bomb.png").write_bytes(small[:16] + size + small[24:])
    started = time.perf_counter()
    assert "at most 64 million pixels" in examine(tmp_path / "bomb.png").error
    assert time.perf_counter() - started < 1


def test_a_large_jpeg_is_looked_at_in_small_and_its_likeness_is_that_of_the_whole(tmp_path):
    large = cv2.resize(picture(5, (64, 64)), (1400, 1000), interpolation=cv2.INTER_CUBIC)
    record = examine(write(tmp_path / "large.jpg", large))
    small = examine(write(tmp_path / "small.png", cv2.resize(large, (280, 200), interpolation=cv2.INTER_AREA)))
    assert (record.width, record.height) == (1400, 1000)
    assert near([record, small]) == [(0, 1)]


# ---- the report


def test_files_that_cannot_be_read_are_left_out_and_named_by_their_kind(tmp_path):
    folder(tmp_path, each=5, suffix=".jpg")
    cut = tmp_path / "cat" / "000.jpg"
    cut.write_bytes(cut.read_bytes()[:-40])
    (tmp_path / "cat" / "page.jpg").write_bytes(b"<html>")
    (tmp_path / "dog" / "scan.tif").write_bytes(b"II*\0" + bytes(100))
    found = preflight(scan(tmp_path))
    lines = [finding.line() for finding in found.findings if finding.kind == "unreadable"]
    assert lines == [
        "1 file cut short: left out (cat/000.jpg)",
        "1 file of a kind that is not read: convert to PNG or JPEG: left out (dog/scan.tif)",
        "1 file with a picture's name and no picture inside: left out (cat/page.jpg)",
    ]
    assert found.left_out == 3
    assert len(found.photos) == len(found.records) == len(found.groups) == 9


def test_copies_across_a_given_split_leave_training(tmp_path):
    folder(tmp_path, each=4, parts=("train", "test"))
    for name in ("train/cat/copy.png", "train/cat/copy2.png"):
        (tmp_path / name).write_bytes((tmp_path / "test/cat/001.png").read_bytes())
    (tmp_path / "train/dog/near.jpg").parent.mkdir(exist_ok=True)
    write(tmp_path / "train/dog/near.jpg", cv2.imread(str(tmp_path / "test/dog/002.png")), quality=90)
    found = said(preflight(scan(tmp_path)))
    assert set(found["duplicates"][1]) == {"train/cat/copy.png", "train/cat/copy2.png"}
    assert "left out of training" in found["duplicates"][0]
    assert found["near"][0].startswith("1 look-alike pair across the given split: kept, since the split is yours")
    assert set(found["near"][1]) == {"test/dog/002.png", "train/dog/near.jpg"}


def test_one_picture_with_two_labels_is_used_for_neither(tmp_path):
    folder(tmp_path, each=4)
    (tmp_path / "dog" / "wrong.png").write_bytes((tmp_path / "cat" / "001.png").read_bytes())
    found = preflight(scan(tmp_path))
    assert said(found)["labels"][1] == ("cat/001.png", "dog/wrong.png")
    assert len(found.photos) == 7


def test_copies_and_look_alikes_stay_on_one_side_of_our_split(tmp_path):
    folder(tmp_path / "p", each=30)
    for n in range(0, 30, 3):
        pixels = cv2.imread(str(tmp_path / "p" / "cat" / f"{n:03}.png"))
        write(tmp_path / "p" / "cat" / f"saved again {n}.jpg", pixels, quality=92)
    found, parts = look(tmp_path / "p", PhotoOptions(test_split=0.3, cache=tmp_path / "c"))
    side = {photo.name: str(part) for photo, part in zip(found.photos, parts, strict=True)}
    for n in range(0, 30, 3):
        assert side[f"cat/saved again {n}.jpg"] == side[f"cat/{n:03}.png"]
    assert said(found)["near"][0].startswith("10 look-alike pairs: kept, and on one side of the split")


def test_a_class_that_looks_all_alike_can_still_be_split():
    groups = Groups(range(40))
    for n in range(39):
        groups.join(n, n + 1, 4)
    numbers = groups.numbers()
    assert np.bincount(numbers).max() <= 4
    assert len(numbers) == 40


def test_bits_are_counted_with_numpy_1_as_well(monkeypatch):
    words = np.random.default_rng(1).integers(0, 2**63, (3, 5), np.uint64)
    want = [[bin(int(word)).count("1") for word in row] for row in words]
    assert _bits(words).tolist() == want
    if hasattr(np, "bitwise_count"):
        monkeypatch.delattr(np, "bitwise_count")
        assert _bits(words).tolist() == want


def test_uneven_and_small_classes_are_named(tmp_path):
    folder(tmp_path, classes=("many",), each=30)
    folder(tmp_path, classes=("few",), each=5, seed=100)
    found = said(preflight(scan(tmp_path)))
    assert found["balance"][0] == 'classes are uneven ("few" 5; the largest has 30): kept as they are'
    assert 'fewer than 20 pictures to learn from ("few" 5)' in found["few"][0]


def test_one_class_is_not_enough(tmp_path):
    folder(tmp_path, classes=("cat",), each=3)
    (tmp_path / "dog").mkdir()
    (tmp_path / "dog" / "x.png").write_bytes(b"")
    with pytest.raises(UserError, match=r"1 class with readable pictures \(1 file empty: left out \(dog/x.png\)\)"):
        preflight(scan(tmp_path))


def test_the_command_prints_the_report_and_writes_nothing_but_the_cache(tmp_path, capsys):
    folder(tmp_path / "p", each=12)
    before = sorted(path.name for path in tmp_path.rglob("*"))
    assert edge_train(["check-data", str(tmp_path / "p"), "--cache", str(tmp_path / "c")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert re.match(r".*p: 24 pictures of 2 classes; looked at in \d+\.\d s", lines[0])
    assert lines[1:4] == ["size: 32 x 24 pixels", f"  cat      12  {'#' * 30}", f"  dog      12  {'#' * 30}"]
    assert lines[-1] == "split, made with seed 0: train 22, test 2"
    after = sorted(path.name for path in tmp_path.rglob("*"))
    assert [name for name in after if name not in before and not name.endswith((".json", ".near"))] == ["c"]
    assert edge_train(["check-data", str(tmp_path / "p"), "--cache", str(tmp_path / "c"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["split"] == {"train": 22, "test": 2}
    assert edge_train(["check-data", str(tmp_path / "p"), "--test-split", "1"]) == 1


# ---- workers


class Job:
    """For the tests of workers.py: some tasks end the process, some hang."""

    def __init__(self, settings):
        self.settings = settings

    def __call__(self, task):
        if task == "crash":
            os.kill(os.getpid(), signal.SIGKILL)
        if task == "hang":
            time.sleep(60)
        print("noise")
        return [self.settings, task]


def test_a_worker_that_crashes_or_hangs_costs_one_task():
    tasks = [*range(30), "crash", *range(31, 50), "hang", *range(51, 60)]
    answers = dict(workers.run("test_preflight", 7, tasks, workers=2, patience=10))
    assert sorted(answers) == list(range(60))
    for place, task in enumerate(tasks):
        assert answers[place] == (workers.LOST if isinstance(task, str) else [7, task])


def test_workers_end_when_nobody_waits_for_their_answers():
    answers = workers.run("test_preflight", 7, list(range(100)), workers=2)
    next(answers)
    before = [thread for thread in threading.enumerate() if isinstance(thread, workers._Worker)]
    assert len(before) == 2
    answers.close()
    for thread in before:
        thread.join(20)
        assert not thread.is_alive()
        assert thread.process is None or thread.process.poll() is not None


# ---- the cache


def photos_of(root):
    return [(photo.path, examine(photo.path).content) for photo in scan(root).photos]


WORDS = {"resize": "area", "fit": "stretch", "color": "rgb", "invert": "never", "pad": 0}


def test_the_cache_is_found_again_by_content_and_settings(tmp_path, monkeypatch):
    folder(tmp_path / "p", each=5)
    photos, home = photos_of(tmp_path / "p"), tmp_path / "c"
    first = frames(home, "me", photos, (8, 8, 3), WORDS)
    calls = []
    real = workers.run
    monkeypatch.setattr(workers, "run", lambda *more: calls.append(more[2]) or real(*more))
    assert np.array_equal(frames(home, "me", photos, (8, 8, 3), WORDS), first)
    assert calls == []
    frames(home, "me", photos, (8, 8, 3), {**WORDS, "fit": "crop"})
    frames(home, "me", photos, (9, 8, 3), WORDS)
    assert [len(tasks) for tasks in calls] == [10, 10]
    assert not [path for path in home.iterdir() if path.suffix not in (".npy", ".json")]


def test_a_photo_more_costs_one_decoding_and_the_old_cache_goes(tmp_path, monkeypatch):
    folder(tmp_path / "p", each=5)
    photos, home = photos_of(tmp_path / "p"), tmp_path / "c"
    first = np.array(frames(home, "me", photos, (8, 8, 3), WORDS))
    write(tmp_path / "p" / "cat" / "0000.png", picture(500))
    calls, real = [], workers.run
    monkeypatch.setattr(workers, "run", lambda *more: calls.append(more[2]) or real(*more))
    again = frames(home, "me", photos_of(tmp_path / "p"), (8, 8, 3), WORDS)
    assert [len(tasks) for tasks in calls] == [1]
    assert len(again) == 11
    assert np.array_equal(np.delete(again, calls[0][0][0], axis=0), first)
    assert len(list(home.glob("*.npy"))) == 1


def test_a_photo_that_changes_in_between_is_named(tmp_path):
    folder(tmp_path / "p", each=3)
    photos = photos_of(tmp_path / "p")
    write(photos[2][0], picture(600))
    with pytest.raises(UserError, match=r"002\.png has changed since it was looked at"):
        frames(tmp_path / "c", "me", photos, (8, 8, 3), WORDS)
    assert not list((tmp_path / "c").glob("*.npy"))


def test_a_changed_file_is_looked_at_again_and_an_unchanged_one_is_not(tmp_path):
    folder(tmp_path / "p", each=6)
    index = tmp_path / "c" / "index.json"
    assert preflight(scan(tmp_path / "p"), index).looked_at == 12
    assert preflight(scan(tmp_path / "p"), index).looked_at == 0
    write(tmp_path / "p" / "cat" / "003.png", picture(700, (30, 30)))
    assert preflight(scan(tmp_path / "p"), index).looked_at == 1
    assert preflight(scan(tmp_path / "p"), index, fresh=True).looked_at == 12
    index.write_text("damaged")
    assert preflight(scan(tmp_path / "p"), index).looked_at == 12


def test_look_alikes_are_remembered_for_the_same_contents(tmp_path, monkeypatch):
    folder(tmp_path / "p", each=6)
    write(tmp_path / "p" / "cat" / "again.jpg", cv2.imread(str(tmp_path / "p" / "cat" / "001.png")), quality=95)
    index = tmp_path / "c" / "index.json"
    first = preflight(scan(tmp_path / "p"), index)
    with monkeypatch.context() as patch:
        patch.setattr("litenet.trainer.data.preflight.near", None)
        again = preflight(scan(tmp_path / "p"), index)
    assert np.array_equal(again.groups, first.groups)
    assert again.findings == first.findings
    assert said(first)["near"]
    write(tmp_path / "p" / "cat" / "third.jpg", cv2.imread(str(tmp_path / "p" / "cat" / "001.png")), quality=90)
    assert said(preflight(scan(tmp_path / "p"), index))["near"][0].startswith("3 look-alike pairs")


def test_a_cache_that_cannot_be_made_is_named(tmp_path):
    folder(tmp_path / "p", each=2)
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="the cache cannot be made"):
        open_photos(tmp_path / "p", PhotoOptions(cache=tmp_path / "file" / "c"), Frame((8, 8, 3)))


def test_what_does_not_fit_on_the_disk_is_refused_before(tmp_path, monkeypatch):
    folder(tmp_path / "p", each=2)
    monkeypatch.setattr(frames_module.shutil, "disk_usage", lambda _: type("Disk", (), {"free": 100}))
    with pytest.raises(UserError, match="the decoded photos take 768 B, but only 100 B are free"):
        frames(tmp_path / "c", "me", photos_of(tmp_path / "p"), (8, 8, 3), WORDS)


KILLED = """
import sys, time
from pathlib import Path
from litenet.trainer.data import frames
from litenet.trainer.data.photos import Frame, PhotoOptions, open_photos
frames.SAVE_EVERY = 0.05
open_photos(Path(sys.argv[1]), PhotoOptions(cache=sys.argv[2], workers=2), Frame((64, 64, 3)))
"""


def test_a_run_killed_while_it_decodes_goes_on_where_it_stopped(tmp_path, monkeypatch):
    folder(tmp_path / "p", each=200, suffix=".jpg", size=(300, 300))
    command = [sys.executable, "-c", KILLED, str(tmp_path / "p"), str(tmp_path / "c")]
    process = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        journals = list((tmp_path / "c").glob("*.rows"))
        if journals and journals[0].read_text().count("\n") >= 20:
            break
        time.sleep(0.005)
    process.kill()
    process.wait()
    assert not list((tmp_path / "c").glob("*.npy"))
    calls, real = [], workers.run
    monkeypatch.setattr(workers, "run", lambda *more: calls.append(len(more[2])) or real(*more))
    options = PhotoOptions(cache=tmp_path / "c")
    splits = open_photos(tmp_path / "p", options, Frame((64, 64, 3)))
    assert 0 < calls[-1] <= 380
    whole = open_photos(tmp_path / "p", PhotoOptions(cache=tmp_path / "other"), Frame((64, 64, 3)))
    assert splits.train.hash() == whole.train.hash()
    assert splits.test.hash() == whole.test.hash()
    assert not list((tmp_path / "c").glob("*.rows")) + list((tmp_path / "c").glob("*.part"))


def test_without_the_extension_one_sentence_says_what_to_do(tmp_path, monkeypatch):
    folder(tmp_path / "p", each=3)
    monkeypatch.setitem(sys.modules, "litenet.pyruntime.preprocess", None)
    with pytest.raises(UserError, match="which is not built here") as error:
        open_photos(tmp_path / "p", PhotoOptions(cache=tmp_path / "c"), Frame((8, 8, 3)))
    assert "build_ffi.py" in str(error.value)


# ---- real data


@pytest.mark.skipif(not IMAGES.exists(), reason=f"{IMAGES} is not there")
def test_all_test_images_pass_the_preflight_within_a_gigabyte(tmp_path):
    import tarfile

    with tarfile.open(IMAGES) as archive:
        archive.extractall(tmp_path / "images", filter="data")
    code = (
        # VmHWM, as ru_maxrss begins with what the process that started this one had taken
        "import resource, sys; from litenet.trainer.cli import main; status = main(sys.argv[1:]); "
        "own = next(int(line.split()[1]) for line in open('/proc/self/status') if line.startswith('VmHWM')); "
        "peak = max(own, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss); "
        "print(peak, file=sys.stderr); sys.exit(status)"
    )
    command = [
        sys.executable,
        "-c",
        code,
        "check-data",
        str(tmp_path / "images"),
        "--cache",
        str(tmp_path / "c"),
        "--json",
    ]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=env, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["pictures"] + found["left_out"] == 332
    assert {finding["kind"] for finding in found["findings"]} >= {
        "unreadable", "duplicates", "near", "cmyk", "deep", "alpha", "rotated", "damaged"
    }  # fmt: skip
    assert int(done.stderr.split()[-1]) < 500_000  # kB of the largest process; there are two, and the first


@pytest.mark.skipif(not TOMATO.exists(), reason=f"{TOMATO} is not there")
def test_the_tomato_leaves_pass_without_a_remark_in_about_a_second_a_thousand(tmp_path):
    import tarfile

    for part in ("train", "test"):
        with tarfile.open(TOMATO / f"{part}.tar") as archive:
            archive.extractall(tmp_path / "leaves" / part, filter="data")
    found = preflight(scan(tmp_path / "leaves"))
    assert found.findings == ()
    assert found.counts()["train"].total() == 1200
    assert found.seconds <= 15  # of two idle cores it takes two
