"""What firmware_examples holds for boards that cannot be run here compiles; the camera loop runs on a film."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time

import bins
import cv2
import firmware
import numpy as np
import pytest
from cbuild import INCLUDE, ROOT, SRC

STUBS = ROOT / "tests" / "boards"
PICO = ("-mcpu=cortex-m0plus", "-mthumb")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return firmware.header(bins.digits().bytes(), tmp_path_factory.mktemp("model"), "digits")


def need(*tools: str) -> None:
    for tool in tools:
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")


def run(*command) -> str:
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def compile_one(model, source, *flags) -> None:
    include = [f"-I{INCLUDE}", f"-I{SRC}", f"-I{firmware.EXAMPLES / 'common'}", f"-I{STUBS}", f"-I{model.parent}"]
    named = ['-DMODEL_HEADER="digits.h"', "-DMODEL_NAME=digits", "-DMODEL_CAPS=DIGITS"]
    run("arm-none-eabi-gcc", *flags, "-std=gnu11", "-Wall", "-Wextra", "-Werror", *include, *named, "-c", source,
        "-o", model.parent / "one.o")  # fmt: skip


def test_the_picos_board_file_compiles(model):
    need("arm-none-eabi-gcc")
    compile_one(model, firmware.EXAMPLES / "rp2040_pico" / "board.c", *PICO)


def test_the_esp32s_main_compiles(model):
    need("arm-none-eabi-gcc")
    compile_one(model, firmware.EXAMPLES / "esp32" / "main" / "main.c", *PICO)


def test_the_stm32_image_builds_with_cmake(model):
    need("arm-none-eabi-gcc", "cmake", "make")
    where, out = firmware.EXAMPLES / "stm32", model.parent / "stm32"
    run("cmake", "-S", where, "-B", out, f"-DCMAKE_TOOLCHAIN_FILE={where / 'arm.cmake'}", f"-DMODEL={model}")
    run("cmake", "--build", out)
    text = run("arm-none-eabi-objdump", "-h", out / "firmware.elf")
    assert re.search(r"\.text\s+\w+\s+08000000", text)


@pytest.mark.parametrize(
    ("compiler", "flags"),
    [("avr-gcc", ("-mmcu=atmega2560",)), ("arm-none-eabi-gcc", ("-mcpu=cortex-m4", "-mthumb"))],
)
def test_the_arduino_library_compiles(tmp_path, compiler, flags):
    cxx = compiler.replace("gcc", "g++")
    need(compiler, cxx)
    out, tiny = tmp_path / "LiteNet", firmware.header(bins.mlp().bytes(), tmp_path, "tiny")
    run(sys.executable, firmware.EXAMPLES / "arduino" / "assemble.py", tiny, "-o", out)
    source = out / "src"
    assert {p.name for p in out.iterdir()} == {"src", "examples", "library.properties"}
    for path in sorted(source.glob("*.c")):
        run(compiler, *flags, "-Os", "-std=c99", "-c", path, "-o", tmp_path / f"{path.stem}.o")
    sketches = [*out.glob("examples/*/*.ino"), firmware.EXAMPLES / "esp32" / "arduino_sketch" / "arduino_sketch.ino"]
    for path in [source / "LiteNet.cpp", *sketches]:
        run(cxx, *flags, "-Os", "-std=gnu++11", "-x", "c++", f"-I{source}", f"-I{STUBS}", "-c", path, "-o",
            tmp_path / f"{path.stem}.o")  # fmt: skip


def test_the_arduino_assembler_leaves_other_folders_alone(model, tmp_path):
    (tmp_path / "mine").mkdir()
    command = [sys.executable, str(firmware.EXAMPLES / "arduino" / "assemble.py"), str(model), "-o"]
    done = subprocess.run([*command, str(tmp_path / "mine")], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "is no Arduino library" in done.stderr


def test_every_board_has_its_readme_of_one_template():
    for folder in sorted(p for p in firmware.EXAMPLES.iterdir() if p.is_dir() and p.name != "common"):
        text = (folder / "README.md").read_text(encoding="utf-8")
        rows = [line.split("|")[1].strip() for line in text.splitlines() if line.startswith("| ")]
        want = ["---", "wiring", "build", "flash", "then", "flash, RAM, time", "what ran"]
        assert [r for r in rows if r] == want, folder


# ---------------------------------------------------------------- the camera


@pytest.fixture
def film(tmp_path):
    path = tmp_path / "film.avi"
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter_fourcc(*"MJPG"), 10, (64, 48))
    if not writer.isOpened():
        pytest.skip("this OpenCV cannot write films")
    for _ in range(12):
        writer.write(np.random.default_rng(0).integers(0, 256, (48, 64, 3), np.uint8))
    writer.release()
    return path


def camera(model, source, **more):
    command = [sys.executable, str(firmware.EXAMPLES / "raspberry_pi_camera" / "camera.py")]
    return subprocess.Popen([*command, str(model.with_suffix(".bin")), "--source", str(source)],
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more)  # fmt: skip


def test_the_camera_loop_answers_every_frame_with_its_rate(model, film):
    out, err = camera(model, film).communicate(timeout=120)
    lines = out.strip().splitlines()
    assert len(lines) == 12 and all("frames a second, net" in line for line in lines)
    assert "12 frames in" in err


def test_the_camera_loop_is_stopped_cleanly(model, tmp_path):
    frames = tmp_path / "frames"
    frames.mkdir()
    picture = np.zeros((48, 64, 3), np.uint8)
    for i in range(400):
        cv2.imwrite(str(frames / f"{i:04}.png"), picture)
    with camera(model, frames / "%04d.png") as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.readline()
        time.sleep(0.05)
        os.kill(process.pid, signal.SIGINT)
        err = process.stderr.read()
        assert process.wait(60) == 0 and "frames in" in err and "Traceback" not in err


def test_no_camera_is_one_sentence(model, tmp_path):
    process = camera(model, tmp_path / "none.avi")
    _, err = process.communicate(timeout=120)
    assert process.returncode == 1 and "not there, or in use" in err
