"""Every example of docs/cli.md, in the order of the page and in one folder."""
import os
import re
import subprocess
import unittest

import run_test
import support

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BLOCK = re.compile(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", re.M | re.S)


class Docs(support.CliTest):
    def test_examples(self):
        with open(os.path.join(ROOT, "docs/cli.md"), encoding="utf-8") as file:
            blocks = BLOCK.findall(file.read())
        run_test.write_tiny_layer(self.folder)
        env = support.environment(self.folder)
        env["PATH"] = os.path.dirname(support.CLI) + os.pathsep + env["PATH"]
        ran = 0
        for language, name, text in blocks:
            if language == "json" and name:
                self.write(name, text)
            if language != "sh":
                continue
            with self.subTest(example=text):
                result = subprocess.run(["bash", "-euo", "pipefail", "-c", text], cwd=self.folder, env=env, capture_output=True, text=True, timeout=300)
                self.assertEqual(result.returncode, 0, f"{text}\n{result.stdout}\n{result.stderr}")
                ran += 1
        self.assertGreater(ran, 8)

    def test_every_verb_has_its_section(self):
        with open(os.path.join(ROOT, "docs/cli.md"), encoding="utf-8") as file:
            headings = re.findall(r"^## (\w+)", file.read(), re.M)
        verbs = re.findall(r"^  (\w+)  +", self.cli("--help")[0].split("Subcommands:")[1], re.M)
        for verb in verbs:
            self.assertIn(verb, headings)


if __name__ == "__main__":
    support.needs_nvrtc()
    unittest.main(verbosity=2)
