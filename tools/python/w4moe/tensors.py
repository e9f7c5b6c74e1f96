"""Tensors of other libraries as addresses, shapes and strides, by DLPack, without copying.

Whatever has ``__dlpack__`` and ``__dlpack_device__`` is accepted: NumPy arrays, CuPy arrays, JAX arrays, torch tensors. torch tensors are
asked directly, since the call costs less and serves types that some versions of torch do not export (float8).
"""
from __future__ import annotations

import ctypes as C
from typing import Any, Optional, Tuple

from .errors import InvalidArgument

CPU, CUDA, CUDA_HOST, CUDA_MANAGED = 1, 2, 3, 13

# (DLPack type code, bits) -> name
_DLPACK_TYPES = {
    (0, 8): "i8", (0, 32): "i32", (0, 64): "i64", (1, 8): "u8", (1, 16): "u16", (0, 16): "i16", (2, 16): "f16", (2, 32): "f32", (2, 64): "f64",
    (4, 16): "bf16", (10, 8): "e4m3", (14, 8): "e8m0",
}  # fmt: skip
_TORCH_TYPES = {
    "torch.int8": "i8", "torch.int16": "i16", "torch.int32": "i32", "torch.int64": "i64", "torch.uint8": "u8", "torch.uint16": "u16",
    "torch.float16": "f16", "torch.bfloat16": "bf16", "torch.float32": "f32", "torch.float64": "f64", "torch.float8_e4m3fn": "e4m3",
    "torch.float8_e8m0fnu": "e8m0",
}  # fmt: skip
BYTES = {"i8": 1, "u8": 1, "e4m3": 1, "e8m0": 1, "i16": 2, "u16": 2, "f16": 2, "bf16": 2, "i32": 4, "f32": 4, "i64": 8, "f64": 8}


class _Device(C.Structure):
    _fields_ = [("type", C.c_int32), ("index", C.c_int32)]


class _DataType(C.Structure):
    _fields_ = [("code", C.c_uint8), ("bits", C.c_uint8), ("lanes", C.c_uint16)]


class _DLTensor(C.Structure):
    _fields_ = [
        ("data", C.c_void_p), ("device", _Device), ("ndim", C.c_int32), ("dtype", _DataType), ("shape", C.POINTER(C.c_int64)),
        ("strides", C.POINTER(C.c_int64)), ("byte_offset", C.c_uint64),
    ]  # fmt: skip


class _Managed(C.Structure):
    _fields_ = [("tensor", _DLTensor), ("manager", C.c_void_p), ("deleter", C.c_void_p)]


class _ManagedVersioned(C.Structure):
    _fields_ = [("major", C.c_uint32), ("minor", C.c_uint32), ("manager", C.c_void_p), ("deleter", C.c_void_p), ("flags", C.c_uint64), ("tensor", _DLTensor)]


_is_valid = C.pythonapi.PyCapsule_IsValid
_is_valid.restype, _is_valid.argtypes = C.c_int, [C.py_object, C.c_char_p]
_pointer = C.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = C.c_void_p, [C.py_object, C.c_char_p]


class View:
    """Where a tensor lies and how. `owner` keeps it there."""

    __slots__ = ("name", "pointer", "dtype", "shape", "strides", "device", "index", "readonly", "owner")

    def __init__(self, name: str, pointer: int, dtype: str, shape: Tuple[int, ...], strides: Tuple[int, ...], device: int, index: int, readonly: bool,
                 owner: Any) -> None:
        self.name, self.pointer, self.dtype, self.shape, self.strides = name, pointer, dtype, shape, strides
        self.device, self.index, self.readonly, self.owner = device, index, readonly, owner

    @property
    def on_gpu(self) -> bool:
        return self.device in (CUDA, CUDA_MANAGED)

    @property
    def bytes(self) -> int:
        """Of a contiguous tensor."""
        count = 1
        for size in self.shape:
            count *= size
        return count * BYTES[self.dtype]

    @property
    def contiguous(self) -> bool:
        if 0 in self.shape:
            return True
        expected = 1
        for size, stride in zip(reversed(self.shape), reversed(self.strides)):
            if size != 1 and stride != expected:
                return False
            expected *= size
        return True

    def reshaped(self, *shape: int) -> "View":
        """The same elements in another shape; contiguous tensors only."""
        if not self.contiguous:
            raise InvalidArgument(f"{self.name}: not contiguous (strides {self.strides} for shape {self.shape})")
        return View(self.name, self.pointer, self.dtype, tuple(shape), dense_strides(shape), self.device, self.index, self.readonly, self.owner)

    def describe(self) -> str:
        place = {CPU: "cpu", CUDA: f"cuda:{self.index}", CUDA_HOST: "pinned host memory", CUDA_MANAGED: "managed memory"}.get(self.device, f"device type {self.device}")
        return f"{self.dtype} {list(self.shape)} on {place}"


class Typed:
    """An array of same-sized elements read as another type: the bits of bf16 in a NumPy array of uint16, say."""

    def __init__(self, array: Any, dtype: str) -> None:
        if dtype not in BYTES:
            raise InvalidArgument(f"dtype {dtype!r} (accepted: {', '.join(sorted(BYTES))})")
        self.array = array
        self.dtype = dtype


