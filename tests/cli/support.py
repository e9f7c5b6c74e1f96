"""Runs the tool named by W4MOE_CLI in a folder and an environment of its own."""
import functools
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

CLI = os.environ.get("W4MOE_CLI", "")

# A layer whose kernels compile in a second or two, and the one that the scratch bound is stated for.
TINY = "--hidden 256 --intermediate 128 --experts 4 --topk 2 --max-tokens 8 --format mxfp4 --activation silu".split()
SEED = "--hidden 6144 --intermediate 512 --experts 160 --topk 8 --max-tokens 64 --format nvfp4 --activation silu".split()


def environment(folder, **changes):
    """Nothing of the caller's settings, save the compiler that the tests are to use; None unsets."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("W4MOE_") and k not in ("XDG_CACHE_HOME", "NO_COLOR")}
    if "W4MOE_NVRTC" in os.environ:
        env["W4MOE_NVRTC"] = os.environ["W4MOE_NVRTC"]
    env["HOME"] = folder
    env["W4MOE_CACHE_DIR"] = os.path.join(folder, "cache")
    for name, value in changes.items():
        env.pop(name, None)
        if value is not None:
            env[name] = value
    return env


class CliTest(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="w4moe-cli-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def path(self, *parts):
        return os.path.join(self.folder, *parts)

    def write(self, name, text):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)
        return self.path(name)

    def bytes_of(self, *parts):
        with open(self.path(*parts), "rb") as file:
            return file.read()

    def cli(self, *arguments, code=0, stdin=None, **env):
        """Runs the tool; the exit code must be this one. Gives stdout and stderr."""
        result = subprocess.run([CLI, *arguments], cwd=self.folder, env=environment(self.folder, **env), input=stdin,
                                capture_output=True, text=True, timeout=300)
        self.assertEqual(result.returncode, code, f"{' '.join(arguments)}\n{result.stdout}\n{result.stderr}")
        return result.stdout, result.stderr

    def json(self, *arguments, code=0, **kwargs):
        """stdout must be exactly one JSON document with a schema."""
        out, _ = self.cli(*arguments, "--json", code=code, **kwargs)
        document = json.loads(out)
        self.assertIn("schema", document)
        return document

    def refused(self, *arguments, code, words, **kwargs):
        """One error on stderr that holds these words, nothing on stdout; with --json, the same as a document."""
        out, err = self.cli(*arguments, code=code, **kwargs)
        self.assertEqual(out, "")
        self.assertEqual(err.count("error: "), 1, err)
        document = self.json(*arguments, code=code, **kwargs)
        self.assertEqual(document["exit_code"], code)
        for word in words:
            self.assertIn(word, err)
            self.assertIn(word, document["error"]["message"])
        return err


@functools.lru_cache(maxsize=None)
def nvrtc():
    with tempfile.TemporaryDirectory() as folder:
        out = subprocess.run([CLI, "doctor", "--json"], env=environment(folder), capture_output=True, text=True, check=True).stdout
    return json.loads(out)["nvrtc"]


def needs_nvrtc():
    """Skips the whole file where there is no compiler; one that W4MOE_NVRTC names must work."""
    if nvrtc().get("build") or "W4MOE_NVRTC" in os.environ:
        return
    print("skipped: no NVRTC", file=sys.stderr)
    sys.exit(77)


def write_safetensors(path, tensors):
    """tensors: name -> (dtype, shape, bytes)."""
    header, data = {}, b""
    for name, (dtype, shape, content) in tensors.items():
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def read_safetensors(path):
    with open(path, "rb") as file:
        content = file.read()
    length = struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8:8 + length])
    header.pop("__metadata__", None)
    return {name: (t["dtype"], t["shape"], content[8 + length + t["data_offsets"][0]:8 + length + t["data_offsets"][1]])
            for name, t in header.items()}


def bf16(values):
    """Bytes of numbers that bf16 holds exactly."""
    return b"".join(struct.pack("<f", v)[2:] for v in values)


def from_bf16(content):
    return [struct.unpack("<f", b"\0\0" + content[i:i + 2])[0] for i in range(0, len(content), 2)]


if not CLI:
    sys.exit("W4MOE_CLI must name the tool")
