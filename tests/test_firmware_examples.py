"""What firmware_examples holds for boards that cannot be run here compiles; the camera loop runs on a film."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import bins
import cv2
import firmware
import numpy as np
import pytest
from cbuild import ROOT
from firmware_nets import NETS
from int8_nets import picture_model, pictures

STUBS = ROOT / "tests" / "boards"
BARE = "-nostdlib -nostartfiles -Wl,--gc-sections -Wl,--unresolved-symbols=ignore-all"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """TinyMaix's MNIST shapes in int8: what the READMEs' sizes are of."""
    return firmware.header(NETS["tinymaix_int8"](), tmp_path_factory.mktemp("model"), "tinymaix")


def run(*command, **more) -> str:
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, check=False, **more)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    return done.stdout


def cmake(folder: str, out: Path, *given: str) -> None:
    system = {**os.environ, "IDF_PATH": f"{STUBS}/esp-idf"}
    run("cmake", "-S", firmware.EXAMPLES / folder, "-B", out, *given, env=system)
    run("cmake", "--build", out)


def bare(prefix: str, flags: str, entry: str) -> list[str]:
    """A processor without a system, for CMake; what no library here defines may stay open."""
    firmware.need(f"{prefix}gcc", "cmake", "make")
    return ["-DCMAKE_SYSTEM_NAME=Generic", "-DCMAKE_TRY_COMPILE_TARGET_TYPE=STATIC_LIBRARY",
            f"-DCMAKE_C_COMPILER={prefix}gcc", f"-DCMAKE_CXX_COMPILER={prefix}g++", f"-DCMAKE_C_FLAGS={flags}",
            f"-DCMAKE_EXE_LINKER_FLAGS={BARE} -Wl,-e,{entry}", "-DCMAKE_C_STANDARD_LIBRARIES=-lgcc"]  # fmt: skip


def test_the_picos_project_builds(model):
    """With CMake, against declarations of the SDK's functions."""
    out = model.parent / "pico"
    given = bare("arm-none-eabi-", "-mcpu=cortex-m0plus -mthumb", "main")
    cmake("rp2040_pico", out, *given, f"-DPICO_SDK_PATH={STUBS}/pico-sdk", f"-DMODEL={model}")
    firmware.as_told("rp2040_pico", out / "firmware")


@pytest.mark.parametrize(
    ("prefix", "flags"),
    [("xtensa-lx106-elf-", "-mlongcalls"), ("riscv64-unknown-elf-", "-march=rv32imc -mabi=ilp32")],
    ids=["xtensa", "riscv"],
)
def test_the_esp32s_project_builds(model, prefix, flags):
    """With CMake, against declarations of ESP-IDF's functions."""
    out = model.parent / prefix
    cmake("esp32", out, *bare(prefix, f"-ffreestanding {flags}", "app_main"), f"-DMODEL={model}")
    if "riscv" in prefix:
        firmware.as_told("esp32", out / "litenet_esp32.elf", prefix)


def test_the_stm32_image_builds(model):
    firmware.need("arm-none-eabi-gcc", "cmake", "make")
    out = model.parent / "stm32"
    cmake("stm32", out, f"-DCMAKE_TOOLCHAIN_FILE={firmware.EXAMPLES / 'stm32' / 'arm.cmake'}", f"-DMODEL={model}")
    text = run("arm-none-eabi-objdump", "-h", out / "firmware.elf")
    assert re.search(r"\.text\s+\w+\s+08000000", text)
    firmware.as_told("stm32", out / "firmware.elf")


def test_a_project_without_a_model_says_so(tmp_path):
    firmware.need("arm-none-eabi-gcc", "cmake", "make")
    where = firmware.EXAMPLES / "stm32"
    command = ["cmake", "-S", where, "-B", tmp_path, f"-DCMAKE_TOOLCHAIN_FILE={where / 'arm.cmake'}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "-DMODEL= the header that edge-export wrote is missing" in done.stderr


@pytest.mark.parametrize(
    ("compiler", "flags"),
    [("avr-gcc", ("-mmcu=atmega2560",)), ("arm-none-eabi-gcc", ("-mcpu=cortex-m4", "-mthumb"))],
)
def test_the_arduino_library_compiles(tmp_path, compiler, flags):
    cxx = compiler.replace("gcc", "g++")
    firmware.need(compiler, cxx)
    out, tiny = tmp_path / "LiteNet", firmware.header(NETS["tiny_int8"](), tmp_path, "tiny")
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
        table = next(part for part in text.split("\n\n") if part.startswith("| | |"))
        rows = [line.split("|")[1].strip() for line in table.splitlines()]
        want = ["---", "wiring", "build", "flash", "then", "flash, RAM, time", "what ran"]
        assert [r for r in rows if r] == want, folder


# ---------------------------------------------------------------- the camera


@pytest.fixture(scope="module")
def seeing(tmp_path_factory):
    """Nets that take pictures: (float32, int8)"""
    folder = tmp_path_factory.mktemp("camera")
    (folder / "float32.bin").write_bytes(bins.digits().bytes())
    (folder / "int8.bin").write_bytes(picture_model(pictures(), labels=["ant", "bee", "cat", "dog"]))
    return folder


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


def camera(model, source):
    command = [sys.executable, str(firmware.EXAMPLES / "raspberry_pi_camera" / "camera.py")]
    return subprocess.Popen([*command, str(model), "--source", str(source)], stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True)  # fmt: skip


@pytest.mark.parametrize("kind", ["float32", "int8"])
def test_the_camera_loop_answers_every_frame_with_its_rate(seeing, film, kind):
    out, err = camera(seeing / f"{kind}.bin", film).communicate(timeout=120)
    lines = out.strip().splitlines()
    assert len(lines) == 12 and all("frames a second, net" in line for line in lines)
    assert "12 frames in" in err


def test_the_camera_loop_is_stopped_cleanly(seeing, tmp_path):
    frames = tmp_path / "frames"
    frames.mkdir()
    picture = np.zeros((48, 64, 3), np.uint8)
    for i in range(400):
        cv2.imwrite(str(frames / f"{i:04}.png"), picture)
    with camera(seeing / "int8.bin", frames / "%04d.png") as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.readline()
        time.sleep(0.05)
        os.kill(process.pid, signal.SIGINT)
        err = process.stderr.read()
        assert process.wait(60) == 0 and "frames in" in err and "Traceback" not in err


def test_no_camera_is_one_sentence(seeing, tmp_path):
    process = camera(seeing / "int8.bin", tmp_path / "none.avi")
    _, err = process.communicate(timeout=120)
    assert process.returncode == 1 and "not there, or in use" in err
