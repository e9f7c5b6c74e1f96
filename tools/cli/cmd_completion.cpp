#include <nlohmann/json.hpp>

#include "generator/problem/errors.hpp"
#include "tools/cli/commands.hpp"
#include "tools/cli/help_tree.hpp"

namespace w4moe::cli {
namespace {

void print(Console& console, const char* schema, const std::string& text) {
  if (!console.json()) return console.result(text);
  const nlohmann::ordered_json document = {{"schema", schema}, {"text", text}};
  console.result(document.dump(2) + "\n");
}

}  // namespace

Result<int> cmd_completion(const Options& options, Console& console) {
  const HelpVerb program = help_tree();
  const std::string& shell = options.shell;
  print(console, "w4moe.completion/1", shell == "bash" ? bash_completion(program) : shell == "zsh" ? zsh_completion(program) : fish_completion(program));
  return kDone;
}

Result<int> cmd_man(const Options&, Console& console) {
  print(console, "w4moe.man/1", man_page(help_tree(), W4MOE_VERSION));
  return kDone;
}

}  // namespace w4moe::cli
