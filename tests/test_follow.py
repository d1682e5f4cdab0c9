"""Every kernel waits for the launch before it by itself, before it does anything else: see backends/follow.py."""

import re

import pytest
from nvrtc import KERNELS

BODY = re.compile(r'extern "C" __global__ void\s+(?:__launch_bounds__\([^{]*?\)\s+)?(\w+)\([^{]*?\)\s*\{\s*([^;]*;)')


@pytest.mark.parametrize("path", sorted(KERNELS.glob("*.cu")), ids=lambda path: path.stem)
def test_the_first_statement_of_a_kernel_is_to_wait(path):
    text = path.read_text()
    bodies = BODY.findall(text)
    assert len(bodies) == text.count('extern "C" __global__')
    assert {name: first for name, first in bodies if first != "wait_for_last_launch();"} == {}
