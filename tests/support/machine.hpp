// A place where layers run: a GPU, or the CPU that plays one. Tests that are written against it run on both.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/reference/metrics.hpp"
#include "runtime/reference/reference.hpp"
#include "runtime/reference/synthetic.hpp"
#include "tests/support/catch.hpp"
#include "w4moe/engine.hpp"
#include "w4moe/weights.hpp"

namespace w4moe::test {

/// A value, or the test fails with the error's message.
template <class T>
T value_of(w4moe::Result<T> result) {
  INFO((result ? std::string() : result.error().message));
  REQUIRE(result.ok());
  return std::move(*result);
}
inline void succeeds(const Status& status) {
  INFO((status ? std::string() : status.error().message));
  REQUIRE(status.ok());
}

/// Memory that kernels read and write.
class MachineBuffer {
 public:
  virtual ~MachineBuffer() = default;
  virtual void* data() = 0;
  virtual i64 bytes() const = 0;
  virtual void upload(const void* from, i64 bytes, i64 offset_bytes = 0) = 0;
  virtual void download(void* to, i64 bytes, i64 offset_bytes = 0) = 0;

  void fill(u8 value, i64 offset_bytes = 0) {
    const std::vector<u8> pattern(static_cast<std::size_t>(bytes() - offset_bytes), value);
    upload(pattern.data(), static_cast<i64>(pattern.size()), offset_bytes);
  }
  std::vector<u8> read() {
    std::vector<u8> contents(static_cast<std::size_t>(bytes()));
    download(contents.data(), bytes());
    return contents;
  }
};

class Machine {
 public:
  virtual ~Machine() = default;
  virtual Engine& engine() = 0;
  /// Aligned to kRegionAlignBytes.
  virtual std::unique_ptr<MachineBuffer> allocate(i64 bytes) = 0;
  /// Until everything that was started has ended.
  virtual void wait() = 0;
  /// Whether the shapes of real models are within reach.
  virtual bool is_large() const = 0;
};

inline MoeInputs dense(const Problem& problem, MoeInputs inputs) {
  if (inputs.x_row_stride_elems == 0) inputs.x_row_stride_elems = problem.shape.hidden;
  if (inputs.ids_row_stride_elems == 0) inputs.ids_row_stride_elems = problem.shape.topk;
  if (inputs.router_row_stride_elems == 0) inputs.router_row_stride_elems = problem.shape.topk;
  return inputs;
}

/// A layer, planned, built and packed, with scratch of exactly the planned size and a guard behind it.
class MachineLayer {
 public:
  static constexpr i64 kGuardBytes = 4096;
  static constexpr u8 kGuard = 0xa5;

  MachineLayer(Machine& machine, const Problem& problem, const SourceWeights& source, const PlanOptions& options = {}, bool allow_nan_scales = false)
      : machine_(machine), source_(source), plan_(value_of(make_plan(problem, value_of(machine.engine().device()), options))) {
    succeeds(build_status());
    std::vector<std::byte> packed(static_cast<std::size_t>(plan_.prepared_weight_bytes()));
    PackOptions pack;
    pack.allow_nan_scales = allow_nan_scales;
    pack.threads = machine.is_large() ? 0 : 1;
    succeeds(pack_on_cpu(problem, source, packed, pack));
    weights_ = machine.allocate(plan_.prepared_weight_bytes());
    weights_->upload(packed.data(), weights_->bytes());
    scratch_ = machine.allocate(plan_.required_bytes() + kGuardBytes);
    scratch_->fill(kGuard);
    binding_.emplace(value_of(machine.engine().bind(plan_, value_of(machine.engine().adopt(weights_->data(), weights_->bytes())), scratch_->data(), plan_.required_bytes())));
    succeeds(machine.engine().init_scratch(*binding_, nullptr));
    machine.wait();
  }

  const Plan& plan() const { return plan_; }
  const Problem& problem() const { return plan_.problem; }
  const Binding& binding() const { return *binding_; }
  Machine& machine() const { return machine_; }

