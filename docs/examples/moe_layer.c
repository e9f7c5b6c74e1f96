/* A layer in C, from a checkpoint's tensors to checked output, on the lock-step device: any machine with a C++ compiler runs it.
 * On a GPU take W4MOE_DEVICE_CUDA, allocate weights, scratch, inputs and outputs with cudaMalloc, and pass your stream.
 *
 *   cc moe_layer.c $(pkg-config --cflags --libs w4moe_c) -lm && ./a.out
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <w4moe/w4moe.h>

enum { H = 128, I = 64, E = 4, TOPK = 2, TOKENS = 5 };

static void must(w4moe_status status) {
  if (status == W4MOE_OK) return;
  fprintf(stderr, "%s: %s\n", w4moe_status_name(status), w4moe_last_error());
  exit(1);
}

/* ---- A made-up checkpoint: MXFP4, two codes a byte along K, one E8M0 byte for 32 weights ---- */

static uint8_t gate_up_codes[E][2 * I][H / 2], gate_up_scales[E][2 * I][H / 32]; /* gate in rows 0..I-1, up in rows I..2I-1 */
static uint8_t down_codes[E][H][I / 2], down_scales[E][H][I / 32];
static uint16_t x[TOKENS][H], out[TOKENS][H]; /* bits of bf16 */
static int32_t ids[TOKENS][TOPK];
static float router_weights[TOKENS][TOPK];

static uint32_t next_random(void) {
  static uint32_t state = 1;
  state = state * 1664525u + 1013904223u;
  return state >> 8;
}

static void fill(uint8_t* codes, size_t code_bytes, uint8_t* scales, size_t scale_bytes) {
  for (size_t i = 0; i < code_bytes; ++i) codes[i] = (uint8_t)next_random();
  for (size_t i = 0; i < scale_bytes; ++i) scales[i] = (uint8_t)(121 + next_random() % 3); /* 2^-6 .. 2^-4 */
}

static void make_inputs(void) {
  fill(&gate_up_codes[0][0][0], sizeof(gate_up_codes), &gate_up_scales[0][0][0], sizeof(gate_up_scales));
  fill(&down_codes[0][0][0], sizeof(down_codes), &down_scales[0][0][0], sizeof(down_scales));
  for (int t = 0; t < TOKENS; ++t) {
    for (int k = 0; k < H; ++k) x[t][k] = (uint16_t)((next_random() & 0x8000u) | 0x3f00u | (next_random() & 0xffu)); /* +-0.5 .. 2 */
    for (int j = 0; j < TOPK; ++j) {
      ids[t][j] = (t + j) % E;
      router_weights[t][j] = j == 0 ? 0.75f : 0.25f;
    }
  }
  ids[TOKENS - 1][1] = -1; /* an expert of another rank: contributes nothing */
}

/* ---- The layer as its formula says, in double ---- */

static double bf16_value(uint16_t bits) {
  const uint32_t word = (uint32_t)bits << 16;
  float value;
  memcpy(&value, &word, sizeof(value));
  return value;
}

