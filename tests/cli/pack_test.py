"""w4moe pack from outside, on checkpoints that a script makes; and every example of docs/checkpoints.md."""
import json
import os
import re
import struct
import subprocess
import sys
import unittest

import support

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests/checkpoints"))
import make_checkpoints  # noqa: E402  ends with 77 where numpy is absent


class Pack(support.CliTest):
    def made(self, *families):
        make_checkpoints.make(self.folder, families)

    def test_dry_run_lists_layers_and_writes_nothing(self):
        self.made("modelopt-deepseek")
        before = sorted(os.listdir(self.folder))
        document = self.json("pack", "modelopt-deepseek", "--dry-run", "--explain")
        self.assertEqual(document["schema"], "w4moe.pack/1")
        self.assertEqual([row["number"] for row in document["layers"]], [1, 2])
        layer = document["layers"][0]
        for field, value in {"family": "modelopt", "format": "nvfp4", "hidden": 128, "intermediate": 48, "experts": 4, "topk": 2, "activation": "silu",
                             "bias": False, "status": "planned", "prefix": "model.layers.1.mlp.experts."}.items():
            self.assertEqual(layer[field], value, field)
        self.assertEqual(document["not_quantised"], [{"prefix": "model.layers.3.mlp.experts.", "dtype": "BF16"}])
        kinds = {row["name"]: row["kind"] for row in document["skipped"]}
        self.assertEqual(kinds["model.layers.*.mlp.shared_experts.up_proj.weight"], "shared expert")
        self.assertEqual(kinds["model.layers.*.mlp.gate.weight"], "router")
        self.assertEqual(sorted(os.listdir(self.folder)), before)
        plan = self.json("plan", "--hidden", "128", "--intermediate", "48", "--experts", "4", "--topk", "2", "--max-tokens", "8", "--format", "nvfp4",
                         "--activation", "silu", "--arch", "sm_90a")
        self.assertEqual(layer["packed_bytes"], plan["prepared_weight_bytes"])
        text, _ = self.cli("pack", "modelopt-deepseek", "--dry-run")
        self.assertIn("left out: its experts are BF16", text)

    def test_every_family_packs_and_verifies(self):
        self.made()
        for family in make_checkpoints.FAMILIES:
            document = self.json("pack", family, "--out", "packed-" + family, "--verify")
            self.assertGreater(document["packed"], 0, family)
            self.assertTrue(document["verified"])
            for row in document["layers"]:
                self.assertEqual(os.path.getsize(self.path(row["file"])) % 256, 0)

    def test_again_keeps_what_is_whole(self):
        self.made("gpt-oss")
        first = self.json("pack", "gpt-oss", "--out", "out", "--layers", "0")
        self.assertEqual((first["packed"], first["kept"]), (1, 0))
        stamp = os.stat(self.path("out/layer-00000.safetensors")).st_mtime_ns
        second = self.json("pack", "gpt-oss", "--out", "out")
        self.assertEqual((second["packed"], second["kept"]), (1, 1))
        self.assertEqual(os.stat(self.path("out/layer-00000.safetensors")).st_mtime_ns, stamp)
        self.assertEqual(sorted(os.listdir(self.path("out"))), ["layer-00000.safetensors", "layer-00001.safetensors"])
        # Another checkpoint under the same name is seen.
        with open(self.path("gpt-oss/model-00001-of-00002.safetensors"), "r+b") as file:
            content = file.read()
            at = 8 + int.from_bytes(content[:8], "little")
            file.seek(at)
            file.write(bytes(255 - b for b in content[at:]))
        self.refused("pack", "gpt-oss", "--out", "out", "--layers", "0", code=2, words=["layer-00000.safetensors", "--overwrite"])

    def test_N18_shards_by_rank(self):
        self.made("gpt-oss")
        names = []
        for tp in range(2):
            for ep in range(2):
                document = self.json("pack", "gpt-oss", "--out", "out", "--tp", f"{tp}/2", "--ep", f"{ep}/2", "--layers", "1", "--verify", "--threads", "2")
                row = document["layers"][0]
                self.assertEqual((row["intermediate"], row["experts"], row["first_expert"], row["total_experts"]), (32, 2, 2 * ep, 4))
                names.append(os.path.basename(row["file"]))
        self.assertEqual(names, [f"layer-00001.tp{tp}of2.ep{ep}of2.safetensors" for tp in range(2) for ep in range(2)])
        self.refused("pack", "gpt-oss", "--out", "out", "--tp", "0/4", code=4, words=["tp 4", "64 / 4 = 16", "accepted tp: 1, 2"])
        self.refused("pack", "gpt-oss", "--out", "out", "--tp", "2/2", code=2, words=["0/8 .. 7/8"])

    def test_one_file_of_all_layers(self):
        self.made("deepseek-v4")
        document = self.json("pack", "deepseek-v4", "--out", "all.safetensors", "--verify")
        self.assertEqual(document["packed"], 2)
        tensors = support.read_safetensors(self.path("all.safetensors"))
        self.assertEqual(sorted(tensors), ["layers.0.ffn.experts.packed", "mtp.0.ffn.experts.packed"])
        self.assertEqual(self.json("pack", "deepseek-v4", "--out", "all.safetensors")["kept"], 2)
        self.assertEqual(self.json("pack", "deepseek-v4", "--out", "one", "--layers", "mtp.0.ffn")["layers"][0]["file"], "one/mtp.0.ffn.safetensors")

    def test_damage_is_found(self):
        self.made("gpt-oss")
        self.cli("pack", "gpt-oss", "--out", "out", "--layers", "0")
        path = self.path("out/layer-00000.safetensors")
        with open(path, "r+b") as file:
            header = int.from_bytes(file.read(8), "little")
            file.seek(8 + header + 256)
            byte = file.read(1)
            file.seek(8 + header + 256)
            file.write(bytes([byte[0] ^ 1]))
        self.refused("pack", "gpt-oss", "--out", "out", "--layers", "0", "--verify", code=6, words=["layer-00000.safetensors", "expert 0, ", "in the checkpoint"])
        with open(path, "r+b") as file:
            file.truncate(5000)
        self.refused("pack", "gpt-oss", "--out", "out", "--layers", "0", code=2, words=["layer-00000.safetensors", "--overwrite"])
        self.assertEqual(self.json("pack", "gpt-oss", "--out", "out", "--layers", "0", "--verify", "--overwrite")["packed"], 1)

    def test_refusals(self):
        self.made("gpt-oss", "awq")
        self.refused("pack", "gpt-oss", code=2, words=["--out", "--dry-run"])
        self.refused("pack", "nothing-there", "--dry-run", code=1, words=["nothing-there"])
        self.refused("pack", "gpt-oss", "--dry-run", "--layers", "5", code=2, words=["--layers 5", "0, 1"])
        self.refused("pack", "awq", "--dry-run", "--wide", code=2, words=["--wide", "int4"])
        self.write("plain.safetensors", "")
        self.refused("pack", "plain.safetensors", "--dry-run", code=6, words=["plain.safetensors"])

    def test_S14_packing_holds_no_second_copy(self):
        """The limit is on private memory; the mapped checkpoint and the mapped destination do not count."""
        experts, hidden, features = 8, 2048, 1024
        prefix = "model.layers.0.mlp.experts."
        tensors = {}
        for name, rows, k in (("gate_up_proj", 2 * features, hidden), ("down_proj", hidden, features)):
            tensors[prefix + name + "_blocks"] = ("U8", [experts, rows, k // 32, 16], os.urandom(experts * rows * k // 2))
            tensors[prefix + name + "_scales"] = ("U8", [experts, rows, k // 32], b"\x78" * (experts * rows * k // 32))
        support.write_safetensors(self.path("big.safetensors"), tensors)
        size = os.path.getsize(self.path("big.safetensors"))
        limit = size // 2
        command = f"ulimit -d {limit // 1024}; exec '{support.CLI}' pack big.safetensors --out packed --threads 2 --json"
        result = subprocess.run(["bash", "-c", command], cwd=self.folder, env=support.environment(self.folder), capture_output=True, text=True, timeout=300)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertGreater(json.loads(result.stdout)["packed_bytes"], limit)
        os.remove(self.path("big.safetensors"))  # the packed form stands alone
        self.assertGreater(os.path.getsize(self.path("packed/layer-00000.safetensors")), limit)

    def test_run_takes_a_layer_from_a_checkpoint(self):
        self.made("gpt-oss", "modelopt-nemotron")
        for family, layer, hidden in (("gpt-oss", "1", 96), ("modelopt-nemotron", "backbone.layers.1.mixer", 64)):
            support.write_safetensors(self.path("in.safetensors"), {
                "x": ("BF16", [3, hidden], support.bf16([(i % 7 - 3) / 4 for i in range(3 * hidden)])),
                "topk_ids": ("I32", [3, 2], struct.pack("<6i", 0, 1, 2, 3, 3, 0)), "topk_weights": ("F32", [3, 2], struct.pack("<6f", *[0.5] * 6))})
            run = self.json("run", "--checkpoint", family, "--layer", layer, "--inputs", "in.safetensors", "--output", "out.safetensors", "--device", "cpu", "--check")
            self.assertTrue(run["contract"]["holds"])
            self.assertEqual(support.read_safetensors(self.path("out.safetensors"))["out"][1], [3, hidden])
        self.refused("run", "--checkpoint", "gpt-oss", "--inputs", "in.safetensors", code=2, words=["--layer"])
        self.refused("run", "--checkpoint", "gpt-oss", "--layer", "9", "--inputs", "in.safetensors", code=2, words=["'9'"])

    def test_examples_of_the_page(self):
        self.made("gpt-oss")
        os.rename(self.path("gpt-oss"), self.path("gpt-oss-20b"))
        with open(os.path.join(ROOT, "docs/checkpoints.md"), encoding="utf-8") as file:
            examples = re.findall(r"^```sh\n(.*?)^```$", file.read(), re.M | re.S)
        env = support.environment(self.folder)
        env["PATH"] = os.path.dirname(support.CLI) + os.pathsep + env["PATH"]
        for text in examples:
            with self.subTest(example=text):
                result = subprocess.run(["bash", "-euo", "pipefail", "-c", text], cwd=self.folder, env=env, capture_output=True, text=True, timeout=300)
                self.assertEqual(result.returncode, 0, f"{text}\n{result.stdout}\n{result.stderr}")
        self.assertGreater(len(examples), 2)


if __name__ == "__main__":
    unittest.main(verbosity=2)
