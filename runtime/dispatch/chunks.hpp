// Runs under a scratch cap are cut into chunks of tokens: one launch sequence each, all in the same scratch.
#pragma once

#include "w4moe/plan.hpp"
#include "w4moe/run_args.hpp"

namespace w4moe {

/// The part of a run that starts at token `first`: at most chunk_tokens tokens, pointers moved to their rows.
RunArgs chunk_of(const Plan& plan, const RunArgs& args, i64 first);

/// Calls `step(bucket, chunk_args)` for every chunk of a run, until one fails.
template <class Step>
Status for_each_chunk(const Plan& plan, const RunArgs& args, Step&& step) {
  for (i64 first = 0; first < args.tokens; first += plan.chunk_tokens) {
    const RunArgs chunk = chunk_of(plan, args, first);
    if (Status s = step(plan.bucket_for(chunk.tokens), chunk); !s) return s;
  }
  return {};
}

}  // namespace w4moe
