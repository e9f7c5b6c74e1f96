// validate() and the names: every limit is refused with the offending value and what is accepted.
#include <cmath>
#include <limits>
#include <string>

#include "tests/support/catch.hpp"
#include "w4moe/problem.hpp"

namespace w4moe {
namespace {

Problem good() {
  Problem p;
  p.shape = Shape{512, 256, 8, 2, 64};
  return p;
}

/// The message of the refusal, or "accepted".
std::string verdict(const Problem& p) {
  const Status s = validate(p);
  return s ? "accepted" : s.error().message;
}

ErrorCode code_of(const Problem& p) { return validate(p).error().code; }

Problem with_widths(i64 hidden, i64 intermediate, const std::string& format) {
  Problem p = good();
  p.shape.hidden = hidden;
  p.shape.intermediate = intermediate;
  p.format = *parse_format(format);
  return p;
}

}  // namespace

TEST_CASE("problem: limits name the value and the accepted range") {
  struct Row {
    i64 Shape::*field;
    i64 value;
    ErrorCode code;
    std::string message;
  };
  const i64 huge = std::numeric_limits<i64>::max();
  const Row rows[] = {
      {&Shape::hidden, 0, ErrorCode::invalid_argument, "hidden 0: must be at least 1 (accepted: 1..65536)"},
      {&Shape::hidden, -8, ErrorCode::invalid_argument, "hidden -8: must be at least 1 (accepted: 1..65536)"},
      {&Shape::hidden, 65568, ErrorCode::unsupported, "hidden 65568: above the stated maximum 65536 (accepted: 1..65536)"},
      {&Shape::intermediate, 0, ErrorCode::invalid_argument, "intermediate 0: must be at least 1 (accepted: 1..262144)"},
      {&Shape::intermediate, huge, ErrorCode::unsupported,
       "intermediate 9223372036854775807: above the stated maximum 262144 (accepted: 1..262144)"},
      {&Shape::experts, 0, ErrorCode::invalid_argument, "experts 0: must be at least 1 (accepted: 1..4096)"},
      {&Shape::experts, 4097, ErrorCode::unsupported, "experts 4097: above the stated maximum 4096 (accepted: 1..4096)"},
      {&Shape::topk, 0, ErrorCode::invalid_argument, "topk 0: must be at least 1 (accepted: 1..32)"},
      {&Shape::topk, 33, ErrorCode::unsupported, "topk 33: above the stated maximum 32 (accepted: 1..32)"},
      {&Shape::max_tokens, -1, ErrorCode::invalid_argument, "max_tokens -1: must be at least 0 (accepted: 0..16777216)"},
      {&Shape::max_tokens, 16777217, ErrorCode::unsupported,
       "max_tokens 16777217: above the stated maximum 16777216 (accepted: 0..16777216)"},
  };
  for (const Row& row : rows) {
    Problem p = good();
    p.shape.*row.field = row.value;
    CHECK(verdict(p) == row.message);
    CHECK(code_of(p) == row.code);
  }
}

TEST_CASE("problem: the edges of every range are accepted") {
  CHECK(verdict(good()) == "accepted");
  for (const i64 topk : {1, 8, 32}) {  // more routes than experts: a router may repeat an id
    Problem p = good();
    p.shape.topk = topk;
    p.shape.experts = 1;
    CHECK(verdict(p) == "accepted");
  }
  Problem p = good();
  p.shape.max_tokens = 0;
  CHECK(verdict(p) == "accepted");
  p.shape = Shape{kMaxHidden, kMaxIntermediate, kMaxExperts, kMaxTopk, kMaxTokens};
  CHECK(verdict(p) == "accepted");
}

TEST_CASE("N31: experts around powers of two are accepted up to the stated maximum") {
  for (const i64 experts : {1, 2, 127, 128, 129, 384, 511, 512, 513, 1023, 1024, 1025, 4096}) {
    Problem p = good();
    p.shape.experts = experts;
    p.shape.topk = experts < 8 ? experts : 8;
    CHECK(verdict(p) == "accepted");
  }
}

TEST_CASE("N03: 80 per rank is whole groups for NVFP4, MXFP4 is refused with its group named") {
  CHECK(verdict(with_widths(4096, 80, "nvfp4")) == "accepted");
  Problem p = with_widths(4096, 80, "mxfp4");
  CHECK(verdict(p) ==
        "intermediate 80: MXFP4 group 32 does not divide 80 (accepted: multiples of 32, or --compact-tail for multiples of 8)");
  CHECK(code_of(p) == ErrorCode::unsupported);
  p.compact_tail = true;
  CHECK(verdict(p) == "accepted");
  p.shape.intermediate = 84;
  CHECK(verdict(p) == "intermediate 84: rows move in vectors of 8 elements (accepted: multiples of 8)");
  p = with_widths(80, 256, "mxfp4");
  p.compact_tail = true;  // the flag is for the intermediate width only
  CHECK(verdict(p) == "hidden 80: MXFP4 group 32 does not divide 80 (accepted: multiples of 32)");
}

TEST_CASE("N04: one verdict per shard and format, gated or not") {
  struct Row {
    i64 intermediate;
    std::string format;
    bool accepted;
  };
  const Row rows[] = {
      {928, "mxfp4", true},      {464, "mxfp4", false},     {232, "mxfp4", false},     {928, "nvfp4", true},
      {464, "nvfp4", true},      {232, "nvfp4", false},     {928, "int4:g32", true},   {464, "int4:g32", false},
      {232, "int4:g32", false},  {928, "int4:g128", false}, {464, "int4:g128", false}, {232, "int4:g128", false},
      {232, "int4:row", true},   {704, "int4:g64", true},   {704, "int4:g128", false}, {1408, "int4:g128", true},
      {224, "mxfp4:wide", true}, {352, "mxfp4", true},      {176, "nvfp4", true},      {720, "nvfp4", true},
  };
  for (const Row& row : rows) {
    for (const Activation a : {Activation::silu, Activation::relu2}) {
      Problem p = with_widths(2048, row.intermediate, row.format);
      p.activation = a;
      INFO(row.intermediate << " " << row.format << ": " << verdict(p));
      CHECK(validate(p).ok() == row.accepted);
    }
  }
  CHECK(verdict(with_widths(2048, 232, "nvfp4")) ==
        "intermediate 232: NVFP4 group 16 does not divide 232 (accepted: multiples of 16)");
}

TEST_CASE("N25: INT4 group sizes that no kernel steps by are refused by name") {
  Problem p = good();
  p.format = QuantFormat{CodeType::u4, ScaleType::bf16, 16, false, false};
  CHECK(verdict(p) == "format int4: group 16 is not served (accepted: 32, 64, 128, or the whole row)");
  CHECK(parse_format("int4:g16").error().message ==
        "format 'int4:g16': INT4 group 'g16' is not served (accepted: g32, g64, g128, row)");
  CHECK(verdict(with_widths(2048, 704, "int4:g128")) ==
        "intermediate 704: INT4 group 128 does not divide 704 (accepted: multiples of 128)");
}

TEST_CASE("problem: formats that contradict themselves are refused") {
  const auto refuse = [](QuantFormat f) {
    Problem p = good();
    p.format = f;
    return verdict(p);
  };
  CHECK(refuse({CodeType::e2m1, ScaleType::bf16, 32, false, false}) ==
        "format: e2m1 codes go with e8m0 scales (mxfp4) or e4m3 scales (nvfp4), not with 16-bit scales");
  CHECK(refuse({CodeType::u4, ScaleType::e8m0, 32, false, false}) == "format: INT4 scales are bf16 or f16, not 8-bit");
  CHECK(refuse({CodeType::e2m1, ScaleType::e8m0, 16, false, false}) ==
        "format mxfp4: group 16 is not served (accepted: 32)");
  CHECK(refuse({CodeType::e2m1, ScaleType::e4m3, 32, false, false}) ==
        "format nvfp4: group 32 is not served (accepted: 16)");
  CHECK(refuse({CodeType::e2m1, ScaleType::e4m3, 16, true, false}) == "format nvfp4: zero points are for int4 only");
  CHECK(refuse({CodeType::e2m1, ScaleType::e4m3, 16, false, true}) == "format nvfp4: wide_exponent is for mxfp4 only");
  Problem p = with_widths(512, 256, "nvfp4");
  p.compact_tail = true;
  CHECK(verdict(p) == "compact_tail: is for mxfp4 only, not for nvfp4");
  p = good();
  p.dtype = DType::f32;
  CHECK(verdict(p) == "dtype f32: activations are bf16 or f16");
}

TEST_CASE("N16 N17: a parameter that the activation would ignore is an error") {
  for (int i = 0; i < kActivationCount; ++i) {
    const Activation a = static_cast<Activation>(i);
    Problem p = good();
    p.activation = a;
    p.params = default_params(a);
    CHECK(verdict(p) == "accepted");
    const bool oai = a == Activation::swiglu_oai;
    p.params.alpha = 1.5f;
    CHECK(validate(p).ok() == oai);
    p.params = default_params(a);
    p.params.beta = 0.5f;
    CHECK(validate(p).ok() == oai);
    p.params = default_params(a);
    p.params.has_limit = 1;
    p.params.limit = 10.0f;
    CHECK(validate(p).ok() == (oai || a == Activation::silu));
    p.params.has_limit = 0;  // --limit none
    CHECK(verdict(p) == "accepted");
  }
  Problem p = good();
  p.activation = Activation::relu2;
  p.params.has_limit = 1;
  p.params.limit = 7.0f;
  CHECK(verdict(p) == "limit 7: relu2 has no limit (only silu and swiglu-oai have)");
  p.params = {};
  p.params.alpha = 1.702f;
  CHECK(verdict(p) == "alpha 1.702: relu2 has no alpha (only swiglu-oai has)");
}

TEST_CASE("problem: activation parameters must be finite, a limit above zero") {
  Problem p = good();
  p.activation = Activation::swiglu_oai;
  for (const float bad : {0.0f, -1.0f, INFINITY, NAN}) {
    p.params = default_params(p.activation);
    p.params.limit = bad;
    CHECK_FALSE(validate(p).ok());
  }
  for (const float bad : {INFINITY, -INFINITY, NAN}) {
    p.params = default_params(p.activation);
    p.params.alpha = bad;
    CHECK_FALSE(validate(p).ok());
    p.params = default_params(p.activation);
    p.params.beta = bad;
    CHECK_FALSE(validate(p).ok());
  }
  p.params = default_params(p.activation);
  p.params.has_limit = 2;
  CHECK(verdict(p) == "has_limit 2: must be 0 or 1");
  p.params.has_limit = 1;
  p.activation = static_cast<Activation>(200);
  CHECK(verdict(p) == "activation 200: unknown value (accepted: 0..7)");
}

TEST_CASE("names: every value has one spelling, and it reads back") {
  for (int i = 0; i < kActivationCount; ++i) {
    const Activation a = static_cast<Activation>(i);
    CHECK(*parse_activation(to_string(a)) == a);
  }
  for (const std::string text : {"mxfp4", "mxfp4:wide", "nvfp4", "int4:g32", "int4:g64", "int4:g128", "int4:row", "int4:g32:zp",
                                 "int4:row:zp", "int4:g128:f16", "int4:g64:zp:f16"}) {
    const Result<QuantFormat> f = parse_format(text);
    REQUIRE(f.ok());
    CHECK(to_string(*f) == text);
    Problem p = good();
    p.format = *f;
    CHECK(verdict(p) == "accepted");
  }
  CHECK(*parse_format("int4:g64:f16:zp") == *parse_format("int4:g64:zp:f16"));
  for (const DType t : {DType::bf16, DType::f16, DType::f32}) CHECK(*parse_dtype(to_string(t)) == t);
}

TEST_CASE("names: unknown spellings are errors that list the known") {
  CHECK(parse_activation("swiglu").error().message ==
        "activation 'swiglu' is unknown (accepted: silu, swiglu-oai, geglu-tanh, geglu-erf, situ, relu2, silu-ungated, "
        "gelu-ungated)");
  for (const char* text : {"", "MXFP4", "mxfp4:zp", "mxfp8", "int4", "int4:", "int4:g32:", "int4:g32:zp:zp", "int4:g32:x",
                           "int4:g32::zp", "int4:g032", "nvfp4:wide", "int4:g-32", "int8:g32"}) {
    INFO(text);
    CHECK_FALSE(parse_format(text).ok());
  }
  CHECK(parse_format("int4:g32:zp:zp").error().message ==
        "format 'int4:g32:zp:zp': option 'zp' is unknown or repeated (accepted: zp, f16, each once)");
  CHECK_FALSE(parse_dtype("float16").ok());
}

}  // namespace w4moe
