"""edge-infer --tune: each layer's algorithms measured, the fastest remembered, and found again by the next engine."""

from __future__ import annotations

import json
from pathlib import Path

import bins
import numpy as np
import pytest

from litenet.pyruntime import InferenceEngine, ModelError, tune, tuned
from litenet.pyruntime.cli import main
from litenet.pyruntime.kernels import lib

pytestmark = pytest.mark.skipif(not lib.ln_fast_has(0), reason="no vector kernels for this processor: no choice")
THREE = 1 << lib.LN_DIRECT | 1 << lib.LN_WINOGRAD_2 | 1 << lib.LN_WINOGRAD_4
NAMES = ["direct", "winograd 2x2", "winograd 4x4"]


def net() -> bins.Bin:
    """A first layer without a choice, two with one, two poolings."""
    made = bins.Bin((12, 12, 3), seed=3)
    for more in ({"out_channels": 16}, {"out_channels": 32}, {"out_channels": 16}):
        made.add("conv2d", kernel_size=3, padding=1, activation="relu", **more)
    return made.add("maxpool2d", kernel_size=2, stride=2).add("global_avg_pool")


@pytest.fixture
def place(tmp_path, monkeypatch) -> Path:
    """A folder with the model; what is remembered goes to a folder below it. Little is measured."""
    (tmp_path / "net.bin").write_bytes(net().bytes())
    monkeypatch.setenv("LITENET_TUNE", str(tmp_path / "kept"))
    monkeypatch.setattr(tune, "SECONDS", 0.0)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def algorithms(engine: InferenceEngine) -> list[str]:
    return [layer.algorithm.split(",")[0] for layer in engine.layers]


def image() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((12, 12, 3)).astype(np.float32)


def slow(monkeypatch, faster: str, whole: float = 0.5) -> None:
    """Layers take 10 us each, but 5 us with the algorithm `faster`; a net with a choice takes `whole` times as long."""

    def layer_times(self, x):
        return [5.0 if name == faster else 10.0 for name in algorithms(self)]

    def interleaved(calls):
        return [100.0, 100.0 * whole]

    monkeypatch.setattr(InferenceEngine, "layer_times", layer_times)
    monkeypatch.setattr(tune, "_interleaved", interleaved)


# ---- the C functions


def test_only_three_by_three_convolutions_of_whole_panels_have_a_choice(place):
    engine = InferenceEngine("net.bin")
    assert [lib.ln_fast_candidates(engine._model, i) for i in range(6)] == [0, THREE, THREE, 0, 0, 0]


@pytest.mark.parametrize("name", NAMES)
def test_a_layer_runs_by_the_algorithm_that_was_chosen_for_it(place, name):
    number = tune.ALGORITHMS[name]
    engine = InferenceEngine("net.bin", tuned=bytes([number, number, lib.LN_DIRECT, 0, 0]))
    assert algorithms(engine)[:3] == ["direct", name, "direct"]
    np.testing.assert_allclose(engine.predict(image()), net().definition(image()), rtol=1e-4, atol=1e-4)
    engine.selftest()


def test_a_number_that_is_no_algorithm_counts_as_direct(place):
    engine = InferenceEngine("net.bin", tuned=bytes([9, 3, 255, 7, 7]))
    assert algorithms(engine)[:3] == ["direct"] * 3


def test_numbers_for_another_model_are_refused(place):
    with pytest.raises(ModelError, match="net.bin: tuned has 4 numbers; this model has 5 operators"):
        InferenceEngine("net.bin", tuned=bytes(4))


# ---- measuring


@pytest.mark.parametrize("faster", NAMES)
def test_the_fastest_is_remembered_and_the_next_engine_has_it(place, monkeypatch, faster):
    chosen = algorithms(InferenceEngine("net.bin", tuned=False))
    slow(monkeypatch, faster)
    found = tune.tune("net.bin")
    for row in found["layers"]:
        assert row["fastest"] == faster and row["fastest_us"] == 5.0
        assert row["chosen"] == chosen[row["index"]]
    assert found["kept"] == (found["remembered"] is None) == (set(chosen[1:3]) == {faster})
    assert algorithms(InferenceEngine("net.bin"))[1:3] == [faster, faster]
    assert algorithms(InferenceEngine("net.bin", tuned=False)) == chosen
    line = tune.tune_text(found)[-1]
    assert "remembered in" in line or "stays" in line


def other_than(chosen: list[str]) -> str:
    return next(name for name in NAMES if name not in chosen)


def test_a_net_that_gets_no_faster_as_a_whole_stays_as_it_was_and_older_findings_are_forgotten(place, monkeypatch):
    chosen = algorithms(InferenceEngine("net.bin"))
    faster = other_than(chosen[1:3])
    slow(monkeypatch, faster)
    assert Path(tune.tune("net.bin")["remembered"]).exists()
    slow(monkeypatch, faster, whole=1.1)
    found = tune.tune("net.bin")
    assert found["kept"] and found["remembered"] is None and not list((place / "kept").iterdir())
    assert algorithms(InferenceEngine("net.bin")) == chosen


