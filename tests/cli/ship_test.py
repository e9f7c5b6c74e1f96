"""build for a fleet: shards that merge by copying, lists that an image is held against, builds that were killed, limits."""
import json
import os
import shutil
import signal
import subprocess
import unittest

import support
from build_test import OTHER, SMALL, manifest, tree

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


class Shards(support.CliTest):
    def setUp(self):
        super().setUp()
        self.write("shapes.json", manifest(SMALL, OTHER))

    def build(self, *more, **kwargs):
        return self.json("build", "--manifest", "shapes.json", "--arch", "sm_90a", *more, **kwargs)

    def test_the_parts_are_the_whole_and_merge_by_copying(self):
        whole = [k["key"] for k in self.build("--dry-run")["kernels"]]
        parts = []
        for i in (1, 2, 3):
            # Another order of the layers on each machine, and another folder.
            self.write("shapes.json", manifest(OTHER, SMALL) if i == 2 else manifest(SMALL, OTHER))
            dry = self.build("--dry-run", "--shard", f"{i}/3")
            done = self.build("--output", f"part{i}", "--shard", f"{i}/3")
            self.assertEqual(done["shard"], f"{i}/3")
            self.assertEqual((done["failed"], done["compiled"]), (0, dry["to_compile"]))
            self.assertEqual({k["key"] for k in done["kernels"]}, {k["key"] for k in dry["kernels"]})
            parts.append([k["key"] for k in done["kernels"]])
        self.assertEqual(sorted(sum(parts, [])), sorted(whole))
        self.assertLessEqual(max(map(len, parts)) - min(map(len, parts)), 1)
        for i in (1, 2, 3):
            shutil.copytree(self.path(f"part{i}"), self.path("merged"), dirs_exist_ok=True)
        report = self.json("cache", "verify", "--readonly", "merged")
        self.assertEqual((report["checked"], report["missing"], report["unlisted"], len(report["lists"])), (len(whole), [], [], 3))
        self.assertEqual(self.build("--output", "merged", W4MOE_NVRTC="/nonexistent")["hits"], len(whole))
        os.remove(self.path("merged", next(name for name in tree(self.path("part2")) if name.endswith(".cubin"))))
        self.assertEqual(len(self.json("cache", "verify", "--readonly", "merged", code=6)["missing"]), 1)

    def test_more_parts_than_kernels(self):
        self.assertEqual(self.build("--dry-run", "--shard", "999/1000")["kernels"], [])

    def test_bad_shards(self):
        for text in ("0/2", "3/2", "1", "1/", "/2", "a/b", "1/2/3", "-1/2", "1/99999999999"):
            self.refused("build", "--manifest", "shapes.json", "--shard", text, code=2, words=["--shard", text, "2/8"])


