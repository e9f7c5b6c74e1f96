#include "tools/cli/help_tree.hpp"

#include <CLI/CLI.hpp>

#include "generator/manifest/presets.hpp"
#include "tools/cli/parser.hpp"

namespace w4moe::cli {
namespace {

/// Values that are worth offering, by the name that an option's help gives its value.
std::vector<std::string> choices_of(const std::string& value_name) {
  if (value_name == "ARCH") return {"sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_103a", "sm_120a", "sm_121a"};
  if (value_name == "FORMAT") return {"mxfp4", "mxfp4:wide", "nvfp4", "int4:g32", "int4:g64", "int4:g128", "int4:row"};
  if (value_name == "ACTIVATION") return {"silu", "swiglu-oai", "geglu-tanh", "geglu-erf", "situ", "relu2", "silu-ungated", "gelu-ungated"};
  if (value_name == "DTYPE") return {"bf16", "f16"};
  if (value_name == "DEVICE") return {"cuda:0", "cpu", "lockstep"};
  if (value_name == "SHELL") return {"bash", "zsh", "fish"};
  if (value_name == "MODEL") {
    std::vector<std::string> names;
    for (const PresetInfo& info : presets()) names.push_back(info.name);
    return names;
  }
  return {};
}

HelpOption help_option(const CLI::Option& option) {
  HelpOption out;
  for (const std::string& name : option.get_snames()) out.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) out.names.push_back("--" + name);
  out.positional = out.names.empty();
  if (out.positional) out.names.push_back(option.get_name(true));
  out.takes_value = option.get_items_expected_max() > 0;
  // "SHELL:{bash,zsh,fish}": the checks of a value stand behind its name.
  const std::string type = out.takes_value ? option.get_type_name() : std::string();
  out.value_name = type.substr(0, type.find(':'));
  out.choices = choices_of(out.value_name);
  if (const std::size_t open = type.find('{'); open != std::string::npos && out.choices.empty()) {
    std::size_t begin = open + 1;
    while (begin < type.size()) {
      const std::size_t end = std::min(type.find_first_of(",}", begin), type.size());
      out.choices.push_back(type.substr(begin, end - begin));
      if (end == type.size() || type[end] == '}') break;
      begin = end + 1;
    }
  }
  out.help = option.get_description();
  out.group = option.get_group();
  return out;
}

HelpVerb help_verb(const CLI::App& app) {
  HelpVerb verb{app.get_name(), app.get_description(), app.get_footer(), {}, {}};
  for (const CLI::Option* option : app.get_options()) verb.options.push_back(help_option(*option));
  for (const CLI::App* below : app.get_subcommands([](const CLI::App*) { return true; })) verb.verbs.push_back(help_verb(*below));
  return verb;
}

}  // namespace

HelpVerb help_tree() {
  Options unused;
  CLI::App app;
  set_up(app, unused);
  return help_verb(app);
}

}  // namespace w4moe::cli
