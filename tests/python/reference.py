"""Made-up layers as checkpoints hold them, and what they compute, in NumPy and fp64: by tables, sharing nothing with the library."""
import numpy as np
import w4moe

E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float64)
E2M1 = np.concatenate([E2M1, -E2M1])


def e4m3(bytes_):
    sign = np.where(bytes_ & 0x80, -1.0, 1.0)
    exponent, mantissa = (bytes_ >> 3) & 15, bytes_ & 7
    return sign * np.where(exponent == 0, np.ldexp(mantissa / 8.0, -6), np.ldexp(1 + mantissa / 8.0, exponent.astype(int) - 7))


def to_bf16(values):
    """Bits, rounded to nearest even."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def from_bf16(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def small_problem(**changes):
    # Few tokens: few kernels for the host's compiler.
    return w4moe.Problem(**dict(dict(hidden=128, intermediate=64, experts=4, topk=2, max_tokens=4), **changes))


class Quantised:
    """Matrices [E, rows, k] of a format: what the checkpoint holds, and their values."""

    def __init__(self, rng, format_, experts, rows, k):
        family, *flags = format_.split(":")
        codes = rng.integers(0, 16, (experts, rows, k), np.uint8)
        self.codes = codes[..., 0::2] | (codes[..., 1::2] << 4)
        self.zeros = None
        if family == "mxfp4":
            group = 32
            self.scales = rng.integers(119, 123, (experts, rows, k // group), np.uint8)
            scale = np.ldexp(1.0, self.scales.astype(int) - 127)
            values = E2M1[codes]
        elif family == "nvfp4":
            group = 16
            self.scales = rng.integers(0x30, 0x40, (experts, rows, k // group)).astype(np.uint8)
            scale = e4m3(self.scales)
            values = E2M1[codes]
        else:
            group = k if flags[0] == "row" else int(flags[0][1:])
            raw = rng.uniform(0.005, 0.02, (experts, rows, k // group))
            if "f16" in flags:
                self.scales = raw.astype(np.float16)
                scale = self.scales.astype(np.float64)
            else:
                bits = to_bf16(raw)
                self.scales = w4moe.as_dtype(bits, "bf16")
                scale = from_bf16(bits)
            zero = np.full(raw.shape, 8, np.uint8)
            if "zp" in flags:
                zero = self.zeros = rng.integers(0, 16, raw.shape).astype(np.uint8)
            values = codes.astype(np.float64) - np.repeat(zero, group, -1)
        self.values = values * np.repeat(scale, group, -1)


class Layer:
    """A gated layer (gate first in one matrix), or an ungated one."""

    def __init__(self, problem, seed=0):
        rng = np.random.default_rng(seed)
        p = self.problem = problem
        self.gated = p.activation not in ("relu2", "silu-ungated", "gelu-ungated")
        fc1 = Quantised(rng, p.format, p.experts, p.intermediate * (2 if self.gated else 1), p.hidden)
        fc2 = Quantised(rng, p.format, p.experts, p.hidden, p.intermediate)
        self.fc1, self.fc2 = fc1.values, fc2.values
        self.bias1 = self.bias2 = None
        if p.bias:
            self.bias1 = rng.normal(size=(p.experts, self.fc1.shape[1])).astype(np.float32)
            self.bias2 = rng.normal(size=(p.experts, p.hidden)).astype(np.float32)
        first = w4moe.Matrix(fc1.codes, fc1.scales, fc1.zeros, self.bias1)
        self.weights = w4moe.Weights("gate_first" if self.gated else "separate", down=w4moe.Matrix(fc2.codes, fc2.scales, fc2.zeros, self.bias2))
        setattr(self.weights, "gate_up" if self.gated else "up", first)
        if p.format.startswith("int4"):
            self.weights.code_sign = "offset8"
            if ":zp" in p.format:
                self.weights.zero_order = "bytes"
        if p.format == "nvfp4":  # N24: gate and up differ
            self.weights.global_convention = "multiply"
            self.weights.gate_global, self.weights.up_global, self.weights.down_global = (rng.uniform(0.005, 0.02, p.experts).astype(np.float32) for _ in range(3))
            half = p.intermediate
            self.fc1[:, :half] *= np.float64(self.weights.gate_global)[:, None, None]
            self.fc1[:, half:] *= np.float64(self.weights.up_global)[:, None, None]
            self.fc2 *= np.float64(self.weights.down_global)[:, None, None]

    def inputs(self, tokens, seed=1):
        """x in the problem's dtype, ids, router weights, and x as it was rounded."""
        rng = np.random.default_rng(seed)
        x = rng.normal(size=(tokens, self.problem.hidden))
        ids = np.stack([rng.permutation(self.problem.experts)[: self.problem.topk] for _ in range(tokens)]).astype(np.int32).reshape(tokens, self.problem.topk)
        router = rng.uniform(0.1, 1, ids.shape).astype(np.float32)
        if self.problem.dtype == "f16":
            x = x.astype(np.float16)
            return x, ids, router, x.astype(np.float64)
        bits = to_bf16(x)
        return w4moe.as_dtype(bits, "bf16"), ids, router, from_bf16(bits)

    def expected(self, x, ids, router, output_bias=True):
        out = np.zeros_like(x)
        for t in range(x.shape[0]):
            for e, weight in zip(ids[t], router[t]):
                if not 0 <= e < self.problem.experts:
                    continue
                y = self.fc1[e] @ x[t] + (0 if self.bias1 is None else self.bias1[e])
                gate, up = (y[: self.problem.intermediate], y[self.problem.intermediate :]) if self.gated else (y, 1)
                h = np.maximum(y, 0) ** 2 if not self.gated else gate / (1 + np.exp(-gate)) * up
                out[t] += weight * (self.fc2[e] @ h + (self.bias2[e] if output_bias and self.bias2 is not None else 0))
        return out


def values(out):
    """Numbers of an output of either dtype."""
    return from_bf16(out.array) if isinstance(out, w4moe.Typed) else out.astype(np.float64)


def relative_rmse(out, expected):
    return np.sqrt(((values(out) - expected) ** 2).sum() / (expected**2).sum())


BOUND = {"bf16": 4e-3, "f16": 6e-4}