class Fleet(support.CliTest):
    def test_O03_twenty_models_make_each_kernel_once(self):
        with open(os.path.join(ROOT, "generator/manifest/schema.json"), encoding="utf-8") as file:
            models = json.load(file)["$defs"]["model_problem"]["properties"]["model"]["enum"]
        problems = [{"model": model, "max_tokens": tokens} for model in models for tokens in (1, 64, 16384)]
        self.assertGreaterEqual(len(problems), 20)
        self.write("shapes.json", manifest(*problems))
        dry = self.json("build", "--manifest", "shapes.json", "--arch", "sm_90a", "--dry-run")
        keys = [k["key"] for k in dry["kernels"]]
        self.assertEqual((len(keys), dry["to_compile"]), (len(set(keys)), len(keys)))
        uses = [use for k in dry["kernels"] for use in k["used_by"]]
        self.assertLess(len(keys), len(uses))
        self.assertTrue(all(first <= last <= 16384 for use in uses for first, last in use["tokens"]))

    def test_O09_a_hundred_processes_choose_the_same(self):
        line = [support.CLI, "plan", "--model", "deepseek-v3", "--tp", "8", "--max-tokens", "4096", "--arch", "sm_90a", "--json"]
        seen = set()
        for i in range(100):
            # Ranks differ in their variables, folders and numbers; plans must not.
            env = support.environment(self.folder, RANK=str(i % 8), CUDA_VISIBLE_DEVICES=str(i % 8), LC_ALL="C.UTF-8" if i % 2 else "C", TZ=f"UTC{i % 12:+d}")
            seen.add(subprocess.run(line, cwd=self.folder if i % 2 else "/", env=env, capture_output=True, check=True, timeout=60).stdout)
        self.assertEqual(len(seen), 1)

    def test_C05_C06_no_place_for_a_cache_costs_a_warning(self):
        self.write("shapes.json", manifest(dict(SMALL, max_tokens=1)))
        line = ("build", "--manifest", "shapes.json", "--arch", "sm_90a")
        before = set(os.listdir("/"))
        self.write("occupied", "")
        for env in ({"HOME": None}, {"HOME": "/"}, {"HOME": "/nonexistent"}, {"HOME": None, "XDG_CACHE_HOME": "relative"}):
            with self.subTest(env=env):
                report = self.json(*line, "--dry-run", W4MOE_CACHE_DIR=None, **env)
                self.assertEqual(report["failed"], 0)
                self.assertEqual(len(report["warnings"]), 1)
                self.assertIn("W4MOE_CACHE_DIR", report["warnings"][0])
        report = self.json(*line, W4MOE_CACHE_DIR=self.path("occupied", "cache"))
        self.assertEqual((report["failed"], report["compiled"]), (0, len(report["kernels"])))
        self.assertEqual(len(report["warnings"]), 1)
        for word in (self.path("occupied", "cache"), "W4MOE_CACHE_DIR"):
            self.assertIn(word, report["warnings"][0])
        self.assertEqual((set(os.listdir("/")), sorted(os.listdir(self.folder))), (before, ["occupied", "shapes.json"]))


class Lists(support.CliTest):
    def test_an_image_is_held_against_a_list_that_is_kept_elsewhere(self):
        self.write("shapes.json", manifest(SMALL))
        line = ("build", "--manifest", "shapes.json", "--arch", "sm_90a", "--output", "kernels")
        count = self.json(*line, "--lock", "fleet.json")["compiled"]
        self.assertFalse(os.path.exists(self.path("kernels", "manifest.lock.json")))
        with open(self.path("fleet.json"), encoding="utf-8") as file:
            listed = json.load(file)
        self.assertEqual((listed["schema"], len(listed["entries"])), ("w4moe.lock/1", count))
        verify = ("cache", "verify", "--readonly", "kernels", "--lock", "fleet.json")
        self.assertEqual(self.json(*verify)["checked"], count)
        # The same build again changes no byte.
        before = self.bytes_of("fleet.json")
        self.json(*line, "--lock", "fleet.json")
        self.assertEqual(self.bytes_of("fleet.json"), before)

        # An entry that is whole, but not the listed one.
        entry = listed["entries"][0]
        content = self.bytes_of("kernels", entry["path"])
        listed["entries"][0]["sha256"] = "0" * 64
        self.write("other.json", json.dumps(listed))
        self.assertEqual(self.json(*verify[:-1], "other.json", code=6)["changed"], [entry["path"]])
        # One that is missing, and one that is not listed.
        del listed["entries"][0]
        self.write("other.json", json.dumps(listed))
        self.assertEqual(self.json(*verify[:-1], "other.json", code=6)["unlisted"], [entry["path"]])
        os.remove(self.path("kernels", entry["path"]))
        self.assertEqual(self.json(*verify, code=6)["missing"], [entry["path"]])
        with open(self.path("kernels", entry["path"]), "wb") as file:
            file.write(content)
        os.chmod(self.path("kernels", entry["path"]), 0o644)
        self.json(*verify)
        self.refused(*verify[:-1], "shapes.json", code=6, words=["shapes.json", "no lock file"])
        self.refused(*verify[:-1], "none.json", code=1, words=["none.json"])

    def test_a_list_of_what_a_build_has_in_the_cache(self):
        self.write("shapes.json", manifest(SMALL, OTHER))
        self.json("build", "--manifest", "shapes.json", "--arch", "sm_90a")
        self.write("one.json", manifest(SMALL))
        one = self.json("build", "--manifest", "one.json", "--arch", "sm_90a", "--lock", "one.lock.json")
        with open(self.path("one.lock.json"), encoding="utf-8") as file:
            listed = json.load(file)["entries"]
        self.assertEqual({e["key"] for e in listed}, {k["key"] for k in one["kernels"]})


