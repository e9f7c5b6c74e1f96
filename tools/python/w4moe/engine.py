"""The engine: kernels, weights and scratch of one device."""
from __future__ import annotations

import contextlib
import ctypes as C
import glob
import os
import sys
from dataclasses import dataclass
from typing import Any, Callable, Iterable, Iterator, Optional, Sequence, Union

from . import _abi
from ._abi import library
from .checkpoint import CheckpointLayer
from .errors import InvalidArgument, check
from .problem import Plan, Problem, choice, text
from .tensors import CPU, HostMemory, View, is_torch, view_of
from .weights import Weights, source_of

Allocator = Callable[[int], Any]  #: bytes -> a tensor of that many u8 on the engine's device, aligned to 256 bytes
Progress = Callable[[str, bool, int, int], None]  #: kernel, whether the cache had it, how many of how many are done


@dataclass(frozen=True)
class BuildReport:
    """What a build made."""

    kernels: int
    compiled: int
    hits: int
    jobs: int
    seconds: float


def stream_handle(stream: Any) -> Optional[int]:
    """A CUstream as a number: None, a number, or an object with ``cuda_stream`` (torch) or ``ptr`` (CuPy)."""
    if stream is None or isinstance(stream, int):
        return stream or None
    for attribute in ("cuda_stream", "ptr"):
        if hasattr(stream, attribute):
            return int(getattr(stream, attribute)) or None
    raise InvalidArgument(f"stream: {stream!r} is no stream (accepted: None, a handle, an object with cuda_stream or ptr)")


