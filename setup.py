"""What pyproject.toml cannot say: the C extension, one build of which serves all CPython from 3.10 on."""

from setuptools import setup
from setuptools.command.build_py import build_py


class WithoutBuildScripts(build_py):
    """What builds the extension is not installed with it."""

    def find_package_modules(self, package, package_dir):
        found = super().find_package_modules(package, package_dir)
        return [entry for entry in found if not entry[1].startswith("build_")]


setup(
    cffi_modules=["pyruntime/build_ffi.py:ffi"],
    cmdclass={"build_py": WithoutBuildScripts},
    options={"bdist_wheel": {"py_limited_api": "cp310"}},
)
