"""Without torch or a GPU nothing here is collected."""
import os

import pytest

torch = pytest.importorskip("torch")
if os.environ.get("W4MOE_TEST_DEVICE") != "lockstep" and not torch.cuda.is_available():
    collect_ignore_glob = ["test_*.py"]
else:
    import support  # noqa: F401  (sets the path)
