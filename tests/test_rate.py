"""--lr auto: what is tried, what is chosen and why, and that nothing of it stays."""

import json
import re

import numpy as np
import pytest
from runs import changed, train
from test_aids import on
from test_device_trainer import MLP, pictures

from litenet.trainer import checkpoint, rate
from litenet.trainer.errors import UserError
from litenet.trainer.rate import Found, WarmUp, choose
from litenet.trainer.rate_page import page


def test_the_largest_rate_within_the_norms_is_chosen_if_its_loss_is_as_low():
    tried = [WarmUp(0.4, None, None), WarmUp(0.2, 0.18, 0.5), WarmUp(0.1, 0.045, 0.41), WarmUp(0.03, 0.03, 0.4)]
    found, why = choose(tried)
    assert found == 0.1
    assert "mean gradient norm (0.045) lies within 0.02 to 0.05" in why


def test_a_rate_within_the_norms_that_learns_less_is_not_followed():
    found, why = choose([WarmUp(0.2, 0.2, 0.4), WarmUp(0.1, 0.04, 2.3)])
    assert found == 0.2
    assert "reach higher losses" in why


def test_without_a_rate_within_the_norms_the_lowest_loss_decides():
    found, why = choose([WarmUp(0.2, 2.2, 0.9), WarmUp(0.1, 1.1, 0.4), WarmUp(0.03, 0.7, 0.8)])
    assert found == 0.1
    assert why.endswith("mean gradient norms are 0.7 to 2.2, at no rate within 0.02 to 0.05")


def test_where_every_rate_fails_the_user_is_told():
    with pytest.raises(UserError, match="--lr auto: the loss became infinite or no number at every rate"):
        choose([WarmUp(0.1, None, None)])


def test_the_rate_for_256_samples_is_scaled_by_the_batch():
    assert Found(0.012, "", 64, 20, 1.0).base == 0.048
    assert Found(0.1, "", 256, 20, 1.0).base == 0.1


@pytest.mark.parametrize("device", ["numpy", "cuda"])
@pytest.mark.parametrize("more", [{}, {"accumulation": 2}])
def test_a_search_leaves_the_trainer_as_it_was_and_finds_the_same_again(device, more):
    trainer, settings = on(device, MLP, shape=(128,), optimizer="momentum", **more)
    before = trainer.state_arrays()
    counters = trainer.micro_step, trainer.optimizer.t, trainer.optimizer.lr
    found = [rate.find(trainer, pictures(24), settings) for _ in range(2)]
    assert found[0] == found[1]
    assert (trainer.micro_step, trainer.optimizer.t, trainer.optimizer.lr) == counters
    for name, array in trainer.state_arrays().items():
        assert array.tobytes() == before[name].tobytes(), name
    assert found[0].samples == 4 * settings.accumulation
    assert 1e-5 < found[0].rate < found[0].limit <= 10
    rates = [r for r, _ in found[0].sweep]
    assert rates == sorted(rates)


def test_both_backends_choose_the_same():
    found = []
    for device in ("numpy", "cuda"):
        trainer, settings = on(device, MLP, shape=(128,), optimizer="momentum")
        found.append(rate.find(trainer, pictures(24), settings))
    assert found[0].rate == found[1].rate
    assert [w.rate for w in found[0].warm_ups] == [w.rate for w in found[1].warm_ups]


@pytest.mark.parametrize("way", ["blueprint", "command"])
def test_a_run_with_a_found_rate_is_that_of_the_rate_given(here, way, capsys):
    changed(here, **({"learning_rate": "auto"} if way == "blueprint" else {}))
    assert train("--out", "run", *(["--lr", "auto"] if way == "command" else [])) == 0
    told = json.loads((here / "run" / "learning_rate.json").read_text())
    assert f"learning rate {told['rate']:g}: " in capsys.readouterr().err
    settings = json.loads((here / "run" / "config.json").read_text())["settings"]
    assert settings["learning_rate"] == told["rate"]
    assert train("--out", "same", "--quiet", "--lr", told["rate"]) == 0
    first, second = (checkpoint.load(here / name / "last.npz").arrays for name in ("run", "same"))
    assert all(first[name].tobytes() == second[name].tobytes() for name in first)
    text = (here / "run" / "learning_rate.html").read_text()
    assert not re.search(r"https?:|src=|href=", text)  # nothing from elsewhere
    assert f"{told['rate']:g}</h1>" in text
    assert len(text) < 30_000


def test_the_page_can_be_drawn_of_little():
    found = Found(0.1, "because <b>", 64, 20, 1.0, [(0.01, 2.0)], [WarmUp(0.1, 0.04, 2.0), WarmUp(0.5, None, None)])
    text = page(found, "net & co")
    assert "net &amp; co" in text and "because &lt;b&gt;" in text and "not finite" in text
    assert "nan" not in text and np.isfinite([float(v) for v in re.findall(r'c[xy]="([^"]+)"', text)]).all()
