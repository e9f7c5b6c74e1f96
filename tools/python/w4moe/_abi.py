"""w4moe.h in ctypes: structures, constants, functions. The C header has the words; names here are the same without their prefix."""
from __future__ import annotations

import ctypes as C
import os
from ctypes import POINTER, c_char, c_char_p, c_double, c_float, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from typing import Any

ABI_VERSION = 1

OK, INVALID_ARGUMENT, UNSUPPORTED, TOOLCHAIN_MISSING, COMPILE_FAILED, IO, CORRUPT, DRIVER, NOT_PREPARED, INTERNAL, OUT_OF_HOST_MEMORY = range(11)
DEVICE_CURRENT, DEVICE_CUDA, DEVICE_LOCKSTEP = range(3)
SWITCH = {None: 0, True: 1, "on": 1, False: 2, "off": 2, "readonly": 3}
DTYPES = {"bf16": 1, "f16": 2, "f32": 3}
IDS = {"i32": 1, "i64": 2}
TENSORS = {"u8": 1, "i8": 2, "i32": 3, "e8m0": 4, "e4m3": 5, "bf16": 6, "f16": 7, "f32": 8}
GATE_UP = {"separate": 1, "gate_first": 2, "up_first": 3, "interleaved": 4}
CODES = {"low_nibble_first": 1, "high_nibble_first": 2, "awq_words": 3}
CODE_SIGNS = {None: 0, "offset8": 1, "twos_complement": 2}
SCALES = {"row_major": 1, "transposed": 2, "swizzled_128x4": 3}
ZEROS = {None: 0, "none": 1, "bytes": 2, "nibbles_along_rows": 3, "awq_words": 4, "nibbles_along_groups": 5, "nibbles_along_groups_high_first": 6}
GLOBALS = {"none": 1, "multiply": 2, "reciprocal": 3}

LogFn = C.CFUNCTYPE(None, c_void_p, c_int32, c_char_p)
ProgressFn = C.CFUNCTYPE(None, c_void_p, c_char_p, c_int32, c_int32, c_int32)
CancelledFn = C.CFUNCTYPE(c_int32, c_void_p)
ExpertDoneFn = C.CFUNCTYPE(None, c_void_p, c_int64)


class Sized(C.Structure):
    """A structure that begins with its size."""

    def __init__(self, **values: Any) -> None:
        super().__init__(struct_size=C.sizeof(type(self)), **values)


class EngineOptions(Sized):
    _fields_ = [
        ("struct_size", c_uint64), ("device", c_int32), ("ordinal", c_int32), ("jit", c_int32), ("cache", c_int32), ("cache_shared", c_int32),
        ("jobs", c_int32), ("cache_max_bytes", c_uint64), ("memory_bytes", c_uint64), ("cache_dir", c_char_p), ("readonly_dirs", c_char_p),
        ("nvrtc", c_char_p), ("dump_dir", c_char_p), ("log", LogFn), ("log_user", c_void_p), ("debug", c_int32), ("reserved", c_int32),
    ]  # fmt: skip


class Problem(Sized):
    _fields_ = [
        ("struct_size", c_uint64), ("name", c_char_p), ("hidden", c_int64), ("intermediate", c_int64), ("experts", c_int64), ("topk", c_int64),
        ("max_tokens", c_int64), ("format", c_char_p), ("activation", c_char_p), ("dtype", c_int32), ("has_bias", c_int32),
        ("weight_on_input", c_int32), ("compact_tail", c_int32), ("has_alpha", c_int32), ("has_beta", c_int32), ("has_limit", c_int32),
        ("no_limit", c_int32), ("alpha", c_float), ("beta", c_float), ("limit", c_float), ("reserved", c_float),
    ]  # fmt: skip


class PlanOptions(Sized):
    _fields_ = [("struct_size", c_uint64), ("arch", c_char_p), ("sms", c_int32), ("reserved", c_int32), ("scratch_cap_bytes", c_int64), ("pins", c_char_p)]


class PlanInfo(Sized):
    _fields_ = [
        ("struct_size", c_uint64), ("scratch_bytes", c_int64), ("scratch_align_bytes", c_int64), ("prepared_weight_bytes", c_int64),
        ("prepared_align_bytes", c_int64), ("layout_id", c_uint64), ("max_tokens", c_int64), ("chunk_tokens", c_int64),
        ("debug_guard_bytes", c_int64), ("kernels", c_int32), ("sms", c_int32), ("arch", c_char * 16),
    ]  # fmt: skip


