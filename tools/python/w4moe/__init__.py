"""w4moe: fused mixture-of-experts layers with 4-bit weights, generated for one shape and compiled at run time.

The classes are a layer over the C interface, w4moe.h. Importing the package touches no GPU. ``w4moe.torch_ops`` has the torch operator;
nothing else needs torch.
"""
from ._abi import library as _library
from .checkpoint import Checkpoint, CheckpointEntry, CheckpointLayer, PackedFile, PackedLayer
from .engine import BuildReport, Engine, PreparedWeights, Scratch, pack_on_cpu, recommended_format
from .errors import CompileFailed, Corrupt, DriverError, Error, FileError, InvalidArgument, NotPrepared, OutOfHostMemory, ToolchainMissing, Unsupported
from .moe import MoE, local_ids
from .problem import Plan, Problem
from .tensors import HostMemory, Typed, as_dtype
from .weights import Matrix, Weights

__version__ = _library.version().decode()

__all__ = [
    "BuildReport", "Checkpoint", "CheckpointEntry", "CheckpointLayer", "CompileFailed", "Corrupt", "DriverError", "Engine", "Error", "FileError", "HostMemory", "InvalidArgument", "Matrix", "MoE",
    "NotPrepared", "OutOfHostMemory", "PackedFile", "PackedLayer", "Plan", "PreparedWeights", "Problem", "Scratch", "ToolchainMissing", "Typed", "Unsupported", "Weights",
    "as_dtype", "local_ids", "pack_on_cpu", "recommended_format", "__version__",
]  # fmt: skip
