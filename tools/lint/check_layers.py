#!/usr/bin/env python3
"""Who may include whom. The table below is the architecture; the linker enforces only part of it.

    templates/contract   nothing but itself, and no system header: g++, clang and NVRTC read it
    templates/packing    contract
    templates/device     contract
    templates/kernels    device, packing, contract
    cache                w4moe/error.hpp; knows nothing of CUDA, dimensions or kernels
    generator            contract; a stranger to cache, so that keys are derived in one place, runtime/build
    runtime              generator, cache, contract, packing; device and kernels only in runtime/lockstep, which runs them
    tools                everything of the host
    tests                everything

Public headers (generator/include, runtime/include) show no fmt, spdlog, json or CUDA type, and no header of the CUDA toolkit
is included anywhere: a machine without the toolkit builds and runs everything.
"""
import os
import re
import sys

import source_text as st

INCLUDE = re.compile(r'(?m)^[ \t]*#[ \t]*include[ \t]*(?:"(?P<own>[^"\n]+)"|<(?P<system>[^>\n]+)>)')

# Most specific first; a file belongs to the first layer whose folder it lies in.
LAYERS = (
    "templates/contract",
    "templates/packing",
    "templates/device",
    "templates/kernels",
    "generator/include",
    "generator",
    "runtime/include",
    "runtime/lockstep",
    "runtime",
    "cache",
    "tools",
    "tests",
)
_TEMPLATES = {"templates/contract", "templates/packing", "templates/device", "templates/kernels"}
_HOST_TEMPLATES = {"templates/contract", "templates/packing"}
MAY_INCLUDE = {
    "templates/contract": {"templates/contract"},
    "templates/packing": _HOST_TEMPLATES,
    "templates/device": {"templates/contract", "templates/device"},
    "templates/kernels": _TEMPLATES,
    "generator/include": {"generator/include", "templates/contract"},
    "generator": {"generator", "generator/include", "templates/contract"},
    "runtime/include": {"runtime/include", "generator/include"} | _HOST_TEMPLATES,
    "runtime/lockstep": {"runtime/lockstep", "runtime", "runtime/include", "generator", "generator/include", "cache"} | _TEMPLATES,
    "runtime": {"runtime", "runtime/include", "runtime/lockstep", "generator", "generator/include", "cache"} | _HOST_TEMPLATES,
    "cache": {"cache"},
    "tools": {"tools", "runtime", "runtime/include", "generator", "generator/include", "cache"} | _HOST_TEMPLATES,
    "tests": set(LAYERS),
}
# Single headers that a layer may use of another one.
ALSO = {
    "cache": {"generator/include/w4moe/error.hpp"},
    "generator": {"templates/packing/pack_args.h"},  # the size of every kernel's arguments is checked in one place
}

CUDA_HEADER = re.compile(r"(?:cuda|nvrtc|cublas|cooperative_groups|nvtx|cub/|thrust/|cute/|cutlass/|mma\.h|vector_types\.h)")
STANDARD_HEADER = re.compile(r"[a-z_0-9]+|(?:stdint|stddef|stdbool|string)\.h")
PUBLIC = ("generator/include", "runtime/include")
# Where a quoted include is looked for, besides the including file's own folder; as the compile commands have it.
INCLUDE_DIRS = ("", "templates", "generator/include", "runtime/include")


def layer_of(path):
    return next((layer for layer in LAYERS if path.startswith(layer + "/")), None)


def resolve(root, path, name):
    """Path of the included file relative to the root, or None if the project has no such file."""
    for folder in (os.path.dirname(path), *INCLUDE_DIRS):
        candidate = os.path.normpath(os.path.join(folder, name)).replace(os.sep, "/")
        if os.path.isfile(os.path.join(root, candidate)):
            return candidate
    return None


def fault_of_system(layer, name):
    if CUDA_HEADER.match(name):
        return f"<{name}> is a header of the CUDA toolkit; declare what is needed"
    if layer in _TEMPLATES:
        return f"templates include no system header, and <{name}> is one"
    if layer in PUBLIC and not STANDARD_HEADER.fullmatch(name):
        return f"a public header shows only the standard library; <{name}> is not of it"
    return None


def fault_of_own(root, path, layer, name):
    target = resolve(root, path, name)
    if target is None:
        # A file that the build generates, or a library's header in quotes: no layer of ours.
        return f'"{name}" is a header of the CUDA toolkit' if CUDA_HEADER.match(name) else None
    other = layer_of(target)
    if other is None or other in MAY_INCLUDE[layer] or target in ALSO.get(layer, ()):
        return None
    return f"{layer} may not include {other} (\"{name}\")"


def check_text(root, path, text):
    layer = layer_of(path)
    if layer is None:
        return
    code = st.blank(text, keep_strings=True)
    for match in INCLUDE.finditer(code):
        if match["system"] and not match["system"].startswith("w4moe/"):
            fault = fault_of_system(layer, match["system"])
        else:
            fault = fault_of_own(root, path, layer, match["own"] or match["system"])
        if fault:
            yield st.Finding(path, st.line_of(code, match.start()), fault)


def check(root):
    findings, checked = [], 0
    for path in st.files(root, ("templates", "generator", "runtime", "cache", "tools", "tests")):
        findings.extend(check_text(root, path, st.read(root, path)))
        checked += 1
    return findings, checked


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else st.default_root()
    sys.exit(st.report("check_layers", *check(root)))


if __name__ == "__main__":
    main()
