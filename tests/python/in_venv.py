#!/usr/bin/env python3
"""Builds the wheel, installs it into a fresh virtual environment, and runs the tests of this folder there.

Arguments: libw4moe_c.so, an empty work folder, then any for pytest. Needs pip's index for setuptools, wheel, NumPy and pytest; exits with 77
where it cannot be reached (an error where CI is set).
"""
import os
import shutil
import subprocess
import sys
import venv

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
TOOLS = ["setuptools>=70.1", "wheel", "numpy>=1.24", "pytest>=7"]


def run(*command, **environment):
    subprocess.run(command, check=True, env=dict(os.environ, **environment))


def main():
    library, work = map(os.path.abspath, sys.argv[1:3])
    shutil.rmtree(work, ignore_errors=True)
    folder = os.path.join(work, "venv")
    try:
        venv.create(folder, with_pip=True)
    except (subprocess.CalledProcessError, OSError) as error:
        print(f"no virtual environment ({error}); Debian has them in python3-venv", file=sys.stderr)
        sys.exit(1 if os.environ.get("CI") else 77)
    python = os.path.join(folder, "bin", "python")
    pip = [python, "-m", "pip", "--disable-pip-version-check", "-q"]
    got = subprocess.run([*pip, "install", *TOOLS], check=False, capture_output=True, text=True)
    if got.returncode != 0:
        print(f"{' '.join(TOOLS)} cannot be installed:\n{got.stderr}", file=sys.stderr)
        sys.exit(1 if os.environ.get("CI") else 77)

    # From a copy: the source tree stays as it is.
    source = os.path.join(work, "source")
    shutil.copytree(os.path.join(ROOT, "tools", "python"), source, ignore=shutil.ignore_patterns("build", "*.egg-info", "__pycache__"))
    wheels = os.path.join(work, "wheels")
    run(*pip, "wheel", "--no-build-isolation", "--no-deps", "-w", wheels, source, W4MOE_PREBUILT=library, W4MOE_SOURCE=ROOT)
    (wheel,) = os.listdir(wheels)
    run(*pip, "install", "--no-index", "--no-deps", os.path.join(wheels, wheel))

    environment = {"W4MOE_CACHE_DIR": os.path.join(work, "cache"), "PYTHONDONTWRITEBYTECODE": "1", "W4MOE_TEST_WHEEL": "1"}
    # Neither this tree's package nor its library, but the wheel's.
    kept = {name: value for name, value in os.environ.items() if name not in ("W4MOE_LIBRARY", "PYTHONPATH")}
    sys.exit(subprocess.run([python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *(sys.argv[3:] or ["--durations=5", HERE])], check=False, cwd=work, env=dict(kept, **environment)).returncode)


if __name__ == "__main__":
    main()
