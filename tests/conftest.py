"""Tests are sorted by what they need. What does not run says why."""

import importlib.util
import json
import os

import pytest

os.environ["LITENET_TUNE"] = "off"  # what somebody has measured on this machine is no part of a test


def pytest_addoption(parser):
    parser.addoption("--slow", action="store_true", help="also run the tests that take minutes")


def pytest_collection_modifyitems(config, items):
    reasons = {
        "slow": None if config.getoption("--slow") else "takes minutes; run with --slow",
        "gpu": None if importlib.util.find_spec("cupy") else "needs a CUDA card and CuPy",
        "board": "needs a microcontroller on a serial port",
    }
    for item in items:
        for mark, reason in reasons.items():
            if reason and item.get_closest_marker(mark):
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder to stand in, with net.json and pictures.npz (runs.py)."""
    from runs import NET
    from test_loop import pictures

    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.json").write_text(json.dumps(NET))
    pictures(tmp_path / "pictures.npz")
    return tmp_path
