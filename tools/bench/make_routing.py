#!/usr/bin/env python3
"""Writes the routing that the baseline was measured with: one file per (experts, topk, m), ids (int32) then weights (float32).

One fixed routing per size, the same for every implementation: distinct experts by random scores, row-normalised weights.
"""
import argparse
import pathlib

import numpy as np


def routing(experts: int, topk: int, tokens: int):
    rng = np.random.default_rng([experts, topk, tokens])
    scores = rng.random((tokens, experts), dtype=np.float32)
    ids = np.argsort(-scores, axis=1, kind="stable")[:, :topk].astype(np.int32)
    weights = rng.random((tokens, topk), dtype=np.float32) + np.float32(0.1)
    weights /= weights.sum(axis=1, keepdims=True)
    return ids, weights.astype(np.float32)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--shape", action="append", required=True, help="EXPERTSxTOPK, repeatable")
    parser.add_argument("--tokens", default="1,2,4,8,16,32,64,128,256,512,1024,2048,4096,8192")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    for shape in args.shape:
        experts, topk = map(int, shape.split("x"))
        for tokens in map(int, args.tokens.split(",")):
            ids, weights = routing(experts, topk, tokens)
            (args.folder / f"route_{experts}_{topk}_{tokens}.bin").write_bytes(ids.tobytes() + weights.tobytes())


if __name__ == "__main__":
    main()
