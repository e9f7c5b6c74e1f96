/* The C interface of w4moe: what an engine in any language needs from a layer's shape to its output on a stream.
 *
 *   w4moe_engine_create -> w4moe_plan_create -> w4moe_plan_get_info -> w4moe_engine_build
 *     -> w4moe_engine_prepare (or w4moe_pack_on_cpu) -> w4moe_bind -> w4moe_init_scratch -> w4moe_run, w4moe_run, ...
 *
 * Rules that hold for every function
 *  - Nothing is thrown, nothing is printed, no CUDA context is made or changed, and no device memory is allocated.
 *  - A fallible function returns a w4moe_status. After anything but W4MOE_OK, w4moe_last_error() on the same thread has the text,
 *    which names the offending value and what would be accepted; output parameters are untouched, but for handles, which are NULL.
 *  - Structures whose first member is struct_size grow at their end in later versions. Fill them with zeros and set struct_size
 *    (W4MOE_INIT does both): every zero stands for the documented default, or for "not named" where a value must be named.
 *    A smaller struct_size (of an older header) is read as if it ended in zeros; a larger one (of a newer header) is accepted
 *    where the members that this library does not know are zero.
 *  - Strings are UTF-8 and end in a zero byte. Strings passed in are copied. Those passed out belong to what the function says.
 *  - Device pointers are passed as void*, streams as void* (a CUstream or cudaStream_t as it is; NULL is the legacy default stream).
 *  - Sizes ending in _bytes are bytes, in _elems elements, in _tokens or named tokens rows of x.
 *  - Handles are freed by their _destroy function, in any order; NULL is accepted there. A NULL handle elsewhere is an error.
 *
 * Threads: all functions may be called from any thread. A plan never changes. A binding may be used from several threads, but its
 * scratch belongs to one stream at a time.
 */
#ifndef W4MOE_W4MOE_H
#define W4MOE_W4MOE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__GNUC__)
#define W4MOE_API __attribute__((visibility("default")))
#else
#define W4MOE_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Raised when a function or a member changes its meaning or goes; additions leave it. */
#define W4MOE_ABI_VERSION 1

/* Fills a structure with defaults. `object` is the structure itself, not a pointer. */
#define W4MOE_INIT(object) (memset(&(object), 0, sizeof(object)), (void)((object).struct_size = sizeof(object)))

/* ---- Status and errors ------------------------------------------------------------------------------------------------------ */

typedef int32_t w4moe_status;

enum {
  W4MOE_OK = 0,
  W4MOE_INVALID_ARGUMENT = 1,  /* a value of the caller's is malformed or contradicts another */
  W4MOE_UNSUPPORTED = 2,       /* well-formed, but this shape, format or device is not served */
  W4MOE_TOOLCHAIN_MISSING = 3, /* NVRTC, the driver or a device is needed and absent */
  W4MOE_COMPILE_FAILED = 4,    /* the compiler refused a source; the text holds its whole log */
  W4MOE_IO = 5,                /* a file could not be read or written */
  W4MOE_CORRUPT = 6,           /* bytes failed verification */
  W4MOE_DRIVER = 7,            /* a CUDA driver call failed; the text holds its name and the driver's message */
  W4MOE_NOT_PREPARED = 8,      /* a kernel is not loaded where loading is not allowed (capture, JIT off) */
  W4MOE_INTERNAL = 9,          /* a broken invariant of the library's */
  W4MOE_OUT_OF_HOST_MEMORY = 10
};

/* The library's W4MOE_ABI_VERSION, to be compared with the header's. */
W4MOE_API uint32_t w4moe_abi_version(void);

/* "0.1.0". Static. */
W4MOE_API const char* w4moe_version(void);

/* "ok", "invalid_argument", ...; "unknown" for a number that is no status. Static. */
W4MOE_API const char* w4moe_status_name(w4moe_status status);

/* Text of the last call on this thread that failed; "" where none did. Valid until the next call on this thread that fails. */
W4MOE_API const char* w4moe_last_error(void);

/* ---- Enumerations: zero is never a value, so that a forgotten one is an error -------------------------------------------------- */

