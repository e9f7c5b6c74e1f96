#!/usr/bin/env python3
"""Runs the tests of the Python package on a GPU: one command, with or without pytest.

    cmake --build build --target w4moe_c && python3 tests/python_gpu/run.py [NAME ...]

Names are parts of test names. Needs torch with CUDA, and NVRTC where the kernel cache is empty. Exit status 0: all passed or skipped, 1: one
failed, 77: no torch or no GPU. W4MOE_TEST_DEVICE=lockstep runs a part of them on the CPU.
"""
import os
import sys
import time
import traceback

os.environ.setdefault("PYTHONDONTWRITEBYTECODE", "1")
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))


def main():
    try:
        import torch
    except ImportError as error:
        print(f"skipped: no torch ({error})")
        return 77
    if os.environ.get("W4MOE_TEST_DEVICE") != "lockstep" and not torch.cuda.is_available():
        print("skipped: torch finds no GPU")
        return 77
    import support
    import test_gpu

    print(f"torch {torch.__version__}, w4moe {support.w4moe.__version__} of {support.w4moe._library.path}, {torch.cuda.get_device_name() if support.CUDA else 'lock-step device'}")
    passed = failed = skipped = 0
    for name, test in list(vars(test_gpu).items()):
        if not name.startswith("test_") or (sys.argv[1:] and not any(part in name for part in sys.argv[1:])):
            continue
        start = time.monotonic()
        try:
            test()
            passed += 1
            verdict = "passed"
        except BaseException as error:  # pytest's skip is no Exception
            if isinstance(error, KeyboardInterrupt):
                raise
            if type(error).__name__ in ("Skipped",):
                skipped += 1
                verdict = f"skipped: {error}"
            else:
                failed += 1
                verdict = "FAILED"
                traceback.print_exc()
        print(f"{time.monotonic() - start:7.1f} s  {name}: {verdict}", flush=True)
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
