"""Reading data from disk: IDX, .npz, CIFAR-10 in all its forms, and every fault a file can have."""

import gzip
import hashlib
import io
import pickle
import re
import struct
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest

from litenet.trainer.data import cifar, idx, mean_std, open_source
from litenet.trainer.data.npz import read_npz
from litenet.trainer.data.pickles import read_batch
from litenet.trainer.errors import UserError

REAL = Path(__file__).resolve().parents[2] / "shared" / "data"
RNG = np.random.default_rng(6)


def refused(*parts):
    """A UserError whose text holds all these parts."""
    return pytest.raises(UserError, match="(?s)" + "".join(f"(?=.*{re.escape(part)})" for part in parts))


def real(name):
    if not (REAL / name).is_dir():
        pytest.skip(f"the real data set {name} is not on this machine")
    return REAL / name


def idx_bytes(array, kind=8):
    return bytes([0, 0, kind, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


X = RNG.integers(0, 256, (5, 3, 4), dtype=np.uint8)
Y = np.array([3, 1, 4, 1, 5], np.uint8)


def write_pair(folder, stem="train-", packed=False, x=X, y=Y, dot="-"):
    folder.mkdir(exist_ok=True)
    for kind, array, dims in (("images", x, 3), ("labels", y, 1)):
        data = idx_bytes(array)
        name = f"{stem}{kind}{dot}idx{dims}-ubyte"
        (folder / (name + ".gz" if packed else name)).write_bytes(gzip.compress(data) if packed else data)
    return folder


# ---- IDX


@pytest.mark.parametrize("packed", [False, True])
def test_an_idx_folder_gives_training_and_test_pictures(tmp_path, packed):
    write_pair(tmp_path / "set", packed=packed)
    write_pair(tmp_path / "set", "t10k-", packed, X[:2], Y[:2])
    splits = open_source(tmp_path / "set")
    assert splits.train.x.shape == (5, 3, 4, 1) and np.array_equal(splits.train.x[..., 0], X)
    assert splits.train.y.tolist() == [3, 1, 4, 1, 5] and splits.test.count == 2
    assert splits.train.name == "set" and "train-images" in splits.train.source


def test_a_single_pair_of_any_name_is_all_for_training(tmp_path):
    write_pair(tmp_path, "letters-", dot=".")
    splits = open_source(tmp_path)
    assert splits.test is None and splits.train.count == 5
    alone = open_source(tmp_path / "letters-images.idx3-ubyte").train
    assert alone.name == "letters" and alone.hash() == splits.train.hash()


def test_an_unpacked_file_goes_before_its_gz(tmp_path):
    write_pair(tmp_path, packed=True, x=X[::-1])
    write_pair(tmp_path)
    assert np.array_equal(open_source(tmp_path).train.x[..., 0], X)


def test_gzip_is_told_by_its_content_not_by_its_name(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(gzip.compress(idx_bytes(X)))
    assert np.array_equal(idx.read_idx(path), X)


def test_colour_idx_pictures_keep_their_channels(tmp_path):
    write_pair(tmp_path, x=RNG.integers(0, 256, (5, 3, 4, 3), dtype=np.uint8))
    assert open_source(tmp_path).train.shape == (3, 4, 3)


GOOD = idx_bytes(X)


@pytest.mark.parametrize(
    ("data", "parts"),
    [
        (b"", ("not an IDX file",)),
        (GOOD[:3], ("not an IDX file",)),
        (b"<html><body>", ("not an IDX file", "b'<htm'", "two zero bytes")),
        (b"\0\0\x07\x03" + GOOD[4:], ("not an IDX file",)),
        (b"\0\0\x0d\x03" + GOOD[4:], ("float32", "0x0D", "0x08")),
        (b"\0\0\x08\x00" + GOOD[4:], ("0 dimensions",)),
        (b"\0\0\x08\x05" + GOOD[4:], ("5 dimensions", "3 (pictures)")),
        (GOOD[:9], ("ends inside its header", "after 9 of 16 bytes")),
        (GOOD[:4] + struct.pack(">3I", 5, 0, 4) + GOOD[16:], ("is empty", "5 x 0 x 4")),
        (GOOD[:4] + struct.pack(">3I", 2**32 - 1, 2**32 - 1, 2**32 - 1), ("more than a file of this size",)),
        (GOOD[:-1], ("ends after 59 values", "5 x 3 x 4 = 60")),
        (GOOD + b"\0", ("goes on after the 5 x 3 x 4",)),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_every_fault_of_an_idx_file_is_named_with_the_file(tmp_path, data, parts, packed):
    path = tmp_path / "train-images-idx3-ubyte"
    path.write_bytes(gzip.compress(data) if packed else data)
    with refused(str(path), *parts):
        idx.read_idx(path)


def test_every_truncation_of_a_gzipped_idx_file_is_refused(tmp_path):
    whole, path = gzip.compress(GOOD), tmp_path / "x.gz"
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with refused(str(path)):
            idx.read_idx(path)


def test_a_flipped_bit_in_gzipped_pixels_is_refused(tmp_path):
    data, path = bytearray(gzip.compress(GOOD)), tmp_path / "x.gz"
    data[-8] ^= 1  # the checksum
    path.write_bytes(data)
    with refused("damaged gzip file", "fetch it again"):
        idx.read_idx(path)


def test_pairs_that_do_not_fit_are_refused(tmp_path):
    with refused("5 pictures", "labels-idx1-ubyte has 4 labels"):
        open_source(write_pair(tmp_path / "a", y=Y[:4]))
    with refused("has 1 dimensions", "pictures have 3"):
        open_source(write_pair(tmp_path / "b", x=Y))
    with refused("labels-idx1-ubyte: has 3 dimensions", "labels have 1"):
        open_source(write_pair(tmp_path / "c", y=X))


def test_missing_and_surplus_idx_files_are_named(tmp_path):
    write_pair(tmp_path / "a")
    (tmp_path / "a" / "train-labels-idx1-ubyte").unlink()
    with refused("its labels are missing", "train-labels-idx1-ubyte (or .gz)"):
        open_source(tmp_path / "a")
    with refused("t10k-images-idx3-ubyte", "one training pair"):
        open_source(write_pair(tmp_path / "b", "t10k-"))
    write_pair(tmp_path / "c", "one-")
    with refused("one-images", "two-images", "one training pair"):
        open_source(write_pair(tmp_path / "c", "two-"))
    with refused("no IDX pictures here"):
        idx.read_folder(tmp_path)
    with refused("give the pictures of a pair"):
        open_source(tmp_path / "c" / "one-labels-idx1-ubyte")


def test_mnist_is_read_as_published():
    splits = open_source(real("mnist"))
    assert splits.train.x.shape == (60000, 28, 28, 1) and splits.test.x.shape == (10000, 28, 28, 1)
    assert splits.train.y[:5].tolist() == [5, 0, 4, 1, 9] and splits.test.y[0] == 7
    assert np.bincount(splits.train.y).tolist() == [
        5923,
        6742,
        5958,
        6131,
        5842,
        5421,
        5918,
        6265,
        5851,
        5949,
    ]
    assert np.bincount(splits.test.y).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    raw = struct.pack(">4I", 2051, 60000, 28, 28) + splits.train.x.tobytes()
    assert hashlib.md5(raw).hexdigest() == "6bbc9ace898e44ae57da46a324031adb"
    mean, std = mean_std(splits.train)
    assert abs(mean[0] / 255 - 0.1307) <= 5e-5 and abs(std[0] / 255 - 0.3081) <= 5e-5


# ---- npz


def save(path, **arrays):
    np.savez_compressed(path, **arrays)
    return path


def test_keras_archives_give_training_and_test_data(tmp_path):
    path = save(
        tmp_path / "k.npz", x_train=X, y_train=Y, x_test=X[:2], y_test=Y[:2].astype(np.int32)[:, None]
    )
    splits = open_source(path)
    assert splits.train.shape == (3, 4, 1) and splits.train.x.dtype == np.uint8
    assert splits.test.y.tolist() == [3, 1] and splits.test.y.dtype == np.int64
    assert splits.train.name == "k" and splits.train.source == f"{path} [x_train]"


@pytest.mark.parametrize("names", [("x", "y"), ("data", "labels"), ("images", "labels"), ("data", "target")])
def test_other_usual_names_are_understood(tmp_path, names):
    path = save(tmp_path / "a.npz", **dict(zip(names, (X, Y), strict=True)), unused=np.zeros(3))
    splits = open_source(path)
    assert splits.train.count == 5 and splits.test is None


def test_class_names_come_with_the_archive(tmp_path):
    names = np.array(["a", "b", "c", "d", "e", "f"])
    assert open_source(save(tmp_path / "a.npz", x=X, y=Y, label_names=names)).train.labels == tuple("abcdef")
    assert open_source(save(tmp_path / "b.npz", x=X, y=Y, names=np.arange(6))).train.labels is None


@pytest.mark.parametrize(
    ("x", "shape", "dtype"),
    [
        (np.zeros((2, 5, 6, 3), np.uint8), (5, 6, 3), np.uint8),
        (np.zeros((2, 3, 5, 6), np.uint8), (5, 6, 3), np.uint8),
        (np.zeros((2, 1, 5, 6), np.float64), (5, 6, 1), np.float32),
        (np.zeros((2, 5, 6), np.int64), (5, 6, 1), np.uint8),
        (np.zeros((2, 5, 6), bool), (5, 6, 1), np.uint8),
        (np.zeros((2, 7), np.uint8), (7,), np.float32),
        (np.zeros((2, 7), np.float16), (7,), np.float32),
    ],
)
def test_layouts_and_types_become_ours(tmp_path, x, shape, dtype):
    ds = open_source(save(tmp_path / "a.npz", x=x, y=[0, 1])).train
    assert ds.shape == shape and ds.x.dtype == dtype


def test_channels_first_pixels_land_where_they_belong(tmp_path):
    x = np.arange(2 * 3 * 5 * 6, dtype=np.uint8).reshape(2, 3, 5, 6)
    ds = open_source(save(tmp_path / "a.npz", x=x, y=[0, 1])).train
    assert all(ds.x[n, i, j, c] == x[n, c, i, j] for n, c, i, j in np.ndindex(x.shape))
    bits = open_source(save(tmp_path / "b.npz", x=np.array([[[True, False]]]), y=[0])).train
    assert bits.x.ravel().tolist() == [255, 0]


@pytest.mark.parametrize("shape", [(2, 3, 8, 3), (2, 8, 8, 8)])
def test_an_ambiguous_layout_is_asked_for(tmp_path, shape):
    x = np.zeros(shape, np.uint8)
    with refused(str(shape), 'layout="NHWC"'):
        open_source(save(tmp_path / "a.npz", x=x, y=[0, 1]))
    first = open_source(save(tmp_path / "b.npz", x=x, y=[0, 1], layout="NCHW")).train
    assert first.shape == (*shape[2:], shape[1])
    assert open_source(tmp_path / "a.npz", layout="nhwc").train.shape == shape[1:]
    with refused("layout is 'CHWN'", "NHWC or NCHW"):
        open_source(tmp_path / "a.npz", layout="CHWN")


def test_float_answers_are_targets(tmp_path):
    ds = open_source(save(tmp_path / "a.npz", x=np.zeros((2, 3)), y=np.array([[0.5, 1], [2, 3]]))).train
    assert ds.y.dtype == np.float32 and ds.y.shape == (2, 2) and ds.classes == 0


class Bomb:
    """Writes a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.write_text, (self.path, "boom")


def test_pickled_objects_in_an_archive_are_never_opened(tmp_path):
    trap = tmp_path / "trap"
    objects = np.empty(1, object)
    objects[0] = Bomb(trap)
    with refused("holds Python objects", "can run code"):
        open_source(save(tmp_path / "a.npz", x=objects, y=[0]))
    assert not trap.exists()


@pytest.mark.parametrize(
    ("arrays", "parts"),
    [
        ({"a": X}, ("holds a", "expected x and y")),
        ({}, ("holds nothing",)),
        ({"x": X, "y": Y[:3]}, ("[x]", "5 samples but 3 answers")),
        ({"x": np.zeros(3), "y": Y[:3]}, ("x has shape (3,)", "(samples, values)")),
        ({"x": np.array([["a", "b"]]), "y": [0]}, ("type <U1", "numbers")),
        ({"x": np.full((5, 3, 4), 256), "y": Y}, ("whole numbers from 256 to 256", "0 to 255")),
        ({"x": np.full((5, 3, 4), -1), "y": Y}, ("whole numbers from -1 to -1",)),
        ({"x": X, "y": np.zeros((5, 2), int)}, ("y has shape (5, 2)", "one class number")),
        ({"x": X, "y": np.array(list("abcde"))}, ("y has shape (5,)", "class numbers")),
        ({"x": X, "y": np.float32(3)}, ("y has shape ()",)),
        ({"x": np.array([[1e300]]), "y": [0]}, ("x of sample 0 contains inf",)),
        ({"x": X, "y": np.array([0, 1, 2, 3, -1])}, ("sample 4 is -1",)),
        ({"x_train": X, "y_train": Y, "x_test": X[:, :2], "y_test": Y}, ("(3, 4, 1)", "(2, 4, 1)", "alike")),
    ],
)
def test_archives_that_make_no_sense_are_refused(tmp_path, arrays, parts):
    path = save(tmp_path / "a.npz", **arrays)
    with refused(str(path), *parts):
        open_source(path)


def test_files_that_are_no_archives_are_refused(tmp_path):
    path = tmp_path / "a.npz"
    for data in (b"", b"nonsense", b"PK\x05\x06"):
        path.write_bytes(data)
        with refused("not an .npz file"):
            open_source(path)
    np.save(tmp_path / "b.npy", X)
    with refused("not an .npz file", "numpy.savez"):
        open_source(tmp_path / "b.npy")
    save(path, x=X, y=Y)
    whole = path.read_bytes()
    path.write_bytes(whole[:60] + b"0123456789" + whole[70:])
    with refused("not a readable .npz file"):
        open_source(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x", "text")
        archive.writestr("y", "text")
    with refused(str(path)):
        read_npz(path)


# ---- CIFAR-10


def records(n, seed):
    """(labels (n,), planes (n, 3072))"""
    rng = np.random.default_rng(seed)
    return rng.integers(0, 10, n, dtype=np.uint8), rng.integers(0, 256, (n, 3072), dtype=np.uint8)


STEMS = [*cifar.TRAIN, "test_batch"]
BATCHES = {stem: records(3, seed) for seed, stem in enumerate(STEMS)}


def binary(stem):
    labels, planes = BATCHES[stem]
    return np.concatenate([labels[:, None], planes], axis=1).tobytes()


def python3_pickle(stem, protocol=2):
    labels, planes = BATCHES[stem]
    return pickle.dumps({"data": planes, "labels": labels.tolist()}, protocol=protocol)


def python2_pickle(stem):
    """The opcodes that Python 2 wrote: byte strings as str, arrays through numpy.core.multiarray."""

    def text(value):
        return b"U" + bytes([len(value)]) + value

    labels, planes = BATCHES[stem]
    raw = planes.tobytes()
    minus_one = b"J" + struct.pack("<i", -1)
    state = b"(K\x03" + text(b"|") + b"NNN" + minus_one * 2 + b"K\x00tb"
    dtype = b"cnumpy\ndtype\n(" + text(b"u1") + b"K\x00K\x01tR" + state
    array = (
        b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\x00t" + text(b"b") + b"tR"
        b"(K\x01(K\x03M\x00\x0ct" + dtype + b"\x89T" + struct.pack("<i", len(raw)) + raw + b"tb"
    )
    answers = b"](" + b"".join(b"K" + bytes([k]) for k in labels) + b"e"
    return b"\x80\x02}(" + text(b"data") + array + text(b"labels") + answers + b"u."


FORMS = {
    "binary": (".bin", binary),
    "python 2": ("", python2_pickle),
    "python 3": ("", python3_pickle),
    "protocol 5": ("", lambda stem: python3_pickle(stem, 5)),
}


def write_folder(folder, form):
    ending, make = FORMS[form]
    folder.mkdir(parents=True)
    for stem in STEMS:
        (folder / (stem + ending)).write_bytes(make(stem))
    (folder / "batches.meta.txt").write_text("airplane\n")
    return folder


def write_archive(path, form):
    ending, make = FORMS[form]
    with tarfile.open(path, "w:gz") as archive:
        for name, data in [
            ("set/readme.html", b"hello"),
            *((f"set/{s}{ending}", make(s)) for s in reversed(STEMS)),
        ]:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
        link = tarfile.TarInfo("set/test_batch")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    return path


def check_cifar(splits):
    assert splits.train.x.shape == (15, 32, 32, 3) and splits.test.x.shape == (3, 32, 32, 3)
    assert splits.train.labels == cifar.LABELS
    for k, stem in enumerate(STEMS):
        labels, planes = BATCHES[stem]
        ds, at = (splits.test, 0) if stem == "test_batch" else (splits.train, 3 * k)
        assert np.array_equal(ds.y[at : at + 3], labels)
        want = planes.reshape(3, 3, 32, 32)
        assert all(np.array_equal(ds.x[at : at + 3, ..., c], want[:, c]) for c in range(3))


@pytest.mark.parametrize("form", FORMS)
def test_cifar_folders_of_every_form_give_the_same_pictures(tmp_path, form):
    check_cifar(open_source(write_folder(tmp_path / "any name", form)))
    write_folder(tmp_path / "data" / "cifar-10-batches-py", form)
    check_cifar(open_source(tmp_path / "data"))


@pytest.mark.parametrize("form", FORMS)
def test_cifar_archives_are_read_without_being_unpacked(tmp_path, form):
    path = write_archive(tmp_path / "cifar-10-binary.tar.gz", form)
    check_cifar(open_source(path))
    check_cifar(open_source(tmp_path))
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


def test_one_cifar_batch_is_all_for_training(tmp_path):
    for form in ("binary", "python 2"):
        folder = write_folder(tmp_path / form, form)
        splits = open_source(folder / ("data_batch_2" + FORMS[form][0]))
        assert splits.test is None and np.array_equal(splits.train.y, BATCHES["data_batch_2"][0])
    (tmp_path / "train.bin").write_bytes(binary("test_batch") * 2)
    assert open_source(tmp_path / "train.bin").train.count == 6


def test_missing_cifar_batches_are_named(tmp_path):
    folder = write_folder(tmp_path / "c", "binary")
    (folder / "data_batch_3.bin").unlink()
    (folder / "test_batch.bin").unlink()
    with refused("data_batch_3, test_batch not found"):
        open_source(folder)
    with tarfile.open(tmp_path / "empty.tar.gz", "w:gz"):
        pass
    with refused("data_batch_1", "not found"):
        open_source(tmp_path / "empty.tar.gz")


def test_cifar_files_of_a_wrong_size_or_label_are_refused(tmp_path, monkeypatch):
    path = tmp_path / "data_batch_1.bin"
    for data in (b"", binary("test_batch")[:-1]):
        path.write_bytes(data)
        with refused(str(path), f"{len(data)} bytes", "multiple of 3073"):
            open_source(path)
    path.write_bytes(b"\x0a" + bytes(3072))
    with refused("class 10", "only 10 class names"):
        open_source(path)
    archive = write_archive(tmp_path / "c.tar.gz", "binary")
    monkeypatch.setattr(cifar, "LARGEST", 9000)
    path.write_bytes(binary("test_batch"))
    for big in (path, archive):
        with refused("9219 bytes", "at most 9000"):
            open_source(big)


def test_broken_cifar_archives_are_refused(tmp_path):
    path = write_archive(tmp_path / "c.tar.gz", "binary")
    whole = path.read_bytes()
    for length in (0, 10, len(whole) // 2):
        path.write_bytes(whole[:length])
        with refused(str(path), f"{length} bytes", "fetch it again"):
            open_source(path)


def test_a_pickle_that_asks_for_a_function_is_refused_and_nothing_runs(tmp_path):
    trap = tmp_path / "trap"
    path = tmp_path / "data_batch_1"
    attacks = [
        pickle.dumps({"data": Bomb(trap), "labels": [0]}),
        b"cos\nsystem\n(U\x10touch /dev/null\ntR.",
        b"cbuiltins\neval\n(U\x011tR.",
        b"cnumpy\nload\n(U\x01xtR.",
        b"\x80\x04\x8c\x05posix\x8c\x06system\x93\x8c\x04true\x85R.",
    ]
    for attack in attacks:
        path.write_bytes(attack)
        with refused(str(path), "UnpicklingError", "only number arrays are let in"):
            open_source(path)
    assert not trap.exists()


def reduced(kind, data=b"\0" * 3072, shape=(1, 3072)):
    """A batch whose array has this type code, these bytes and this shape, written as Python 3 would."""

    class Raw:
        def __reduce__(self):
            state = (1, shape, Kind(), False, data)
            return np.zeros(0).__reduce__()[0], (np.ndarray, (0,), b"b"), state

    class Kind:
        def __reduce__(self):
            return np.dtype, (kind, False, True), (3, "|", None, None, None, -1, -1, 0)

    return pickle.dumps({"data": Raw(), "labels": [0]}, protocol=4)


@pytest.mark.parametrize(
    ("data", "parts"),
    [
        (b"", ("EOFError",)),
        (b"garbage", ("read safely",)),
        (pickle.dumps([1, 2]), ("AttributeError",)),
        (b"\x80\x02]r\xff\xff\xff\x7f.", ("AttributeError",)),  # a memo of two thousand million places
        (pickle.dumps({"data": b"123"}), ("AttributeError",)),
        (pickle.dumps({"labels": [0]}), ("KeyError",)),
        (pickle.dumps({"data": np.zeros((1, 3072), np.uint8), "labels": ["x"]}), ("ValueError",)),
        (pickle.dumps({"data": np.zeros((1, 3072), np.int32), "labels": [0]}), ("uint8 is expected",)),
        (pickle.dumps({"data": np.zeros((1, 3072)), "labels": [0]}), ("'<f8'", "whole numbers")),
        (pickle.dumps({"data": np.zeros((1, 3071), np.uint8), "labels": [0]}), ("(1, 3071)", "(N, 3072)")),
        (pickle.dumps({"data": np.zeros((2, 3072), np.uint8), "labels": [0]}), ("1 labels",)),
        (reduced("O8", [Path("x")]), ("UnpicklingError",)),
        (reduced("O8", [1]), ("without its type or its bytes",)),
        (reduced("O8"), ("'|O8'",)),
        (reduced("u1", b"abc"), ("ValueError",)),
        (python2_pickle("test_batch")[:-40], ("read safely",)),
    ],
)
def test_pickles_that_are_no_batches_are_refused(tmp_path, data, parts):
    path = tmp_path / "test_batch"
    path.write_bytes(data)
    with refused(str(path), *parts):
        open_source(path)


def test_pickled_labels_may_be_an_array():
    data = pickle.dumps(
        {"data": np.zeros((2, 3072), np.uint8), "labels": np.array([3, 4], ">i4")}, protocol=5
    )
    assert read_batch("here", data)[1].tolist() == [3, 4]


def mosaic_batch(folder, stem):
    """One batch of the binary version, rebuilt from a 100 x 100 mosaic of tiles."""
    cv2 = pytest.importorskip("cv2")
    image = cv2.cvtColor(cv2.imread(str(folder / f"{stem}.webp")), cv2.COLOR_BGR2RGB)
    planes = image.reshape(100, 32, 100, 32, 3).transpose(0, 2, 4, 1, 3).reshape(10000, 3072)
    labels = np.fromfile(folder / f"{stem}.labels", np.uint8)
    return np.concatenate([labels[:, None], planes], axis=1).tobytes()


def test_all_of_cifar_has_the_known_hash(tmp_path):
    folder = tmp_path / "cifar10"
    folder.mkdir()
    for stem in STEMS:
        (folder / f"{stem}.bin").write_bytes(mosaic_batch(real("cifar10"), stem))
    published = "5dd7e06a14cb22eb9f671a540d1b7c25"
    assert hashlib.md5((folder / "data_batch_1.bin").read_bytes()).hexdigest() == published
    splits = open_source("cifar10", cache=tmp_path, fetch=False)
    assert splits.train.y[:5].tolist() == [6, 9, 9, 4, 1]
    assert np.bincount(splits.train.y).tolist() == [5000] * 10
    assert splits.test.y[:5].tolist() == [3, 8, 8, 0, 6]
    mean, std = mean_std(splits.train)
    assert np.abs(mean / 255 - [0.4914, 0.4822, 0.4465]).max() <= 5e-5
    assert np.abs(std / 255 - [0.2470, 0.2435, 0.2616]).max() <= 5e-5


# ---- open_source


def test_unknown_sources_are_answered_with_what_is_possible(tmp_path):
    for wrong, meant in (("minst", "mnist"), ("fashion_mnist", "fashion-mnist"), ("digit", "digits")):
        with refused(f"{wrong}: no such data set", f"did you mean {meant}?", "digits, mnist", ".npz"):
            open_source(wrong)
    (tmp_path / "flowers.npz").touch()
    with refused("did you mean", "flowers.npz?"):
        open_source(tmp_path / "flower.npz")
    with pytest.raises(UserError) as caught:
        open_source(tmp_path / "nowhere" / "x")
    assert "did you mean" not in str(caught.value)


def test_folders_and_files_of_no_kind_are_refused(tmp_path):
    with refused("the folder is empty", "give a known set"):
        open_source(tmp_path)
    for k in range(7):
        (tmp_path / f"{k}.txt").touch()
    with refused("0.txt, 1.txt, 2.txt, 3.txt, 4.txt and 2 more"):
        open_source(tmp_path)
    with refused("0.txt: not a kind of file"):
        open_source(tmp_path / "0.txt")
    (tmp_path / "thing.gz").write_bytes(gzip.compress(b"x"))
    with refused("thing.gz", "named such as"):
        open_source(tmp_path / "thing.gz")


def test_an_unreadable_file_is_a_user_error(tmp_path, monkeypatch):
    path = tmp_path / "data_batch_1.bin"
    path.touch()

    def denied(self):
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "read_bytes", denied)
    with refused(str(path), "cannot be read (Permission denied)"):
        open_source(path)