/* Element types of activations, router weights and outputs. */
enum { W4MOE_DTYPE_BF16 = 1, W4MOE_DTYPE_F16 = 2, W4MOE_DTYPE_F32 = 3 };

/* Element types of expert ids. */
enum { W4MOE_IDS_I32 = 1, W4MOE_IDS_I64 = 2 };

/* Element types of checkpoint tensors. */
enum {
  W4MOE_TENSOR_U8 = 1,
  W4MOE_TENSOR_I8 = 2,
  W4MOE_TENSOR_I32 = 3,
  W4MOE_TENSOR_E8M0 = 4, /* 2^(byte - 127) */
  W4MOE_TENSOR_E4M3 = 5, /* FP8 e4m3fn */
  W4MOE_TENSOR_BF16 = 6,
  W4MOE_TENSOR_F16 = 7,
  W4MOE_TENSOR_F32 = 8
};

/* Rows of FC1 in the checkpoint. */
enum {
  W4MOE_GATE_UP_SEPARATE = 1,   /* tensors `gate` and `up`; `up` alone for ungated activations */
  W4MOE_GATE_UP_GATE_FIRST = 2, /* one tensor of 2 I rows, gate in rows 0..I-1 */
  W4MOE_GATE_UP_UP_FIRST = 3,   /* one tensor of 2 I rows, up in rows 0..I-1 */
  W4MOE_GATE_UP_INTERLEAVED = 4 /* one tensor of 2 I rows, gate in even rows, up in odd ones */
};

/* Where the 4-bit code of (row, k) lies. */
enum {
  W4MOE_CODES_LOW_NIBBLE_FIRST = 1,  /* two codes a byte along K, low nibble = even k; or int32 words of 8, lowest nibble first */
  W4MOE_CODES_HIGH_NIBBLE_FIRST = 2, /* two codes a byte along K, high nibble = even k */
  W4MOE_CODES_AWQ_WORDS = 3          /* int32 words of 8 rows for one k, rows in the order 0, 2, 4, 6, 1, 3, 5, 7 */
};

/* How a stored INT4 code stands for 0..15. */
enum {
  W4MOE_CODE_SIGN_OFFSET8 = 1,        /* stored 0..15; the value is code - 8, or code - zero point */
  W4MOE_CODE_SIGN_TWOS_COMPLEMENT = 2 /* stored -8..7 in four bits */
};

/* How block scales lie. */
enum {
  W4MOE_SCALES_ROW_MAJOR = 1,    /* [rows][groups] */
  W4MOE_SCALES_TRANSPOSED = 2,   /* [groups][rows] */
  W4MOE_SCALES_SWIZZLED_128X4 = 3
};

/* How zero points lie. */
enum {
  W4MOE_ZEROS_NONE = 1,
  W4MOE_ZEROS_BYTES = 2,
  W4MOE_ZEROS_NIBBLES_ALONG_ROWS = 3,
  W4MOE_ZEROS_AWQ_WORDS = 4,
  W4MOE_ZEROS_NIBBLES_ALONG_GROUPS = 5,
  W4MOE_ZEROS_NIBBLES_ALONG_GROUPS_HIGH_FIRST = 6
};

/* How the fp32 global scale of an expert enters: not at all, code * scale * global, or code * scale / global. */
enum { W4MOE_GLOBALS_NONE = 1, W4MOE_GLOBALS_MULTIPLY = 2, W4MOE_GLOBALS_RECIPROCAL = 3 };

/* ---- Engine ------------------------------------------------------------------------------------------------------------------- */

typedef struct w4moe_engine w4moe_engine;

/* What runs the kernels. */
enum {
  W4MOE_DEVICE_CURRENT = 0, /* the GPU of the context that is current on the calling thread */
  W4MOE_DEVICE_CUDA = 1,    /* the GPU `ordinal`: planning needs no context, and another device's context is refused afterwards */
  W4MOE_DEVICE_LOCKSTEP = 2 /* the CPU plays a GPU: device memory is host memory, streams are NULL. For tests and small layers */
};

enum { W4MOE_LOG_DEBUG = 0, W4MOE_LOG_INFO = 1, W4MOE_LOG_WARNING = 2 };

/* Gets every message of the library, from any thread. Must return, and must not call back into the engine. */
typedef void (*w4moe_log_fn)(void* user, int32_t level, const char* message);