class Copies(support.CliTest):
    def test_O06_export_import_and_explain(self):
        self.write("shapes.json", manifest(SMALL, OTHER))
        built = self.json("build", "--manifest", "shapes.json", "--arch", "sm_90a")
        count = built["compiled"]
        out = self.json("cache", "export", "shipped")
        self.assertEqual((out["copied"], out["present"], out["failed"], out["path"]), (count, 0, [], self.path("shipped")))
        self.assertEqual(self.json("cache", "export", "shipped")["present"], count)
        self.assertEqual(os.stat(self.path("shipped", "v1")).st_mode & 0o777, 0o755)
        self.assertEqual(self.json("cache", "verify", "--readonly", "shipped", "--lock", "shipped/manifest.lock.json")["checked"], count)

        # Into another cache, twice; a damaged entry stays behind and is told.
        elsewhere = {"W4MOE_CACHE_DIR": self.path("elsewhere")}
        self.assertEqual(self.json("cache", "import", "shipped", **elsewhere)["copied"], count)
        self.assertEqual(self.json("cache", "import", "shipped", **elsewhere)["present"], count)
        again = self.json("build", "--manifest", "shapes.json", "--arch", "sm_90a", W4MOE_NVRTC="/nonexistent", **elsewhere)
        self.assertEqual((again["hits"], again["compiled"]), (count, 0))
        files = sorted(name for name in tree(self.path("shipped")) if name.endswith(".cubin"))
        with open(self.path("shipped", files[0]), "r+b") as file:
            file.seek(64)
            file.write(b"\xff\xff\xff\xff")
        third = self.json("cache", "import", "shipped", code=3, W4MOE_CACHE_DIR=self.path("third"))
        self.assertEqual((third["copied"], len(third["failed"])), (count - 1, 1))
        self.assertIn(files[0], third["failed"][0])
        self.refused("cache", "import", "nowhere", code=1, words=["nowhere"])
        self.assertEqual(self.json("cache", "export", "empty", W4MOE_CACHE_DIR=self.path("unused"))["copied"], 0)

        # explain, by keys and by files: the same, and only the lines that differ.
        # The same kernel of both layers: one name, two keys.
        names = [k["name"] for k in built["kernels"]]
        twin = next(name for name in names if name.startswith("fc1") and names.count(name) == 2)
        fc1 = [k["key"] for k in built["kernels"] if k["name"] == twin]
        text, _ = self.cli("cache", "explain", *fc1[:2])
        self.assertRegex(text, r"\n- +\.activation = Activation::\w+,\n\+ +\.activation = Activation::\w+,")
        self.assertNotIn(".hidden", text)
        self.assertNotIn("bundle", text)
        files = [next(name for name in tree(self.path("cache")) if name.replace("/", "").find(key) > 0) for key in fc1[:2]]
        by_file = self.json("cache", "explain", *(os.path.join("cache", name) for name in files))
        self.assertEqual(by_file["differences"], self.json("cache", "explain", *fc1[:2])["differences"])
        self.refused("cache", "explain", "shapes.json", code=6, words=["shapes.json"])

    def test_O06_inspect_shows_resources_source_and_machine_code(self):
        self.write("shapes.json", manifest(SMALL))
        key = self.json("build", "--manifest", "shapes.json", "--arch", "sm_90a")["kernels"][0]["key"]
        entry = self.json("inspect", key)
        self.assertGreater(entry["smem_bytes"], 0)
        self.assertIn("inline constexpr Variant kVariant", entry["source"]["header"])
        self.assertIn("#include", entry["source"]["entry"])
        text, _ = self.cli("inspect", key, "--source")
        for word in ("registers", "spills", "shared memory in all", "layout_id", "inline constexpr Variant kVariant"):
            self.assertIn(word, text)
        # A bare cubin has no source; a disassembler is run where there is one.
        with open(self.path("bare.cubin"), "wb") as file:
            path = next(name for name in tree(self.path("cache")) if name.endswith(key[2:] + "-" + entry["nvrtc"] + ".cubin"))
            file.write(self.bytes_of("cache", path)[:entry["cubin_bytes"]])
        self.assertNotIn("source", self.json("inspect", "bare.cubin"))
        self.refused("inspect", "bare.cubin", "--source", code=2, words=["--source", "bare.cubin"])
        os.mkdir(self.path("bin"))
        self.write("bin/nvdisasm", '#!/bin/sh\n[ "$1" = -c ] && head -c 4 "$2" | tail -c 3 && echo " MOV R1, R2"\n')
        os.chmod(self.path("bin/nvdisasm"), 0o755)
        with_tool = {"PATH": self.path("bin") + os.pathsep + os.environ["PATH"]}
        self.assertEqual(self.json("inspect", key, "--sass", **with_tool)["sass"], "ELF MOV R1, R2\n")
        self.write("bin/nvdisasm", "#!/bin/sh\nexit 3\n")
        self.refused("inspect", key, "--sass", code=1, words=["nvdisasm"], **with_tool)


