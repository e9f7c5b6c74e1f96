// Packing on the CPU: expert by expert, each unit by the function that the GPU kernel runs too.
#include <array>
#include <cstring>

#include "generator/problem/errors.hpp"
#include "packing/pack_unit.h"
#include "runtime/weights/operand.hpp"
#include "runtime/weights/parallel.hpp"
#include "runtime/weights/regions.hpp"
#include "runtime/weights/scan.hpp"

namespace w4moe {
namespace {

constexpr std::size_t kDestAlignBytes = 16;

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
  for (i64 strip = begin; strip < end; ++strip) {
    for (i64 unit_k = 0; unit_k < job.matrix.k_units(); ++unit_k) {
      u8* const unit = job.units + job.matrix.unit_offset_bytes(0, strip, unit_k);
      for (i64 lane = 0; lane < kLanes; ++lane) {
        PackRow rows[2];
        strip_rows(job.gated_fc1, job.low, job.high, job.base_low, job.base_high, strip, lane / 4, rows);
        pack_unit_lane(format(), rows, unit_k, lane, unit);
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
  const bool gated = is_gated(problem.activation);
  std::vector<ScanResult> scans(static_cast<std::size_t>(problem.shape.experts * kProjections));
  for (i64 expert = 0; expert < problem.shape.experts; ++expert) {
    std::array<SourceView, kProjections> views;
    const std::span<ScanResult> expert_scans = std::span(scans).subspan(static_cast<std::size_t>(expert * kProjections), kProjections);
    for (const Projection projection : projections_of(problem)) {
      const auto i = static_cast<std::size_t>(projection);
      views[i] = source_view(problem, source, projection, expert);
      expert_scans[i] = scan_projection(problem, views[i], options.threads);
    }
    if (Status s = check_scan(problem, expert_scans, options.allow_nan_scales, expert); !s) return s;

    const auto view = [&](Projection p) -> const SourceView& { return views[static_cast<std::size_t>(p)]; };
    const auto window = [&](Projection p) { return mx_window(expert_scans[static_cast<std::size_t>(p)]).base; };
    const Projection low = gated ? Projection::gate : Projection::up;
    const MatrixLayout fc1 = layout.fc1();
    const MatrixLayout fc2 = layout.fc2();
    pack_matrix(MatrixJob{fc1, gated, view(low), view(Projection::up), window(low), window(Projection::up),
                          base + layout.fc1_offset_bytes() + fc1.unit_offset_bytes(expert, 0, 0)},
                options.threads);
    pack_matrix(MatrixJob{fc2, false, view(Projection::down), view(Projection::down), window(Projection::down),
                          window(Projection::down), base + layout.fc2_offset_bytes() + fc2.unit_offset_bytes(expert, 0, 0)},
                options.threads);
    if (options.on_expert_done) options.on_expert_done(expert);
  }

  for (const RegionSpan& gap : unit_gaps(layout)) std::memset(base + gap.offset_bytes, 0, static_cast<std::size_t>(gap.bytes));
  const std::vector<std::byte> tail = tail_region(problem, source, scans);
  std::memcpy(base + layout.globals_offset_bytes(), tail.data(), tail.size());
  const std::vector<std::byte> header = header_region(layout);
  std::memcpy(base, header.data(), header.size());
  return {};
}

}  // namespace w4moe