/* A switch that leaves the choice to the environment, the configuration file and the default where it is zero. */
enum { W4MOE_DEFAULT = 0, W4MOE_ON = 1, W4MOE_OFF = 2, W4MOE_READONLY = 3 };

typedef struct w4moe_engine_options {
  uint64_t struct_size;
  int32_t device;             /* W4MOE_DEVICE_* */
  int32_t ordinal;            /* W4MOE_DEVICE_CUDA only, else 0 */
  int32_t jit;                /* W4MOE_ON, W4MOE_OFF: a missing kernel is an error. Default: W4MOE_JIT, then on */
  int32_t cache;              /* W4MOE_ON, W4MOE_OFF: in memory only, W4MOE_READONLY. Default: W4MOE_CACHE, then on */
  int32_t cache_shared;       /* W4MOE_ON: trust cache folders of other users. Default: W4MOE_CACHE_SHARED, then off */
  int32_t jobs;               /* compiles at a time; 0: W4MOE_JOBS, then the processors, at most 8 */
  uint64_t cache_max_bytes;   /* 0: W4MOE_CACHE_MAX_SIZE, then 2 GiB */
  uint64_t memory_bytes;      /* for compiling; 0: W4MOE_MEMORY_LIMIT, then what the machine or the cgroup has */
  const char* cache_dir;      /* NULL: W4MOE_CACHE_DIR, then $XDG_CACHE_HOME/w4moe or ~/.cache/w4moe */
  const char* readonly_dirs;  /* folders with ':' between them; NULL: W4MOE_CACHE_READONLY_DIRS */
  const char* nvrtc;          /* library file or folder; NULL: W4MOE_NVRTC, then where it is found */
  const char* dump_dir;       /* sources, logs and cubins of compiles; NULL: W4MOE_DUMP_DIR */
  w4moe_log_fn log;           /* may be NULL */
  void* log_user;             /* first argument of log */
  int32_t debug;              /* not 0: every run poisons its scratch first and checks its guard zones afterwards; waits for the stream */
  int32_t reserved;           /* 0 */
} w4moe_engine_options;

/* Reads the environment and opens nothing: no driver, no cache folder, no compiler, until a function needs it, so that a process may
 * fork after it. options may be NULL. Errors: invalid_argument for a setting that cannot be read. */
W4MOE_API w4moe_status w4moe_engine_create(const w4moe_engine_options* options, w4moe_engine** engine);

/* Plans and bindings of the engine stay usable. */
W4MOE_API void w4moe_engine_destroy(w4moe_engine* engine);

/* Copies the text of the last call with this engine, one of its plans' builds or one of its bindings that failed on any thread, cut to
 * buffer_bytes with its end. Returns the bytes that the whole text takes with its end: 1 where no call failed. buffer may be NULL where
 * buffer_bytes is 0. */
W4MOE_API size_t w4moe_engine_last_error(const w4moe_engine* engine, char* buffer, size_t buffer_bytes);

/* From now on w4moe_engine_build compiles nothing: a service that has warmed up sees a missing kernel as an error, not as a stall. */
W4MOE_API w4moe_status w4moe_engine_freeze(w4moe_engine* engine);

/* 1 after w4moe_engine_freeze or where the JIT is off, 0 otherwise, and for NULL. */
W4MOE_API int32_t w4moe_engine_is_frozen(const w4moe_engine* engine);

/* ---- Plan ----------------------------------------------------------------------------------------------------------------------- */

/* One MoE layer as one rank holds it:  out[t] = sum over j of w[t][j] * W2[e] act(W13[e] x[t]),  e = ids[t][j].
 * Tensor parallelism: `intermediate` is the rank's part. Expert parallelism: `experts` are those that the rank holds; ids are local,
 * and any id outside 0..experts-1 (-1 by custom) contributes nothing, so that the partial outputs of the ranks add up. */