def as_dtype(array: Any, dtype: str) -> Typed:
    """`array` with its elements read as `dtype` ("bf16", "e4m3", "e8m0", ...), for libraries that have no such type."""
    return Typed(array, dtype)


def dense_strides(shape: Tuple[int, ...]) -> Tuple[int, ...]:
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def is_torch(tensor: Any) -> bool:
    return type(tensor).__module__.split(".")[0] == "torch" and hasattr(tensor, "data_ptr") or any(
        base.__module__ == "torch" and base.__name__ == "Tensor" for base in type(tensor).__mro__)


def view_of(tensor: Any, name: str) -> View:
    """A tensor's place. `name` is the argument that an error speaks of. No stream is waited for: a run orders itself behind its own."""
    if isinstance(tensor, View):
        return View(name, tensor.pointer, tensor.dtype, tensor.shape, tensor.strides, tensor.device, tensor.index, tensor.readonly, tensor.owner)
    if isinstance(tensor, Typed):
        view = view_of(tensor.array, name)
        if BYTES[view.dtype] != BYTES[tensor.dtype]:
            raise InvalidArgument(f"{name}: elements of {view.dtype} cannot be read as {tensor.dtype}")
        return View(name, view.pointer, tensor.dtype, view.shape, view.strides, view.device, view.index, view.readonly, tensor)
    if is_torch(tensor):
        return _view_of_torch(tensor, name)
    if not hasattr(tensor, "__dlpack__") or not hasattr(tensor, "__dlpack_device__"):
        raise InvalidArgument(f"{name}: {type(tensor).__name__} is no tensor (expected __dlpack__ and __dlpack_device__)")
    return _view_of_dlpack(tensor, name)


def _view_of_torch(tensor: Any, name: str) -> View:
    dtype = _TORCH_TYPES.get(str(tensor.dtype))
    if dtype is None:
        raise InvalidArgument(f"{name}: dtype {tensor.dtype} is not served")
    kind = tensor.device.type
    if kind not in ("cpu", "cuda"):
        raise InvalidArgument(f"{name}: on {tensor.device} (accepted: cpu, cuda)")
    device = CUDA if kind == "cuda" else CPU
    return View(name, tensor.data_ptr(), dtype, tuple(tensor.shape), tuple(tensor.stride()), device, tensor.device.index or 0, False, tensor)


def _view_of_dlpack(tensor: Any, name: str) -> View:
    device, _ = tensor.__dlpack_device__()
    # -1: the producer makes no stream wait. NumPy accepts None only.
    keywords: dict = {"stream": -1} if int(device) in (CUDA, CUDA_MANAGED) else {}
    try:
        try:
            capsule = tensor.__dlpack__(max_version=(1, 1), **keywords)
        except TypeError:  # before DLPack 1.0
            capsule = tensor.__dlpack__(**keywords)
    except (BufferError, RuntimeError, TypeError) as error:
        raise InvalidArgument(f"{name}: not to be had by DLPack: {error}") from error
    readonly = False
    if _is_valid(capsule, b"dltensor_versioned"):
        versioned = C.cast(_pointer(capsule, b"dltensor_versioned"), C.POINTER(_ManagedVersioned)).contents
        if versioned.major != 1:
            raise InvalidArgument(f"{name}: DLPack version {versioned.major}.{versioned.minor} (accepted: 1.x and before)")
        readonly = bool(versioned.flags & 1)
        dl = versioned.tensor
    elif _is_valid(capsule, b"dltensor"):
        dl = C.cast(_pointer(capsule, b"dltensor"), C.POINTER(_Managed)).contents.tensor
    else:
        raise InvalidArgument(f"{name}: __dlpack__ of {type(tensor).__name__} gives no DLPack capsule")
    dtype: Optional[str] = _DLPACK_TYPES.get((dl.dtype.code, dl.dtype.bits)) if dl.dtype.lanes == 1 else None
    if dtype is None:
        raise InvalidArgument(f"{name}: element type (code {dl.dtype.code}, {dl.dtype.bits} bits, {dl.dtype.lanes} lanes) is not served")
    shape = tuple(dl.shape[i] for i in range(dl.ndim))
    strides = tuple(dl.strides[i] for i in range(dl.ndim)) if dl.strides else dense_strides(shape)
    # The capsule is kept unused: its own destructor gives the tensor back.
    return View(name, (dl.data or 0) + dl.byte_offset, dtype, shape, strides, dl.device.type, dl.device.index, readonly, (capsule, tensor))


class HostMemory:
    """Host memory of the library's own, aligned for weights and scratch of the lock-step device; a buffer of bytes to others."""

    def __init__(self, count: int, align: int = 256) -> None:
        self._raw = C.create_string_buffer(count + align)
        address = C.addressof(self._raw)
        self.offset = -address % align
        self.pointer = address + self.offset
        self.bytes = count

    def _buffer(self) -> memoryview:
        return memoryview(self._raw).cast("B")[self.offset : self.offset + self.bytes]

    def __bytes__(self) -> bytes:
        return bytes(self._buffer())

    def memory(self) -> memoryview:
        """The bytes, writable: to be filled from a file, or written to one."""
        return self._buffer()

    def view(self, name: str) -> View:
        return View(name, self.pointer, "u8", (self.bytes,), (1,), CPU, 0, False, self)
