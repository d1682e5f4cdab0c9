"""Checkpoints: half a file is never left, and what is no checkpoint is told apart in one sentence."""

import errno
import io
import json
import os
import zipfile

import numpy as np
import pytest

from litenet.trainer import checkpoint
from litenet.trainer.errors import UserError

ARRAYS = {
    "weights/layer_0.weight": np.arange(6, dtype=np.float32).reshape(2, 3),
    "optimizer/m/layer_0.weight": np.ones(2),
}
META = {"blueprint": {"input_shape": [3], "layers": [{"type": "linear", "out_features": 2}]}, "progress": {"epoch": 3}}


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "last.npz"
    checkpoint.save(path, ARRAYS, META)
    return path


def refused(path):
    with pytest.raises(UserError) as error:
        checkpoint.load(path)
    return str(error.value)


def written(path, meta=None, **arrays):
    """An archive put together by somebody else."""
    if meta is not None:
        arrays["meta"] = np.frombuffer(meta if isinstance(meta, bytes) else json.dumps(meta).encode(), np.uint8)
    np.savez(path, **arrays)
    return path


# ---- writing


def test_what_is_saved_is_what_is_loaded(saved):
    found = checkpoint.load(str(saved))
    assert found.arrays.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert found.arrays[name].dtype == array.dtype
        assert found.arrays[name].tobytes() == array.tobytes()
        assert found.arrays[name].shape == array.shape
    assert found.meta == {"checkpoint": checkpoint.VERSION, **META}
    assert found.where == str(saved)
    assert found.blueprint.layers[0].type == "linear"


def test_names_and_texts_of_all_languages_survive(tmp_path):
    checkpoint.save(tmp_path / "a.npz", {"weights/größe": np.ones(1)}, {"labels": ["早疫病", "é"]})
    found = checkpoint.load(tmp_path / "a.npz")
    assert found.meta["labels"] == ["早疫病", "é"]
    assert "weights/größe" in found.arrays


def test_a_checkpoint_is_flushed_to_the_disk_before_it_gets_its_name(tmp_path, monkeypatch):
    path, seen = tmp_path / "last.npz", []
    monkeypatch.setattr(checkpoint.os, "fsync", lambda descriptor: seen.append(path.exists()))
    checkpoint.save(path, ARRAYS, META)
    assert seen == [False]
    assert path.exists()


@pytest.mark.skipif(os.name == "nt", reason="Windows keeps files that are open from being replaced")
def test_who_reads_the_old_checkpoint_while_a_new_one_comes_reads_it_to_its_end(saved):
    old = saved.read_bytes()
    with saved.open("rb") as reader:
        checkpoint.save(saved, {"weights/other": np.zeros(1000)}, META)
        assert reader.read() == old
    assert set(checkpoint.load(saved).arrays) == {"weights/other"}


@pytest.mark.parametrize("room", [0, 100])
def test_a_disk_that_runs_full_leaves_the_old_file_and_no_other(saved, monkeypatch, room):
    old = saved.read_bytes()

    def cramped(file, **members):
        file.write(old[:room])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(checkpoint.np, "savez", cramped)
    with pytest.raises(UserError) as error:
        checkpoint.save(saved, ARRAYS, META)
    assert str(error.value) == (
        f"{saved} could not be written: {os.strerror(errno.ENOSPC)}.\n"
        "  Free some space or choose another folder with --out."
    )
    assert saved.read_bytes() == old
    assert [p.name for p in saved.parent.iterdir()] == [saved.name]


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError, RuntimeError])
def test_whatever_happens_while_writing_leaves_the_old_file_and_no_other(saved, error):
    old = saved.read_bytes()

    def write(file):
        file.write(b"half a")
        raise error

    with pytest.raises(error):
        checkpoint.write_atomically(saved, write)
    assert saved.read_bytes() == old
    assert [p.name for p in saved.parent.iterdir()] == [saved.name]


def test_a_folder_that_is_none_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "absent" / "last.npz", tmp_path / "file" / "last.npz"):
        with pytest.raises(UserError, match="could not be written: "):
            checkpoint.save(path, ARRAYS, META)


# ---- reading


def test_a_folder_means_its_best_checkpoint_or_else_its_last(saved):
    folder = saved.parent
    assert checkpoint.load(folder).where == str(saved)
    checkpoint.save(folder / "best.npz", ARRAYS, META)
    assert checkpoint.load(folder).where == str(folder / "best.npz")