class BuildOptions(Sized):
    _fields_ = [("struct_size", c_uint64), ("stream", c_void_p), ("progress", ProgressFn), ("cancelled", CancelledFn), ("user", c_void_p)]


class BuildReport(Sized):
    _fields_ = [("struct_size", c_uint64), ("kernels", c_int32), ("compiled", c_int32), ("hits", c_int32), ("jobs", c_int32), ("seconds", c_double)]


class Tensor(C.Structure):
    _fields_ = [("data", c_void_p), ("shape", POINTER(c_int64)), ("strides_elems", POINTER(c_int64)), ("type", c_int32), ("rank", c_int32)]


class Operand(C.Structure):
    _fields_ = [("tensors", POINTER(Tensor)), ("count", c_int64)]


class Matrix(C.Structure):
    _fields_ = [("codes", Operand), ("scales", Operand), ("zeros", Operand), ("bias", Operand)]


class SourceWeights(Sized):
    _fields_ = [
        ("struct_size", c_uint64), ("gate_up_order", c_int32), ("code_order", c_int32), ("code_sign", c_int32), ("scale_layout", c_int32),
        ("zero_order", c_int32), ("zero_add", c_int32), ("global_convention", c_int32), ("on_device", c_int32), ("omit_output_bias", c_int32),
        ("reserved", c_int32), ("gate_up", Matrix), ("gate", Matrix), ("up", Matrix), ("down", Matrix), ("gate_global", POINTER(c_float)),
        ("up_global", POINTER(c_float)), ("down_global", POINTER(c_float)),
    ]  # fmt: skip


class PackOptions(Sized):
    _fields_ = [("struct_size", c_uint64), ("allow_nan_scales", c_int32), ("threads", c_int32), ("on_expert_done", ExpertDoneFn), ("user", c_void_p)]


class ScanReport(Sized):
    _fields_ = [("struct_size", c_uint64), ("nan_scales_projections", c_int64), ("recommended_format", c_char * 32)]


class CheckpointEntry(Sized):
    _fields_ = [("struct_size", c_uint64), ("prefix", c_char_p), ("number", c_int64), ("tensors", c_int64), ("bytes", c_int64), ("other_dtype", c_char_p)]


class Shard(Sized):
    _fields_ = [("struct_size", c_uint64), ("tp_rank", c_int32), ("tp_size", c_int32), ("ep_rank", c_int32), ("ep_size", c_int32)]


class LayerInfo(Sized):
    _fields_ = [("struct_size", c_uint64), ("prefix", c_char_p), ("family", c_char_p), ("fingerprint", c_char_p), ("first_expert", c_int64), ("total_experts", c_int64)]


class PackedLayer(Sized):
    _fields_ = [
        ("struct_size", c_uint64), ("prefix", c_char_p), ("family", c_char_p), ("problem", POINTER(Problem)), ("bytes", c_void_p), ("byte_count", c_int64),
        ("first_expert", c_int64), ("total_experts", c_int64),
    ]  # fmt: skip


class RunArgs(Sized):
    _fields_ = [
        ("struct_size", c_uint64), ("tokens", c_int64), ("x", c_void_p), ("x_row_stride_elems", c_int64), ("ids", c_void_p),
        ("ids_row_stride_elems", c_int64), ("router_weights", c_void_p), ("router_row_stride_elems", c_int64), ("out", c_void_p),
        ("out_row_stride_elems", c_int64), ("id_type", c_int32), ("router_dtype", c_int32),
    ]  # fmt: skip


class BindingReport(Sized):
    _fields_ = [("struct_size", c_uint64), ("code", c_uint32), ("detail", c_uint32), ("text", c_char * 112)]