def test_real_times_give_a_row_for_each_layer_with_a_choice(place, capsys):
    assert main(["--tune", "net.bin", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["tune"]
    assert [row["index"] for row in found["layers"]] == [1, 2]
    for row in found["layers"]:
        assert set(row["us"]) == set(NAMES) and row["fastest_us"] == min(row["us"].values()) > 0
    assert main(["--tune", "net.bin"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0].split()[:2] == ["layer", "op"] and out[1].startswith("conv2d1 ")


def test_a_net_without_a_choice_is_told_so(place, capsys):
    (place / "mlp.bin").write_bytes(bins.mlp().bytes())
    for more in ([], ["--kernels", "portable"]):
        assert main(["--tune", "mlp.bin", *more]) == 0
        assert "no layer has a choice" in capsys.readouterr().out


# ---- remembering


@pytest.fixture
def kept(place, monkeypatch) -> Path:
    """The file in which another choice than the cost model's is remembered."""
    slow(monkeypatch, other_than(algorithms(InferenceEngine("net.bin"))[1:3]))
    return Path(tune.tune("net.bin")["remembered"])


def test_it_counts_for_this_processor_these_kernels_this_model_and_number_of_threads_only(kept, place, monkeypatch):
    chosen, found = (algorithms(InferenceEngine("net.bin", tuned=t)) for t in (False, True))
    assert found != chosen
    assert algorithms(InferenceEngine("net.bin", threads=2)) == chosen
    assert algorithms(InferenceEngine(net().bytes(golden=1))) == chosen
    monkeypatch.setattr(tuned, "processor", lambda: "another")
    assert algorithms(InferenceEngine("net.bin")) == chosen


def test_it_can_be_ignored_by_option_argument_and_environment(kept, place, monkeypatch, capsys):
    chosen, found = (algorithms(InferenceEngine("net.bin", tuned=t)) for t in (False, True))
    assert found != chosen
    for option, want in ([], found), (["--untuned"], chosen):
        assert main(["net.bin", "--info", "--json", *option]) == 0
        layers = json.loads(capsys.readouterr().out)["info"]["layers"]
        assert [layer["algorithm"].split(",")[0] for layer in layers] == want
    monkeypatch.setenv("LITENET_TUNE", "off")
    assert algorithms(InferenceEngine("net.bin")) == chosen
    assert tune.tune("net.bin")["remembered"] is None


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", '{"format": 1}', '{"format": 1, "processor": 3, "choices": 9}', "\x00\xff"]
)
def test_a_file_that_is_damaged_or_of_another_kind_counts_for_nothing(kept, text):
    chosen = algorithms(InferenceEngine("net.bin", tuned=False))
    kept.write_text(text, encoding="latin-1")
    assert algorithms(InferenceEngine("net.bin")) == chosen


@pytest.mark.parametrize("change", [{"choices": [1]}, {"choices": [1, 1, 1, 1, 300]}, {"choices": "x"}, {"format": 2}])
def test_a_file_with_one_wrong_field_counts_for_nothing(kept, change):
    chosen = algorithms(InferenceEngine("net.bin", tuned=False))
    kept.write_text(json.dumps({**json.loads(kept.read_text()), **change}))
    assert algorithms(InferenceEngine("net.bin")) == chosen


def test_a_write_that_fails_leaves_the_old_file_and_no_draft(kept, monkeypatch):
    before = kept.read_bytes()

    def fails(*_):
        raise OSError("the disk is full")

    monkeypatch.setattr(Path, "replace", fails)
    with pytest.raises(ModelError, match="disk is full"):
        tune.tune("net.bin")
    assert [kept] == list(kept.parent.iterdir()) and kept.read_bytes() == before


def test_a_place_that_cannot_be_written_is_one_sentence(place, monkeypatch, capsys):
    (place / "file").write_text("")
    monkeypatch.setenv("LITENET_TUNE", str(place / "file" / "below"))
    slow(monkeypatch, other_than(algorithms(InferenceEngine("net.bin"))[1:3]))
    assert main(["--tune", "net.bin"]) == 1
    err = capsys.readouterr().err
    assert err.startswith("edge-infer: ") and "LITENET_TUNE" in err and err.count("\n") == 1


def test_the_folder_is_the_users_cache(monkeypatch):
    monkeypatch.setattr(tuned.sys, "platform", "linux")
    monkeypatch.delenv("LITENET_TUNE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert tuned.folder() == Path("/somewhere/litenet/tuned")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/me")
    assert tuned.folder() == Path("/home/me/.cache/litenet/tuned")
    monkeypatch.setattr(tuned.sys, "platform", "win32")
    monkeypatch.delenv("LOCALAPPDATA", raising=False)
    assert tuned.folder() is None
