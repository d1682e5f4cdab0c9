"""Known data sets: found in caches and folders, fetched from a local server, refused when wrong."""

import functools
import gzip
import hashlib
import http.server
import re
import struct
import sys
import threading
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest

from litenet.trainer.data import KNOWN, default_cache, open_source
from litenet.trainer.data.dataset import _mapped
from litenet.trainer.data.fetch import File
from litenet.trainer.data.known import read_known
from litenet.trainer.errors import UserError

REAL = Path(__file__).resolve().parents[2] / "shared" / "data"
RNG = np.random.default_rng(7)


def refused(*parts):
    """A UserError whose text holds all these parts."""
    return pytest.raises(UserError, match="(?s)" + "".join(f"(?=.*{re.escape(part)})" for part in parts))


def idx_gz(array):
    head = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    return gzip.compress(head + array.tobytes(), mtime=0)


FILES = {
    f"{stem}-{kind}-idx{dims}-ubyte.gz": idx_gz(array)
    for stem, n in (("train", 40), ("t10k", 8))
    for kind, dims, array in (
        ("images", 3, RNG.integers(0, 256, (n, 28, 28), dtype=np.uint8)),
        ("labels", 1, (np.arange(n) % 10).astype(np.uint8)),
    )
}


class Server(http.server.BaseHTTPRequestHandler):
    """/good/NAME is right; /short/ is cut off, /long/ goes on, /wrong/ differs, /closed/ hangs up."""

    requests: list = []

    def do_GET(self):  # noqa: N802, the name is http.server's
        self.requests.append(self.path)
        _, how, name = self.path.split("/")
        data = FILES.get(name, b"")
        if how == "missing":
            self.send_error(404)
            return
        if how == "closed":
            return
        self.send_response(200)
        if how == "short":
            self.send_header("Content-Length", str(len(data)))
            data = data[: len(data) // 2]
        if how == "long":
            data += b"more"
        if how == "wrong":
            data = data[:-1] + bytes([data[-1] ^ 1])
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args):
        pass


@pytest.fixture(scope="module")
def address():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
        thread = threading.Thread(target=functools.partial(server.serve_forever, 0.05), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def direct(monkeypatch):
    """No proxy between us and the server, and a fresh list of requests."""
    monkeypatch.setenv("no_proxy", "*")
    Server.requests.clear()


def table(address, *kinds):
    files = tuple(File(name, len(data), hashlib.sha256(data).hexdigest()) for name, data in FILES.items())
    known = replace(KNOWN["mnist"], files=files, mirrors=tuple(f"{address}{k}/" for k in kinds), hashes=None)
    return {"mnist": known}


def fetch(address, cache, *kinds, **options):
    return read_known("mnist", cache, table=table(address, *kinds), timeout=5, **options)


def left(folder):
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


# ---- fetching


def test_a_set_is_fetched_once_and_then_read_from_the_cache(tmp_path, address):
    seen = []
    splits = fetch(address, tmp_path, "good", progress=lambda *step: seen.append(step))
    assert (splits.train.count, splits.test.count) == (40, 8) and splits.train.labels == tuple("0123456789")
    assert left(tmp_path / "mnist") == sorted(FILES)
    for name, data in FILES.items():
        steps = [(done, whole) for file, done, whole in seen if file == name]
        assert steps[-1] == (len(data), len(data)) and steps == sorted(steps)
    Server.requests.clear()
    assert fetch(address, tmp_path, "good").train.hash() == splits.train.hash()
    assert Server.requests == []


def test_only_missing_files_are_fetched(tmp_path, address):
    home = tmp_path / "mnist"
    home.mkdir()
    first, *others = FILES
    (home / first).write_bytes(FILES[first])
    fetch(address, tmp_path, "good")
    assert Server.requests == [f"/good/{name}" for name in others]


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("missing", "HTTP status 404"),
        ("short", "bytes came, expected"),
        ("long", "more than"),
        ("wrong", "its SHA-256 is"),
        ("closed", "broke off"),
    ],
)
def test_a_failing_mirror_leaves_nothing_and_the_next_one_is_used(tmp_path, address, kind, words):
    with refused(f"{address}{kind}/train-images-idx3-ubyte.gz: ", words):
        fetch(address, tmp_path, kind)
    assert left(tmp_path / "mnist") == []
    assert fetch(address, tmp_path, kind, "good").train.count == 40
    assert left(tmp_path / "mnist") == sorted(FILES)


def test_without_a_network_one_sentence_tells_what_to_do(tmp_path):
    nobody = "http://127.0.0.1:9/"  # the discard port: nothing listens
    with pytest.raises(UserError) as caught:
        fetch(nobody, tmp_path, "a", "b", folders=[tmp_path / "usb"])
    text = str(caught.value)
    assert text.startswith("mnist: not on this machine")
    assert str(tmp_path / "mnist") in text and str(tmp_path / "usb") in text
    assert f"{nobody}a/train-images-idx3-ubyte.gz: no connection" in text and f"{nobody}b/" in text
    assert all(f"{name} ({len(data)} bytes)" in text for name, data in FILES.items())
    assert text.endswith(f"from {nobody}a/ into {tmp_path / 'mnist'}") and "\n" not in text


def test_fetching_can_be_forbidden(tmp_path, address):
    with refused("fetching is off", "train-images-idx3-ubyte.gz"):
        fetch(address, tmp_path, "good", fetch=False)
    assert Server.requests == [] and not (tmp_path / "mnist").exists()