# name, result (None: void; int: a status), arguments
FUNCTIONS = {
    "abi_version": (c_uint32, []),
    "version": (c_char_p, []),
    "status_name": (c_char_p, [c_int32]),
    "last_error": (c_char_p, []),
    "engine_create": (c_int32, [POINTER(EngineOptions), POINTER(c_void_p)]),
    "engine_destroy": (None, [c_void_p]),
    "engine_last_error": (c_size_t, [c_void_p, c_char_p, c_size_t]),
    "engine_freeze": (c_int32, [c_void_p]),
    "engine_is_frozen": (c_int32, [c_void_p]),
    "plan_create": (c_int32, [c_void_p, POINTER(Problem), POINTER(PlanOptions), POINTER(c_void_p)]),
    "plan_destroy": (None, [c_void_p]),
    "plan_get_info": (c_int32, [c_void_p, POINTER(PlanInfo)]),
    "plan_explain": (c_char_p, [c_void_p]),
    "plan_json": (c_char_p, [c_void_p]),
    "plan_launches": (c_size_t, [c_void_p, c_int64, c_char_p, c_size_t]),
    "engine_build": (c_int32, [c_void_p, c_void_p, POINTER(BuildOptions), POINTER(BuildReport)]),
    "engine_preload": (c_int32, [c_void_p, c_void_p, POINTER(BuildOptions), POINTER(BuildReport)]),
    "engine_build_cache": (c_int32, [c_void_p, POINTER(c_void_p), c_size_t, POINTER(BuildOptions), POINTER(BuildReport)]),
    "engine_unload": (c_int32, [c_void_p, c_void_p]),
    "prepare_workspace_bytes": (c_int32, [c_void_p, c_void_p, POINTER(SourceWeights), POINTER(c_int64)]),
    "engine_prepare": (c_int32, [c_void_p, c_void_p, POINTER(SourceWeights), c_void_p, c_int64, c_void_p, c_int64, c_void_p, POINTER(PackOptions)]),
    "pack_on_cpu": (c_int32, [c_void_p, POINTER(SourceWeights), c_void_p, c_int64, POINTER(PackOptions)]),
    "check_prepared": (c_int32, [c_void_p, c_void_p, c_int64]),
    "scan_on_cpu": (c_int32, [c_void_p, POINTER(SourceWeights), c_int32, POINTER(ScanReport)]),
    "checkpoint_open": (c_int32, [c_char_p, POINTER(c_void_p)]),
    "checkpoint_destroy": (None, [c_void_p]),
    "checkpoint_count": (c_int64, [c_void_p]),
    "checkpoint_get_entry": (c_int32, [c_void_p, c_int64, POINTER(CheckpointEntry)]),
    "checkpoint_read": (c_int32, [c_void_p, c_char_p, POINTER(Shard), POINTER(c_void_p)]),
    "layer_destroy": (None, [c_void_p]),
    "layer_get_info": (c_int32, [c_void_p, POINTER(LayerInfo)]),
    "layer_problem": (POINTER(Problem), [c_void_p]),
    "layer_source": (POINTER(SourceWeights), [c_void_p]),
    "packed_open": (c_int32, [c_char_p, POINTER(c_void_p)]),
    "packed_destroy": (None, [c_void_p]),
    "packed_count": (c_int64, [c_void_p]),
    "packed_get_layer": (c_int32, [c_void_p, c_int64, POINTER(PackedLayer)]),
    "bind": (c_int32, [c_void_p, c_void_p, c_void_p, c_int64, c_void_p, c_int64, POINTER(c_void_p)]),
    "binding_destroy": (None, [c_void_p]),
    "init_scratch": (c_int32, [c_void_p, c_void_p]),
    "run": (c_int32, [c_void_p, c_void_p, POINTER(RunArgs)]),
    "binding_get_status": (c_int32, [c_void_p, POINTER(BindingReport)]),
}


class Library:
    """The functions of w4moe.h without their prefix."""

    def __init__(self, path: str) -> None:
        self.path = path
        handle = C.CDLL(path)
        for name, (result, arguments) in FUNCTIONS.items():
            function = getattr(handle, "w4moe_" + name)
            function.restype = result
            function.argtypes = arguments
            setattr(self, name, function)
        if self.abi_version() != ABI_VERSION:  # type: ignore[attr-defined]
            raise ImportError(f"{path} has ABI version {self.abi_version()}, this package needs {ABI_VERSION}")  # type: ignore[attr-defined]

    def __getattr__(self, name: str) -> Any:  # for type checkers; every name is set above
        raise AttributeError(name)


def _path() -> str:
    named = os.environ.get("W4MOE_LIBRARY")
    if named:
        return named
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib", f"libw4moe_c.so.{ABI_VERSION}")


library = Library(_path())
