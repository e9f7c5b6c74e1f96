"""The library's errors as exceptions, each with the library's own text."""
from __future__ import annotations

from . import _abi
from ._abi import library


class Error(RuntimeError):
    """What the library refused or could not do. `status` is its w4moe_status, `str()` the library's text."""

    status = _abi.INTERNAL


class InvalidArgument(Error, ValueError):
    """A value is malformed or contradicts another; the text names it and what would be accepted."""

    status = _abi.INVALID_ARGUMENT


class Unsupported(Error):
    """Well-formed, but this shape, format or device is not served."""

    status = _abi.UNSUPPORTED


class ToolchainMissing(Error):
    """NVRTC, the driver or a device is needed and absent."""

    status = _abi.TOOLCHAIN_MISSING


class CompileFailed(Error):
    """The compiler refused a source; the text holds its whole log."""

    status = _abi.COMPILE_FAILED


class FileError(Error):
    """A file could not be read or written."""

    status = _abi.IO


class Corrupt(Error):
    """Bytes failed verification."""

    status = _abi.CORRUPT


class DriverError(Error):
    """A CUDA driver call failed."""

    status = _abi.DRIVER


class NotPrepared(Error):
    """A kernel is not loaded where loading is not allowed: in a capture, or with the JIT off."""

    status = _abi.NOT_PREPARED


class OutOfHostMemory(Error, MemoryError):
    """The library got no host memory."""

    status = _abi.OUT_OF_HOST_MEMORY


_BY_STATUS = {
    kind.status: kind
    for kind in (InvalidArgument, Unsupported, ToolchainMissing, CompileFailed, FileError, Corrupt, DriverError, NotPrepared, OutOfHostMemory)
}


def check(status: int) -> None:
    """Raises the exception of a status, with the thread's error text; nothing for W4MOE_OK."""
    if status != _abi.OK:
        raise _BY_STATUS.get(status, Error)(library.last_error().decode("utf-8", "replace"))
