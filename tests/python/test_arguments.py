"""What is refused, and that each error names its argument, has the library's text, and launches nothing."""
import ctypes
import os
import re
import subprocess
import sys

import numpy as np
import pytest
import w4moe
from reference import Layer, small_problem as problem
from w4moe import _abi, tensors


def test_values_of_a_problem():
    for changes, part in [
        (dict(format="fp4"), "fp4"), (dict(activation="swish"), "swish"), (dict(dtype="f32"), "dtype = 'f32'"), (dict(hidden=128.0), "hidden = 128.0"),
        (dict(alpha=2.0), "alpha"), (dict(limit="some"), "limit = 'some'"), (dict(topk=33), "33"), (dict(intermediate=80), "32"),
        (dict(format="int4:g128", intermediate=704), "128"),
    ]:  # fmt: skip
        with pytest.raises(w4moe.Error, match=re.escape(part)):
            w4moe.Plan(problem(**changes), arch="sm_90a")
    with pytest.raises(w4moe.Unsupported):  # N03: before any device is asked
        w4moe.Engine("cuda:7").plan(problem(intermediate=80))
    assert w4moe.Plan(problem(activation="swiglu-oai", limit="none"), arch="sm_90a").kernels > 0
    with pytest.raises(ValueError, match="device = 'gpu'"):
        w4moe.Engine("gpu")
    with pytest.raises(w4moe.InvalidArgument, match="neither an engine nor options.arch"):
        w4moe.Plan(problem())


def test_errors_are_the_library_s(engine, tmp_path):
    assert issubclass(w4moe.InvalidArgument, ValueError)
    other = w4moe.Engine("lockstep", jit=False, cache_dir=str(tmp_path / "cache"))
    assert other.frozen and not engine.frozen
    plan = other.plan(problem(hidden=192))
    with pytest.raises(w4moe.NotPrepared) as raised:
        other.build(plan)
    assert other.last_error() == str(raised.value) != ""
    assert raised.value.status == _abi.NOT_PREPARED
    with pytest.raises(w4moe.NotPrepared, match="not built"):
        w4moe.MoE(other, plan, Layer(problem(hidden=192)).weights)
    with pytest.raises(w4moe.Unsupported, match="no cache to build ahead"):
        engine.build_cache([plan])


@pytest.mark.parametrize("argument, value, part", [
    ("hidden", lambda c: np.zeros((3, 128), np.float32), "hidden: f32 [3, 128] on cpu, expected bf16"),
    ("hidden", lambda c: w4moe.as_dtype(np.zeros((3, 136), np.uint16), "bf16"), "hidden: bf16 [3, 136] on cpu, expected shape [tokens, 128]"),
    ("hidden", lambda c: w4moe.as_dtype(np.zeros((128, 3), np.uint16).T, "bf16"), "hidden: elements of a row lie 3 apart"),
    ("hidden", lambda c: w4moe.as_dtype(np.zeros((5, 128), np.uint16), "bf16"), "topk_ids: i32 [3, 2] on cpu, expected shape [5, 2]"),
    ("hidden", lambda c: [[0.0]], "hidden: list is no tensor"),
    ("ids", lambda c: c.astype(np.uint8), "topk_ids: u8 [3, 2] on cpu, expected i32 or i64"),
    ("ids", lambda c: c[:2], "topk_ids: i32 [2, 2] on cpu, expected shape [3, 2]"),
    ("router", lambda c: c.astype(np.float64), "topk_weights: f64 [3, 2] on cpu, expected f32 or bf16"),
    ("router", lambda c: c.astype(np.float16), "topk_weights: f16"),
    ("out", lambda c: np.zeros((3, 128), np.float16), "out: f16"),
    ("stream", lambda c: 5, "lock-step device has no streams"),
    ("stream", lambda c: "main", "stream: 'main' is no stream"),
])  # fmt: skip
def test_N27_run_names_the_argument(moe, small, argument, value, part):
    x, ids, router, _ = small[0].inputs(3)
    given = dict(hidden=x, ids=ids, router=router, out=None, stream=None)
    given[argument] = value(given[argument])
    with pytest.raises(w4moe.InvalidArgument, match=re.escape(part)):
        moe.run(given["hidden"], given["ids"], given["router"], given["out"], given["stream"])


