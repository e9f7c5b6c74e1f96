"""Puts libw4moe_c into the wheel: the one that W4MOE_PREBUILT names, or one that CMake builds from this source tree
(W4MOE_CMAKE_ARGS: further arguments of its configuration).

The libraries of fmt and spdlog that it is linked with go into the wheel beside it, and it finds them there ($ORIGIN).
"""
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:  # before setuptools 70
    from wheel.bdist_wheel import bdist_wheel

# A copy of this folder (a test makes one) names the tree that it was copied from.
ROOT = Path(os.environ.get("W4MOE_SOURCE") or Path(__file__).resolve().parents[2])
HEADER = ROOT / "runtime" / "include" / "w4moe" / "w4moe.h"
BUNDLED = re.compile(r"lib(fmt|spdlog)\.so\.\S+")


def version() -> str:
    return re.search(r"project\(w4moe VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text(encoding="utf-8"))[1]


def abi_version() -> str:
    return re.search(r"#define W4MOE_ABI_VERSION (\d+)", HEADER.read_text(encoding="utf-8"))[1]


def built_library() -> Path:
    """libw4moe_c.so of a release build of this tree, in a folder that a second build goes on from."""
    folder = ROOT / "build-wheel"
    generator = ["-G", "Ninja"] if shutil.which("ninja") else []
    subprocess.run(["cmake", "-S", ROOT, "-B", folder, *generator, "-DCMAKE_BUILD_TYPE=Release", "-DW4MOE_TESTS=OFF", "-DW4MOE_TOOLS=OFF", "-DW4MOE_INSTALL=OFF", *shlex.split(os.environ.get("W4MOE_CMAKE_ARGS", ""))], check=True)
    subprocess.run(["cmake", "--build", folder, "--target", "w4moe_c", "-j", str(os.cpu_count() or 1)], check=True)
    return folder / "package" / "libw4moe_c.so"


def needed(library: Path):
    """Paths of the libraries that a library is linked with."""
    listing = subprocess.run(["ldd", library], check=True, capture_output=True, text=True).stdout
    return [Path(path) for path in re.findall(r"=> (/\S+) \(0x", listing)]


class BuildWithLibrary(build_py):
    def run(self):
        super().run()
        library = Path(os.environ["W4MOE_PREBUILT"]) if os.environ.get("W4MOE_PREBUILT") else built_library()
        folder = Path(self.build_lib) / "w4moe" / "lib"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        target = folder / f"libw4moe_c.so.{abi_version()}"
        shutil.copy(library.resolve(), target)
        for path in needed(target):
            if BUNDLED.fullmatch(path.name):
                shutil.copy(path.resolve(), folder / path.name)
        for path in folder.iterdir():
            subprocess.run(["strip", "--strip-unneeded", path], check=True)


class AnyPython(bdist_wheel):
    """One wheel for every Python 3: ctypes needs no extension module."""

    def get_tag(self):
        return ("py3", "none", super().get_tag()[2])


class WithLibrary(Distribution):
    def has_ext_modules(self):
        return True


setup(version=version(), cmdclass={"build_py": BuildWithLibrary, "bdist_wheel": AnyPython}, distclass=WithLibrary)
