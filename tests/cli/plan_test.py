"""plan, render, version, and the manners that all verbs share."""
import json
import os
import subprocess
import unittest

import support


class Plan(support.CliTest):
    def test_json_has_the_fields_of_the_contract(self):
        plan = self.json("plan", *support.SEED, "--arch", "sm_90a")
        for field in ("scratch_bytes", "regions", "kernels", "buckets", "prepared_weight_bytes", "layout_id"):
            self.assertIn(field, plan)
        self.assertEqual(plan["device"]["sms"], 132)
        self.assertEqual(plan["buckets"][0]["first_tokens"], 1)
        self.assertEqual(plan["buckets"][-1]["last_tokens"], 64)

    def test_the_seed_case_asks_for_at_most_8_mib_of_scratch(self):
        self.assertLessEqual(self.json("plan", *support.SEED, "--arch", "sm_90a")["scratch_bytes"], 8 << 20)
        self.assertLessEqual(self.json("plan", "--model", "seed-case", "--max-tokens", "64", "--arch", "sm_90a")["scratch_bytes"], 8 << 20)

    def test_same_line_same_bytes(self):
        line = ("plan", "--model", "gpt-oss-120b", "--max-tokens", "64", "--arch", "sm_90a", "--json")
        self.assertEqual(self.cli(*line), self.cli(*line))

    def test_text_forms(self):
        out, err = self.cli("plan", *support.TINY)
        self.assertIn("scratch", out)
        self.assertEqual(err, "")
        out, err = self.cli("plan", *support.TINY, "--explain")
        self.assertIn("fc1", out)
        self.assertEqual(err, "")

    def test_flags_reach_the_plan(self):
        plan = self.json("plan", *support.TINY, "--arch", "sm_89", "--sms", "20", "--pin", "n16", "--pin", "no-direct", "--scratch-cap", "1M",
                         "--dtype", "f16", "--bias", "--limit", "3.5", "--name", "mine")
        self.assertEqual(plan["problem"]["name"], "mine")
        self.assertEqual((plan["problem"]["dtype"], plan["problem"]["bias"], plan["problem"]["limit"]), ("f16", True, 3.5))
        self.assertEqual((plan["device"]["arch"], plan["device"]["sms"]), ("sm_89", 20))
        self.assertEqual((plan["pins"], plan["scratch_cap_bytes"]), (["n16", "no-direct"], 1 << 20))

    def test_batch_invariant(self):
        plan = self.json("plan", "--model", "gpt-oss-120b", "--max-tokens", "4096", "--arch", "sm_90a", "--batch-invariant")
        self.assertEqual(plan["pins"], ["batch-invariant"])
        self.assertEqual({k["family"] for k in plan["kernels"] if "family" in k}, {"wgmma"})

    def test_explain_lists_candidates(self):
        text, _ = self.cli("plan", "--model", "gpt-oss-120b", "--max-tokens", "64", "--arch", "sm_90a", "--explain")
        self.assertIn("candidates, predicted us at 1:", text)
        self.assertIn("pin w24", text)

    def test_a_model_is_divided_over_ranks(self):
        whole = self.json("plan", "--model", "deepseek-v3", "--max-tokens", "64")
        rank = self.json("plan", "--model", "deepseek-v3", "--tp", "8", "--ep", "2", "--max-tokens", "64")
        self.assertEqual(rank["problem"]["intermediate"] * 8, whole["problem"]["intermediate"])
        self.assertEqual(rank["problem"]["experts"] * 2, whole["problem"]["experts"])

    def test_W4MOE_ARCH_is_the_default_arch(self):
        self.assertEqual(self.json("plan", *support.TINY, W4MOE_ARCH="sm_120a")["device"]["arch"], "sm_120a")
        self.assertEqual(self.json("plan", *support.TINY, "--arch", "sm_80", W4MOE_ARCH="sm_120a")["device"]["arch"], "sm_80")

    def test_bad_values_are_named_with_what_is_accepted(self):
        tiny = {support.TINY[i]: support.TINY[i + 1] for i in range(0, len(support.TINY), 2)}
        cases = [
            ("--hidden", "12x", ["--hidden", "12x", "1..65536"]), ("--hidden", "-5", ["-5", "1..65536"]), ("--hidden", "1.5", ["1.5"]),
            ("--experts", "0", ["--experts", "0", "1..4096"]), ("--topk", "33", ["33", "1..32"]),
            ("--hidden", "99999999999999999999", ["99999999999999999999"]),
            ("--format", "mxfp5", ["mxfp5", "nvfp4"]), ("--activation", "swish", ["swish", "silu"]),
            ("--dtype", "f64", ["f64", "bf16"]), ("--pin", "n17", ["n17", "n16"]),
            ("--limit", "much", ["--limit", "much", "none"]), ("--scratch-cap", "1Q", ["--scratch-cap", "1Q"]), ("--alpha", "2", ["--alpha", "swiglu-oai"]),
            ("--tp", "2", ["--tp", "--model"]),
        ]
        for flag, value, words in cases:
            with self.subTest(flag=flag, value=value):
                values = dict(tiny, **{flag: value})
                self.refused("plan", *[word for pair in values.items() for word in pair], code=2, words=words)

    def test_missing_and_contradicting_flags(self):
        self.refused("plan", "--hidden", "256", "--max-tokens", "8", code=2, words=["--intermediate", "missing"])
        self.refused("plan", "--model", "gpt-oss-120b", code=2, words=["--max-tokens"])
        self.refused("plan", "--model", "gpt-oss-120b", "--max-tokens", "8", "--hidden", "256", code=2, words=["--hidden", "--model"])
        self.refused("plan", "--model", "no-such", "--max-tokens", "8", code=2, words=["no-such", "gpt-oss-120b"])
        self.refused("plan", *support.TINY, "--no-such-flag", code=2, words=["--no-such-flag"])
        self.refused("plan", *support.TINY, "--arch", "sm_80,sm_90a", code=2, words=["--arch"])

    def test_what_is_not_served_exits_4(self):
        self.refused("plan", *support.TINY, "--pin", "no-portable", "--pin", "no-wgmma", code=4, words=["no-portable", "no-wgmma"])
        self.refused("plan", *support.TINY, "--pin", "wgmma", "--arch", "sm_80", code=4, words=["wgmma", "sm_90a", "sm_80"])
        self.refused("plan", *support.TINY, "--arch", "sm_42", code=4, words=["sm_42", "sm_90a"])


