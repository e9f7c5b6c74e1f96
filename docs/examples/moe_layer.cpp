// A layer from weights to output on a GPU. Exits with 77 where there is none.
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "w4moe/engine.hpp"
#include "w4moe/weights.hpp"

// Stand-ins for what an engine has of its own: device memory, a context, and a checkpoint's tensors.
#include "runtime/driver/device_memory.hpp"
#include "runtime/reference/synthetic.hpp"

namespace {

template <class T>
T must(w4moe::Result<T> result) {
  if (!result) {
    std::fprintf(stderr, "%s\n", result.error().message.c_str());
    std::exit(1);
  }
  return std::move(*result);
}
void must(const w4moe::Status& status) {
  if (status) return;
  std::fprintf(stderr, "%s\n", status.error().message.c_str());
  std::exit(1);
}

}  // namespace

int main() {
  const auto driver = w4moe::driver::system_driver();
  auto context = driver ? w4moe::driver::PrimaryContext::open(**driver, 0) : driver.error();  // cudaSetDevice(0)
  if (!context) {
    std::fprintf(stderr, "skipped: %s\n", context.error().message.c_str());
    return 77;
  }
  const auto allocate = [&](w4moe::i64 bytes) { return must(w4moe::driver::DeviceBuffer::allocate(**driver, bytes)); };  // cudaMalloc

  // 1. Plan for the device that this thread uses, then build: kernels come from the cache or are compiled, and are loaded.
  w4moe::Engine engine = must(w4moe::Engine::create());
  w4moe::Problem problem;
  problem.shape = {/*hidden=*/512, /*intermediate=*/256, /*experts=*/16, /*topk=*/4, /*max_tokens=*/64};
  problem.format = w4moe::kNvfp4;
  const w4moe::Plan plan = must(w4moe::make_plan(problem, must(engine.device())));
  must(engine.build(plan));

  // 2. Pack the checkpoint's tensors into the layout that every kernel reads, once, and hand them to the engine.
  const w4moe::SyntheticLayer checkpoint = w4moe::make_layer(problem);
  std::vector<std::byte> packed(static_cast<std::size_t>(plan.prepared_weight_bytes()));
  must(w4moe::pack_on_cpu(problem, checkpoint.source, packed));
  const auto weights_memory = allocate(plan.prepared_weight_bytes());
  must(weights_memory.upload(packed.data(), weights_memory.bytes()));
  const w4moe::PreparedWeights weights = must(engine.adopt(weights_memory.data(), weights_memory.bytes()));

  // 3. Bind plan, weights and scratch. All layers of a model may share one scratch on one stream.
  const auto scratch = allocate(plan.required_bytes());
  const w4moe::Binding layer = must(engine.bind(plan, weights, scratch.data(), scratch.bytes()));
  const auto stream = must(w4moe::driver::OwnedStream::create(**driver));
  must(engine.init_scratch(layer, stream.handle()));

  // 4. Run, as often as there are tokens. This call allocates nothing and waits for nothing; it may be captured into a graph.
  const w4moe::i64 tokens = 5;
  const w4moe::SyntheticInputs inputs = w4moe::make_inputs(problem, tokens);
  const auto x = allocate(tokens * 512 * 2), ids = allocate(tokens * 4 * 4), router = allocate(tokens * 4 * 4), out = allocate(tokens * 512 * 2);
  must(x.upload(inputs.x.data(), x.bytes()));
  must(ids.upload(inputs.ids.data(), ids.bytes()));
  must(router.upload(inputs.weights.data(), router.bytes()));

  w4moe::RunArgs args;
  args.tokens = tokens;
  args.x = x.data();
  args.ids = ids.data();
  args.router_weights = router.data();
  args.out = out.data();
  must(engine.run(layer, stream.handle(), args));
  must(stream.synchronize());

  const w4moe::BindingStatus status = must(engine.status(layer));
  std::printf("ran %lld tokens: %s\n", tokens, status.text.c_str());
  return status.ok() ? 0 : 1;
}
