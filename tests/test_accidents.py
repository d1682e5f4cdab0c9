"""Training under accident: killed at any moment, on a full disk, beside another run. Nothing is half-written, the
message says what happened, and a run that goes on ends with the bits of one that was never stopped."""

import hashlib
import http.server
import json
import os
import random
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path

import accidents
import numpy as np
import pytest

from litenet.exporter.cli import main as edge_export
from litenet.pyruntime import InferenceEngine
from litenet.trainer import checkpoint, lock, session
from litenet.trainer.cli import main as edge_train
from litenet.trainer.data import dataset, fetch
from litenet.trainer.data.dataset import Dataset, Splits
from litenet.trainer.data.mapped import open_mapped, write_mapped
from litenet.trainer.errors import UserError

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
NET = {
    "name": "small",
    "input_shape": [1, 6, 6],
    "layers": [
        {"type": "conv2d", "out_channels": 3, "kernel_size": 3},
        {"type": "batchnorm", "activation": "relu"},
        {"type": "flatten"},
        {"type": "dropout", "rate": 0.2},
        {"type": "linear", "out_features": 3},
    ],
    "optimizer": {"type": "adam"},
    "learning_rate": 0.01,
    "batch_size": 5,
    "epochs": 2,
    "validation_split": 0.2,
    "seed": 3,
}
KILLS = 10  # of several hundred moments, in the short form


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    """A folder with net.json, pictures.npz, and `whole`: a run that nothing has disturbed."""
    folder = tmp_path_factory.mktemp("desk")
    (folder / "net.json").write_text(json.dumps(NET))
    rng = np.random.default_rng(1)
    x = rng.integers(0, 256, (40, 6, 6), np.uint8)
    np.savez(folder / "pictures.npz", x=x, y=rng.integers(0, 3, 40))
    assert accidents.run(partial(start, folder, "whole")).code == 0
    return folder


def start(desk, run):
    arguments = [desk / "net.json", "--data", desk / "pictures.npz", "--out", desk / run, "--save-every", 2]
    return edge_train([*map(str, arguments), "--quiet", "--no-report"])


def go_on(desk, run):
    """Resume, or begin again where nothing had been saved."""
    if not any((desk / run / name).exists() for name in ("last.npz", "best.npz")):
        return start(desk, run)
    return edge_train(["--resume", str(desk / run), "--quiet", "--no-report", "--save-every", "2"])


def weights_hash(run):
    arrays = checkpoint.load(run / "last.npz").arrays
    sha = hashlib.sha256()
    for name in sorted(arrays):
        sha.update(name.encode() + arrays[name].tobytes())
    return sha.hexdigest()


def check_whole(run):
    """Every file that has its name is whole."""
    for path in run.glob("*.npz"):
        checkpoint.load(path)
    for path in run.glob("*.json"):
        json.loads(path.read_text())
    for line in (run / "metrics.jsonl").read_text().splitlines() if (run / "metrics.jsonl").exists() else ():
        json.loads(line)


def moments(events, count, seed, every):
    """Which events to strike at: `count` of them, or every one."""
    return range(1, events + 1) if every else sorted(random.Random(seed).sample(range(1, events + 1), count))


# ---------------------------------------------------------------- killed


def test_a_run_that_is_killed_at_any_moment_ends_with_the_same_weights(desk, request):
    want, every = weights_hash(desk / "whole"), request.config.getoption("--slow")
    events = accidents.run(partial(start, desk, "counted")).events
    assert events > 200
    for at in moments(events, KILLS, 1, every):
        run = f"killed-{at}"
        assert accidents.run(partial(start, desk, run), "kill", at).code == -9
        if (desk / run).exists():
            check_whole(desk / run)
        done = accidents.run(partial(go_on, desk, run))
        assert done.code == 0, f"event {at}: {done.text}"
        assert weights_hash(desk / run) == want, f"event {at}"
        assert not list((desk / run).glob(".*.tmp")), f"event {at}"