class Render(support.CliTest):
    def test_prints_header_and_entry_of_each_kernel(self):
        plan = self.json("plan", *support.TINY)
        rendered = self.json("render", *support.TINY)
        self.assertEqual([k["name"] for k in rendered["kernels"]], [k["name"] for k in plan["kernels"]])
        for kernel in rendered["kernels"]:
            self.assertIn("kVariant", kernel["header"])
            self.assertIn("#include", kernel["source"])
        out, _ = self.cli("render", *support.TINY, "--kernel", "route")
        self.assertIn("w4moe_route", out)
        self.assertNotIn("w4moe_fc1", out)

    def test_writes_files(self):
        document = self.json("render", *support.TINY, "--output", "sources")
        for kernel in document["kernels"]:
            self.assertTrue(os.path.getsize(self.path(kernel["header_file"])) > 0)
            self.assertTrue(os.path.getsize(self.path(kernel["source_file"])) > 0)

    def test_an_unknown_kernel_is_named_with_the_known(self):
        self.refused("render", *support.TINY, "--kernel", "fc9", code=2, words=["fc9", "route"])


class Manners(support.CliTest):
    def test_version(self):
        version = self.json("version")
        for field in ("version", "revision", "layout_version", "args_version", "cache_schema", "manifest_schema"):
            self.assertIn(field, version)
        out, _ = self.cli("--version")
        self.assertTrue(out.startswith("w4moe " + version["version"]))

    def test_help_goes_to_stdout_with_examples(self):
        for verb in ("plan", "render", "build", "run", "inspect", "cache"):
            out, err = self.cli(verb, "--help")
            self.assertIn("Examples:", out)
            self.assertEqual(err, "")
        out, err = self.cli("--help")
        self.assertIn("Exit codes", out)

    def test_no_verb_and_unknown_verbs_are_usage_errors(self):
        out, err = self.cli(code=2)
        self.assertEqual(out, "")
        self.assertIn("--help", err)
        self.refused("fly", code=2, words=["fly", "doctor"])
        self.refused("cache", "lst", code=2, words=["lst", "verify"])
        self.cli("cache", code=2)

    def test_an_unwritable_stdout_is_a_failure(self):
        with open("/dev/full", "w", encoding="utf-8") as full:
            result = subprocess.run([support.CLI, "plan", *support.TINY, "--json"], env=support.environment(self.folder), stdout=full,
                                    stderr=subprocess.PIPE, text=True)
        self.assertEqual(result.returncode, 1)
        self.assertIn("standard output", result.stderr)

    def test_colours_only_where_asked_for(self):
        _, err = self.cli("plan", code=2)
        self.assertNotIn("\033", err)
        _, err = self.cli("plan", *support.TINY, "--color", "always", "--dtype", "f64", code=2)
        self.assertIn("\033", err)
        _, err = self.cli("plan", *support.TINY, "--color", "auto", "--dtype", "f64", code=2, NO_COLOR="1")
        self.assertNotIn("\033", err)

    def test_every_model_of_the_schema_has_a_plan(self):
        root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
        with open(os.path.join(root, "generator/manifest/schema.json"), encoding="utf-8") as file:
            models = json.load(file)["$defs"]["model_problem"]["properties"]["model"]["enum"]
        for model in models:
            self.assertGreater(self.json("plan", "--model", model, "--max-tokens", "64")["scratch_bytes"], 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
