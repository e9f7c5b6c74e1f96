"""Made-up layers in torch as checkpoints hold them, and what they compute, plainly and in fp64. Needs no NumPy."""
import torch
import w4moe

E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6], dtype=torch.float64)
DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16}
ROW_BOUND = {"bf16": 4e-3, "f16": 6e-4}  # of every row, for H >= 512 and I >= 256 (docs/numerics.md)


def e4m3(codes):
    exponent, mantissa = (codes.long() >> 3) & 15, (codes & 7).double()
    return torch.where(exponent == 0, torch.ldexp(mantissa / 8, torch.tensor(-6)), torch.ldexp(1 + mantissa / 8, exponent - 7))


def quantised(rng, format_, experts, rows, k, with_values):
    """codes u8 [E, rows, k / 2], scales, zeros or None, values fp64 [E, rows, k] where asked for; all on the CPU."""
    family, *flags = format_.split(":")
    codes = torch.randint(0, 16, (experts, rows, k), dtype=torch.uint8, generator=rng)
    packed = codes[..., 0::2] | (codes[..., 1::2] << 4)
    zeros = None
    if family == "int4":
        group = k if flags[0] == "row" else int(flags[0][1:])
        shape = (experts, rows, k // group)
        scales = (0.005 + 0.015 * torch.rand(shape, generator=rng)).to(torch.float16 if "f16" in flags else torch.bfloat16)
        scale = scales.double()
        zero = torch.full(shape, 8, dtype=torch.uint8)
        if "zp" in flags:
            zero = zeros = torch.randint(0, 16, shape, dtype=torch.uint8, generator=rng)
        if not with_values:
            return packed, scales, zeros, None
        value = codes.double() - zero.double().repeat_interleave(group, -1)
    else:
        group = 32 if family == "mxfp4" else 16
        low, high = (119, 123) if family == "mxfp4" else (0x30, 0x40)
        scales = torch.randint(low, high, (experts, rows, k // group), dtype=torch.uint8, generator=rng)
        if not with_values:
            return packed, scales, zeros, None
        scale = torch.ldexp(torch.tensor(1.0, dtype=torch.float64), scales.long() - 127) if family == "mxfp4" else e4m3(scales)
        value = E2M1[codes.long()]
    return packed, scales, zeros, value * scale.repeat_interleave(group, -1)


class Layer:
    """A gated layer, gate first in one matrix; tensors of `weights` and values on `device`."""

    def __init__(self, problem, seed=0, device="cuda", weights_on=None, values=True):
        rng = torch.Generator().manual_seed(seed)
        p = self.problem = problem
        self.device = torch.device(device)
        place = weights_on or device
        first = quantised(rng, p.format, p.experts, 2 * p.intermediate, p.hidden, values)
        second = quantised(rng, p.format, p.experts, p.hidden, p.intermediate, values)
        self.fc1, self.fc2 = (part[3].to(device) if values else None for part in (first, second))
        biases = [torch.randn(p.experts, n, generator=rng).to(place) if p.bias else None for n in (2 * p.intermediate, p.hidden)]
        self.bias1, self.bias2 = (None if b is None else b.double().to(device) for b in biases)
        moved = [[None if t is None else t.to(place) for t in part[:3]] for part in (first, second)]
        self.weights = w4moe.Weights("gate_first", gate_up=w4moe.Matrix(*moved[0], bias=biases[0]), down=w4moe.Matrix(*moved[1], bias=biases[1]))
        if p.format.startswith("int4"):
            self.weights.code_sign = "offset8"
            self.weights.zero_order = "bytes" if ":zp" in p.format else None
        if p.format == "nvfp4":  # N24: gate and up differ
            scales = 0.005 + 0.015 * torch.rand(3, p.experts, generator=rng)
            self.weights.global_convention = "multiply"
            self.weights.gate_global, self.weights.up_global, self.weights.down_global = scales
            wide = scales.double().to(device)
            if not values:
                return
            self.fc1[:, : p.intermediate] *= wide[0][:, None, None]
            self.fc1[:, p.intermediate :] *= wide[1][:, None, None]
            self.fc2 *= wide[2][:, None, None]

    def inputs(self, tokens, seed=1):
        rng = torch.Generator().manual_seed(seed)
        x = torch.randn(tokens, self.problem.hidden, generator=rng).to(DTYPES[self.problem.dtype]).to(self.device)
        ids = torch.rand(tokens, self.problem.experts, generator=rng).topk(self.problem.topk, -1).indices.int().to(self.device)
        router = torch.rand(tokens, self.problem.topk, generator=rng).softmax(-1).to(self.device)
        return x, ids, router

    def expected(self, x, ids, router):
        """fp64 [tokens, H]."""
        out = torch.zeros(x.shape, dtype=torch.float64, device=self.device)
        for e in range(self.problem.experts):
            token, route = (ids == e).nonzero(as_tuple=True)
            if len(token) == 0:
                continue
            y = x[token].double() @ self.fc1[e].T + (0 if self.bias1 is None else self.bias1[e])
            gate, up = y.chunk(2, -1)
            part = (gate * torch.sigmoid(gate) * up) @ self.fc2[e].T + (0 if self.bias2 is None else self.bias2[e])
            out.index_add_(0, token, part * router[token, route].double()[:, None])
        return out


def worst_row(out, expected):
    """Largest relative RMSE of a row; rows that are zero must be."""
    error, norm = (out.double() - expected).square().sum(-1), expected.square().sum(-1)
    if bool(((norm == 0) & (error != 0)).any()):
        return float("inf")
    return float((error / norm.clamp_min(1e-300)).sqrt().max())


def part_of(weights, experts):
    """The weights of a range of experts."""
    def cut(matrix):
        return w4moe.Matrix(*(None if part is None else part[experts] for part in (matrix.codes, matrix.scales, matrix.zeros, matrix.bias)))

    values = dict(vars(weights), gate_up=cut(weights.gate_up), down=cut(weights.down))
    for name in ("gate_global", "up_global", "down_global"):
        values[name] = None if values[name] is None else values[name][experts]
    return w4moe.Weights(**values)
