"""The way to a GPU, on the recording driver as libcuda (tests/fake_driver): memory, streams and kernels are real to everything but the launch.

In a process of its own, since a process has one libcuda. Needs NVRTC, or kernels in the cache.
"""
import os
import subprocess
import sys

import pytest

PROGRAM = r"""
import ctypes as C
import sys
import threading

import numpy as np
import w4moe
from reference import Layer, small_problem
from w4moe import tensors

libcuda = C.CDLL("libcuda.so.1")


def driver(name, *values, out=None):
    # `out`, where given, is filled through the first argument.
    function = C.c_void_p()
    assert libcuda.cuGetProcAddress_v2(name.encode(), C.byref(function), 12000, C.c_uint64(0), None) == 0, name
    arguments = ([] if out is None else [C.cast(C.pointer(out), C.c_void_p)]) + list(values)
    code = C.CFUNCTYPE(C.c_int, *map(type, arguments))(function.value)(*arguments)
    assert code == 0, (name, code)


def allocate(count, index=0):
    address = C.c_uint64()
    driver("cuMemAlloc", C.c_size_t(max(count, 1)), out=address)
    return tensors.View("memory", address.value, "u8", (count,), (1,), tensors.CUDA, index, False, None)


engine = w4moe.Engine("cuda:0", allocator=allocate)
layer = Layer(small_problem(bias=True))
plan = engine.plan(layer.problem)  # asks the device, needs no context
assert (plan.arch, plan.sms) == ("sm_90a", 132)
try:
    engine.build(plan)
    raise AssertionError("built without a context")
except w4moe.DriverError as error:
    assert "no CUDA context is current" in str(error), error

context = C.c_void_p()
driver("cuDevicePrimaryCtxRetain", C.c_int(0), out=context)
driver("cuCtxPushCurrent", context)
try:
    report = engine.build(plan)
except w4moe.ToolchainMissing as error:
    print(error)
    sys.exit(77)
assert report.kernels == plan.kernels
stream = C.c_void_p()
driver("cuStreamCreate", C.c_uint(1), out=stream)

packed = w4moe.pack_on_cpu(plan, layer.weights)
memory = allocate(plan.prepared_weight_bytes)
C.memmove(memory.pointer, packed.pointer, packed.bytes)
scratch = w4moe.Scratch(engine, plan)
moe = w4moe.MoE(engine, plan, engine.adopt(plan, memory), scratch, stream=stream.value)
assert moe.status() == "ok"  # the control region was written


def on_gpu(array, dtype, index=0):
    view = allocate(array.nbytes, index)
    C.memmove(view.pointer, array.ctypes.data, array.nbytes)
    return tensors.View("x", view.pointer, dtype, array.shape, tensors.dense_strides(array.shape), tensors.CUDA, index, False, None)


x, ids, router, _ = layer.inputs(3)
given = dict(hidden=on_gpu(x.array, "bf16"), topk_ids=on_gpu(ids, "i32"), topk_weights=on_gpu(router, "f32"), out=on_gpu(x.array, "bf16"), stream=stream.value)
assert moe.run(**given) is given["out"]
for name, value, part in [("topk_ids", ids, "topk_ids: i32 [3, 2] on cpu, expected memory of cuda:0"),
                          ("hidden", on_gpu(x.array, "bf16", 1), "hidden: bf16 [3, 128] on cuda:1, expected memory of cuda:0")]:
    try:
        moe.run(**dict(given, **{name: value}))
        raise AssertionError(f"{name} was not refused")
    except w4moe.InvalidArgument as error:
        assert part in str(error), error

# R02: threads that only run need no current context.
failed = []
def work():
    try:
        moe.run(**given)
    except w4moe.Error as error:
        failed.append(error)
thread = threading.Thread(target=work)
thread.start()
thread.join()
assert not failed, failed

# Another device than the current context's.
second = w4moe.Engine("cuda:1", allocator=allocate)
try:
    second.plan(layer.problem)
    raise AssertionError("there is no device 1")
except w4moe.InvalidArgument as error:
    assert "device 1 does not exist" in str(error), error

# Packing on the device: workspace from the allocator, everything on the stream. The kernels do nothing here, so that no weights come out.
engine.prepare(plan, layer.weights, stream=stream.value)
engine.unload(plan)
print("done")
"""


def test_R01_R02_R08_life_on_a_device():
    env = dict(os.environ, LD_LIBRARY_PATH=os.path.dirname(os.environ["W4MOE_FAKE_LIBCUDA"]), PYTHONPATH=os.path.dirname(os.path.abspath(__file__)))
    result = subprocess.run([sys.executable, "-c", PROGRAM], env=env, capture_output=True, text=True, check=False)
    if result.returncode == 77:
        pytest.skip(result.stdout)
    assert result.returncode == 0 and result.stdout == "done\n", result.stdout + result.stderr