typedef struct w4moe_problem {
  uint64_t struct_size;
  const char* name;          /* for messages; may be NULL */
  int64_t hidden;            /* H: elements of a token */
  int64_t intermediate;      /* I: features between the projections, of this rank */
  int64_t experts;           /* E: experts held by this rank */
  int64_t topk;              /* routes of a token */
  int64_t max_tokens;        /* largest number of tokens of a run */
  const char* format;        /* "mxfp4", "mxfp4:wide", "nvfp4", "int4:g32", "int4:g64", "int4:g128", "int4:row"; int4 also with :zp, :f16 */
  const char* activation;    /* "silu", "swiglu-oai", "geglu-tanh", "geglu-erf", "situ", "relu2", "silu-ungated", "gelu-ungated" */
  int32_t dtype;             /* activations and output: W4MOE_DTYPE_BF16 or W4MOE_DTYPE_F16 */
  int32_t has_bias;          /* not 0: both projections carry a bias per expert */
  int32_t weight_on_input;   /* not 0: the router weight multiplies the input, W (w x) + b, instead of the output */
  int32_t compact_tail;      /* not 0: MXFP4 accepts an I that is a multiple of 8 with a partial last group */
  int32_t has_alpha;         /* not 0: `alpha` counts. Each activation has defaults (swiglu-oai: 1.702, 1, 7), and refuses what it has not */
  int32_t has_beta;          /* not 0: `beta` counts */
  int32_t has_limit;         /* not 0: `limit` counts */
  int32_t no_limit;          /* not 0: no clamp, also where the activation has one by default */
  float alpha;
  float beta;
  float limit;
  float reserved;            /* 0 */
} w4moe_problem;

typedef struct w4moe_plan_options {
  uint64_t struct_size;
  const char* arch;            /* "sm_90a" and the like: plan for that device, not for the engine's; NULL: the engine's */
  int32_t sms;                 /* with arch: multiprocessors, 0 for the number that the name stands for */
  int32_t reserved;            /* 0 */
  int64_t scratch_cap_bytes;   /* 0: none. Otherwise longer runs are cut into chunks of tokens whose scratch stays below it */
  const char* pins;            /* wishes with ',' between them, as `w4moe plan --pin` takes them; NULL: none */
} w4moe_plan_options;

typedef struct w4moe_plan w4moe_plan;

/* Decides everything about a layer on a device: host arithmetic, microseconds. engine may be NULL where options name an arch. With
 * neither engine nor arch: invalid_argument. options may be NULL. Touches CUDA only to read the attributes of the engine's GPU.
 * Errors: invalid_argument, unsupported; toolchain_missing and driver where the engine's GPU cannot be asked. */
W4MOE_API w4moe_status w4moe_plan_create(const w4moe_engine* engine, const w4moe_problem* problem, const w4moe_plan_options* options, w4moe_plan** plan);

W4MOE_API void w4moe_plan_destroy(w4moe_plan* plan);

typedef struct w4moe_plan_info {
  uint64_t struct_size;            /* set by the caller */
  int64_t scratch_bytes;           /* what w4moe_bind asks for: exact, binding, at most the cap; grows with max_tokens only */
  int64_t scratch_align_bytes;
  int64_t prepared_weight_bytes;   /* of the layer's packed weights: exact */
  int64_t prepared_align_bytes;
  uint64_t layout_id;              /* of the packed layout; weights of another one are refused */
  int64_t max_tokens;
  int64_t chunk_tokens;            /* tokens of one launch sequence: max_tokens, or fewer under a cap */
  int64_t debug_guard_bytes;       /* beyond scratch_bytes: scratch that the debug mode watches where it is there */
  int32_t kernels;                 /* to build */
  int32_t sms;                     /* of the device that was planned for */
  char arch[16];                   /* "sm_90a" */
} w4moe_plan_info;

/* Fills as many members as info->struct_size covers. */
W4MOE_API w4moe_status w4moe_plan_get_info(const w4moe_plan* plan, w4moe_plan_info* info);

/* Every choice with its reason, for people. Belongs to the plan; NULL for a NULL plan. */
W4MOE_API const char* w4moe_plan_explain(const w4moe_plan* plan);

/* The same as one JSON object, as `w4moe plan --json` prints it. Belongs to the plan; NULL for a NULL plan. */
W4MOE_API const char* w4moe_plan_json(const w4moe_plan* plan);

