// What the command line says, as plain data: options.cpp knows the parser.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "contract/prelude.h"
#include "tools/bench/roofs.hpp"

namespace w4moe::cli {

/// The layer: either a model by name, divided over ranks, or its sizes.
struct ProblemFlags {
  std::string model;
  std::optional<int> tp, ep;
  std::string name;
  std::optional<i64> hidden, intermediate, experts, topk, max_tokens;
  std::string format, activation, dtype;  ///< empty: not given
  std::string limit;                      ///< a number, or "none"
  std::optional<float> alpha, beta;
  bool bias = false;
  bool weight_on_input = false;
  bool compact_tail = false;
};

/// The device, by name, and what the planner may do.
struct PlanFlags {
  std::vector<std::string> archs;  ///< as given; empty: W4MOE_ARCH, then sm_90a
  int sms = 0;
  std::vector<std::string> pins;
  bool batch_invariant = false;    ///< one more pin
  std::string scratch_cap;         ///< bytes, with an optional K, M, G or T
};

/// Where kernels come from and go to.
struct KernelFlags {
  std::string cache_dir;
  std::string nvrtc;
  std::optional<int> jobs;
  std::string memory_limit;  ///< bytes, with an optional K, M, G or T
};

struct RenderFlags {
  std::string kernel;  ///< only this one
  std::string output;  ///< a folder
};

struct BuildFlags {
  std::string manifest;  ///< a file, or "-" for standard input
  std::string output;
  std::string lock;      ///< where the list of the kernels goes; empty: into the output
  int shard = 1;         ///< this machine's part, of `shards`
  int shards = 1;
  bool dry_run = false;
  bool fail_fast = false;
  bool keep_going = false;  ///< the default, for scripts that say so
};

struct RunFlags {
  i64 tokens = -1;     ///< -1: not given
  u64 seed = 1;
  std::string device;  ///< "", "cpu", "lockstep" or "cuda:N"
  bool check = false;
  std::vector<std::string> weights;
  std::string prefix, inputs, output;
  std::string checkpoint, layer;  ///< instead of weights and prefix
};

struct PackFlags {
  std::string checkpoint;           ///< a folder, an index or a file
  std::string output;               ///< a folder, or a file NAME.safetensors
  int tp_rank = 0, tp_size = 1;
  int ep_rank = 0, ep_size = 1;
  std::vector<std::string> layers;  ///< numbers, ranges and prefixes; empty: all that are quantised
  int threads = 0;                  ///< 0: as many as the machine has
  bool dry_run = false;
  bool verify = false;
  bool overwrite = false;
  bool wide = false;
};

struct BenchFlags {
  std::vector<i64> tokens;
  std::string routing;             ///< a folder of files with ids and weights; empty: made up
  bench::Roofs roofs;              ///< what the device reaches; 0: not said
  std::string html, peers;         ///< the page, and the peers' cells for it
  std::vector<std::string> rows;   ///< documents to draw, in place of measuring
};

struct InspectFlags {
  std::string target;  ///< a file, or the first digits of a key
  bool source = false;
  bool sass = false;
};

struct CacheFlags {
  std::string action;                  ///< "path", "list", ...
  std::string readonly;                ///< a directory to look at instead, without touching it
  std::string folder;                  ///< export, import
  std::string lock;                    ///< verify: the list to hold the folder against
  bool remove = false;                 ///< verify: remove what is damaged
  bool old = false;                    ///< clean
  bool dry_run = false;
  std::string max_size;                ///< prune: bytes, with a suffix
  std::optional<double> max_age_days;  ///< prune
  std::vector<std::string> keys;       ///< explain
};

struct Options {
  std::string verb;
  bool json = false;
  int verbosity = 0;           ///< -1 quiet, 0, 1, 2
  std::string color = "auto";
  ProblemFlags problem;
  PlanFlags plan;
  KernelFlags kernels;
  bool explain = false;
  RenderFlags render;
  BuildFlags build;
  RunFlags run;
  BenchFlags bench;
  PackFlags pack;
  InspectFlags inspect;
  CacheFlags cache;
  std::string shell;  ///< completion: "bash", "zsh" or "fish"
};

/// How the reading of the command line ended.
struct Parsed {
  bool run = false;     ///< options are good; otherwise the program ends with exit_code
  int exit_code = 0;
  std::string output;   ///< for stdout: help
  std::string error;    ///< for stderr
};

Parsed parse_command_line(int argc, char** argv, Options& options);

}  // namespace w4moe::cli