def test_weights_under_their_own_names_are_taken_as_weights(tmp_path):
    path = written(tmp_path / "model_weights.npz", **{"layer_0.weight": np.ones((2, 3)), "layer_0.bias": np.zeros(2)})
    found = checkpoint.load(path)
    assert set(found.arrays) == {"weights/layer_0.weight", "weights/layer_0.bias"}
    assert found.meta == {}


def test_an_absent_file_is_named(tmp_path):
    assert refused(tmp_path / "best.npz") == (
        f"{tmp_path / 'best.npz'}: there is no such file.\n  Give a run folder or a checkpoint such as best.npz."
    )


def test_a_folder_without_checkpoints_is_named(tmp_path):
    assert refused(tmp_path) == (
        f"{tmp_path} holds no checkpoint (best.npz or last.npz).\n  Give the run folder that edge-train printed."
    )


def npy(path):
    np.save(path, np.ones(3))
    path.with_suffix(".npz.npy").rename(path)


def pickled(path):
    np.savez(path, weights=np.array([{"code": 1}], object))


def encrypted(path):
    """The bit that says a member is encrypted, in both of its headers."""
    written(path, a=np.ones(3))
    data = bytearray(path.read_bytes())
    data[6] |= 1
    data[data.index(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(data)


def unreadable_meta(meta):
    return lambda path: written(path, meta, a=np.ones(3))


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda p: p.write_bytes(b""), "it is no archive of arrays"),
        (lambda p: p.write_text('{"name": "net"}'), "it is no archive of arrays"),
        (npy, "it is no archive of arrays"),
        (pickled, "allow_pickle"),
        (encrypted, "encrypted"),
        (unreadable_meta(b"{"), "Expecting property name"),
        (unreadable_meta(b"\xff\xfe\xfd"), "decode"),
        (unreadable_meta([1, 2]), "its meta is no checkpoint's"),
        (unreadable_meta({"checkpoint": "one"}), "its meta is no checkpoint's"),
    ],
)
def test_what_is_no_checkpoint_is_refused(tmp_path, make, word):
    path = tmp_path / "x.npz"
    make(path)
    text = refused(path)
    assert text.startswith(f"{path} is not a checkpoint: ")
    assert word in text
    assert text.endswith(".\n  Give the .npz that edge-train wrote, such as runs/NAME/best.npz.")


@pytest.mark.parametrize("kind", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_every_truncation_and_many_changed_bytes_are_refused_or_harmless(tmp_path, kind):
    """A damaged file gives the sentence, or, where nothing reads the byte, the arrays; never anything else."""
    path, whole = tmp_path / "x.npz", io.BytesIO()
    meta = np.frombuffer(b'{"checkpoint": 1}', np.uint8)
    with zipfile.ZipFile(whole, "w", kind) as archive:
        for name, array in {"weights/a": np.arange(40.0), "meta": meta}.items():
            member = io.BytesIO()
            np.save(member, array)
            archive.writestr(f"{name}.npy", member.getvalue())
    data, outcomes = whole.getvalue(), []
    changed = [data[:n] for n in range(0, len(data), 7)]
    changed += [data[:i] + bytes([data[i] ^ 0x41]) + data[i + 1 :] for i in range(0, len(data), 3)]
    for content in changed:
        path.write_bytes(content)
        try:
            found = checkpoint.load(path)
        except UserError as error:
            outcomes.append(str(error).startswith(f"{path} "))
        else:
            harmless = {name: array.tobytes() for name, array in found.arrays.items()}
            assert harmless.get("weights/a", np.arange(40.0).tobytes()) == np.arange(40.0).tobytes()
    assert all(outcomes)
    assert len(outcomes) > len(changed) // 2
    path.write_bytes(data)
    assert checkpoint.load(path).arrays["weights/a"].tolist() == list(range(40))


def test_a_checkpoint_of_a_newer_version_is_refused(tmp_path):
    path = written(tmp_path / "x.npz", {"checkpoint": checkpoint.VERSION + 1}, **{"weights/a": np.ones(3)})
    assert refused(path) == (
        f"{path} was written by a newer LiteNet (checkpoint version 2, this one reads 1).\n  Update LiteNet."
    )


def test_what_a_killed_process_left_is_deleted_once_it_is_nobodys(tmp_path):
    old, fresh, other = (tmp_path / name for name in (".a[1].npz.77.tmp", ".a[1].npz.78.tmp", ".b.npz.77.tmp"))
    for path in (old, fresh, other):
        path.write_bytes(b"half")
    for path in (old, other):
        os.utime(path, (0, 0))
    checkpoint.write_atomically(tmp_path / "a[1].npz", lambda file: file.write(b"whole"))
    assert sorted(path.name for path in tmp_path.iterdir()) == [fresh.name, other.name, "a[1].npz"]
