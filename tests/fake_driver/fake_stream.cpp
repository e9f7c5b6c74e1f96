// Streams, captures, events and graphs.
#include "tests/fake_driver/fake_functions.hpp"
#include "tests/fake_driver/fake_table.hpp"

namespace w4moe::test {

Code FakeFunctions::stream_create(Stream* stream, unsigned flags) {
  FAKE_CALL(stream_create);
  if (current_state() == nullptr) return kInvalidContext;
  auto created = std::make_unique<StreamState>();
  created->context = current_state();
  created->blocking = (flags & kStreamNonBlocking) == 0;
  *stream = created.get();
  fake.streams_.emplace(*stream, std::move(created));
  return kSuccess;
}

Code FakeFunctions::stream_destroy(Stream stream) {
  FAKE_CALL(stream_destroy);
  return fake.streams_.erase(stream) == 1 ? kSuccess : kInvalidHandle;
}

Code FakeFunctions::stream_synchronize(Stream stream) {
  FAKE_CALL(stream_synchronize);
  StreamState* s = fake.stream_state(stream);
  if (s != nullptr && s->capture == CaptureStatus::active) {
    s->capture = CaptureStatus::invalidated;
    return kCaptureUnsupported;
  }
  return kSuccess;
}

Code FakeFunctions::stream_query(Stream) {
  FAKE_CALL(stream_query);
  return kSuccess;
}

Code FakeFunctions::stream_wait_event(Stream, Event, unsigned) {
  FAKE_CALL(stream_wait_event);
  return kSuccess;
}

Code FakeFunctions::stream_get_ctx(Stream stream, Context* context) {
  FAKE_CALL(stream_get_ctx);
  if (StreamState* s = fake.stream_state(stream)) {
    *context = reinterpret_cast<Context>(s->context);
    return kSuccess;
  }
  *context = FakeDriver::current();
  return *context == nullptr ? kInvalidContext : kSuccess;
}

Code FakeFunctions::stream_is_capturing(Stream stream, CaptureStatus* status) {
  FAKE_CALL(stream_is_capturing);
  *status = CaptureStatus::none;
  if (StreamState* s = fake.stream_state(stream)) {
    *status = s->capture;
    return kSuccess;
  }
  if (stream == kStreamPerThread) return kSuccess;
  for (const auto& [handle, s] : fake.streams_) {
    if (s->blocking && s->context == current_state() && s->capture != CaptureStatus::none) return kCaptureImplicit;
  }
  return kSuccess;
}

Code FakeFunctions::stream_begin_capture(Stream stream, CaptureMode mode) {
  FAKE_CALL(stream_begin_capture);
  StreamState* s = fake.stream_state(stream);
  if (s == nullptr || s->capture != CaptureStatus::none) return kCaptureUnsupported;
  s->capture = CaptureStatus::active;
  s->mode = mode;
  s->capturing_thread = this_thread();
  s->graph = std::make_unique<GraphState>();
  return kSuccess;
}

Code FakeFunctions::stream_end_capture(Stream stream, Graph* graph) {
  FAKE_CALL(stream_end_capture);
  StreamState* s = fake.stream_state(stream);
  if (s == nullptr || s->capture == CaptureStatus::none) return kInvalidValue;
  const bool valid = s->capture == CaptureStatus::active;
  s->capture = CaptureStatus::none;
  *graph = nullptr;
  if (!valid) return kCaptureInvalidated;
  GraphState* made = s->graph.get();
  fake.graphs_.emplace(made, std::move(s->graph));
  *graph = reinterpret_cast<Graph>(made);
  return kSuccess;
}

Code FakeFunctions::thread_exchange_stream_capture_mode(CaptureMode* mode) {
  FAKE_CALL(thread_exchange_stream_capture_mode);
  std::swap(*mode, thread_capture_mode);
  return kSuccess;
}

Code FakeFunctions::launch_host_func(Stream stream, void (*function)(void*), void* user) {
  FAKE_CALL(launch_host_func);
  return fake.enqueue(stream, [=] { function(user); });
}

Code FakeFunctions::event_create(Event* event, unsigned) {
  FAKE_CALL(event_create);
  *event = reinterpret_cast<Event>(new int);
  return kSuccess;
}

Code FakeFunctions::event_destroy(Event event) {
  FAKE_CALL(event_destroy);
  delete reinterpret_cast<int*>(event);
  return kSuccess;
}

Code FakeFunctions::event_record(Event, Stream) {
  FAKE_CALL(event_record);
  return kSuccess;
}

Code FakeFunctions::event_query(Event) {
  FAKE_CALL(event_query);
  return kSuccess;
}

Code FakeFunctions::event_synchronize(Event) {
  FAKE_CALL(event_synchronize);
  return kSuccess;
}

Code FakeFunctions::event_elapsed_time(float* milliseconds, Event, Event) {
  FAKE_CALL(event_elapsed_time);
  *milliseconds = 1;  // so that rates are finite
  return kSuccess;
}

// A graph and its executable are one object here.
Code FakeFunctions::graph_instantiate(GraphExec* exec, Graph graph, unsigned long long) {
  FAKE_CALL(graph_instantiate);
  *exec = reinterpret_cast<GraphExec>(graph);
  return kSuccess;
}

Code FakeFunctions::graph_launch(GraphExec exec, Stream) {
  FAKE_CALL(graph_launch);
  for (const auto& node : reinterpret_cast<GraphState*>(exec)->nodes) node();
  return kSuccess;
}

Code FakeFunctions::graph_get_nodes(Graph graph, GraphNode*, std::size_t* count) {
  FAKE_CALL(graph_get_nodes);
  *count = reinterpret_cast<GraphState*>(graph)->nodes.size();
  return kSuccess;
}

Code FakeFunctions::graph_destroy(Graph) {
  FAKE_CALL(graph_destroy);
  return kSuccess;
}

Code FakeFunctions::graph_exec_destroy(GraphExec) {
  FAKE_CALL(graph_exec_destroy);
  return kSuccess;
}

}  // namespace w4moe::test
