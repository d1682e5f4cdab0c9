"""edge-export's C headers and boards: what is written compiles, what does not fit is refused with the layer's name."""

from __future__ import annotations

import subprocess
import zlib

import bins
import cbuild
import pytest
from bins import Bin

from litenet.exporter import boards, chip_code, records
from litenet.exporter.cli import main
from litenet.pyruntime.engine import InferenceEngine


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "digits.bin"
    labels = ("nought", 'o"ne', "zwei??", "trois", "vier\\", "fünf", "6", "7", "8", "9")
    path.write_bytes(bins.digits(labels=labels).bytes())
    return path


def export(*argv) -> int:
    return main([str(a) for a in argv])


@pytest.fixture
def from_the_table(monkeypatch):
    """As where no cross compiler is installed."""
    monkeypatch.setattr(chip_code, "has_compiler", lambda cpu: False)


CHECK = """\
#include <stdio.h>
#include "litenet.h"
#include "digits.h"
int main(void)
{
    static ln_model m;
    static const char *labels[] = DIGITS_LABELS;
    static float x[DIGITS_INPUT_ELEMENTS], y[DIGITS_OUTPUT_ELEMENTS];
    static uint8_t arena[DIGITS_ARENA_BYTES] LN_ALIGNED_16;
    if (ln_open(&m, digits_bin, sizeof digits_bin) != LN_OK) return 1;
    if (ln_arena_bytes(&m) != DIGITS_ARENA_BYTES || (size_t)digits_bin % 16) return 2;
    if (ln_run(&m, arena, sizeof arena, x, y) != LN_OK) return 3;
    for (unsigned i = 0; i < DIGITS_OUTPUT_ELEMENTS; i++) printf("%s %a\\n", labels[i], (double)y[i]);
    return 0;
}
"""


def test_a_header_compiles_and_runs_with_just_its_operators(model, tmp_path):
    assert export(model, "-o", tmp_path / "digits.h") == 0
    main_c = tmp_path / "main.c"
    main_c.write_text(CHECK)
    flags = [f"-I{tmp_path}", '-DLN_OPS_HEADER="digits.h"', "-DLN_SMALL", "-DLN_TERSE"]
    program = cbuild.program("header", [main_c, *cbuild.core()], flags=flags)
    out = subprocess.run([program], capture_output=True, text=True, check=True).stdout.splitlines()
    with InferenceEngine(model, kernels="portable") as engine:
        y, labels = engine.predict([[[0.0]] * 28] * 28), engine.labels
    assert [line.rsplit(" ", 1)[0] for line in out] == labels
    assert [float.fromhex(line.rsplit(" ", 1)[1]) for line in out] == [float(v) for v in y]


def test_a_header_says_what_its_model_needs(model, tmp_path, capsys):
    assert export(model, "-o", tmp_path / "d.h", "--with-golden") == 0
    out, text = capsys.readouterr().out, (tmp_path / "d.h").read_text()
    asked = {line.split("LN_WITH_")[1] for line in text.splitlines() if "LN_WITH_" in line}
    assert asked == {"ACT_RELU", "CONV2D", "F32", "FLATTEN", "LINEAR", "MAXPOOL2D"}
    assert "metadata left out" in out and f"#define D_BYTES {len(records.stripped(model.read_bytes(), True))}u" in text


def test_what_is_stripped_is_the_same_model(model):
    data = model.read_bytes()
    for golden in (False, True):
        small = records.stripped(data, golden)
        with InferenceEngine(small) as engine:
            assert engine.metadata == {} and engine.info["arena_bytes"] == records.read(data).arena_bytes
            if golden:
                engine.selftest()
        assert records.identity(small) == records.identity(data)
        assert len(small) < len(data)
    assert records.identity(data) != records.identity(bins.digits(seed=4).bytes())
    assert zlib.crc32(small) != zlib.crc32(data)


def test_a_model_fits_and_the_header_is_written(model, tmp_path, capsys, from_the_table):
    assert export(model, "-o", tmp_path / "digits.h", "--board", "rp2040") == 0
    out = capsys.readouterr().out
    assert "Raspberry Pi Pico (cortex-m0, 125 MHz)" in out and "from the table" in out
    assert "arena 18,816, input and output 3,176, ln_model 104" in out and (tmp_path / "digits.h").exists()


@pytest.mark.parametrize(
    ("board", "net", "says"),
    [
        ("microbit", bins.digits, "of RAM, "),
        ("stm32f103", lambda: Bin((64,)).add("linear", out_features=300), "of flash, "),
    ],
)
def test_a_model_that_does_not_fit_is_refused_by_layer(tmp_path, capsys, from_the_table, board, net, says):
    path, out = tmp_path / "net.bin", tmp_path / "net.h"
    path.write_bytes(net().bytes(golden=0))
    assert export(path, "-o", out, "--board", board) == 1
    told = capsys.readouterr()
    assert says in told.out + told.err
    assert f"edge-export: --board {board}: the model needs" in told.err and " layer '" in told.err
    assert not out.exists()


def test_a_model_larger_than_the_flash_needs_no_compiler_to_be_refused(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(chip_code, "code_for", lambda cpu, needs: None)
    path = tmp_path / "wide.bin"
    path.write_bytes(Bin((256,)).add("linear", out_features=64).bytes(golden=0))
    assert export(path, "--board", "atmega328p") == 1
    err = capsys.readouterr().err
    size = len(records.stripped(path.read_bytes()))
    assert f"the model needs at least {size:,} bytes of flash, {size - (32 * 1024 - 512):,} more than there are" in err
    path.write_bytes(bins.mlp().bytes(golden=0))
    assert export(path, "--board", "atmega328p") == 1
    assert "install avr-gcc" in capsys.readouterr().err


def test_every_board_has_a_table(from_the_table, model):
    for board in boards.BOARDS.values():
        if board.cpu == "atmega328p":
            continue  # whose compiler alone can say
        assert boards.cost(board, model.read_bytes()) is not None, board.name


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["--board", "cray1"], "there is no such board here; known are atmega328p"),
        (["-o", "x.bin", "--with-golden"], "only for C headers"),
        (["-o", "x y.h"], "the name of a C header has letters"),
        (["-o", "x.tar"], "a name that ends in .bin or .onnx or .h"),
    ],
)
def test_a_command_that_cannot_be_is_one_sentence(model, capsys, argv, says, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert export(model, *argv) == 1
    assert says in capsys.readouterr().err


def test_a_damaged_model_is_refused(tmp_path, capsys):
    path = tmp_path / "bad.bin"
    path.write_bytes(bins.digits().bytes()[:-1])
    assert export(path, "-o", tmp_path / "bad.h") == 1
    assert "cut off" in capsys.readouterr().err