def test_an_interrupted_fetch_leaves_nothing_behind(tmp_path, address):
    def stop(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch(address, tmp_path, "good", progress=stop)
    assert left(tmp_path / "mnist") == []


def test_a_cache_that_cannot_be_made_is_named(tmp_path, address):
    (tmp_path / "file").touch()
    with refused(str(tmp_path / "file"), "cannot be made", "choose another"):
        fetch(address, tmp_path / "file", "good")


def test_a_damaged_file_in_the_cache_is_named(tmp_path, address):
    fetch(address, tmp_path, "good")
    path = tmp_path / "mnist" / "train-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes()[:-20])
    with refused(str(path), "fetch it again"):
        fetch(address, tmp_path, "good")


# ---- looking


def test_folders_of_the_caller_are_looked_into(tmp_path, address):
    fetch(address, tmp_path / "elsewhere", "good")
    for folder in (tmp_path / "elsewhere", tmp_path / "elsewhere" / "mnist"):
        splits = fetch(address, tmp_path / "cache", "good", fetch=False, folders=[folder])
        assert splits.train.count == 40
    assert not (tmp_path / "cache").exists()


def test_files_of_another_set_under_the_same_names_are_refused(tmp_path, address):
    fetch(address, tmp_path, "good")
    with refused(str(tmp_path / "mnist"), "this is not mnist", "a1f0a2443e69fa83", "move it away"):
        open_source("mnist", cache=tmp_path, fetch=False)


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
def test_the_real_sets_are_recognised(tmp_path, name):
    if not (REAL / name).is_dir():
        pytest.skip(f"the real data set {name} is not on this machine")
    splits = open_source(name.upper(), cache=tmp_path, fetch=False, folders=[REAL])
    assert splits.train.labels == KNOWN[name].labels and splits.train.name == name
    assert left(tmp_path) == []
    for file in KNOWN[name].files:
        data = (REAL / name / file.name).read_bytes()
        assert (len(data), hashlib.sha256(data).hexdigest()) == (file.size, file.sha256)


def test_fashion_mnist_begins_as_published(tmp_path):
    if not (REAL / "fashion-mnist").is_dir():
        pytest.skip("the real data set fashion-mnist is not on this machine")
    splits = open_source("fashion-mnist", cache=tmp_path, fetch=False, folders=[REAL])
    assert splits.train.y[:5].tolist() == [9, 0, 0, 3, 0] and splits.test.y[:5].tolist() == [9, 2, 1, 1, 6]
    assert splits.train.labels[9] == "Ankle boot"


def test_cifar10_is_unpacked_once_and_then_mapped(tmp_path):
    home, draw = tmp_path / "cifar10", np.random.default_rng(1)
    home.mkdir()
    for stem in (*(f"data_batch_{k}" for k in range(1, 6)), "test_batch"):
        (home / f"{stem}.bin").write_bytes(draw.integers(0, 10, (4, 3073)).astype(np.uint8).tobytes())
    unknown = {"cifar10": replace(KNOWN["cifar10"], hashes=None, mapped=False)}
    plain = read_known("cifar10", tmp_path, fetch=False, table=unknown)
    hashes = (plain.train.hash(), plain.test.hash())
    opened = []
    read = KNOWN["cifar10"].read
    known = replace(KNOWN["cifar10"], hashes=hashes, read=lambda path: opened.append(path) or read(path))
    for _ in range(2):
        splits = read_known("cifar10", tmp_path, fetch=False, table={"cifar10": known})
        assert (splits.train.hash(), splits.test.hash(), splits.train.name) == (*hashes, "cifar10")
        assert _mapped(splits.train.x)
    assert opened == [home]
    assert left(home / "arrays") == ["test_x.npy", "test_y.npy", "train_x.npy", "train_y.npy"]
    damaged = bytearray((home / "arrays" / "train_x.npy").read_bytes())
    damaged[-1] ^= 1
    (home / "arrays" / "train_x.npy").write_bytes(damaged)
    assert read_known("cifar10", tmp_path, fetch=False, table={"cifar10": known}).train.hash() == hashes[0]
    assert len(opened) == 2


def test_digits_need_neither_cache_nor_network(tmp_path):
    assert open_source("digits", cache=tmp_path / "none", fetch=False).train.count == 1442
    assert not (tmp_path / "none").exists()


# ---- the table


@pytest.mark.parametrize("name", KNOWN)
def test_every_known_set_states_licence_labels_and_checks(name):
    known = KNOWN[name]
    assert known.name == name and known.licence and known.about and len(known.labels) == 10
    assert len(known.hashes) == 2 and all(re.fullmatch("[0-9a-f]{16}", h) for h in known.hashes)
    assert bool(known.files) == bool(known.mirrors) == (name != "digits")
    for file in known.files:
        assert file.size > 0 and re.fullmatch("[0-9a-f]{64}", file.sha256)
    for mirror in known.mirrors:
        assert urlsplit(mirror).scheme in ("http", "https") and mirror.endswith("/")


@pytest.mark.parametrize(
    ("platform", "end"), [("linux", ".cache"), ("darwin", "Caches"), ("win32", "litenet")]
)
def test_the_default_cache_is_where_the_system_keeps_such_things(monkeypatch, platform, end):
    monkeypatch.setattr(sys, "platform", platform)
    cache = default_cache()
    assert cache.is_relative_to(Path.home()) and cache.parent.name == end
