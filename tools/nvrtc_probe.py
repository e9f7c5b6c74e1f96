#!/usr/bin/env python3
"""Compiles a one-line kernel for sm_90a with the NVRTC library given as argument, or else named by W4MOE_NVRTC.

Prints "13.0" (the library's version) and exits 0 if a cubin came out; otherwise says why on stderr and exits 1. Where no
library is named it exits with --skip-code. The builtins library beside it is loaded first: NVRTC asks for it by bare name,
which only a system-wide installation can answer.
"""
import argparse
import ctypes
import glob
import os
import sys

SOURCE = b'extern "C" __global__ void probe(int* out) { *out = threadIdx.x; }'
MINIMUM = (13, 0)


def builtins_beside(path):
    pattern = os.path.join(os.path.dirname(os.path.realpath(path)), "libnvrtc-builtins.so.*")
    return sorted(glob.glob(pattern))


def probe(path):
    for builtins in builtins_beside(path):
        ctypes.CDLL(builtins)
    nvrtc = ctypes.CDLL(path)
    major, minor = ctypes.c_int(), ctypes.c_int()
    if nvrtc.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)) != 0:
        raise RuntimeError("nvrtcVersion failed")
    if (major.value, minor.value) < MINIMUM:
        raise RuntimeError(f"NVRTC {major.value}.{minor.value} is older than {MINIMUM[0]}.{MINIMUM[1]}")
    program = ctypes.c_void_p()
    nvrtc.nvrtcCreateProgram(ctypes.byref(program), SOURCE, b"probe.cu", 0, None, None)
    options = (ctypes.c_char_p * 1)(b"--gpu-architecture=sm_90a")
    status = nvrtc.nvrtcCompileProgram(program, 1, options)
    if status != 0:
        size = ctypes.c_size_t()
        nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        log = ctypes.create_string_buffer(size.value + 1)
        nvrtc.nvrtcGetProgramLog(program, log)
        raise RuntimeError(f"compiling failed with status {status}: {log.value.decode(errors='replace').strip()}")
    return f"{major.value}.{minor.value}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("library", nargs="?", default=os.environ.get("W4MOE_NVRTC", ""))
    parser.add_argument("--skip-code", type=int, default=2, help="exit code where no library is named (2)")
    arguments = parser.parse_args()
    if not arguments.library:
        print("no library named, and W4MOE_NVRTC is not set", file=sys.stderr)
        sys.exit(arguments.skip_code)
    try:
        print(probe(arguments.library))
    except (OSError, RuntimeError, AttributeError) as error:
        sys.exit(f"{arguments.library}: {error}")


if __name__ == "__main__":
    main()
