"""O06: doctor tells what there is, and fails over nothing that is missing."""
import os
import unittest

import support


class Doctor(support.CliTest):
    def test_json(self):
        report = self.json("doctor")
        for field in ("versions", "settings", "cache", "readonly_dirs", "machine", "nvrtc", "driver", "devices"):
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

    def test_a_configuration_file_is_told_with_its_place(self):
        self.write("w4moe.conf", "jobs = 2\narch = sm_86\n")
        report = self.json("doctor", "--memory-limit", "1G", W4MOE_CONFIG=self.path("w4moe.conf"), W4MOE_JOBS="5")
        settings = {row["name"]: row for row in report["settings"]}
        self.assertEqual((settings["config"]["value"], settings["config"]["origin"]), (self.path("w4moe.conf"), "environment"))
        self.assertEqual((settings["arch"]["value"], settings["arch"]["origin"]), ("sm_86", "config file"))
        self.assertEqual((settings["jobs"]["value"], settings["jobs"]["origin"]), ("5", "environment"))
        self.assertEqual(settings["memory_limit"]["origin"], "option")
        self.assertEqual(report["machine"]["compiles_at_a_time"], 4)
        self.assertEqual(self.json("plan", *support.TINY, W4MOE_CONFIG=self.path("w4moe.conf"))["device"]["arch"], "sm_86")
        os.makedirs(self.path(".config/w4moe"))
        self.write(".config/w4moe/config", "arch = sm_80\n")
        self.assertEqual(self.json("plan", *support.TINY)["device"]["arch"], "sm_80")
        self.write(".config/w4moe/config", "arc = sm_80\n")
        self.refused("plan", *support.TINY, code=2, words=[".config/w4moe/config:1", "'arc'", "arch"])
        self.assertIn("'arc'", self.json("doctor")["settings_problem"])

    def test_a_misspelt_variable_is_told(self):
        report = self.json("doctor", W4MOE_CACHEDIR="/somewhere")
        self.assertEqual(report["unknown_variables"], ["W4MOE_CACHEDIR"])
        self.assertTrue(any("W4MOE_CACHEDIR" in text for text in report["warnings"]))

    def test_read_only_folders_are_looked_at(self):
        os.mkdir(self.path("open"))
        os.chmod(self.path("open"), 0o777)
        rows = self.json("doctor", W4MOE_CACHE_READONLY_DIRS=self.path("none") + ":" + self.path("open"))["readonly_dirs"]
        self.assertEqual([row["state"] for row in rows], ["refused", "refused"])
        self.assertIn("0777", rows[1]["problem"])

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