/* Names of the kernels that a run of so many tokens launches, in order: "route + fc1.n16 + fc2.n16 + combine"; "none" for 0 tokens.
 * Copied and counted as by w4moe_engine_last_error; 0 for a NULL plan or tokens outside 0..max_tokens. */
W4MOE_API size_t w4moe_plan_launches(const w4moe_plan* plan, int64_t tokens, char* buffer, size_t buffer_bytes);

/* ---- Kernels -------------------------------------------------------------------------------------------------------------------- */

/* Called after each kernel, from one thread at a time: which one, whether the cache had it, how many of how many are done. */
typedef void (*w4moe_progress_fn)(void* user, const char* kernel, int32_t hit, int32_t done, int32_t total);

/* Asked before each compile: not 0 ends the build with an error. */
typedef int32_t (*w4moe_cancelled_fn)(void* user);

typedef struct w4moe_build_options {
  uint64_t struct_size;
  void* stream;                  /* that the caller works on: if it is capturing, the call is refused before anything happens */
  w4moe_progress_fn progress;    /* may be NULL */
  w4moe_cancelled_fn cancelled;  /* may be NULL */
  void* user;                    /* first argument of both */
} w4moe_build_options;

typedef struct w4moe_build_report {
  uint64_t struct_size;   /* set by the caller */
  int32_t kernels;        /* distinct ones */
  int32_t compiled;
  int32_t hits;           /* found in the cache, or loaded already */
  int32_t jobs;           /* compiles at a time */
  double seconds;
} w4moe_build_report;

/* Finds or compiles every kernel of the plan and loads them into the current context, ready to launch. Each call is balanced by one
 * w4moe_engine_unload. options and report may be NULL. Errors: not_prepared, before anything happens, while a stream is capturing, and
 * for a missing kernel where the JIT is off or the engine frozen (the text has the manifest entry to add); toolchain_missing;
 * compile_failed with the whole log; unsupported where the plan's code does not run on the device. */
W4MOE_API w4moe_status w4moe_engine_build(w4moe_engine* engine, const w4moe_plan* plan, const w4moe_build_options* options, w4moe_build_report* report);

/* w4moe_engine_build that never compiles. */
W4MOE_API w4moe_status w4moe_engine_preload(w4moe_engine* engine, const w4moe_plan* plan, const w4moe_build_options* options, w4moe_build_report* report);

/* Builds the kernels of the plans, and those that pack their weights, into the cache, without any driver or GPU. options->stream is not
 * looked at. Not for the lock-step device. Errors: as w4moe_engine_build. */
W4MOE_API w4moe_status w4moe_engine_build_cache(w4moe_engine* engine, const w4moe_plan* const* plans, size_t count, const w4moe_build_options* options,
                                                w4moe_build_report* report);

/* Gives up one build of the plan in the current context. A kernel leaves the GPU when no build and no binding uses it. */
W4MOE_API w4moe_status w4moe_engine_unload(w4moe_engine* engine, const w4moe_plan* plan);

/* ---- Weights -------------------------------------------------------------------------------------------------------------------- */

/* One tensor of a checkpoint, not owned. */
typedef struct w4moe_tensor {
  const void* data;
  const int64_t* shape;          /* [rank], in elements of `type` */
  const int64_t* strides_elems;  /* [rank], or NULL for contiguous row-major */
  int32_t type;                  /* W4MOE_TENSOR_* */
  int32_t rank;                  /* dimensions, at most 8 */
} w4moe_tensor;

/* A quantity of all experts: one tensor whose first dimension is the expert, or one tensor per expert without it. Count 0: none. */
typedef struct w4moe_operand {
  const w4moe_tensor* tensors;
  int64_t count;
} w4moe_operand;

/* One matrix of all experts, rows x k with k along the contraction:
 *  codes   u8 or i8 [rows][k / 2], or i32 [rows][k / 8]; W4MOE_CODES_AWQ_WORDS: i32 [rows / 8][k]
 *  scales  [rows][groups] of the format's type: e8m0 or e4m3 (or u8 for both), bf16, f16; see W4MOE_SCALES_*
 *  zeros   formats with :zp: bytes u8 or i8 [rows][groups]; along rows and AWQ i32 [rows / 8][groups]; along groups u8 [rows][groups / 2]
 *  bias    bf16, f16 or f32 [rows] */
