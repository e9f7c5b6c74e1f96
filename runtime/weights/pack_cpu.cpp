// Packing on the CPU: expert by expert, each unit by the function that the GPU kernel runs too.
#include <array>
#include <atomic>
#include <cstring>
#include <mutex>

#include "generator/problem/errors.hpp"
#include "runtime/weights/fast_unit.hpp"
#include "runtime/weights/operand.hpp"
#include "runtime/weights/parallel.hpp"
#include "runtime/weights/regions.hpp"
#include "runtime/weights/scan.hpp"

namespace w4moe {
namespace {

constexpr std::size_t kDestAlignBytes = 16;
constexpr i64 kBlockUnits = 8;

/// One matrix of one expert: `low` and `high` are gate and up of a gated FC1, or the same projection twice.
struct MatrixJob {
  MatrixLayout matrix;
  bool gated_fc1;
  const SourceView& low;
  const SourceView& high;
  u32 base_low;
  u32 base_high;
  u8* units;
};

/// Packs strips begin..end-1. With a constant format the compiler folds what would be decided for every code.
template <class Format>
__attribute__((flatten)) void pack_strips(const MatrixJob& job, const Format& format, i64 begin, i64 end) {
  const LaneTables& tables = lane_tables(format().is_int4());
  const i64 whole_units = job.matrix.k / kUnitK;
  for (i64 strip = begin; strip < end; ++strip) {
    PackRow rows[kRowPairs][2];
    for (i64 quad = 0; quad < kRowPairs; ++quad) strip_rows(job.gated_fc1, job.low, job.high, job.base_low, job.base_high, strip, quad, rows[quad]);
    u8* const first = job.units + job.matrix.unit_offset_bytes(0, strip, 0);
    const i64 stride = job.matrix.unit_stride_bytes(strip);
    // Few units at a time: a quad reads whole cache lines of its two rows, and few pages of the destination are in use.
    for (i64 block = 0; block < job.matrix.k_units(); block += kBlockUnits) {
      const i64 block_end = std::min(block + kBlockUnits, job.matrix.k_units());
      for (i64 quad = 0; quad < kRowPairs; ++quad) {
        for (i64 unit_k = block; unit_k < block_end; ++unit_k) {
          u8* const unit = first + unit_k * stride;
          if (unit_k < whole_units) {
            pack_unit_quad(format(), tables, rows[quad], unit_k, quad, unit);
            continue;
          }
          for (i64 lane = 4 * quad; lane < 4 * quad + 4; ++lane) pack_unit_lane(format(), rows[quad], unit_k, lane, unit);
        }
      }
    }
  }
}

void pack_matrix(const MatrixJob& job, int threads) {
  const QuantFormat& format = job.matrix.format;
  parallel_for(threads, job.matrix.strips(), [&](i64 begin, i64 end) {
    if (format == kMxfp4) return pack_strips(job, [] { return kMxfp4; }, begin, end);
    if (format == kNvfp4) return pack_strips(job, [] { return kNvfp4; }, begin, end);
    pack_strips(job, [&] { return format; }, begin, end);
  });
}

/// Packs experts side by side: each has its own place in the destination, so the bytes do not depend on who packs what.
class LayerPacker {
 public:
  LayerPacker(const Problem& problem, const SourceWeights& source, u8* base, const PackOptions& options)
      : problem_(problem), source_(source), base_(base), options_(options), layout_(weight_layout(problem)),
        scans_(static_cast<std::size_t>(problem.shape.experts * kProjections)), done_(static_cast<std::size_t>(problem.shape.experts)) {}

  Status pack_experts() {
    const i64 experts = problem_.shape.experts;
    const i64 threads = thread_count(options_.threads);
    const i64 workers = std::min(threads, experts);
    const auto threads_each = static_cast<int>(std::max<i64>(1, threads / workers));
    failed_ = experts;
    parallel_for(static_cast<int>(workers), workers, [&](i64 begin, i64 end) {
      for (i64 worker = begin; worker < end; ++worker) work(threads_each);
    });
    return status_;
  }

  std::span<const ScanResult> scans() const { return scans_; }

