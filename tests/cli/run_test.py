"""run, on machines without a GPU: the CPU computes, and says that it did."""
import unittest

import support

ON_CPU = ("--device", "cpu")


def tiny_layer():
    """A gpt-oss layer of zeros, save the down biases: expert e gives e + 1 in every column."""
    experts, hidden, inner = 4, 64, 32
    return {
        "model.layers.0.mlp.experts.gate_up_proj_blocks": ("U8", (experts, 2 * inner, hidden // 32, 16), bytes(experts * 2 * inner * hidden // 2)),
        "model.layers.0.mlp.experts.gate_up_proj_scales": ("U8", (experts, 2 * inner, hidden // 32), bytes([127]) * (experts * 2 * inner * hidden // 32)),
        "model.layers.0.mlp.experts.gate_up_proj_bias": ("BF16", (experts, 2 * inner), bytes(experts * 2 * inner * 2)),
        "model.layers.0.mlp.experts.down_proj_blocks": ("U8", (experts, hidden, inner // 32, 16), bytes(experts * hidden * inner // 2)),
        "model.layers.0.mlp.experts.down_proj_scales": ("U8", (experts, hidden, inner // 32), bytes([127]) * (experts * hidden * inner // 32)),
        "model.layers.0.mlp.experts.down_proj_bias": ("BF16", (experts, hidden), support.bf16([e + 1 for e in range(experts) for _ in range(hidden)])),
    }


def tiny_inputs():
    ids = [0, 1, 3, 2, 2, 2]
    weights = [0.5, 0.5, 0.25, 0.75, 1.0, 1.0]
    packed = b"".join(int(i).to_bytes(4, "little") for i in ids)
    return {
        "x": ("BF16", (3, 64), support.bf16([1.0] * 3 * 64)),
        "topk_ids": ("I32", (3, 2), packed),
        "topk_weights": ("BF16", (3, 2), support.bf16(weights)),
    }


def write_tiny_layer(folder):
    support.write_safetensors(f"{folder}/layer.safetensors", tiny_layer())
    support.write_safetensors(f"{folder}/in.safetensors", tiny_inputs())


class Run(support.CliTest):
    def test_json_has_the_fields_of_the_contract(self):
        run = self.json("run", *support.TINY, "--tokens", "8", "--check", *ON_CPU)
        for field in ("device", "variant", "rel_rmse", "max_abs_err", "checked", "scratch_bytes", "tokens", "seconds"):
            self.assertIn(field, run)
        self.assertEqual((run["device"], run["checked"], run["tokens"]), ("cpu", True, 8))
        self.assertTrue(run["contract"]["holds"])
        # An error of exactly zero would mean that something was compared with itself.
        self.assertTrue(0 < run["rel_rmse"] <= 4e-3, run["rel_rmse"])
        self.assertEqual(run["scratch_bytes"], self.json("plan", *support.TINY)["scratch_bytes"])

    def test_every_format_goes_through_packing_and_holds_the_contract(self):
        base = "--hidden 256 --intermediate 128 --experts 4 --topk 2 --tokens 3 --check".split()
        for format_, more in (("mxfp4", ["--bias"]), ("mxfp4:wide", []), ("nvfp4", []), ("int4:g32", []), ("int4:g128:zp", []), ("int4:row:f16", [])):
            for dtype in ("bf16", "f16"):
                with self.subTest(format=format_, dtype=dtype):
                    run = self.json("run", *base, "--format", format_, "--activation", "silu", "--dtype", dtype, *more, *ON_CPU)
                    self.assertTrue(run["contract"]["holds"])
        for activation in ("swiglu-oai", "relu2"):
            run = self.json("run", *base, "--format", "mxfp4", "--activation", activation, *ON_CPU)
            self.assertTrue(run["contract"]["holds"])

    def test_the_same_seed_gives_the_same_bits(self):
        line = ("run", *support.TINY, "--tokens", "4", *ON_CPU)
        first = self.json(*line, "--seed", "7")
        self.assertEqual(first["out_sha256"], self.json(*line, "--seed", "7")["out_sha256"])
        self.assertNotEqual(first["out_sha256"], self.json(*line, "--seed", "8")["out_sha256"])
        self.assertEqual((first["checked"], first["rel_rmse"]), (False, None))

    def test_no_tokens(self):
        run = self.json("run", *support.TINY, "--tokens", "0", "--check", *ON_CPU)
        self.assertEqual((run["tokens"], run["rel_rmse"]), (0, 0))

    def test_without_a_gpu_the_cpu_computes_and_says_so(self):
        devices = self.json("doctor")["devices"]
        run = self.json("run", *support.TINY, "--tokens", "1")
        self.assertEqual(run["device"], "cuda:0" if devices else "cpu")
        if not devices:
            self.assertIn("device_reason", run)
            _, err = self.cli("run", *support.TINY, "--tokens", "1")
            self.assertIn("no CUDA device", err)
            self.refused("run", *support.TINY, "--tokens", "1", "--device", "cuda:0", code=5, words=["libcuda"])

    def test_bad_lines(self):
        self.refused("run", *support.TINY, code=2, words=["--tokens"])
        self.refused("run", *support.TINY, "--tokens", "9", *ON_CPU, code=2, words=["9", "8"])
        self.refused("run", *support.TINY, "--tokens", "1", "--device", "gpu", code=2, words=["gpu", "cuda:N"])
        self.refused("run", *support.TINY, "--tokens", "1", "--device", "cuda:x", code=2, words=["cuda:x"])
        self.refused("run", *support.TINY, "--tokens", "1", "--inputs", "x", *ON_CPU, code=2, words=["--weights"])


class LockStep(support.CliTest):
    def test_the_kernels_run_and_their_bits_repeat(self):
        line = ("run", *support.TINY, "--tokens", "3", "--device", "lockstep", "--check")
        first = self.json(*line)
        self.assertEqual((first["device"], first["checked"], first["contract"]["holds"]), ("lockstep", True, True))
        self.assertIn("fc1", first["variant"])
        self.assertEqual(first["out_sha256"], self.json(*line)["out_sha256"])

    def test_a_machine_without_a_compiler_is_told_so(self):
        self.refused("run", *support.TINY, "--tokens", "1", "--device", "lockstep", code=5, words=["C++ compiler", "g++"], PATH=self.folder)


class Files(support.CliTest):
    def test_a_layer_from_files(self):
        write_tiny_layer(self.folder)
        run = self.json("run", "--weights", "layer.safetensors", "--inputs", "in.safetensors", "--output", "out.safetensors", "--check", *ON_CPU)
        self.assertEqual((run["family"], run["tokens"], run["contract"]["holds"]), ("gpt-oss", 3, True))
        dtype, shape, content = support.read_safetensors(self.path("out.safetensors"))["out"]
        self.assertEqual((dtype, shape), ("BF16", [3, 64]))
        values = support.from_bf16(content)
        # Experts 0 and 1 halved; 3 and 2 in quarters; 2 twice.
        self.assertEqual([values[0], values[64], values[128]], [1.5, 3.25, 6.0])
        self.assertEqual(values, [1.5] * 64 + [3.25] * 64 + [6.0] * 64)

    def test_what_the_files_tell_is_not_told_again(self):
        write_tiny_layer(self.folder)
        files = ("--weights", "layer.safetensors", "--inputs", "in.safetensors")
        self.refused("run", *files, "--hidden", "64", *ON_CPU, code=2, words=["--hidden", "--weights"])
        self.refused("run", *files, "--topk", "4", *ON_CPU, code=2, words=["--topk", "4", "2"])
        self.refused("run", *files, "--max-tokens", "2", *ON_CPU, code=2, words=["2", "3"])
        self.refused("run", "--weights", "layer.safetensors", *ON_CPU, code=2, words=["--inputs"])
        self.refused("run", "--weights", "none.safetensors", "--inputs", "in.safetensors", *ON_CPU, code=1, words=["none.safetensors"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