typedef struct w4moe_matrix {
  w4moe_operand codes;
  w4moe_operand scales;
  w4moe_operand zeros;
  w4moe_operand bias;
} w4moe_matrix;

/* What a checkpoint holds of one layer. Every order that the format needs must be named. */
typedef struct w4moe_source_weights {
  uint64_t struct_size;
  int32_t gate_up_order;       /* W4MOE_GATE_UP_* */
  int32_t code_order;          /* W4MOE_CODES_* */
  int32_t code_sign;           /* W4MOE_CODE_SIGN_*; INT4 only */
  int32_t scale_layout;        /* W4MOE_SCALES_* */
  int32_t zero_order;          /* W4MOE_ZEROS_*; INT4 only */
  int32_t zero_add;            /* added to stored zero points, modulo 16 */
  int32_t global_convention;   /* W4MOE_GLOBALS_* */
  int32_t on_device;           /* not 0: tensors lie in device memory */
  int32_t omit_output_bias;    /* not 0: another rank of the tensor-parallel group adds the bias of `down`, which is not given here */
  int32_t reserved;            /* 0 */
  w4moe_matrix gate_up;        /* 2 I rows of H; all orders but SEPARATE */
  w4moe_matrix gate;           /* I rows of H; SEPARATE, gated */
  w4moe_matrix up;             /* I rows of H; SEPARATE */
  w4moe_matrix down;           /* H rows of I */
  const float* gate_global;    /* [E] fp32 each, host memory; NULL with W4MOE_GLOBALS_NONE; gate and up may differ */
  const float* up_global;
  const float* down_global;
} w4moe_source_weights;

typedef struct w4moe_pack_options {
  uint64_t struct_size;
  int32_t allow_nan_scales;                      /* not 0: NaN scales give NaN in the outputs that use them instead of an error */
  int32_t threads;                               /* of the CPU packer; 0: as many as the machine has */
  void (*on_expert_done)(void* user, int64_t expert); /* in ascending order, after the last read of an expert's tensors; may be NULL */
  void* user;
} w4moe_pack_options;

/* Device bytes that w4moe_engine_prepare works in besides its destination. Checks the source. 0 on the lock-step device. */
W4MOE_API w4moe_status w4moe_prepare_workspace_bytes(const w4moe_engine* engine, const w4moe_plan* plan, const w4moe_source_weights* source, int64_t* bytes);

/* Packs a layer on the engine's device, in stream order, and waits for the stream. dest: device memory of prepared_weight_bytes, aligned
 * to prepared_align_bytes; workspace: device memory, likewise aligned, free again afterwards. Tensors in host memory are copied one
 * expert at a time. Finds or compiles the format's two packing kernels. options may be NULL. Not in a capture. */
W4MOE_API w4moe_status w4moe_engine_prepare(w4moe_engine* engine, const w4moe_plan* plan, const w4moe_source_weights* source, void* dest, int64_t dest_bytes,
                                            void* workspace, int64_t workspace_bytes, void* stream, const w4moe_pack_options* options);

/* Packs a layer on the CPU, bit for bit as the GPU does: host tensors, host destination of prepared_weight_bytes. The bytes may be kept
 * in a file and copied to any device. options may be NULL. */
W4MOE_API w4moe_status w4moe_pack_on_cpu(const w4moe_plan* plan, const w4moe_source_weights* source, void* dest, int64_t dest_bytes,
                                         const w4moe_pack_options* options);

/* Checks that host bytes are prepared weights of the plan: header, layout id, size. */
W4MOE_API w4moe_status w4moe_check_prepared(const w4moe_plan* plan, const void* prepared, int64_t bytes);

typedef struct w4moe_scan_report {
  uint64_t struct_size;               /* set by the caller */
  int64_t nan_scales_projections;     /* projections of an expert with at least one scale that is no finite number */
  char recommended_format[32];        /* the plan's format; "mxfp4:wide" where the exponents of some projection spread too far */
} w4moe_scan_report;

/* Reads every scale of host tensors, to choose the format before planning. threads: 0 for as many as the machine has. */
W4MOE_API w4moe_status w4moe_scan_on_cpu(const w4moe_plan* plan, const w4moe_source_weights* source, int32_t threads, w4moe_scan_report* report);

