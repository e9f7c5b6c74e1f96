#include "cache/memory_store.hpp"

#include <catch2/catch.hpp>

#include "support.hpp"

using namespace w4moe::cache;
using namespace w4moe::cache::test;

TEST_CASE("the memory store gives back what was put, and shares the payload") {
  MemoryStore store;
  const Entry entry = sample("a");
  CHECK_FALSE(store.get(entry.name()));
  store.put(entry);
  CHECK(store.get(entry.name())->payload == entry.payload);
  CHECK(store.list().size() == 1);
  CHECK(store.remove(entry.name()));
  CHECK_FALSE(store.remove(entry.name()));
  CHECK_FALSE(store.get(entry.name()));
}

TEST_CASE("without a builder the newest build is taken; with one, only that") {
  MemoryStore store;
  for (const char* builder : {"12.9.1", "12.10.2", "11.0.0"}) store.put(sample("a", 100, builder));
  CHECK(store.get(name_of("a", ""))->builder == "12.10.2");
  CHECK(store.get(name_of("a", "11.0.0"))->builder == "11.0.0");
  CHECK_FALSE(store.get(name_of("a", "12.9.2")));
  CHECK_FALSE(store.get(name_of("b", "")));
}

TEST_CASE("the memory store is bounded, and drops the least recently used") {
  const std::uint64_t each = sample("a").file_bytes();
  MemoryStore store(each * 2);
  store.put(sample("a"));
  store.put(sample("b"));
  CHECK(store.get(name_of("a")));
  store.put(sample("c"));
  CHECK(store.get(name_of("a")));
  CHECK_FALSE(store.get(name_of("b")));
  store.put(sample("c"));  // again: counted once
  CHECK(store.get(name_of("a")));
  store.put(sample("huge", 100000));
  CHECK(store.get(name_of("huge")));
  CHECK(store.list().size() == 1);
}
