"""cache, on folders without kernels; build_test.py has those with some."""
import os
import unittest

import support


class Cache(support.CliTest):
    def test_path_says_where_and_why(self):
        found = self.json("cache", "path")
        self.assertEqual((found["path"], found["origin"]), (self.path("cache"), "environment, W4MOE_CACHE_DIR"))
        out, _ = self.cli("cache", "path", W4MOE_CACHE_DIR=None, XDG_CACHE_HOME=self.path("xdg"))
        self.assertEqual(out, self.path("xdg", "w4moe") + "\n")
        out, _ = self.cli("cache", "path", "--cache-dir", "here")
        self.assertEqual(out, self.path("here") + "\n")

    def test_a_cache_that_nobody_used_is_empty(self):
        self.assertEqual(self.json("cache", "list")["entries"], [])
        self.assertEqual(self.json("cache", "stats")["entries"], 0)
        self.assertEqual(self.json("cache", "verify")["checked"], 0)
        self.assertEqual(self.json("cache", "clean")["removed"], [])
        self.assertEqual(self.json("cache", "prune", "--max-size", "1M")["kept_entries"], 0)
        self.assertFalse(os.path.exists(self.path("cache")))

    def test_a_folder_that_is_named_must_be_there(self):
        self.refused("cache", "verify", "--readonly", "nowhere", code=1, words=["nowhere"])

    def test_bad_values(self):
        self.refused("cache", "prune", "--max-size", "much", code=2, words=["--max-size", "much"])
        self.refused("cache", "explain", "xyz", code=2, words=["xyz"])
        self.refused("cache", "explain", "abc", code=2, words=["abc"])
        self.refused("cache", "list", code=2, words=["W4MOE_CACHE", "maybe", "readonly"], W4MOE_CACHE="maybe")

    def test_no_home_no_cache_and_a_reason(self):
        self.refused("cache", "list", code=2, words=["W4MOE_CACHE_DIR"], HOME=None, W4MOE_CACHE_DIR=None)

    def test_a_folder_that_others_may_write_is_not_trusted(self):
        os.mkdir(self.path("open"))
        os.chmod(self.path("open"), 0o777)
        self.refused("cache", "verify", "--cache-dir", "open", code=1, words=["open"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