 private:
  /// Experts are taken in ascending order, so every expert before a failed one has been taken: the error of the lowest one is
  /// the same whatever the number of threads.
  void work(int threads) {
    for (i64 expert = next_++; expert < problem_.shape.experts && !stop_; expert = next_++) {
      const bool cancelled = options_.cancelled && options_.cancelled();
      Status packed = cancelled ? Status(Error{ErrorCode::not_prepared, "packing was cancelled"}) : pack_expert(expert, threads);
      const std::lock_guard lock(mutex_);
      if (!packed) {
        stop_ = true;
        if (expert < failed_) failed_ = expert, status_ = std::move(packed);
        return;
      }
      done_[static_cast<std::size_t>(expert)] = true;
      for (; told_ < problem_.shape.experts && done_[static_cast<std::size_t>(told_)]; ++told_) {
        if (options_.on_expert_done) options_.on_expert_done(told_);
      }
    }
  }

  Status pack_expert(i64 expert, int threads) {
    const bool gated = is_gated(problem_.activation);
    std::array<SourceView, kProjections> views;
    const std::span<ScanResult> scans = std::span(scans_).subspan(static_cast<std::size_t>(expert * kProjections), kProjections);
    for (const Projection projection : projections_of(problem_)) {
      const auto i = static_cast<std::size_t>(projection);
      views[i] = source_view(problem_, source_, projection, expert);
      scans[i] = scan_projection(problem_, views[i], threads);
    }
    if (Status s = check_scan(problem_, scans, options_.allow_nan_scales, expert); !s) return s;

    const auto view = [&](Projection p) -> const SourceView& { return views[static_cast<std::size_t>(p)]; };
    const auto window = [&](Projection p) { return mx_window(scans[static_cast<std::size_t>(p)]).base; };
    const Projection low = gated ? Projection::gate : Projection::up;
    const MatrixLayout fc1 = layout_.fc1();
    const MatrixLayout fc2 = layout_.fc2();
    pack_matrix(MatrixJob{fc1, gated, view(low), view(Projection::up), window(low), window(Projection::up),
                          base_ + layout_.fc1_offset_bytes() + fc1.unit_offset_bytes(expert, 0, 0)},
                threads);
    pack_matrix(MatrixJob{fc2, false, view(Projection::down), view(Projection::down), window(Projection::down),
                          window(Projection::down), base_ + layout_.fc2_offset_bytes() + fc2.unit_offset_bytes(expert, 0, 0)},
                threads);
    return {};
  }

  const Problem& problem_;
  const SourceWeights& source_;
  u8* const base_;
  const PackOptions& options_;
  const WeightLayout layout_;
  std::vector<ScanResult> scans_;
  std::vector<bool> done_;
  std::atomic<i64> next_{0};
  std::atomic<bool> stop_{false};
  std::mutex mutex_;
  i64 told_ = 0;    ///< experts that on_expert_done was called for
  i64 failed_ = 0;  ///< lowest expert that could not be packed
  Status status_;
};

}  // namespace

Status pack_on_cpu(const Problem& problem, const SourceWeights& source, std::span<std::byte> dest, const PackOptions& options) {
  if (Status s = validate_source(problem, source); !s) return s;
  if (source.on_device) return invalid_argument("the tensors are in device memory; the CPU packs host tensors only");
  const WeightLayout layout = weight_layout(problem);
  if (static_cast<i64>(dest.size()) != layout.total_bytes()) {
    return invalid_argument("destination of {} bytes, expected {}", dest.size(), layout.total_bytes());
  }
  if (reinterpret_cast<std::uintptr_t>(dest.data()) % kDestAlignBytes != 0) {
    return invalid_argument("destination {}: must start at a multiple of {} bytes", static_cast<void*>(dest.data()), kDestAlignBytes);
  }

  // The header comes last: what a failure leaves behind must not pass for prepared weights.
  std::memset(dest.data(), 0, static_cast<std::size_t>(layout.header_bytes()));
  u8* const base = reinterpret_cast<u8*>(dest.data());
  LayerPacker packer(problem, source, base, options);
  if (Status s = packer.pack_experts(); !s) return s;

  for (const RegionSpan& gap : unit_gaps(layout)) std::memset(base + gap.offset_bytes, 0, static_cast<std::size_t>(gap.bytes));
  const std::vector<std::byte> tail = tail_region(problem, source, packer.scans());
  std::memcpy(base + layout.globals_offset_bytes(), tail.data(), tail.size());
  const std::vector<std::byte> header = header_region(layout);
  std::memcpy(base, header.data(), header.size());
  return {};
}

}  // namespace w4moe
