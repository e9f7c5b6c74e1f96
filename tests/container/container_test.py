"""C21, O07: stage one, without a GPU and libcuda, builds the kernels; stage two, in an empty root without NVRTC, toolkit, network and a
place to write, runs every layer of the manifest up to the launches, on a libcuda that keeps the driver's rules and launches nothing."""
import json
import os
import random
import re
import shutil
import subprocess
import sys
import unittest

import support

FAKE_LIBCUDA = os.environ["W4MOE_FAKE_LIBCUDA"]
DOCS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs")
TOKENS = (1, 3, 16)


def random_layers(count, seed):
    """Small layers of any kind, as a manifest and as flags."""
    pick = random.Random(seed)
    layers = []
    for i in range(count):
        format_ = pick.choice(["mxfp4", "nvfp4", "int4:g32", "int4:g64:zp", "int4:row:f16"])
        layers.append({"name": f"layer{i}", "hidden": 64 * pick.randint(2, 6), "intermediate": 64 * pick.randint(1, 4), "experts": pick.randint(2, 9), "topk": pick.randint(1, 2),
                       "max_tokens": 16, "format": format_, "activation": pick.choice(["silu", "swiglu-oai", "relu2", "geglu-tanh"]), "dtype": pick.choice(["bf16", "f16"]),
                       "bias": pick.random() < 0.5})
    return layers


def flags_of(layer):
    words = []
    for name, value in layer.items():
        if value is True:
            words.append(f"--{name}")
        elif value is not False:
            words += ["--" + name.replace("_", "-"), str(value)]
    return words


def isolated(root, *command):
    """Runs in `root`, read-only, with no network; as root of a user namespace where we are not root."""
    inner = f"mount --bind '{root}' '{root}' && mount -o remount,ro,bind '{root}' && exec chroot '{root}' \"$@\""
    flags = "-nm" if os.geteuid() == 0 else "-rnm"
    return ["unshare", flags, "sh", "-c", inner, "sh", *command]


