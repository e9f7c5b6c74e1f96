#include "generator/plan/costs/texts.hpp"

#include "generator/plan/costs/embedded.hpp"

namespace w4moe {

std::vector<std::string_view> cost_texts() {
  std::vector<std::string_view> texts;
  for (const render::EmbeddedFile& file : costs::embedded_files()) texts.push_back(file.text);
  return texts;
}

}  // namespace w4moe