class Engine:
    """One device of this process.

    device: "cuda" (the calling thread's current one), "cuda:N", or "lockstep": the CPU plays a GPU and runs the very kernels, slowly, with
    tensors in host memory. Creating one opens nothing: the process may still fork.
    """

    def __init__(self, device: str = "cuda", *, jit: Union[bool, str, None] = None, cache: Union[bool, str, None] = None, cache_dir: Optional[str] = None,
                 readonly_dirs: Sequence[str] = (), jobs: int = 0, nvrtc: Optional[str] = None, debug: bool = False, allocator: Optional[Allocator] = None,
                 log: Optional[Callable[[int, str], None]] = None) -> None:
        """What is None or 0 comes from the environment (W4MOE_*), the configuration file and the defaults. allocator: where device memory of
        Scratch and of prepared weights comes from; torch by default, and host memory on the lock-step device."""
        self.device = device
        kind, _, number = device.partition(":")
        options = _abi.EngineOptions(jobs=jobs, debug=bool(debug))
        if device == "cuda":
            options.device = _abi.DEVICE_CURRENT
        elif kind == "cuda" and number.isdigit():
            options.device, options.ordinal = _abi.DEVICE_CUDA, int(number)
        elif device == "lockstep":
            options.device = _abi.DEVICE_LOCKSTEP
        else:
            raise InvalidArgument(f"device = {device!r} (accepted: 'cuda', 'cuda:N', 'lockstep')")
        self.ordinal: Optional[int] = int(number) if number else None
        options.jit = choice("jit", jit, {k: v for k, v in _abi.SWITCH.items() if k != "readonly"})
        options.cache = choice("cache", cache, _abi.SWITCH)
        options.cache_dir, options.nvrtc = text(cache_dir), text(nvrtc if nvrtc is not None else _wheel_nvrtc())
        options.readonly_dirs = text(":".join(readonly_dirs) or None)
        if log is not None:
            self._log = _abi.LogFn(lambda _, level, message: log(level, message.decode("utf-8", "replace")))
            options.log = self._log
        self._handle = C.c_void_p()
        check(library.engine_create(C.byref(options), C.byref(self._handle)))
        self.allocator = allocator if allocator is not None else self._default_allocator

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            library.engine_destroy(self._handle)

    @property
    def is_lockstep(self) -> bool:
        return self.device == "lockstep"

    def plan(self, problem: Problem, *, scratch_cap_bytes: int = 0, pins: str = "") -> Plan:
        """Decides everything about a layer of this shape: host arithmetic. scratch_cap_bytes: longer runs are cut into chunks of tokens
        whose scratch stays below it."""
        with self.context():
            return Plan(problem, self, scratch_cap_bytes=scratch_cap_bytes, pins=pins)

    def build(self, plan: Plan, *, stream: Any = None, progress: Optional[Progress] = None) -> BuildReport:
        """Finds or compiles every kernel of the plan and loads them, so that nothing is left for the first run. Once a plan, outside captures."""
        return self._build(library.engine_build, plan._handle, stream, progress)

    def preload(self, plan: Plan, *, stream: Any = None, progress: Optional[Progress] = None) -> BuildReport:
        """build() that never compiles: NotPrepared names the kernel that the cache lacks, and the manifest entry to add."""
        return self._build(library.engine_preload, plan._handle, stream, progress)

    def build_cache(self, plans: Iterable[Plan], *, progress: Optional[Progress] = None) -> BuildReport:
        """Builds the kernels of plans into the cache, without a GPU."""
        kept = list(plans)
        handles = (C.c_void_p * max(len(kept), 1))(*(plan._handle for plan in kept))
        return self._build(lambda engine, handle, options, report: library.engine_build_cache(engine, handles, len(kept), options, report), None, None, progress)

    def _build(self, function: Any, handle: Any, stream: Any, progress: Optional[Progress]) -> BuildReport:
        options, report = _abi.BuildOptions(stream=stream_handle(stream)), _abi.BuildReport()
        if progress is not None:
            options.progress = _abi.ProgressFn(lambda _, kernel, hit, done, total: progress(kernel.decode(), bool(hit), done, total))
        with self.context():
            check(function(self._handle, handle, C.byref(options), C.byref(report)))
        return BuildReport(report.kernels, report.compiled, report.hits, report.jobs, report.seconds)

    def unload(self, plan: Plan) -> None:
        """Gives up one build() of the plan."""
        with self.context():
            check(library.engine_unload(self._handle, plan._handle))

    def freeze(self) -> None:
        """From now on build() compiles nothing."""
        check(library.engine_freeze(self._handle))

    @property
    def frozen(self) -> bool:
        return bool(library.engine_is_frozen(self._handle))

    def last_error(self) -> str:
        """Text of the last call with this engine that failed, on any thread."""
        buffer = C.create_string_buffer(library.engine_last_error(self._handle, None, 0))
        library.engine_last_error(self._handle, buffer, len(buffer))
        return buffer.value.decode("utf-8", "replace")

    def prepare(self, plan: Plan, weights: Union[Weights, CheckpointLayer], *, memory: Any = None, stream: Any = None, allow_nan_scales: bool = False,
                on_expert_done: Optional[Callable[[int], None]] = None) -> "PreparedWeights":
        """Packs a layer on the device, from tensors on the CPU or on the device, and waits for it. The source may be freed afterwards.
        memory: where to (u8 of at least plan.prepared_weight_bytes, aligned to 256 bytes); None: the allocator's."""
        source = source_of(plan.problem, weights)
        with self.context():
            needed = C.c_int64()
            check(library.prepare_workspace_bytes(self._handle, plan._handle, C.byref(source.c), C.byref(needed)))
            dest = self.memory_view(self.allocator(plan.prepared_weight_bytes) if memory is None else memory, "memory")
            work = self.memory_view(self.allocator(needed.value), "workspace") if needed.value else None
            options = _pack_options(allow_nan_scales, 0, on_expert_done)
            if stream is None and not self.is_lockstep:
                stream = _torch_stream(self.ordinal)
            check(library.engine_prepare(self._handle, plan._handle, C.byref(source.c), dest.pointer, dest.bytes, work.pointer if work else None,
                                         work.bytes if work else 0, stream_handle(stream), C.byref(options)))
        return PreparedWeights(plan, dest)

    def adopt(self, plan: Plan, memory: Any) -> "PreparedWeights":
        """Weights that were packed before (pack_on_cpu, a file) and lie in device memory."""
        return PreparedWeights(plan, self.memory_view(memory, "memory"))

    def memory_view(self, memory: Any, name: str) -> View:
        """Writable contiguous bytes on the engine's device."""
        view = memory.view(name) if isinstance(memory, HostMemory) else view_of(memory, name)
        self.check_place(view)
        if view.readonly or not view.contiguous:
            raise InvalidArgument(f"{name}: {view.describe()} is {'read-only' if view.readonly else 'not contiguous'}")
        return view

    def check_place(self, view: View) -> None:
        """The tensor is where the engine's kernels can reach it."""
        if self.is_lockstep:
            if view.device != CPU:
                raise InvalidArgument(f"{view.name}: {view.describe()}, expected host memory for the lock-step device")
        elif not view.on_gpu or (self.ordinal is not None and view.index != self.ordinal):
            raise InvalidArgument(f"{view.name}: {view.describe()}, expected memory of {self.device}")

    @contextlib.contextmanager
    def context(self) -> Iterator[None]:
        """Makes torch's context of the device current for a block, where torch is in the process; other programs have made one current."""
        torch = sys.modules.get("torch")
        if self.is_lockstep or torch is None or not torch.cuda.is_available():
            yield
            return
        with torch.cuda.device(torch.cuda.current_device() if self.ordinal is None else self.ordinal):
            if not torch.cuda.is_current_stream_capturing():
                torch.cuda.mem_get_info()  # the runtime binds the device's context to this thread at its first call
            yield

    def _default_allocator(self, count: int) -> Any:
        if self.is_lockstep:
            return HostMemory(count)
        try:
            import torch
        except ImportError:
            raise InvalidArgument("without torch the engine needs an allocator: Engine(device, allocator=function of a number of bytes)") from None
        return torch.empty(count, dtype=torch.uint8, device="cuda" if self.ordinal is None else f"cuda:{self.ordinal}")


