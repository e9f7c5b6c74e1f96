// The table through which a kernel built for the host calls the lock-step device. A kernel's shared object links to nothing:
// the loader stores a pointer to this table in its one exported variable, w4moe_lockstep_host.
#pragma once

namespace w4moe::lockstep {

/// Raised with every change of a struct below.
inline constexpr unsigned kAbiVersion = 2;

/// Where in the kernel an intrinsic was called.
struct Site {
  const char* file;
  int line;
};

/// Position of the running thread; constant for the thread's life.
struct ThreadPosition {
  int thread;
  int lane;
  int warp;
  long long block_x;
  long long block_y;
  long long grid_x;
  unsigned char* shared;      ///< base of the CTA's shared memory
  long long shared_bytes;
};

/// One 16-byte copy to shared memory that its thread has waited for; `data` has its zero fill already.
struct LandedCopy {
  void* dst;
  unsigned char data[16];
};

struct ShuffleOperand {
  unsigned value;
  unsigned argument;   ///< delta, mask or lane
  unsigned result;
};

struct MatrixOperand {
  unsigned row[4];     ///< the 16 bytes at the lane's address
  unsigned* result;    ///< four registers
};

struct MmaOperand {
  float* d;            ///< four accumulators, read and written
  const unsigned* a;   ///< four registers
  unsigned b[2];
};

/// stmatrix, transposed: registers of the lane in, the 16 bytes that belong at its address out.
struct StoreMatrixOperand {
  unsigned value[4];
  unsigned row[4];
};

/// One thread's part of a wgmma.
struct WgmmaOperand {
  float* d;                  ///< tokens / 2 accumulators
  const unsigned* a;         ///< four registers
  unsigned long long b;      ///< descriptor of the tokens in shared memory
  int tokens;
  bool is_bf16;              ///< else fp16
};

/// A copy of many bytes, whose content has been read.
struct BulkCopy {
  void* dst;
  const unsigned char* data;
  unsigned bytes;
  const unsigned long long* barrier;
};

enum class WarpOp : unsigned char { none, warp_sync, shuffle_up, shuffle_xor, shuffle, ballot, load_matrix, mma_bf16, mma_f16, store_matrix };

/// Functions of the device. Each may switch to another thread before it returns; after a report none returns.
struct Host {
  unsigned abi_version;
  const ThreadPosition* current;
  void (*barrier)(Site site);
  /// Meets the 31 other lanes; `operand` is the struct that belongs to the operation, and holds the result on return.
  void (*warp_op)(WarpOp op, void* operand, Site site);
  /// Checks and queues a copy of these 16 bytes; the caller has not written dst yet.
  void (*copy_issue)(void* dst, const unsigned char* data, Site site);
  void (*copy_commit)();
  /// Next copy of the thread that must have landed for at most `open_groups` groups to stay open, or null.
  const LandedCopy* (*copy_retire)(int open_groups);
  /// Checks a 16-byte access to shared memory that the caller is about to make.
  void (*shared_access)(const void* p, bool is_write, Site site);
  void (*named_barrier)(int id, int threads, Site site);
  void (*async_barrier_init)(const void* b, int arrivals, Site site);
  void (*async_barrier_init_fence)();
  /// One arrival, and so many bytes more to wait for.
  void (*async_barrier_arrive)(const void* b, unsigned bytes, Site site);
  bool (*async_barrier_test)(const void* b, unsigned parity, Site site);
  void (*async_barrier_wait)(const void* b, unsigned parity, Site site);
  void (*copy_bulk)(const BulkCopy& copy, Site site);
  /// Lets the copies that the thread has issued land by themselves, and then arrives.
  void (*copy_arrive)(const void* b, Site site);
  void (*fence_async_shared)();
  void (*wgmma_fence)();
  void (*wgmma_add)(const WgmmaOperand& operand, Site site);
  void (*wgmma_commit)();
  void (*wgmma_wait)(int open_groups, Site site);
  /// Where another thread may run under the random schedule.
  void (*yield_point)();
  /// Waits for the end of the grid before; lets the grid after begin once every CTA has called it.
  void (*grid_wait)(Site site);
  void (*grid_launch_next)();
  /// Ends the launch with a report about the running thread.
  void (*fail)(const char* what, Site site);
};

}  // namespace w4moe::lockstep
