#!/usr/bin/env python3
"""tools/setup from outside: what it installs, what it leaves alone, what it says. And the table of tools/quickstart."""
import json
import os
import shutil
import subprocess
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# Stand-ins that record their calls; each test writes what they answer.
RECORDER = '#!/bin/sh\necho "$(basename "$0") $*" >>"{log}"\n{body}\n'


class Setup(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)
        self.log = os.path.join(self.folder, "calls")
        # A copy of the script, so that its .deps/ is the test's own.
        self.project = os.path.join(self.folder, "project")
        shutil.copytree(os.path.join(ROOT, "tools"), os.path.join(self.project, "tools"),
                        ignore=shutil.ignore_patterns("cli", "python", "bench", "__pycache__"))
        self.bin = os.path.join(self.folder, "bin")
        os.mkdir(self.bin)
        self.stand_in("apt-get", "exit 0")
        self.stand_in("sudo", 'exec "$@"')
        self.stand_in("dpkg-query", "printf installed")

    def stand_in(self, name, body):
        path = os.path.join(self.bin, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(RECORDER.format(log=self.log, body=body))
        os.chmod(path, 0o755)

    def setup_script(self, *arguments, **environment):
        # No index answers here, so that a run which needs the network fails.
        env = dict(os.environ, PATH=f"{self.bin}:{os.environ['PATH']}", PIP_INDEX_URL="http://127.0.0.1:9/",
                   PIP_FIND_LINKS="", PIP_RETRIES="0", **environment)
        return subprocess.run([os.path.join(self.project, "tools/setup"), *arguments], env=env, text=True,
                              stdin=subprocess.DEVNULL, capture_output=True, timeout=120, check=False)

    def calls(self):
        if not os.path.exists(self.log):
            return []
        with open(self.log, encoding="utf-8") as file:
            return [line for line in file.read().splitlines() if not line.startswith("dpkg-query")]

    def test_nothing_is_installed_where_all_is_there(self):
        result = self.setup_script("--nvrtc=none")
        self.assertEqual((result.returncode, result.stdout), (0, ""), result.stderr)
        self.assertEqual(self.calls(), [])

    def test_only_what_is_missing_is_installed(self):
        self.stand_in("dpkg-query", 'for last; do :; done; case $last in libfmt-dev|catch2) exit 1;; esac; printf installed')
        result = self.setup_script("--nvrtc=none")
        self.assertEqual(result.returncode, 0, result.stderr)
        installs = [call for call in self.calls() if call.startswith("apt-get install")]
        self.assertEqual(len(installs), 1, self.calls())
        self.assertEqual([word for word in installs[0].split()[2:] if not word.startswith("-")], ["libfmt-dev", "catch2"])

    def test_no_install_names_what_is_missing(self):
        self.stand_in("dpkg-query", 'for last; do :; done; [ "$last" = libfmt-dev ] && exit 1; printf installed')
        result = self.setup_script("--nvrtc=none", "--no-install")
        self.assertEqual(result.returncode, 1)
        self.assertIn("missing packages: libfmt-dev", result.stderr)
        self.assertEqual(self.calls(), [])

    def test_a_failed_install_stops(self):
        self.stand_in("dpkg-query", "exit 1")
        self.stand_in("apt-get", 'case $1 in install) echo "E: no such package" >&2; exit 100;; esac')
        result = self.setup_script("--nvrtc=none")
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("E: no such package", result.stderr)

    def test_a_failed_download_leaves_nothing_that_looks_done(self):
        result = self.setup_script("--nvrtc=wheel")
        self.assertNotEqual(result.returncode, 0)
        self.assertEqual(result.stdout, "")
        kept = [name for name in os.listdir(os.path.join(self.project, ".deps")) if not name.endswith(".partial")]
        self.assertEqual(kept, [])

    def test_a_broken_library_is_not_taken_for_nvrtc(self):
        home = os.path.join(self.folder, "cuda")
        os.makedirs(os.path.join(home, "lib64"))
        broken = os.path.join(home, "lib64", "libnvrtc.so.13")
        with open(broken, "w", encoding="utf-8") as file:
            file.write("not a library")
        result = self.setup_script("--nvrtc=system", CUDA_HOME=home)
        self.assertIn(broken, result.stderr)
        self.assertNotIn(broken, result.stdout)

    def test_an_unknown_argument_is_a_usage_error(self):
        for argument in ("--nvrtc=cuda12", "wheel"):
            result = self.setup_script(argument)
            self.assertEqual(result.returncode, 2)
            self.assertIn(f"unknown argument '{argument}'", result.stderr)


class QuickstartReport(unittest.TestCase):
    GOOD = {
        "build": {"compiled": 4, "hits": 0, "failed": 0, "seconds": 2.5, "kernels": []},
        "again": {"compiled": 0, "hits": 4, "failed": 0, "seconds": 0.01, "kernels": []},
        "plan": {"scratch_bytes": 1234567, "prepared_weight_bytes": 7654321},
        "run": {"device": "lockstep", "variant": "portable", "rel_rmse": 1.25e-3, "max_abs_err": 0.5, "checked": True,
                "contract": {"holds": True, "reason": "below 4e-3"}},
    }

    def table(self, **changes):
        with tempfile.TemporaryDirectory() as folder:
            for name, content in self.GOOD.items():
                with open(os.path.join(folder, name + ".json"), "w", encoding="utf-8") as file:
                    json.dump(dict(content, **changes.get(name, {})), file)
            return self.report("table", folder)

    def report(self, *arguments):
        return subprocess.run(["python3", os.path.join(ROOT, "tools/quickstart_report.py"), *arguments], text=True,
                              capture_output=True, check=False)

    def test_the_table_says_what_happened(self):
        result = self.table()
        self.assertEqual(result.returncode, 0, result.stderr)
        for part in ("4 compiled in 2.5 s", "0 compiled, 4 cache hits", "1,234,567 bytes", "lockstep (portable)", "1.25e-03"):
            self.assertIn(part, result.stdout)

    def test_a_failure_is_not_shown_as_a_result(self):
        for changes in ({"build": {"failed": 1}}, {"again": {"compiled": 1}}, {"again": {"hits": 0}}, {"run": {"checked": False}}):
            with self.subTest(changes):
                self.assertEqual(self.table(**changes).returncode, 1)

    def test_the_first_served_gpu_is_taken(self):
        old, new = {"name": "a", "problem": "not served"}, {"name": "b", "arch": "sm_120a"}
        for devices, expected in (([], ["lockstep", "sm_90a"]), ([old], ["lockstep", "sm_90a"]), ([old, new], ["cuda:1", "sm_120a"])):
            with self.subTest(devices), tempfile.TemporaryDirectory() as folder:
                with open(os.path.join(folder, "doctor.json"), "w", encoding="utf-8") as file:
                    json.dump({"devices": devices}, file)
                self.assertEqual([self.report(what, folder).stdout.strip() for what in ("device", "arch")], expected)


if __name__ == "__main__":
    unittest.main()
