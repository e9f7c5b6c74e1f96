"""Where the tests run, and what they need."""
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
EXAMPLES = os.path.join(ROOT, "tools", "python", "examples")


def use_this_tree():
    """The package of this tree with a library that has been built, unless a package is installed or W4MOE_LIBRARY names a library."""
    sys.path.insert(0, HERE)
    if "W4MOE_LIBRARY" not in os.environ:
        built = [os.path.join(ROOT, folder, "package", "libw4moe_c.so") for folder in sorted(os.listdir(ROOT)) if folder.startswith("build")]
        built = [path for path in built if os.path.exists(path)]
        if not built:
            return  # an installed package, or an ImportError that says so
        os.environ["W4MOE_LIBRARY"] = max(built, key=os.path.getmtime)
    sys.path.insert(0, os.path.join(ROOT, "tools", "python"))


use_this_tree()
import torch  # noqa: E402
import w4moe  # noqa: E402

DEVICE = os.environ.get("W4MOE_TEST_DEVICE", "cuda")
CUDA = DEVICE != "lockstep"
HOST_ENVIRONMENT = dict(os.environ, PYTHONPATH=os.pathsep.join([os.path.dirname(os.path.dirname(os.path.abspath(w4moe.__file__))), HERE, os.environ.get("PYTHONPATH", "")]))


class Skipped(Exception):
    """A test that needs what this machine lacks."""


def skip(why):
    try:
        import pytest
    except ImportError:
        raise Skipped(why) from None
    pytest.skip(why)


def needs_cuda():
    if not CUDA:
        skip("needs a GPU")


def needs_gpus(count):
    needs_cuda()
    if torch.cuda.device_count() < count:
        skip(f"needs {count} GPUs, here is {torch.cuda.device_count()}")


def shape(**changes):
    """A small layer: within the numerics contract's bound for rows on a GPU, few kernels for the host's compiler on the CPU."""
    size = dict(hidden=512, intermediate=256, experts=8, topk=2, max_tokens=64) if CUDA else dict(hidden=128, intermediate=64, experts=4, topk=2, max_tokens=4)
    return w4moe.Problem(**dict(size, **changes))
