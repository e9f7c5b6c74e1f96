// Owners of device things, for the tools and the tests. The Engine uses none of them: it allocates no device memory.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "runtime/driver/driver_api.hpp"

namespace w4moe::driver {

/// The primary context of a device, current on this thread for the life of the object.
class PrimaryContext {
 public:
  static Result<PrimaryContext> open(const DriverTable& table, int ordinal);
  PrimaryContext(PrimaryContext&& other) noexcept : table_(other.table_), device_(other.device_), context_(std::exchange(other.context_, nullptr)) {}
  ~PrimaryContext();

  Context handle() const { return context_; }
  Device device() const { return device_; }

 private:
  PrimaryContext(const DriverTable& table, Device device) : table_(&table), device_(device) {}
  const DriverTable* table_;
  Device device_ = 0;
  Context context_ = nullptr;
};

/// Device memory, aligned to 256 bytes at least.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  static Result<DeviceBuffer> allocate(const DriverTable& table, i64 bytes);
  DeviceBuffer(DeviceBuffer&& other) noexcept
      : table_(other.table_), pointer_(std::exchange(other.pointer_, 0)), bytes_(std::exchange(other.bytes_, 0)) {}
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept;
  ~DeviceBuffer();

  void* data() const { return reinterpret_cast<void*>(pointer_); }
  i64 bytes() const { return bytes_; }

  /// Synchronous; the range must lie inside the buffer.
  Status upload(const void* from, i64 bytes, i64 offset_bytes = 0) const;
  Status download(void* to, i64 bytes, i64 offset_bytes = 0) const;
  /// Fills all of it and waits.
  Status fill(u8 value) const;

 private:
  const DriverTable* table_ = nullptr;
  DevicePtr pointer_ = 0;
  i64 bytes_ = 0;
};

/// A stream of the current context that does not wait for the legacy default stream, unless asked to.
class OwnedStream {
 public:
  static Result<OwnedStream> create(const DriverTable& table, bool blocking = false);
  OwnedStream(OwnedStream&& other) noexcept : table_(other.table_), stream_(std::exchange(other.stream_, nullptr)) {}
  ~OwnedStream();

  Stream handle() const { return stream_; }
  Status synchronize() const;

 private:
  explicit OwnedStream(const DriverTable& table) : table_(&table) {}
  const DriverTable* table_;
  Stream stream_ = nullptr;
};

/// A captured and instantiated graph.
class OwnedGraph {
 public:
  /// Captures what `body` enqueues on the stream. An error of the body ends the capture and is returned.
  template <class Body>
  static Result<OwnedGraph> capture(const DriverTable& table, Stream stream, Body&& body, CaptureMode mode = CaptureMode::global);
  OwnedGraph(OwnedGraph&& other) noexcept
      : table_(other.table_), graph_(std::exchange(other.graph_, nullptr)), exec_(std::exchange(other.exec_, nullptr)) {}
  ~OwnedGraph();

  Status launch(Stream stream) const;
  Result<std::size_t> node_count() const;

 private:
  explicit OwnedGraph(const DriverTable& table) : table_(&table) {}
  static Result<OwnedGraph> end_capture(const DriverTable& table, Stream stream, const Status& body);
  const DriverTable* table_;
  Graph graph_ = nullptr;
  GraphExec exec_ = nullptr;
};

template <class Body>
Result<OwnedGraph> OwnedGraph::capture(const DriverTable& table, Stream stream, Body&& body, CaptureMode mode) {
  if (Status s = check(table, table.stream_begin_capture(stream, mode), "cuStreamBeginCapture"); !s) return s.error();
  const Status status = body();
  return end_capture(table, stream, status);
}

/// An event, for ordering and timing.
class OwnedEvent {
 public:
  static Result<OwnedEvent> create(const DriverTable& table, bool timing = true);
  OwnedEvent(OwnedEvent&& other) noexcept : table_(other.table_), event_(std::exchange(other.event_, nullptr)) {}
  ~OwnedEvent();

  Event handle() const { return event_; }
  Status record(Stream stream) const;
  Status synchronize() const;
  /// Milliseconds from `start` to this one; both have happened.
  Result<float> since(const OwnedEvent& start) const;

 private:
  explicit OwnedEvent(const DriverTable& table) : table_(&table) {}
  const DriverTable* table_;
  Event event_ = nullptr;
};

}  // namespace w4moe::driver
