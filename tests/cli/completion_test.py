"""completion and man: made from the parser, and checked in the shells that are here."""
import os
import re
import shutil
import subprocess
import unittest

import support


def verbs_of(help_text):
    return re.findall(r"^  ([a-z]+)  +", help_text.split("Subcommands:")[1], re.M)


class Completion(support.CliTest):
    def setUp(self):
        super().setUp()
        self.bash_text = self.cli("completion", "bash")[0]

    def complete(self, line, word_breaks=True):
        """What bash would offer at the end of the line."""
        words = line.split(" ")
        if word_breaks:  # as COMP_WORDBREAKS cuts them
            words = [piece for word in words for piece in (re.split(r"(=)", word) if word.startswith("--") else [word])]
        array = " ".join("'" + word + "'" for word in words)
        script = self.bash_text + f"\nCOMP_WORDS=({array}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _w4moe; printf '%s\\n' \"${{COMPREPLY[@]}}\"\n"
        result = subprocess.run(["bash", "-c", script], cwd=self.folder, capture_output=True, text=True, timeout=30)
        self.assertEqual((result.returncode, result.stderr), (0, ""), line)
        return result.stdout.split()

    def test_bash_knows_verbs_flags_and_values(self):
        verbs = verbs_of(self.cli("--help")[0])
        self.assertEqual(sorted(word for word in self.complete("w4moe ") if not word.startswith("-")), sorted(verbs))
        self.assertEqual(self.complete("w4moe pl"), ["plan"])
        self.assertEqual(self.complete("w4moe cache ex"), ["export", "explain"])
        self.assertEqual(self.complete("w4moe build --sh"), ["--shard"])
        self.assertEqual(self.complete("w4moe plan --max-t"), ["--max-tokens"])
        self.assertEqual(self.complete("w4moe plan --model gpt-oss-1"), ["gpt-oss-120b"])
        self.assertEqual(self.complete("w4moe plan --arch=sm_12"), ["sm_120a", "sm_121a"])
        self.assertEqual(self.complete("w4moe plan --color "), ["auto", "always", "never"])
        self.assertEqual(self.complete("w4moe plan --hidden "), [])
        self.assertEqual([word for word in self.complete("w4moe completion ") if not word.startswith("-")], ["bash", "zsh", "fish"])
        self.write("shapes.json", "")
        os.mkdir(self.path("kernels"))
        self.assertEqual(self.complete("w4moe build --manifest sh"), ["shapes.json"])
        self.assertEqual(self.complete("w4moe cache verify --readonly "), ["kernels"])
        self.assertEqual(self.complete("w4moe inspect sh"), ["shapes.json"])

    def test_every_flag_of_every_verb_is_offered_and_every_offered_value_accepted(self):
        for verb in verbs_of(self.cli("--help")[0]):
            if verb == "cache":
                continue
            flags = set(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", "\n".join(re.findall(r"^  (-\S+)", self.cli(verb, "--help")[0], re.M))))
            offered = {word for word in self.complete(f"w4moe {verb} ") if word.startswith("-")}
            self.assertEqual(offered, flags, verb)
        line = ["plan", *support.TINY]
        for flag in ("--arch", "--format", "--activation", "--dtype"):
            values = self.complete(f"w4moe plan {flag} ")
            self.assertGreater(len(values), 1)
            for value in values:
                with self.subTest(flag=flag, value=value):
                    pairs = dict(zip(line[1::2], line[2::2]), **{flag: value})
                    self.cli("plan", *[word for pair in pairs.items() for word in pair], "-q")

    def test_zsh_and_fish(self):
        for shell in ("zsh", "fish"):
            text = self.cli("completion", shell)[0]
            for verb in verbs_of(self.cli("--help")[0]):
                self.assertRegex(text, rf"\b{verb}\b")
            for word in ("max-tokens", "shard", "gpt-oss-120b", "sm_120a"):
                self.assertIn(word, text)
            self.write(f"w4moe.{shell}", text)
            if shutil.which(shell):
                subprocess.run([shell, "-n", self.path(f"w4moe.{shell}")], check=True, timeout=30)
            if shell == "fish":  # plain commands, whose quoting bash reads alike
                subprocess.run(["bash", "-n", self.path("w4moe.fish")], check=True, timeout=30)
        self.refused("completion", "tcsh", code=2, words=["tcsh", "bash"])

    def test_man_page(self):
        text = self.cli("man")[0]
        self.write("w4moe.1", text)
        for word in (".SH NAME", ".SH SYNOPSIS", ".SH EXIT STATUS", ".SH ENVIRONMENT", "W4MOE_CACHE_DIR", ".SS \"cache export folder\"", "\\-\\-shard"):
            self.assertIn(word, text)
        self.assertNotRegex(text, r"(?m)^'", "a line of text that troff would take for a request")
        if shutil.which("man"):
            result = subprocess.run(["man", "--warnings", "-l", self.path("w4moe.1")], capture_output=True, text=True, timeout=60,
                                    env=dict(os.environ, MANWIDTH="100", LC_ALL="C", MAN_KEEP_FORMATTING=""))
            self.assertEqual((result.returncode, result.stderr), (0, ""))
            for words in ("EXIT STATUS", "6 verification found damage", "--memory-limit BYTES", "gpt-oss-120b"):
                self.assertIn(words, result.stdout.replace("\b", ""))
        if shutil.which("mandoc"):
            subprocess.run(["mandoc", "-T", "lint", "-W", "error", self.path("w4moe.1")], check=True, timeout=60)


if __name__ == "__main__":
    unittest.main(verbosity=2)