@pytest.mark.parametrize("seed", range(3))
def test_a_run_that_is_killed_again_and_again_ends_with_the_same_weights(desk, seed):
    rng, run, kills = random.Random(seed), f"again-{seed}", 0
    while True:
        done = accidents.run(partial(go_on, desk, run), "kill", rng.randrange(60, 300))
        if done.code == 0:
            break
        assert done.code == -9, done.text
        kills += 1
    assert weights_hash(desk / run) == weights_hash(desk / "whole")
    assert kills >= 1


def test_an_export_that_is_killed_leaves_the_old_file_or_the_new_one(desk, request):
    out = desk / "net.bin"

    def export():
        arguments = [desk / "whole", "-o", out, "--data", desk / "pictures.npz", "--samples", 4]
        return edge_export([*map(str, arguments)])

    done = accidents.run(export)
    assert done.code == 0, done.text
    events, whole = done.events, out.read_bytes()
    for at in moments(events, min(events, KILLS), 2, request.config.getoption("--slow")):
        out.write_bytes(b"the old one")
        assert accidents.run(export, "kill", at).code == -9
        left = out.read_bytes()
        assert left == b"the old one" or (InferenceEngine(left).selftest() is None and len(left) == len(whole))
    assert accidents.run(export).code == 0
    assert not list(desk.glob(".net.bin.*"))


def test_a_cache_of_photos_that_is_killed_goes_on(desk, request):
    cv2 = pytest.importorskip("cv2")
    photos, rng = desk / "photos", np.random.default_rng(2)
    for label in "abc":
        (photos / label).mkdir(parents=True, exist_ok=True)
        for n in range(8):
            cv2.imwrite(str(photos / label / f"{n}.png"), rng.integers(0, 256, (9, 8, 3), np.uint8))
    words = ["--data", str(photos), "--quiet", "--no-report", "--workers", "1", "--epochs", "1"]

    def work(run):
        cache = ["--cache", str(desk / f"cache-{run}"), "--out", str(desk / f"photos-{run}")]
        return edge_train([str(desk / "net.json"), *words, *cache])

    done = accidents.run(partial(work, "whole"))
    assert done.code == 0, done.text
    want = weights_hash(desk / "photos-whole")
    for at in moments(done.events, 3, 3, request.config.getoption("--slow")):
        assert accidents.run(partial(work, at), "kill", at).code == -9
        if (desk / f"photos-{at}" / "best.npz").exists():
            again = accidents.run(lambda at=at: edge_train(["--resume", str(desk / f"photos-{at}"), "--quiet"]))
        else:
            again = accidents.run(partial(work, at))
        assert again.code == 0, again.text
        assert weights_hash(desk / f"photos-{at}") == want, f"event {at}"


def test_a_download_that_is_killed_is_fetched_again(tmp_path):
    data = np.random.default_rng(3).bytes(5000)

    class Server(http.server.BaseHTTPRequestHandler):
        def do_GET(self):  # noqa: N802
            self.send_response(200)
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *args):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    file = fetch.File("set.bin", len(data), hashlib.sha256(data).hexdigest())
    mirrors = [f"http://127.0.0.1:{server.server_address[1]}/"]

    def work():
        return len(fetch.fetch_file(file, mirrors, tmp_path))

    events = accidents.run(work).events
    for at in range(1, events + 1):
        (tmp_path / "set.bin").unlink(missing_ok=True)
        assert accidents.run(work, "kill", at).code == -9
        left = tmp_path / "set.bin"
        assert not left.exists() or left.read_bytes() == data
        assert accidents.run(work).code == 0 and left.read_bytes() == data
        assert [p.name for p in tmp_path.iterdir()] == ["set.bin"]
    server.shutdown()


# ---------------------------------------------------------------- no room


def said(done):
    """The one message of a command that could not go on."""
    assert done.code == 1, done.text
    assert "Traceback" not in done.text
    assert done.text.startswith("edge-")
    return done.text