class Killed(support.CliTest):
    def test_a_build_that_was_killed_goes_on_where_it_was(self):
        self.write("shapes.json", manifest({"model": "gpt-oss-120b", "max_tokens": 64}))
        line = ("build", "--manifest", "shapes.json", "--arch", "sm_90a", "--output", "kernels")
        process = subprocess.Popen([support.CLI, *line, "-j", "1", "-v"], cwd=self.folder, env=support.environment(self.folder),
                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        for text in process.stderr:
            if text.startswith("[2/"):
                break
        process.kill()
        process.communicate()
        self.assertEqual(process.returncode, -signal.SIGKILL)
        self.assertEqual(self.json("cache", "verify", "--readonly", "kernels")["damaged"], [])
        again = self.json(*line)
        self.assertGreaterEqual(again["hits"], 2)
        self.assertEqual(again["hits"] + again["compiled"], len(again["kernels"]))
        self.assertEqual(self.json("cache", "verify", "--readonly", "kernels")["missing"], [])


class Limits(support.CliTest):
    def test_C20_jobs_and_memory_are_honoured(self):
        self.write("shapes.json", manifest(SMALL))
        line = ("build", "--manifest", "shapes.json", "--arch", "sm_90a")
        self.assertEqual(self.json(*line, "-j", "3")["jobs"], 3)
        self.assertEqual(self.json(*line, "-j", "8", "--memory-limit", "600M")["jobs"], 2)
        self.assertEqual(self.json(*line, "-j", "8", W4MOE_MEMORY_LIMIT="1M")["jobs"], 1)
        self.refused(*line, "--memory-limit", "some", code=2, words=["--memory-limit", "some"])

    def test_C01_C20_sixteen_cold_processes_compile_each_kernel_once(self):
        self.write("shapes.json", manifest(dict(SMALL, max_tokens=1)))
        line = [support.CLI, "build", "--manifest", "shapes.json", "--arch", "sm_90a", "-j", "2", "--json", "-q"]
        processes = [subprocess.Popen(line, cwd=self.folder, env=support.environment(self.folder), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                     for _ in range(16)]
        ended = [(*process.communicate(timeout=300), process.returncode) for process in processes]
        self.assertEqual([(code, err) for _, err, code in ended], [(0, "")] * 16)
        reports = [json.loads(out) for out, _, _ in ended]
        count = len(reports[0]["kernels"])
        self.assertEqual(sum(r["compiled"] for r in reports), count)
        self.assertEqual(sum(r["hits"] for r in reports), 15 * count)
        stats = self.json("cache", "stats")
        self.assertEqual((stats["counters"]["compile"], stats["entries"]), (count, count))
        self.assertEqual(os.listdir(self.path("cache", "v1", "tmp")), [])


if __name__ == "__main__":
    support.needs_nvrtc()
    unittest.main(verbosity=2)