class TwoStages(support.CliTest):
    def empty_root(self):
        """The tool, the libraries that it is linked with, and the driver: nothing else."""
        root = self.path("root")
        listing = subprocess.run(["ldd", support.CLI], capture_output=True, text=True, check=True).stdout
        libraries = re.findall(r"(?:=> )?(/\S+) \(0x", listing)
        self.assertTrue(libraries)
        for library in libraries:
            self.assertNotRegex(library, "nvrtc|cuda", "the tool is linked with nothing of a toolkit")
            os.makedirs(root + os.path.dirname(library), exist_ok=True)
            shutil.copy(library, root + library)
        os.makedirs(root + "/usr/lib", exist_ok=True)
        shutil.copy(FAKE_LIBCUDA, root + "/usr/lib/libcuda.so.1")
        # What the fake driver itself is linked with, if the tool is not.
        for library in re.findall(r"(?:=> )?(/\S+) \(0x", subprocess.run(["ldd", FAKE_LIBCUDA], capture_output=True, text=True, check=True).stdout):
            os.makedirs(root + os.path.dirname(library), exist_ok=True)
            if not os.path.exists(root + library):
                shutil.copy(library, root + library)
        shutil.copy(support.CLI, root + "/w4moe")
        return root

    def inside(self, root, *arguments, code=0, **env):
        env = dict({"W4MOE_CACHE_DIR": "/kernels", "W4MOE_CACHE": "readonly", "W4MOE_JIT": "off"}, **env)
        env = {name: value for name, value in env.items() if value is not None}
        result = subprocess.run(isolated(root, "/w4moe", *arguments, "--json"), env=dict(env, PATH="/usr/sbin:/usr/bin:/sbin:/bin"), capture_output=True, text=True, timeout=300)
        self.assertEqual(result.returncode, code, f"{' '.join(arguments)}\n{result.stdout}\n{result.stderr}")
        return json.loads(result.stdout), result.stderr

    def test_every_layer_of_a_random_manifest_runs_where_nothing_can_be_compiled(self):
        layers = random_layers(4, seed=20250614)
        self.write("shapes.json", json.dumps({"schema_version": 1, "problems": layers}))
        # Stage one: no driver, as the report of the machine says.
        self.assertFalse(self.json("doctor", LD_LIBRARY_PATH="")["driver"]["found"] and not os.path.exists("/dev/nvidiactl"))
        built = self.json("build", "--manifest", "shapes.json", "--arch", "sm_90a", "--output", "kernels", "--lock", "fleet.lock.json")
        self.assertEqual(built["failed"], 0)

        root = self.empty_root()
        shutil.copytree(self.path("kernels"), root + "/kernels")
        shutil.copy(self.path("shapes.json"), root)
        shutil.copy(self.path("fleet.lock.json"), root)
        doctor, _ = self.inside(root, "doctor")
        self.assertEqual((doctor["nvrtc"]["found"], doctor["driver"]["found"], doctor["devices"][0]["arch"]), (False, True, "sm_90a"))
        self.assertEqual(doctor["cache"]["entries"], built["compiled"])
        self.assertEqual(self.inside(root, "cache", "verify", "--readonly", "/kernels", "--lock", "/fleet.lock.json")[0]["checked"], built["compiled"])
        found, _ = self.inside(root, "build", "--manifest", "/shapes.json", "--arch", "sm_90a")
        self.assertEqual((found["hits"], found["compiled"], found["failed"]), (built["compiled"], 0, 0))

        for layer in layers:
            for tokens in TOKENS:
                # JIT off, and on without a compiler: the same.
                run, err = self.inside(root, "run", *flags_of(layer), "--tokens", str(tokens), "--device", "cuda:0", W4MOE_JIT="off" if tokens > 1 else None)
                self.assertEqual((run["device"], run["tokens"], err), ("cuda:0", tokens, ""))
                self.assertIn("fc1", run["variant"])

        bench, _ = self.inside(root, "bench", *flags_of(layers[0]), "--tokens", "1,16", "--read-gbps", "1000", "--tflops", "100")
        self.assertEqual([row["m"] for row in bench["rows"]], [1, 16])
        for field in ("shape", "us_graph", "us_eager", "active_experts", "weight_bytes", "floor_us", "fraction_of_floor", "variant"):
            self.assertIn(field, bench["rows"][0])
        self.assertLessEqual(bench["rows"][0]["active_experts"], layers[0]["topk"])
        self.write("rows.json", json.dumps(bench))
        self.cli("bench", "--rows", "rows.json", "--html", "page.html", code=0)
        with open(self.path("page.html"), encoding="utf-8") as page:
            self.assertEqual(page.read().count("<circle"), 4)  # two cells, each in the roofline and in the chart

        # A layer that is not in the manifest: a clear error, with JIT off and without a compiler.
        other = dict(layers[0], hidden=1024, name="other")
        refused, _ = self.inside(root, "run", *flags_of(other), "--tokens", "3", "--device", "cuda:0", code=1)
        self.assertEqual(refused["error"]["code"], "not_prepared")
        for word in ("W4MOE_JIT=off", "is wanted", '"hidden":1024', "w4moe build --arch sm_90a"):
            self.assertIn(word, refused["error"]["message"])
        refused, _ = self.inside(root, "run", *flags_of(other), "--tokens", "3", "--device", "cuda:0", code=5, W4MOE_JIT=None)
        self.assertIn("not in the cache and there is no usable compiler", refused["error"]["message"])

    def test_the_recipe_says_what_is_tested_here(self):
        with open(os.path.join(DOCS, "containers.md"), encoding="utf-8") as file:
            text = file.read()
        for word in ("w4moe build", "--lock", "W4MOE_CACHE=readonly", "W4MOE_CACHE_DIR=/kernels", "W4MOE_JIT=off", "cache verify"):
            self.assertIn(word, text)


if __name__ == "__main__":
    support.needs_nvrtc()
    probe = subprocess.run(isolated("/tmp", "true"), capture_output=True, text=True)
    if "chroot" not in probe.stderr and probe.returncode != 0:
        print(f"skipped: no empty root can be made here: {probe.stderr.strip()}", file=sys.stderr)
        sys.exit(77)
    unittest.main(verbosity=2)
