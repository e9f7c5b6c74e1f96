// The command line as data, read from the parser: what completions and the man page are made of.
#pragma once

#include <string>
#include <vector>

namespace w4moe::cli {

struct HelpOption {
  std::vector<std::string> names;    ///< "-j", "--jobs"; for an argument without a dash its name alone
  bool positional = false;
  bool takes_value = false;
  std::string value_name;            ///< "FILE", "FOLDER", "ARCH", "NUMBER", ...
  std::vector<std::string> choices;  ///< values to offer; empty: free text, or a path
  std::string help;
  std::string group;

  bool is_path() const { return value_name == "FILE" || value_name == "FOLDER"; }
};

struct HelpVerb {
  std::string name;
  std::string help;
  std::string footer;
  std::vector<HelpOption> options;
  std::vector<HelpVerb> verbs;
};

/// The whole program; `name` is "w4moe".
HelpVerb help_tree();

std::string bash_completion(const HelpVerb& program);
std::string zsh_completion(const HelpVerb& program);
std::string fish_completion(const HelpVerb& program);
/// Section 1, in troff with the man macros.
std::string man_page(const HelpVerb& program, const std::string& version);

}  // namespace w4moe::cli
