"""What edge-train shows while it runs: a bar on a terminal, a line for each epoch."""

import io
import re

import pytest

from litenet.trainer.display import Display, duration
from litenet.trainer.loop import Progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


ROW = {"epoch": 2, "train_loss": 0.12345, "train_accuracy": 0.98765, "validation_loss": 0.2, "validation_accuracy": 0.5,
       "grad_norm_mean": 1.2345, "seconds": 75.3}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({}, "train loss 0.1235 acc 98.77 %  validation loss 0.2000 acc 50.00 %  grad norm 1.23"),
        ({"validation_loss": None, "validation_accuracy": None}, "train loss 0.1235 acc 98.77 %  grad norm 1.23"),
        ({"train_accuracy": None, "validation_accuracy": None},
         "train loss 0.1235  validation loss 0.2000  grad norm 1.23"),
    ],
)  # fmt: skip
def test_an_epoch_is_one_line_with_a_star_for_the_best(change, text):
    for best_epoch, star in ((1, "  *"), (0, "")):
        out = io.StringIO()
        Display(5, 10, out).epoch(Progress(epoch=2, best_epoch=best_epoch), ROW | change)
        assert re.fullmatch(rf"epoch 2/5  {re.escape(text)}  \d+ img/s  1:15{re.escape(star)}\n", out.getvalue())


def test_off_a_terminal_steps_print_nothing_and_quiet_prints_nothing_at_all():
    out = io.StringIO()
    display = Display(5, 10, out)
    display.step(Progress(batch=1, seen=4, loss_sum=4.0), {"loss": 1.0})
    assert (out.getvalue(), display.bar) == ("", None)
    assert display.samples == 4
    terminal = Terminal()
    quiet = Display(5, 10, terminal, quiet=True)
    quiet.step(Progress(batch=1, seen=4, loss_sum=4.0), {"loss": 1.0})
    quiet.epoch(Progress(), ROW)
    quiet.close()
    assert terminal.getvalue() == ""


def test_on_a_terminal_a_bar_moves_and_gives_way_to_the_line_of_the_epoch():
    terminal = Terminal()
    display = Display(2, 4, terminal)
    for batch in (1, 2):
        display.step(Progress(epoch=1, batch=batch, seen=8 * batch, loss_sum=4.0 * batch, correct=6 * batch), {})
    display.bar.refresh()
    shown = terminal.getvalue().split("\r")[-1]
    assert re.match(r"epoch 2/2 +50%\|.{20}\| loss 0\.5000  acc 75\.00 %  \d+ img/s  ETA 0:00", shown)
    display.epoch(Progress(epoch=2, best_epoch=0), ROW | {"seconds": 4000})
    assert display.bar is None
    assert terminal.getvalue().splitlines()[-1].startswith("epoch 2/2  train loss 0.1235")
    assert terminal.getvalue().endswith("1:06:40\n")


def test_the_bar_of_a_run_taken_up_in_mid_epoch_starts_there():
    display = Display(2, 4, Terminal())
    display.step(Progress(batch=3, seen=24, loss_sum=6.0), {})
    display.bar.refresh()
    assert display.out.getvalue().split("\r")[-1].startswith("epoch 1/2  75%|###############     | loss 0.2500  ")


def test_the_status_counts_what_is_left_of_the_whole_run():
    display = Display(3, 10, io.StringIO())
    display.started -= 10  # ten seconds ago
    progress = Progress(epoch=1, batch=5, seen=40, loss_sum=10.0)
    display.step(progress, {})  # the first step of a resumed run: number 15 of 30
    display.samples = 400
    status = display.status(progress, 15)
    assert re.fullmatch(r"loss 0\.2500  (39|40) img/s  ETA 2:30", status)  # one step in 10 s, 15 to go


@pytest.mark.parametrize(("seconds", "text"), [(0, "0:00"), (75.3, "1:15"), (3599.9, "59:59"), (4000, "1:06:40")])
def test_durations_read_like_a_clock(seconds, text):
    assert duration(seconds) == text


def test_a_display_writes_to_the_standard_error_of_its_time(capsys):
    Display(2, 4).epoch(Progress(), ROW)
    assert "epoch 2/2" in capsys.readouterr().err