def _wheel_nvrtc() -> Optional[str]:
    """NVRTC of the PyPI wheel nvidia-cuda-nvrtc 13 or later, where the environment names none."""
    if os.environ.get("W4MOE_NVRTC"):
        return None
    for folder in sys.path:
        found = sorted(glob.glob(os.path.join(folder, "nvidia", "*", "lib", "libnvrtc.so.1[3-9]")))
        if found:
            return found[-1]
    return None


def _torch_stream(ordinal: Optional[int]) -> Any:
    torch = sys.modules.get("torch")
    return torch.cuda.current_stream(ordinal) if torch is not None and torch.cuda.is_available() else None


def _pack_options(allow_nan_scales: bool, threads: int, on_expert_done: Optional[Callable[[int], None]]) -> _abi.PackOptions:
    options = _abi.PackOptions(allow_nan_scales=bool(allow_nan_scales), threads=threads)
    if on_expert_done is not None:
        options.on_expert_done = _abi.ExpertDoneFn(lambda _, expert: on_expert_done(expert))
    return options


class PreparedWeights:
    """One layer's packed weights in memory of the engine's device."""

    def __init__(self, plan: Plan, view: View) -> None:
        self.plan = plan
        self.view = view


def pack_on_cpu(plan: Plan, weights: Union[Weights, CheckpointLayer], *, threads: int = 0, allow_nan_scales: bool = False, on_expert_done: Optional[Callable[[int], None]] = None) -> HostMemory:
    """Packs a layer from CPU tensors on the CPU: the very bytes that Engine.prepare makes, to be kept in a file or copied to a device."""
    source = source_of(plan.problem, weights)
    if source.on_gpu:
        raise InvalidArgument("the weights lie on a GPU (Engine.prepare packs there)")
    dest = HostMemory(plan.prepared_weight_bytes)
    options = _pack_options(allow_nan_scales, threads, on_expert_done)
    check(library.pack_on_cpu(plan._handle, C.byref(source.c), dest.pointer, dest.bytes, C.byref(options)))
    return dest


def recommended_format(problem: Problem, weights: Union[Weights, CheckpointLayer], *, arch: str = "sm_90a") -> str:
    """The problem's format, or "mxfp4:wide" where the exponents of some projection spread too far. Reads every scale; CPU tensors."""
    plan = Plan(problem, arch=arch)
    source = source_of(problem, weights)
    report = _abi.ScanReport()
    check(library.scan_on_cpu(plan._handle, C.byref(source.c), 0, C.byref(report)))
    return report.recommended_format.decode()


class Scratch:
    """One scratch for all layers of a model that run one after another on one stream: as large as the largest plan asks for.

    It never grows: graphs may hold its address. Layers on two streams at a time need two.
    """

    def __init__(self, engine: Engine, plans: Union[Plan, Iterable[Plan]], *, memory: Any = None) -> None:
        """memory: u8 of at least the largest plan.scratch_bytes, aligned to 256 bytes; None: the engine's allocator's."""
        kept = [plans] if isinstance(plans, Plan) else list(plans)
        if not kept:
            raise InvalidArgument("plans: none given")
        self.engine = engine
        self.bytes = max(plan.scratch_bytes for plan in kept)
        with engine.context():
            self.view = engine.memory_view(engine.allocator(self.bytes) if memory is None else memory, "memory")
        if self.view.bytes < self.bytes:
            raise InvalidArgument(f"memory: {self.view.bytes} bytes, the plans need {self.bytes}")
        self.initialised = False

    def initialise(self, binding: Any, stream: Any = None) -> None:
        """Writes the control region, once, and waits for it where torch is there to wait with. The first layer does this."""
        if self.initialised:
            return
        if stream is None and not self.engine.is_lockstep:
            stream = _torch_stream(self.engine.ordinal)
        check(library.init_scratch(binding, stream_handle(stream)))
        if is_torch(self.view.owner) and hasattr(stream, "synchronize"):
            stream.synchronize()
        self.initialised = True