def test_S16_too_many_tokens(moe, small):
    x, ids, router, _ = small[0].inputs(5)
    out = w4moe.as_dtype(np.full((5, 128), 0xA5A5, np.uint16), "bf16")
    with pytest.raises(w4moe.InvalidArgument, match="tokens = 5 exceeds the plan's max_tokens 4"):
        moe.run(x, ids, router, out)
    assert (out.array == 0xA5A5).all()


def test_read_only_output(moe, small):
    x, ids, router, _ = small[0].inputs(2)
    out = np.zeros((2, 128), np.uint16)
    out.flags.writeable = False
    with pytest.raises(w4moe.InvalidArgument, match="^out: "):
        moe.run(x, ids, router, w4moe.as_dtype(out, "bf16"))


def test_N26_orders_of_weights_must_be_named_and_fit(engine, small):
    layer, plan = small
    good = layer.weights
    def changed(**values):
        return w4moe.Weights(**dict(dict(gate_up_order="gate_first", gate_up=good.gate_up, down=good.down), **values))

    for weights, part in [
        (changed(gate_up_order="mixed"), "gate_up_order = 'mixed'"),
        (changed(code_order=None), "code_order = None"),
        (changed(scale_layout="swizzled"), "scale_layout = 'swizzled'"),
        (changed(down=w4moe.Matrix(good.down.codes[:, :, :8], good.down.scales, bias=good.down.bias)), "down.codes"),
        (changed(down=w4moe.Matrix(good.down.codes, good.down.scales)), "down.bias: missing"),
        (changed(down=w4moe.Matrix([good.down.codes[0]] * 3, good.down.scales, bias=good.down.bias)), "down.codes: 3 tensors"),
        (changed(down=w4moe.Matrix(good.down.codes.astype(np.int64), good.down.scales, bias=good.down.bias)), "down.codes: dtype = 'i64'"),
        (changed(global_convention="multiply", gate_global=[1.0]), "gate_global: expected 4 numbers"),
    ]:  # fmt: skip
        with pytest.raises(w4moe.InvalidArgument, match=re.escape(part)):
            engine.prepare(plan, weights)
        with pytest.raises(w4moe.InvalidArgument, match=re.escape(part)):
            w4moe.pack_on_cpu(plan, weights)
    with pytest.raises(w4moe.InvalidArgument, match="weights: dict"):
        w4moe.MoE(engine, plan, {})
    per_expert = changed(down=w4moe.Matrix(list(good.down.codes), list(good.down.scales), bias=list(good.down.bias)))
    assert bytes(w4moe.pack_on_cpu(plan, per_expert)) == bytes(w4moe.pack_on_cpu(plan, good))


def test_wide_exponents_are_recommended():
    layer = Layer(problem())
    assert w4moe.recommended_format(layer.problem, layer.weights) == "mxfp4"
    layer.weights.down.scales[0, 0, 0], layer.weights.down.scales[0, 0, 1] = 1, 250
    assert w4moe.recommended_format(layer.problem, layer.weights) == "mxfp4:wide"


class Producer:
    """A tensor of another library: wraps NumPy's capsule, in the old or the new form."""

    def __init__(self, array, versioned, device=(1, 0)):
        self.array, self.versioned, self.device = array, versioned, device

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, **keywords):
        if not self.versioned:
            if "max_version" in keywords:
                raise TypeError("unexpected keyword argument 'max_version'")
            return self.array.__dlpack__()
        return self.array.__dlpack__(**keywords)


def test_capsules_old_and_new():
    array = np.arange(24, dtype=np.int32).reshape(4, 6)[:, ::2]
    for versioned in (False, True):
        if versioned and tuple(map(int, np.__version__.split(".")[:2])) < (2, 1):
            continue
        view = tensors.view_of(Producer(array, versioned), "x")
        assert (view.dtype, view.shape, view.strides, view.device) == ("i32", (4, 3), (6, 2), tensors.CPU)
        assert view.pointer == array.ctypes.data
        assert not view.contiguous
    references = sys.getrefcount(array)
    for _ in range(100):
        tensors.view_of(array, "x")
    assert sys.getrefcount(array) == references  # each capsule gave its tensor back
    with pytest.raises(w4moe.InvalidArgument, match="x: element type"):
        tensors.view_of(np.zeros(3, np.complex64), "x")
    with pytest.raises(w4moe.InvalidArgument, match="cannot be read as bf16"):
        tensors.view_of(w4moe.as_dtype(np.zeros(3, np.float32), "bf16"), "x")
    with pytest.raises(w4moe.InvalidArgument, match="dtype 'fp4'"):
        w4moe.as_dtype(array, "fp4")