static double weight(const uint8_t* codes, const uint8_t* scales, int k) {
  static const double magnitude[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  const unsigned code = k % 2 == 0 ? codes[k / 2] & 15u : codes[k / 2] >> 4;
  const double value = ldexp(magnitude[code & 7], scales[k / 32] - 127);
  return (code & 8) != 0 ? -value : value;
}

static void reference(int t, double* result) {
  for (int n = 0; n < H; ++n) result[n] = 0;
  for (int j = 0; j < TOPK; ++j) {
    const int e = ids[t][j];
    double act[I];
    if (e < 0 || e >= E) continue;
    for (int i = 0; i < I; ++i) {
      double gate = 0, up = 0;
      for (int k = 0; k < H; ++k) {
        gate += weight(gate_up_codes[e][i], gate_up_scales[e][i], k) * bf16_value(x[t][k]);
        up += weight(gate_up_codes[e][I + i], gate_up_scales[e][I + i], k) * bf16_value(x[t][k]);
      }
      act[i] = gate / (1 + exp(-gate)) * up;
    }
    for (int n = 0; n < H; ++n) {
      double sum = 0;
      for (int i = 0; i < I; ++i) sum += weight(down_codes[e][n], down_scales[e][n], i) * act[i];
      result[n] += router_weights[t][j] * sum;
    }
  }
}

static void* allocate(int64_t bytes) { /* cudaMalloc on a GPU */
  void* const memory = aligned_alloc(256, ((size_t)bytes + 255) / 256 * 256);
  if (memory == NULL) exit(1);
  return memory;
}

int main(void) {
  make_inputs();
  if (w4moe_abi_version() != W4MOE_ABI_VERSION) {
    fprintf(stderr, "header and library differ in their ABI\n");
    return 1;
  }

  /* 1. An engine, and a plan for the shape: which kernels, how much memory. */
  w4moe_engine_options options;
  W4MOE_INIT(options);
  options.device = W4MOE_DEVICE_LOCKSTEP;
  w4moe_engine* engine = NULL;
  must(w4moe_engine_create(&options, &engine));

  w4moe_problem problem;
  W4MOE_INIT(problem);
  problem.hidden = H;
  problem.intermediate = I;
  problem.experts = E;
  problem.topk = TOPK;
  problem.max_tokens = 64;
  problem.format = "mxfp4";
  problem.activation = "silu";
  problem.dtype = W4MOE_DTYPE_BF16;
  w4moe_plan* plan = NULL;
  must(w4moe_plan_create(engine, &problem, NULL, &plan));
  w4moe_plan_info info;
  W4MOE_INIT(info);
  must(w4moe_plan_get_info(plan, &info));
  printf("%d kernels, %lld bytes of scratch, %lld bytes of weights\n", info.kernels, (long long)info.scratch_bytes, (long long)info.prepared_weight_bytes);

  /* 2. Kernels: from the cache, or compiled. */
  must(w4moe_engine_build(engine, plan, NULL, NULL));

  /* 3. Weights: what the checkpoint holds, named, and packed once. */
  const int64_t fc1_codes[] = {E, 2 * I, H / 2}, fc1_scales[] = {E, 2 * I, H / 32}, fc2_codes[] = {E, H, I / 2}, fc2_scales[] = {E, H, I / 32};
  const w4moe_tensor tensors[4] = {
      {gate_up_codes, fc1_codes, NULL, W4MOE_TENSOR_U8, 3},
      {gate_up_scales, fc1_scales, NULL, W4MOE_TENSOR_E8M0, 3},
      {down_codes, fc2_codes, NULL, W4MOE_TENSOR_U8, 3},
      {down_scales, fc2_scales, NULL, W4MOE_TENSOR_E8M0, 3},
  };
  w4moe_source_weights source;
  W4MOE_INIT(source);
  source.gate_up_order = W4MOE_GATE_UP_GATE_FIRST;
  source.code_order = W4MOE_CODES_LOW_NIBBLE_FIRST;
  source.scale_layout = W4MOE_SCALES_ROW_MAJOR;
  source.global_convention = W4MOE_GLOBALS_NONE;
  source.gate_up.codes.tensors = &tensors[0];
  source.gate_up.scales.tensors = &tensors[1];
  source.down.codes.tensors = &tensors[2];
  source.down.scales.tensors = &tensors[3];
  source.gate_up.codes.count = source.gate_up.scales.count = source.down.codes.count = source.down.scales.count = 1;
  int64_t workspace_bytes = 0;
  must(w4moe_prepare_workspace_bytes(engine, plan, &source, &workspace_bytes));
  void* const weights = allocate(info.prepared_weight_bytes);
  void* const workspace = workspace_bytes > 0 ? allocate(workspace_bytes) : NULL;
  must(w4moe_engine_prepare(engine, plan, &source, weights, info.prepared_weight_bytes, workspace, workspace_bytes, NULL, NULL));
  free(workspace);

  /* 4. Bind plan, weights and scratch; all layers of a model may share the scratch. */
  void* const scratch = allocate(info.scratch_bytes);
  w4moe_binding* layer = NULL;
  must(w4moe_bind(engine, plan, weights, info.prepared_weight_bytes, scratch, info.scratch_bytes, &layer));
  must(w4moe_init_scratch(layer, NULL));

  /* 5. Run, as often as there are tokens. */
  void* const x_memory = allocate(sizeof(x));
  void* const out_memory = allocate(sizeof(out));
  memcpy(x_memory, x, sizeof(x));
  w4moe_run_args args;
  W4MOE_INIT(args);
  args.tokens = TOKENS;
  args.x = x_memory;
  args.ids = ids;
  args.id_type = W4MOE_IDS_I32;
  args.router_weights = router_weights;
  args.router_dtype = W4MOE_DTYPE_F32;
  args.out = out_memory;
  must(w4moe_run(layer, NULL, &args));
  w4moe_binding_report status;
  W4MOE_INIT(status);
  must(w4moe_binding_get_status(layer, &status));
  memcpy(out, out_memory, sizeof(out));

  double error = 0, norm = 0;
  for (int t = 0; t < TOKENS; ++t) {
    double expected[H];
    reference(t, expected);
    for (int n = 0; n < H; ++n) {
      const double difference = bf16_value(out[t][n]) - expected[n];
      error += difference * difference;
      norm += expected[n] * expected[n];
    }
  }
  const double relative_rmse = sqrt(error / norm);
  printf("ran %d tokens: %s, relative RMSE %.2e\n", TOKENS, status.text, relative_rmse);

  w4moe_binding_destroy(layer);
  w4moe_plan_destroy(plan);
  w4moe_engine_destroy(engine);
  free(weights);
  free(scratch);
  free(x_memory);
  free(out_memory);
  return status.code == 0 && relative_rmse < 4e-3 ? 0 : 1;
}
