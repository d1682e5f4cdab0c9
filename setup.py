"""What pyproject.toml cannot say: the C extension, one build of which serves all CPython from 3.10 on."""

from setuptools import setup

setup(
    cffi_modules=["pyruntime/build_ffi.py:ffi"],
    options={"bdist_wheel": {"py_limited_api": "cp310"}},
)
