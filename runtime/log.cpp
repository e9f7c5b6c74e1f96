#include "runtime/log.hpp"

#include <spdlog/logger.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <exception>

namespace w4moe {

// A logger of its own, outside spdlog's registry: the program that embeds us may use that for itself.
struct Logger::Sink {
  explicit Sink(spdlog::sink_ptr to) : logger("w4moe", std::move(to)) {}
  spdlog::logger logger;
};

namespace {

spdlog::level::level_enum level_of(LogLevel level) {
  switch (level) {
    case LogLevel::debug: return spdlog::level::debug;
    case LogLevel::info: return spdlog::level::info;
    case LogLevel::warning: return spdlog::level::warn;
  }
  return spdlog::level::warn;
}

}  // namespace

Logger::Logger(LogFn callback, const LogSettings& settings) : callback_(std::move(callback)) {
  if (!settings.enabled) return;
  try {
    spdlog::sink_ptr sink;
    if (settings.file.empty()) {
      sink = std::make_shared<spdlog::sinks::stderr_sink_mt>();
    } else {
      sink = std::make_shared<spdlog::sinks::basic_file_sink_mt>(settings.file);
    }
    sink_ = std::make_shared<Sink>(std::move(sink));
    sink_->logger.set_level(level_of(settings.level));
    sink_->logger.flush_on(spdlog::level::debug);
  } catch (const std::exception& e) {
    sink_.reset();
    warning(std::string("W4MOE_LOG: ") + e.what());
  }
}

void Logger::write(LogLevel level, const std::string& message) const {
  if (callback_) callback_(level, message);
  if (sink_) sink_->logger.log(level_of(level), spdlog::string_view_t(message));
}

}  // namespace w4moe
