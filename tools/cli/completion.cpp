#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tools/cli/help_tree.hpp"

namespace w4moe::cli {
namespace {

/// Calls visit(path, verb) for the program and every verb below it: "", "plan", "cache", "cache list".
template <class Visit>
void for_each_verb(const HelpVerb& verb, const std::string& path, const Visit& visit) {
  visit(path, verb);
  for (const HelpVerb& below : verb.verbs) for_each_verb(below, path.empty() ? below.name : path + " " + below.name, visit);
}

std::string single_quoted(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

std::vector<std::string> words_of(const HelpVerb& verb) {
  std::vector<std::string> words;
  for (const HelpVerb& below : verb.verbs) words.push_back(below.name);
  for (const HelpOption& option : verb.options) {
    if (option.positional) {
      words.insert(words.end(), option.choices.begin(), option.choices.end());
    } else {
      words.insert(words.end(), option.names.begin(), option.names.end());
    }
  }
  return words;
}

/// In zsh's _arguments, brackets and colons end a description.
std::string zsh_text(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

std::string zsh_value(const HelpOption& option) {
  if (option.value_name == "FOLDER") return ":folder:_files -/";
  if (option.value_name == "FILE") return ":file:_files";
  const std::string name = zsh_text(option.value_name.empty() ? "value" : option.value_name);
  return option.choices.empty() ? fmt::format(":{}: ", name) : fmt::format(":{}:({})", name, fmt::join(option.choices, " "));
}

std::string zsh_arguments(const HelpVerb& verb, const char* indent) {
  std::string text;
  int place = 0;
  for (const HelpOption& option : verb.options) {
    if (option.positional) {
      text += fmt::format(" \\\n{}{}", indent, single_quoted(fmt::format("{}{}", ++place, zsh_value(option))));
      continue;
    }
    for (const std::string& name : option.names) {
      text += fmt::format(" \\\n{}{}", indent, single_quoted(fmt::format("*{}[{}]{}", name, zsh_text(option.help), option.takes_value ? zsh_value(option) : "")));
    }
  }
  return text;
}

}  // namespace

std::string bash_completion(const HelpVerb& program) {
  std::string verbs, values, words;
  for_each_verb(program, "", [&](const std::string& path, const HelpVerb& verb) {
    for (const HelpVerb& below : verb.verbs) verbs += fmt::format("      {}) path={} ;;\n", single_quoted(path + "|" + below.name), single_quoted(path.empty() ? below.name : path + " " + below.name));
    bool paths = false;
    for (const HelpOption& option : verb.options) {
      paths = paths || (option.positional && option.is_path());
      if (option.positional || !option.takes_value) continue;
      std::string patterns;
      for (const std::string& name : option.names) patterns += (patterns.empty() ? "" : "|") + single_quoted(path + "|" + name);
      const std::string action = option.value_name == "FOLDER" ? "compgen -d -- \"$cur\""
                                 : option.value_name == "FILE" ? "compgen -f -- \"$cur\""
                                                               : fmt::format("compgen -W {} -- \"$cur\"", single_quoted(fmt::format("{}", fmt::join(option.choices, " "))));
      values += fmt::format("    {}) COMPREPLY=($({})); return ;;\n", patterns, action);
    }
    words += fmt::format("    {}) COMPREPLY=($(compgen -W {} -- \"$cur\"){}) ;;\n", single_quoted(path), single_quoted(fmt::format("{}", fmt::join(words_of(verb), " "))),
                         paths ? " $(compgen -f -- \"$cur\")" : "");
  });
  return "# bash completion for w4moe; made by 'w4moe completion bash'.\n"
         "_w4moe() {\n"
         "  local IFS=$' \\n' cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} path= i\n"
         "  # --flag=value comes as three words.\n"
         "  if [[ $cur == = ]]; then cur=; elif [[ $prev == = ]]; then prev=${COMP_WORDS[COMP_CWORD-2]}; fi\n"
         "  COMPREPLY=()\n"
         "  for ((i = 1; i < COMP_CWORD; i++)); do\n"
         "    case \"$path|${COMP_WORDS[i]}\" in\n" +
         verbs +
         "    esac\n"
         "  done\n"
         "  case \"$path|$prev\" in\n" +
         values +
         "  esac\n"
         "  case $path in\n" +
         words +
         "  esac\n"
         "}\n"
         "complete -F _w4moe w4moe\n";
}

std::string zsh_completion(const HelpVerb& program) {
  std::string functions;
  for_each_verb(program, "", [&](const std::string& path, const HelpVerb& verb) {
    std::string name = "_w4moe";
    for (const char c : path.empty() ? std::string() : " " + path) name += c == ' ' ? '_' : c;
    if (verb.verbs.empty()) {
      functions += fmt::format("{}() {{\n  _arguments -S{}\n}}\n\n", name, zsh_arguments(verb, "    "));
      return;
    }
    std::string rows, cases;
    for (const HelpVerb& below : verb.verbs) {
      rows += fmt::format("        {}\n", single_quoted(below.name + ":" + below.help));
      cases += fmt::format("        {0}) {1}_{0} ;;\n", below.name, name);
    }
    functions += fmt::format(
        "{}() {{\n"
        "  local curcontext=\"$curcontext\" state line\n"
        "  _arguments -C{} \\\n    '1:verb:->verb' '*::argument:->rest'\n"
        "  case $state in\n"
        "    verb)\n      local -a verbs=(\n{}      )\n      _describe verb verbs\n      ;;\n"
        "    rest)\n      case $line[1] in\n{}      esac\n      ;;\n"
        "  esac\n}}\n\n",
        name, zsh_arguments(verb, "    "), rows, cases);
  });
  return "#compdef w4moe\n# zsh completion for w4moe; made by 'w4moe completion zsh'.\n\n" + functions + "_w4moe \"$@\"\n";
}

std::string fish_completion(const HelpVerb& program) {
  std::string text = "# fish completion for w4moe; made by 'w4moe completion fish'.\ncomplete -c w4moe -f\n";
  for_each_verb(program, "", [&](const std::string& path, const HelpVerb& verb) {
    std::string here = "__fish_use_subcommand";
    if (!path.empty()) {
      here.clear();
      for (std::size_t begin = 0; begin < path.size();) {  // "cache list": both words are on the line
        const std::size_t end = std::min(path.find(' ', begin), path.size());
        here += fmt::format("{}__fish_seen_subcommand_from {}", here.empty() ? "" : "; and ", path.substr(begin, end - begin));
        begin = end + 1;
      }
    }
    std::string names;
    for (const HelpVerb& below : verb.verbs) names += " " + below.name;
    for (const HelpVerb& below : verb.verbs) {
      const std::string condition = path.empty() ? here : fmt::format("{}; and not __fish_seen_subcommand_from{}", here, names);
      text += fmt::format("complete -c w4moe -n {} -a {} -d {}\n", single_quoted(condition), below.name, single_quoted(below.help));
    }
    for (const HelpOption& option : verb.options) {
      std::string line = fmt::format("complete -c w4moe -n {}", single_quoted(here));
      for (const std::string& name : option.names) {
        if (!option.positional) line += name.rfind("--", 0) == 0 ? " -l " + name.substr(2) : " -s " + name.substr(1);
      }
      if (option.is_path()) {
        line += option.positional ? " -F" : " -r -F";
      } else if (!option.positional && option.takes_value) {
        line += " -x";
      }
      if (option.positional && !option.is_path() && option.choices.empty()) continue;
      if (!option.choices.empty()) line += " -a " + single_quoted(fmt::format("{}", fmt::join(option.choices, " ")));
      text += line + " -d " + single_quoted(option.help) + "\n";
    }
  });
  return text;
}

}  // namespace w4moe::cli
