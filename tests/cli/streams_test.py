"""Standard streams as scripts and odd places have them: closed, full, cut off, 20 columns wide, no terminal."""
import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import termios
import unittest

import support
from build_test import SMALL, manifest


def on_terminal(command, columns, **kwargs):
    """Runs with stderr on a terminal of this width; gives the exit code, stdout and what the terminal got."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs, stdin=subprocess.DEVNULL, text=True, **kwargs)
    os.close(theirs)
    seen = b""
    while True:
        try:
            piece = os.read(ours, 4096)
        except OSError:  # the other end is closed
            break
        if not piece:
            break
        seen += piece
    os.close(ours)
    out, _ = process.communicate(timeout=300)
    return process.returncode, out, seen.decode()


class Streams(support.CliTest):
    def bash(self, script, **env):
        return subprocess.run(["bash", "-c", script], cwd=self.folder, env=dict(support.environment(self.folder, **env), CLI=support.CLI), capture_output=True,
                              text=True, timeout=300)

    def test_closed_stdout_is_a_failure_and_nothing_is_written_elsewhere(self):
        for line in ("plan --model seed-case --max-tokens 8 --json", "version", "doctor --json", "cache stats", "plan --help"):
            result = self.bash(f'"$CLI" {line} >&-')
            self.assertEqual(result.returncode, 1, line)
            self.assertIn("standard output", result.stderr)

    def test_closed_stderr_and_stdin_do_no_harm(self):
        result = self.bash('"$CLI" plan --model seed-case --max-tokens 8 --json 2>&- <&-')
        self.assertEqual(result.returncode, 0)
        self.assertIn("schema", json.loads(result.stdout))
        self.assertEqual(self.bash('"$CLI" plan 2>&-').returncode, 2)

    def test_a_reader_that_goes_away_is_an_error_and_no_signal(self):
        result = self.bash('set -o pipefail; "$CLI" plan --model gpt-oss-120b --max-tokens 4096 --json | true; echo "${PIPESTATUS[0]}"')
        self.assertIn(result.stdout.strip(), ("0", "1"))  # 0: all of it was in the pipe before the reader went
        # stdout is a pipe without a reader for certain.
        read, write = os.pipe()
        os.close(read)
        process = subprocess.run([support.CLI, "plan", "--model", "gpt-oss-120b", "--max-tokens", "64", "--json"], env=support.environment(self.folder),
                                 stdout=write, stderr=subprocess.PIPE, text=True)
        os.close(write)
        self.assertEqual(process.returncode, 1)
        self.assertIn("standard output", process.stderr)

    def test_O01_stdout_is_one_document_whatever_else_is_said(self):
        os.mkdir(self.path("open"))
        os.chmod(self.path("open"), 0o777)
        self.write("shapes.json", manifest(SMALL, dict(SMALL, name="refused", pins=["no-portable", "no-wgmma"])))
        out, err = self.cli("build", "--manifest", "shapes.json", "--dry-run", "--cache-dir", "open", "--json", "-vv", code=3)
        document = json.loads(out)
        self.assertTrue(document["warnings"] and document["failures"])
        self.assertIn("warning", err)


class Building(support.CliTest):
    def setUp(self):
        super().setUp()
        self.write("shapes.json", manifest(SMALL))
        self.line = [support.CLI, "build", "--manifest", "shapes.json", "--arch", "sm_90a"]
        self.env = support.environment(self.folder)

    def test_a_bar_on_a_terminal_that_fits_any_width(self):
        for columns in (120, 20):
            with self.subTest(columns=columns):
                folder = f"cache{columns}"
                code, out, seen = on_terminal(self.line + ["--cache-dir", folder], columns, cwd=self.folder, env=self.env)
                self.assertEqual(code, 0, seen)
                self.assertIn("compiled", out)
                drawn = [text for text in seen.split("\r\033[K") if text]
                self.assertTrue(drawn)
                for text in drawn:
                    self.assertLess(len(text), columns)
                    self.assertNotIn("\n", text)
                self.assertTrue(seen.endswith("\r\033[K"), "the bar is taken away")
                self.assertEqual("[####" in seen, columns == 120)

    def test_plain_lines_elsewhere_and_none_with_q(self):
        result = subprocess.run(self.line, cwd=self.folder, env=self.env, capture_output=True, text=True, timeout=300)
        self.assertNotIn("\033", result.stderr)
        lines = result.stderr.splitlines()
        self.assertTrue(lines and len(lines) <= 10 and all(re.match(r"kernels: \d+/\d+ \(", text) for text in lines), lines)
        result = subprocess.run(self.line + ["--cache-dir", "other", "-q"], cwd=self.folder, env=self.env, capture_output=True, text=True, timeout=300)
        self.assertEqual((result.returncode, result.stderr), (0, ""))

    def test_a_warning_does_not_stick_to_the_bar(self):
        os.mkdir(self.path("open"))
        os.chmod(self.path("open"), 0o777)
        code, _, seen = on_terminal(self.line + ["--cache-dir", "open"], 100, cwd=self.folder, env=self.env)
        self.assertEqual(code, 0)
        for line in seen.splitlines():
            self.assertTrue("warning" not in line or re.match(r"(\r\033\[K.*)?\r?(\033\[K)?(\033\[[0-9;]*m)?warning", line), repr(line))

    def test_closed_streams_do_not_reach_the_cache(self):
        # File numbers 1 and 2 are free when the cache is written: what is printed must not go into a kernel.
        result = subprocess.run(["bash", "-c", '"$0" "$@" -v >&- 2>&-', *self.line], cwd=self.folder, env=self.env, timeout=300)
        self.assertEqual(result.returncode, 1)
        report = self.json("cache", "verify")
        self.assertGreater(report["checked"], 0)
        self.assertEqual(report["damaged"], [])


if __name__ == "__main__":
    support.needs_nvrtc()
    unittest.main(verbosity=2)
