"""O06: doctor tells what there is, and fails over nothing that is missing."""
import os
import unittest

import support


class Doctor(support.CliTest):
    def test_json(self):
        report = self.json("doctor")
        for field in ("versions", "settings", "cache", "nvrtc", "driver", "devices"):
            self.assertIn(field, report)
        settings = {row["name"]: row for row in report["settings"]}
        self.assertEqual(settings["cache_dir"]["value"], self.path("cache"))
        self.assertIn("W4MOE_CACHE_DIR", settings["cache_dir"]["origin"])
        self.assertEqual(settings["jit"]["origin"], "default")
        self.assertEqual(report["cache"]["state"], "not made yet")
        self.assertFalse(os.path.exists(self.path("cache")), "a look makes nothing")

    def test_origins(self):
        settings = {row["name"]: row for row in self.json("doctor", "-j", "3", "--cache-dir", "mine", W4MOE_JIT="off", W4MOE_ARCH="sm_89")["settings"]}
        self.assertEqual((settings["jit"]["value"], settings["jit"]["origin"]), ("off", "environment"))
        self.assertEqual((settings["jobs"]["value"], settings["jobs"]["origin"]), ("3", "option"))
        self.assertEqual(settings["cache_dir"]["origin"], "option")
        self.assertEqual((settings["arch"]["value"], settings["arch"]["origin"]), ("sm_89", "environment"))

    def test_text(self):
        out, err = self.cli("doctor")
        for word in ("versions", "settings", "cache", "nvrtc", "driver", "devices"):
            self.assertIn(word, out)
        self.assertEqual(err, "")

    def test_nothing_missing_is_a_failure(self):
        report = self.json("doctor", W4MOE_NVRTC="/nonexistent", W4MOE_CACHE_DIR=None, HOME=None)
        self.assertEqual((report["nvrtc"]["found"], report["cache"]["state"]), (False, "none"))
        self.assertIn("/nonexistent", report["nvrtc"]["problem"])

    def test_a_setting_that_cannot_be_read_is_told(self):
        report = self.json("doctor", W4MOE_CACHE_MAX_SIZE="much")
        self.assertIn("W4MOE_CACHE_MAX_SIZE", report["settings_problem"])

    def test_an_untrusted_cache_is_told(self):
        os.mkdir(self.path("cache"))
        os.chmod(self.path("cache"), 0o777)
        self.assertEqual(self.json("doctor")["cache"]["state"], "refused")

    def test_a_read_only_cache(self):
        os.mkdir(self.path("cache"), 0o500)
        expected = "writable" if os.geteuid() == 0 else "read only"
        self.assertEqual(self.json("doctor")["cache"]["state"], expected)


if __name__ == "__main__":
    unittest.main(verbosity=2)