def test_a_disk_that_runs_full_at_any_moment_is_named_and_the_run_goes_on_later(desk, request):
    want = weights_hash(desk / "whole")
    events = accidents.run(partial(start, desk, "roomy")).events
    for at in moments(events, KILLS, 4, request.config.getoption("--slow")):
        run = f"full-{at}"
        done = accidents.run(partial(start, desk, run), "full", at)
        if done.code == 0:  # only steps were left
            continue
        assert "could not be written: No space left on device.\n  Free some space" in said(done), f"event {at}"
        check_whole(desk / run)
        assert not list((desk / run).glob(".*.tmp"))
        done = accidents.run(partial(go_on, desk, run))
        assert done.code == 0, done.text
        assert weights_hash(desk / run) == want, f"event {at}"


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 64 KB."""
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place)]
    if subprocess.run(command, capture_output=True, check=False).returncode != 0:
        pytest.skip("mounting a small file system needs more rights")
    yield place
    subprocess.run(["umount", str(place)], check=False)


def test_a_real_disk_that_is_full(desk, small_disk):
    (small_disk / "ballast").write_bytes(bytes(48 << 10))
    text = said(accidents.run(partial(start, desk, small_disk / "run")))
    assert "could not be written: No space left on device" in text
    check_whole(small_disk / "run")
    (small_disk / "ballast").unlink()
    done = accidents.run(partial(go_on, desk, small_disk / "run"))
    assert done.code == 0, done.text
    assert weights_hash(small_disk / "run") == weights_hash(desk / "whole")


def test_a_folder_that_can_only_be_read(desk, small_disk):
    assert accidents.run(partial(start, desk, small_disk / "run")).code == 0
    (small_disk / "run" / "last.npz").rename(small_disk / "run" / "best.npz")
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    for run in (small_disk / "other", small_disk / "run" / "below"):
        text = said(accidents.run(partial(start, desk, run)))
        assert f"{run} could not be made: Read-only file system.\n  Choose another folder with --out." in text
    resumed = accidents.run(lambda: edge_train(["--resume", str(small_disk / "run" / "best.npz")]))
    assert f"{small_disk / 'run' / '.lock'} could not be written: Read-only file system." in said(resumed)
    out = str(small_disk / "net.bin")
    exported = accidents.run(lambda: edge_export([str(desk / "whole"), "-o", out, "--samples", "4"]))
    assert "net.bin could not be written: Read-only file system." in said(exported)


# ---------------------------------------------------------------- two at once


def test_two_runs_in_one_folder_refuse_each_other(desk):
    folder = desk / "shared"
    folder.mkdir()
    script = (
        "import sys; from pathlib import Path; from litenet.trainer import lock; "
        "lock.acquire(Path(sys.argv[1])); print('locked', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", script, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "locked\n"
        text = said(accidents.run(partial(start, desk, "shared")))
        assert text == (
            f"edge-train: {folder} is in use by another edge-train (process {other.pid}).\n"
            "  Wait until it has ended, or choose another folder with --out.\n"
        )
        other.kill()
        other.wait()
    assert accidents.run(partial(start, desk, "shared")).code == 0  # the lock ends with its process


def test_a_process_may_open_its_own_run_again(tmp_path):
    lock.acquire(tmp_path)
    lock.acquire(tmp_path)
    (tmp_path / lock.NAME).unlink()
    lock.acquire(tmp_path)
    assert (tmp_path / lock.NAME).read_text() == f"{os.getpid()}\n"


# ---------------------------------------------------------------- data that go away or are wrong


def test_data_that_vanish_while_training_do_no_harm_and_are_named_afterwards(desk, tmp_path):
    data = tmp_path / "pictures.npz"
    data.write_bytes((desk / "pictures.npz").read_bytes())

    def vanish():
        if (tmp_path / "run" / "last.npz").exists():
            data.unlink(missing_ok=True)

    arguments = [str(desk / "net.json"), "--data", str(data), "--out", str(tmp_path / "run"), "--quiet", "--no-report"]

    def train():
        plain = session.Session.save
        session.Session.save = lambda self, which: (plain(self, which), vanish())[0]
        return edge_train([*arguments, "--save-every", "2"])

    done = accidents.run(train)
    assert done.code == 0, done.text
    assert not data.exists()
    assert weights_hash(tmp_path / "run") == weights_hash(desk / "whole")
    again = accidents.run(lambda: edge_train(["--resume", str(tmp_path / "run"), "--epochs", "3"]))
    assert str(data) in said(again)


def test_a_data_file_that_is_cut_short_while_it_is_mapped_ends_with_a_sentence(desk, tmp_path):
    rng, labels = np.random.default_rng(2), ("a", "b", "c")
    pixels = [rng.integers(0, 256, (n, 6, 6, 1), np.uint8) for n in (400, 9)]
    parts = [Dataset(x, np.arange(len(x)) % 3, labels, "set", "-") for x in pixels]
    net = NET | {"validation_split": 0}
    (tmp_path / "net.json").write_text(json.dumps(net))

    def train(run, cut, *words):
        """edge-train on a set that is mapped, as the known sets are."""
        plain = session.Session.save

        def save(self, which):
            plain(self, which)
            if cut and which == "last":
                os.truncate(tmp_path / "set" / "train_x.npy", 4096)

        session.open_source = lambda *a, **more: open_mapped(tmp_path / "set", lambda s: True, labels, "set")
        session.Session.save = save
        words = words or (str(tmp_path / "net.json"), "--data", "set", "--out", str(tmp_path / run))
        return edge_train([*words, "--quiet", "--no-report", "--save-every", "3"])

    write_mapped(tmp_path / "set", Splits(*parts))
    assert accidents.run(partial(train, "whole", False)).code == 0
    done = accidents.run(partial(train, "cut", True))
    assert done.code == 1
    assert done.text == (
        "edge-train: a file of the data set or of the cache was cut short while it was in use, or its disk went away.\n"
        "  What was saved before is kept: bring the data back and go on with --resume RUN.\n"
    )
    check_whole(tmp_path / "cut")
    write_mapped(tmp_path / "set", Splits(*parts))
    resumed = accidents.run(partial(train, "cut", False, "--resume", str(tmp_path / "cut")))
    assert resumed.code == 0, resumed.text
    assert weights_hash(tmp_path / "cut") == weights_hash(tmp_path / "whole")


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="the system cannot reserve room for a file")
def test_a_disk_without_room_for_mapped_rows_is_named_before_they_are_written(small_disk, monkeypatch):
    """A sparse file that finds no room when it is filled would end the process."""
    np.save(small_disk.parent / "x.npy", np.zeros((100, 40, 40, 1), np.uint8))
    x = np.load(small_disk.parent / "x.npy", mmap_mode="r")
    monkeypatch.setattr(dataset, "MAPPED", 0)
    monkeypatch.setattr(dataset.tempfile, "tempdir", str(small_disk))
    with pytest.raises(UserError) as error:
        Dataset(x, np.zeros(100, np.int64), None, "set", "-").take(np.arange(99))
    assert str(error.value) == (
        f"{small_disk}: 158,400 bytes could not be written (No space left on device).\n"
        "  Free some space, or name another folder in TMPDIR."
    )


def test_a_sample_that_is_no_number_is_named(desk, tmp_path):
    x = np.zeros((20, 4), np.float32)
    x[7, 2] = np.nan
    np.savez(tmp_path / "rows.npz", x=x, y=np.arange(20) % 3)
    net = NET | {"input_shape": [4], "layers": [{"type": "linear", "out_features": 3}]}
    (tmp_path / "net.json").write_text(json.dumps(net))
    arguments = [tmp_path / "net.json", "--data", tmp_path / "rows.npz", "--out", tmp_path / "run"]
    text = said(accidents.run(lambda: edge_train([*map(str, arguments), "--quiet", "--no-report"])))
    assert "rows.npz" in text and "sample 7" in text


def test_what_cannot_be_written_is_told_by_path(tmp_path):
    with pytest.raises(UserError, match="could not be written: "):
        checkpoint.save(Path(tmp_path / "absent" / "last.npz"), {}, {})