  /// Output bits [tokens][H]; the output held NaNs before.
  std::vector<u16> run(const MoeInputs& inputs) {
    const i64 width = problem().shape.hidden;
    const auto out = machine_.allocate(std::max<i64>(inputs.tokens, 1) * width * 2 + kGuardBytes);
    out->fill(0xff);
    succeeds(run_into(inputs, out->data(), 0));
    std::vector<u16> bits(static_cast<std::size_t>(inputs.tokens * width));
    out->download(bits.data(), static_cast<i64>(bits.size()) * 2);
    std::vector<u8> behind(static_cast<std::size_t>(kGuardBytes));
    out->download(behind.data(), kGuardBytes, out->bytes() - kGuardBytes);
    REQUIRE(std::all_of(behind.begin(), behind.end(), [](u8 byte) { return byte == 0xff; }));
    return bits;
  }

  /// Runs and waits; nothing is checked but that the scratch's guard is whole.
  Status run_into(const MoeInputs& made, void* out, i64 out_row_stride_elems) {
    const Shape& shape = problem().shape;
    const MoeInputs in = dense(problem(), made);
    const auto upload = [&](const void* from, i64 row_elems, i64 stride_elems, i64 elem_bytes) {
      const i64 bytes = in.tokens == 0 ? 0 : ((in.tokens - 1) * stride_elems + row_elems) * elem_bytes;
      auto buffer = machine_.allocate(std::max<i64>(bytes, 16));
      if (bytes > 0) buffer->upload(from, bytes);
      return buffer;
    };
    const auto x = upload(in.x, shape.hidden, in.x_row_stride_elems, 2);
    const auto ids = upload(in.ids, shape.topk, in.ids_row_stride_elems, id_type_bytes(in.id_type));
    const auto router = upload(in.router_weights, shape.topk, in.router_row_stride_elems, dtype_bytes(in.router_dtype));
    RunArgs args;
    args.tokens = in.tokens;
    args.x = x->data();
    args.x_row_stride_elems = in.x_row_stride_elems;
    args.ids = ids->data();
    args.id_type = in.id_type;
    args.ids_row_stride_elems = in.ids_row_stride_elems;
    args.router_weights = router->data();
    args.router_dtype = in.router_dtype;
    args.router_row_stride_elems = in.router_row_stride_elems;
    args.out = out;
    args.out_row_stride_elems = out_row_stride_elems;
    const Status status = machine_.engine().run(*binding_, nullptr, args);
    machine_.wait();
    REQUIRE(value_of(machine_.engine().status(*binding_)).ok());
    std::vector<u8> guard(static_cast<std::size_t>(kGuardBytes));
    scratch_->download(guard.data(), kGuardBytes, plan_.required_bytes());
    REQUIRE(std::all_of(guard.begin(), guard.end(), [](u8 byte) { return byte == kGuard; }));
    return status;
  }

  /// Fills the payload of the scratch.
  void poison(const std::vector<u8>& payload) { scratch_->upload(payload.data(), static_cast<i64>(payload.size()), kControlBytes); }
  i64 payload_bytes() const { return plan_.required_bytes() - kControlBytes; }

  /// Fails the test unless the output keeps the numerics contract against fp64.
  void require_right(const MoeInputs& made, const std::vector<u16>& out) const {
    const MoeInputs in = dense(problem(), made);
    ReferenceOptions options;
    options.threads = 0;
    std::vector<double> exact(out.size());
    succeeds(reference_fp64(problem(), source_, in, exact, options));
    options.rounds_route_rows = !plan_.bucket_for(in.tokens).direct;
    std::vector<u16> mirror(out.size());
    succeeds(reference_mirror(problem(), source_, in, mirror, options));
    const i64 width = problem().shape.hidden;
    const ContractVerdict verdict = check_contract(problem(), compare_outputs(problem().dtype, out, exact, width), compare_outputs(problem().dtype, mirror, exact, width));
    INFO(problem().name << ", m " << in.tokens << ": " << verdict.reason);
    REQUIRE(verdict.holds);
  }

  std::vector<u16> run_right(const MoeInputs& inputs) {
    std::vector<u16> out = run(inputs);
    require_right(inputs, out);
    return out;
  }

 private:
  Status build_status() {
    const auto built = machine_.engine().build(plan_);
    return built ? Status() : Status(built.error());
  }

  Machine& machine_;
  SourceWeights source_;
  Plan plan_;
  std::unique_ptr<MachineBuffer> weights_, scratch_;
  std::optional<Binding> binding_;
};

/// Where a source's bytes may be changed: make_layer's tensors lie in memory of the layer's own.
inline u8* bytes_of(SourceOperand& operand, std::size_t index = 0) { return const_cast<u8*>(static_cast<const u8*>(operand.at(index).data)); }

}  // namespace w4moe::test
