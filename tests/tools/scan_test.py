#!/usr/bin/env python3
"""tools/bench/scan_crossovers.py with programs that play the command line and the bench."""
import json
import pathlib
import stat
import subprocess
import sys
import tempfile
import unittest

SCAN = pathlib.Path(__file__).resolve().parents[2] / "tools/bench/scan_crossovers.py"
CLI = """#!/usr/bin/env python3
import json
print(json.dumps({"problem": {"experts": 8, "topk": 2}, "buckets": [{"last_tokens": 1}, {"last_tokens": 16}, {"last_tokens": 64}]}))
"""
BENCH = """#!/usr/bin/env python3
import json, pathlib, sys
a = dict(zip(sys.argv[1:-1:2], sys.argv[2::2]))
counts = [int(m) for m in a["--tokens"].split(",")]
most = (pathlib.Path(a["--routing"]) / f"route_8_2_{max(counts)}.bin").read_bytes()
for m in counts:  # nested: the ids of m tokens are the first of those of all
    assert (pathlib.Path(a["--routing"]) / f"route_8_2_{m}.bin").read_bytes()[:m * 8] == most[:m * 8]
json.dump({"rows": [{"m": m, "us_graph": 100.0 + m - (SLOW if m > 16 else 0)} for m in counts]}, open(a["--json"], "w"))
"""


class Scan(unittest.TestCase):
    def scan(self, slow):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            for program, text in (("cli", CLI), ("bench", BENCH.replace("SLOW", str(slow)))):
                (folder / program).write_text(text)
                (folder / program).chmod(stat.S_IRWXU)
            return subprocess.run([sys.executable, "-B", SCAN, "--bench", folder / "bench", "--cli", folder / "cli", "--model", "any", "--max-tokens", "64"],
                                  capture_output=True, text=True)

    def setUp(self):
        try:
            import numpy  # noqa: F401
        except ImportError:
            self.skipTest("no numpy")

    def test_level(self):
        done = self.scan(0)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("0 boundaries lose more than 3 %", done.stdout)

    def test_a_drop_is_found(self):
        done = self.scan(20)
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn("m =    16     116.0 us, m =    17      97.0 us   +19.6 %  slower than the next", done.stdout)


if __name__ == "__main__":
    unittest.main()