def test_tensors_of_another_device_are_refused(engine, moe, small):
    x, ids, router, _ = small[0].inputs(2)
    on_gpu = tensors.View("x", x.array.ctypes.data, "bf16", (2, 128), (128, 1), tensors.CUDA, 1, False, x)
    with pytest.raises(w4moe.InvalidArgument, match=r"hidden: bf16 \[2, 128\] on cuda:1, expected host memory"):
        moe.run(on_gpu, ids, router)
    cuda = w4moe.Engine("cuda:0")
    for view in (tensors.view_of(ids, "out"), on_gpu):  # R02
        with pytest.raises(w4moe.InvalidArgument, match="expected memory of cuda:0"):
            cuda.check_place(view)
    mixed = w4moe.Weights("gate_first", gate_up=small[0].weights.gate_up, down=w4moe.Matrix(on_gpu, on_gpu))
    with pytest.raises(w4moe.InvalidArgument, match="on the CPU and on a GPU: gate_up.* down"):
        w4moe.pack_on_cpu(small[1], mixed)


def test_structures_are_the_header_s():
    """Sizes, offsets and values of _abi.py against tests/abi/interface.txt, which a C compiler measured."""
    with open(os.path.join(os.path.dirname(__file__), "..", "abi", "interface.txt"), encoding="utf-8") as file:
        text = file.read()
    sizes = {name: int(count) for name, count in re.findall(r"w4moe_(\w+): (\d+) bytes", text)}
    members = re.findall(r"w4moe_(\w+)\.(\w+) at (\d+), (\d+) bytes", text)
    by_name = {re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower(): kind for name, kind in vars(_abi).items() if isinstance(kind, type) and issubclass(kind, ctypes.Structure) and name != "Sized"}
    assert set(by_name) == set(sizes)
    for name, kind in by_name.items():
        assert ctypes.sizeof(kind) == sizes[name], name
    for structure, member, offset, count in members:
        field = getattr(by_name[structure], member)
        assert (field.offset, field.size) == (int(offset), int(count)), (structure, member)
    assert len(members) == sum(len(kind._fields_) for kind in by_name.values())
    constants = dict(re.findall(r"W4MOE_(\w+) = (\d+)", text))
    for prefix, table in [("DTYPE", _abi.DTYPES), ("IDS", _abi.IDS), ("TENSOR", _abi.TENSORS), ("GATE_UP", _abi.GATE_UP), ("CODES", _abi.CODES),
                          ("CODE_SIGN", _abi.CODE_SIGNS), ("SCALES", _abi.SCALES), ("ZEROS", _abi.ZEROS), ("GLOBALS", _abi.GLOBALS)]:  # fmt: skip
        for name, number in table.items():
            if name is not None:
                assert int(constants[f"{prefix}_{name.upper()}"]) == number, (prefix, name)
    for kind in w4moe.errors._BY_STATUS.values():
        assert _abi.library.status_name(kind.status) != b"unknown"
    declared = set(re.findall(r"w4moe_(\w+)\(", text))
    assert declared == set(_abi.FUNCTIONS)


FORKED = """
import os, sys
import w4moe
problem = w4moe.Problem(256, 128, 8, 2, 64)
engine = w4moe.Engine("cuda:0")
assert w4moe.Plan(problem, arch="sm_90a").scratch_bytes > 0
def loaded(): return "libcuda" in open("/proc/self/maps").read()
assert not loaded(), "importing, planning and pricing must not open the driver"
assert "torch" not in sys.modules and "numpy" not in sys.modules
child = os.fork()
if child == 0:
    os.environ["CUDA_VISIBLE_DEVICES"] = "0"
    plan = engine.plan(problem)
    assert plan.sms == 132 and plan.arch == "sm_90a" and loaded()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert not loaded()
"""


def test_R04_importing_and_planning_touch_no_driver_and_leave_fork_open():
    env = dict(os.environ, LD_LIBRARY_PATH=os.path.dirname(os.environ["W4MOE_FAKE_LIBCUDA"]))
    result = subprocess.run([sys.executable, "-c", FORKED], env=env, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