/* ---- Checkpoints: a model's files, read in place -------------------------------------------------------------------------------- */

typedef struct w4moe_checkpoint w4moe_checkpoint;

/* A folder with config.json and safetensors shards, an index file, or one safetensors file. Maps every shard and checks every header; reads
 * no weights. Families: docs/checkpoints.md. Errors: io, corrupt, invalid_argument naming the file and tensor. */
W4MOE_API w4moe_status w4moe_checkpoint_open(const char* path, w4moe_checkpoint** checkpoint);

/* Layers read from it keep the files mapped. */
W4MOE_API void w4moe_checkpoint_destroy(w4moe_checkpoint* checkpoint);

/* Layers of routed experts; 0 for NULL. */
W4MOE_API int64_t w4moe_checkpoint_count(const w4moe_checkpoint* checkpoint);

typedef struct w4moe_checkpoint_entry {
  uint64_t struct_size;     /* set by the caller */
  const char* prefix;       /* of its tensors' names, up to and with "experts."; belongs to the checkpoint */
  int64_t number;           /* N of "layers.N."; -1 where there is none */
  int64_t tensors;
  int64_t bytes;            /* of its expert tensors */
  const char* other_dtype;  /* "": the experts are quantised to 4 bits; else the type that they have; belongs to the checkpoint */
} w4moe_checkpoint_entry;

/* index: 0..count-1, by number, then by prefix. */
W4MOE_API w4moe_status w4moe_checkpoint_get_entry(const w4moe_checkpoint* checkpoint, int64_t index, w4moe_checkpoint_entry* entry);

/* The part of a layer that a process holds. Tensor parallelism cuts I, expert parallelism takes adjacent experts. */
typedef struct w4moe_shard {
  uint64_t struct_size;
  int32_t tp_rank;
  int32_t tp_size;  /* 0 stands for 1 */
  int32_t ep_rank;
  int32_t ep_size;  /* 0 stands for 1 */
} w4moe_shard;

typedef struct w4moe_layer w4moe_layer;

/* Finds a layer's tensors and checks them; `layer` is its number or its prefix. No weight is copied. shard may be NULL for the whole layer. */
W4MOE_API w4moe_status w4moe_checkpoint_read(const w4moe_checkpoint* checkpoint, const char* layer, const w4moe_shard* shard, w4moe_layer** read);

W4MOE_API void w4moe_layer_destroy(w4moe_layer* layer);

typedef struct w4moe_layer_info {
  uint64_t struct_size;     /* set by the caller */
  const char* prefix;       /* strings belong to the layer */
  const char* family;       /* "gpt-oss", "modelopt", "compressed-tensors", ... */
  const char* fingerprint;  /* 32 hex digits over names, dtypes, shapes and a sample of the bytes */
  int64_t first_expert;     /* number of local expert 0 in the whole layer */
  int64_t total_experts;
} w4moe_layer_info;

/* Fills as many members as info->struct_size covers. */
W4MOE_API w4moe_status w4moe_layer_get_info(const w4moe_layer* layer, w4moe_layer_info* info);

/* What to plan: copy it and set max_tokens (here 1), and topk where the checkpoint does not tell. Belongs to the layer; NULL for NULL. */
W4MOE_API const w4moe_problem* w4moe_layer_problem(const w4moe_layer* layer);

/* What to prepare, pack or scan. Belongs to the layer; NULL for NULL. */
W4MOE_API const w4moe_source_weights* w4moe_layer_source(const w4moe_layer* layer);

typedef struct w4moe_packed_file w4moe_packed_file;

/* A file that `w4moe pack` wrote (docs/formats/packed.md), memory-mapped. Headers are checked; weights are not read. */
W4MOE_API w4moe_status w4moe_packed_open(const char* path, w4moe_packed_file** file);

W4MOE_API void w4moe_packed_destroy(w4moe_packed_file* file);

/* Layers in it; 0 for NULL. */
W4MOE_API int64_t w4moe_packed_count(const w4moe_packed_file* file);

