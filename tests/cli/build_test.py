"""build and inspect: what is compiled, once, and what happens where it cannot be."""
import json
import os
import signal
import subprocess
import time
import unittest

import support

# Two layers that share their routing and combining kernels: 6 kernels in all for one target, and the two that pack their weights.
SMALL = {"name": "small", "hidden": 256, "intermediate": 128, "experts": 4, "topk": 2, "max_tokens": 8, "format": "mxfp4", "activation": "silu",
         "pins": ["no-direct"]}
OTHER = dict(SMALL, name="other", activation="relu2")


def manifest(*problems):
    return json.dumps({"schema_version": 1, "problems": list(problems)})


def tree(folder):
    """Bytes of every file below a folder."""
    found = {}
    for base, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(base, name)
            with open(path, "rb") as file:
                found[os.path.relpath(path, folder)] = file.read()
    return found


class Build(support.CliTest):
    def test_build_then_build_again_then_look(self):
        self.write("shapes.json", manifest(SMALL, OTHER))
        line = ("build", "--manifest", "shapes.json", "--arch", "sm_90a", "--output", "kernels", "-j", "2")
        first = self.json(*line)
        self.assertEqual((first["hits"], first["failed"], first["warnings"]), (0, 0, []))
        self.assertEqual(first["compiled"], len(first["kernels"]))
        for kernel in first["kernels"]:
            for field in ("key", "name", "arch", "registers", "spill_bytes", "smem_bytes", "compile_ms"):
                self.assertIn(field, kernel)
            self.assertEqual((len(kernel["key"]), kernel["arch"]), (64, "sm_90a"))
        # O03: a kernel that both layers use is built once, and says so.
        shared = [k for k in first["kernels"] if len(k["used_by"]) == 2]
        self.assertTrue(any(k["name"] == "route" for k in shared), shared)

        # O14: the second run, with the entries in another order, compiles nothing and changes no kernel and no list.
        entries = {k: v for k, v in tree(self.path("kernels")).items() if "stats" not in k}
        self.write("shapes.json", manifest(OTHER, SMALL))
        again = self.json(*line)
        self.assertEqual((again["compiled"], again["hits"], again["failed"]), (0, first["compiled"], 0))
        self.assertEqual({k: v for k, v in tree(self.path("kernels")).items() if "stats" not in k}, entries)

        # Whole, as its lock file says; a missing entry and a damaged one are found.
        self.assertEqual(self.json("cache", "verify", "--readonly", "kernels")["checked"], first["compiled"])
        files = sorted(name for name in entries if name.endswith(".cubin"))
        os.remove(self.path("kernels", files[0]))
        with open(self.path("kernels", files[1]), "r+b") as file:
            file.seek(100)
            file.write(b"\xff\x00\xff\x00")
        report = self.json("cache", "verify", "--readonly", "kernels", code=6)
        self.assertEqual((len(report["missing"]), len(report["damaged"])), (1, 1))

        # C21: without a compiler the whole ones are found, and what is missing exits 5.
        self.refused(*line, code=5, words=["NVRTC", "2 of"], W4MOE_NVRTC="/nonexistent")
        self.assertEqual(self.json(*line)["compiled"], 2)
        self.assertEqual(self.json(*line, W4MOE_NVRTC="/nonexistent")["hits"], first["compiled"])

        # inspect, by file and by key.
        by_file = self.json("inspect", os.path.join("kernels", files[2]))
        self.assertEqual(by_file["arch"], "sm_90a")
        self.assertGreater(by_file["kernels"][0]["registers"], 0)
        self.assertIn("threads", by_file["facts"])
        self.assertEqual(len(by_file["layout_id"]), 16)
        by_key = self.json("inspect", by_file["key"][:16], "--cache-dir", "kernels")
        self.assertEqual((by_key["key"], by_key["kernels"]), (by_file["key"], by_file["kernels"]))
        out, _ = self.cli("inspect", os.path.join("kernels", files[2]))
        self.assertIn("registers", out)
        self.refused("inspect", "shapes.json", code=6, words=["shapes.json"])
        self.refused("inspect", os.path.join("kernels", files[2]), "--sass", code=5, words=["nvdisasm"], PATH="/nonexistent")

        # cache list and explain.
        listed = self.json("cache", "list", "--cache-dir", "kernels")["entries"]
        self.assertEqual({e["key"] for e in listed}, {k["key"] for k in first["kernels"]})
        self.assertTrue(all(e["ok"] and e["description"] for e in listed))
        keys = [k["key"] for k in first["kernels"] if k["name"].startswith("fc1")]
        difference = self.json("cache", "explain", keys[0], keys[1], "--cache-dir", "kernels")["differences"]
        self.assertEqual([d["label"] for d in difference], ["variant"])
        self.assertIn("arch", [f["label"] for f in self.json("cache", "explain", keys[0], "--cache-dir", "kernels")["fields"]])

        # W4MOE_JIT=off and everything there: fine. Another target: every kernel fails, each with its reason (exit 3).
        self.assertEqual(self.json(*line, W4MOE_JIT="off")["hits"], first["compiled"])
        off = self.json("build", "--manifest", "shapes.json", "--arch", "sm_120a", "--output", "kernels", code=3, W4MOE_JIT="off")
        self.assertEqual(off["failed"], len(off["kernels"]))
        self.assertIn("W4MOE_JIT", off["kernels"][0]["error"])

    def test_dry_run_lists_each_kernel_once_with_the_layers_that_use_it(self):
        self.write("shapes.json", manifest(SMALL, OTHER, {"model": "gpt-oss-120b", "max_tokens": 64}))
        dry = self.json("build", "--manifest", "shapes.json", "--arch", "sm_90a,sm_120a", "--dry-run")
        keys = [k["key"] for k in dry["kernels"]]
        self.assertEqual(len(keys), len(set(keys)))
        self.assertEqual((dry["compiled"], dry["to_compile"]), (0, len(keys)))
        uses = [use for k in dry["kernels"] for use in k["used_by"] if use["problem"] == "gpt-oss-120b"]
        # The two kernels that pack weights are built too, and run for no tokens.
        self.assertEqual([use["tokens"] for use in uses if use["kernel"] in ("scan", "pack")], [[]] * 4)
        ranges = [use["tokens"] for use in uses if use["kernel"] not in ("scan", "pack")]
        self.assertTrue(all(r and 1 <= r[0][0] <= r[-1][1] <= 64 for r in ranges), ranges)
        self.assertEqual(dry["warnings"], [])
        self.assertFalse(os.path.exists(self.path("cache")))
        out, err = self.cli("build", "--manifest", "shapes.json", "--dry-run")
        self.assertEqual(err, "")
        self.assertIn("for gpt-oss-120b, tokens ", out)

    def test_a_layer_that_is_not_served_does_not_keep_the_others(self):
        self.write("shapes.json", manifest(dict(SMALL, pins=["no-portable", "no-wgmma"], name="refused"), {"model": "seed-case", "max_tokens": 8}))
        dry = self.json("build", "--manifest", "shapes.json", "--dry-run", code=3)
        self.assertEqual([(f["problem"], f["where"]) for f in dry["failures"]], [("refused", "/problems/0")])
        self.assertGreater(len(dry["kernels"]), 0)
        self.refused("build", "--manifest", "shapes.json", "--dry-run", "--fail-fast", code=4, words=["no-portable"])

    def test_standard_input_is_a_manifest_too(self):
        dry = self.json("build", "--manifest", "-", "--dry-run", stdin=manifest(SMALL))
        self.assertGreater(dry["to_compile"], 0)

    def test_broken_manifests_exit_2_and_name_the_place(self):
        for text, words in (
            ("", ["shapes.json"]),
            ('{"schema_version": 1, "problems": []}', ["problems"]),
            (manifest(dict(SMALL, hiden=4)), ["/problems/0/hiden"]),
            (manifest(SMALL, dict(SMALL, name="b", hidden=0)), ["/problems/1", "0"]),
            ('{"schema_version": 1,\n "problems": [}', ["shapes.json:2"]),
        ):
            with self.subTest(text=text):
                self.write("shapes.json", text)
                self.refused("build", "--manifest", "shapes.json", code=2, words=words)
        self.refused("build", "--manifest", "none.json", code=1, words=["none.json"])
        self.refused("build", code=2, words=["--manifest"])
        self.refused("build", "--manifest", "shapes.json", *support.TINY, code=2, words=["exclude"])

    @unittest.skipIf(os.geteuid() == 0, "root writes everywhere")
    def test_an_output_that_cannot_be_written_is_a_failure(self):
        self.write("shapes.json", manifest(SMALL))
        os.mkdir(self.path("locked"), 0o500)
        self.refused("build", "--manifest", "shapes.json", "--output", "locked/kernels", code=1, words=["locked/kernels"])

    def test_an_output_that_is_a_file_is_a_failure(self):
        self.write("shapes.json", manifest(SMALL))
        self.write("occupied", "")
        out, err = self.cli("build", "--manifest", "shapes.json", "--output", "occupied", code=1)
        self.assertEqual(out, "")
        self.assertIn("occupied", err)
        self.assertEqual(self.json("build", "--manifest", "shapes.json", "--output", "occupied", code=1)["error"]["code"], "io")

    def test_interrupt_leaves_a_whole_cache_and_exits_130(self):
        self.write("shapes.json", manifest({"model": "gpt-oss-120b", "max_tokens": 4096}))
        process = subprocess.Popen([support.CLI, "build", "--manifest", "shapes.json", "-j", "1", "-v", "--json"], cwd=self.folder,
                                   env=support.environment(self.folder), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for line in process.stderr:  # the first kernel is done
            if line.startswith("[1/"):
                break
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=120)
        self.assertEqual(process.returncode, 130, err)
        document = json.loads(out)
        self.assertTrue(document["interrupted"])
        self.assertGreater(document["compiled"], 0)
        self.assertEqual(self.json("cache", "verify")["checked"], document["compiled"])


if __name__ == "__main__":
    support.needs_nvrtc()
    unittest.main(verbosity=2)