typedef struct w4moe_packed_layer {
  uint64_t struct_size;          /* set by the caller */
  const char* prefix;            /* pointers belong to the file */
  const char* family;
  const w4moe_problem* problem;  /* what to plan, as w4moe_layer_problem */
  const void* bytes;             /* prepared weights, in host memory: to be copied to the device, and bound */
  int64_t byte_count;
  int64_t first_expert;
  int64_t total_experts;
} w4moe_packed_layer;

/* index: 0..count-1. */
W4MOE_API w4moe_status w4moe_packed_get_layer(const w4moe_packed_file* file, int64_t index, w4moe_packed_layer* layer);

/* ---- Binding and running ---------------------------------------------------------------------------------------------------------- */

typedef struct w4moe_binding w4moe_binding;

/* A plan with its weights and its scratch, ready to run. Checks everything that does not change from run to run, reads the 64-byte header
 * of the weights, allocates nothing on the device and launches nothing. Weights and scratch stay the caller's and must outlive the
 * binding; the binding must outlive every run in flight and every graph that captured one. Several bindings (the layers of a model) may
 * share a scratch of the largest scratch_bytes among them, on one stream. Errors: not_prepared unless w4moe_engine_build loaded the
 * plan's kernels in the current context; invalid_argument for weights of another layout, and for memory that is too small, badly
 * aligned, or another device's. */
W4MOE_API w4moe_status w4moe_bind(const w4moe_engine* engine, const w4moe_plan* plan, const void* weights, int64_t weights_bytes, void* scratch,
                                  int64_t scratch_bytes, w4moe_binding** binding);

W4MOE_API void w4moe_binding_destroy(w4moe_binding* binding);

/* Writes the control region of the scratch, in stream order; once for each scratch, before its first run. May be captured. */
W4MOE_API w4moe_status w4moe_init_scratch(const w4moe_binding* binding, void* stream);

/* One call for `tokens` tokens. Device pointers; none is kept after the call, except by a graph that captures it. */
typedef struct w4moe_run_args {
  uint64_t struct_size;
  int64_t tokens;                   /* 0..max_tokens; 0 launches nothing */
  const void* x;                    /* [tokens][H], the problem's dtype, 16-byte aligned */
  int64_t x_row_stride_elems;       /* a multiple of 8, at least H; 0 stands for H */
  const void* ids;                  /* [tokens][topk]; those outside 0..E-1 contribute nothing */
  int64_t ids_row_stride_elems;     /* at least topk; 0 stands for topk */
  const void* router_weights;       /* [tokens][topk] */
  int64_t router_row_stride_elems;  /* at least topk; 0 stands for topk */
  void* out;                        /* [tokens][H], the problem's dtype, 16-byte aligned; may be x itself, with x's stride */
  int64_t out_row_stride_elems;     /* a multiple of 8, at least H; 0 stands for H. Columns beyond H are not touched */
  int32_t id_type;                  /* W4MOE_IDS_*; must be named */
  int32_t router_dtype;             /* W4MOE_DTYPE_F32 or W4MOE_DTYPE_BF16; must be named */
} w4moe_run_args;

/* Enqueues the layer on the stream and on no other. Checks the arguments first and launches nothing if one is wrong. Allocates nothing,
 * takes no lock, compiles and loads nothing, waits for nothing (on the lock-step device it returns when the layer is done); may be
 * captured in any mode. The stream must be of the binding's context; which context is current does not matter, and it stays current. */
W4MOE_API w4moe_status w4moe_run(const w4moe_binding* binding, void* stream, const w4moe_run_args* args);

typedef struct w4moe_binding_report {
  uint64_t struct_size;  /* set by the caller */
  uint32_t code;         /* 0: all is well; 1: the control region did not hold what w4moe_init_scratch wrote. Sticky until that is called */
  uint32_t detail;
  char text[112];        /* "ok", or what happened */
} w4moe_binding_report;

/* What kernels recorded in the control region. Reads device memory synchronously without waiting for any stream: wait for the runs of
 * interest first. Not in a capture. */
W4MOE_API w4moe_status w4moe_binding_get_status(const w4moe_binding* binding, w4moe_binding_report* report);

#ifdef __cplusplus
}
#endif

#endif /* W4MOE_W4MOE_H */
