#include <fmt/format.h>

#include "runtime/config.hpp"
#include "tools/cli/help_tree.hpp"

namespace w4moe::cli {
namespace {

/// Text as troff takes it: no line of text may begin with a dot or a quote, and dashes are dashes.
std::string plain(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if ((c == '.' || c == '\'') && (out.empty() || out.back() == '\n')) out += "\\&";
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else {
      out += c;
    }
  }
  return out;
}

/// "Examples:" and the lines below it as they stand; the rest as text.
std::string footer_text(const std::string& footer) {
  const std::size_t examples = footer.find("Examples:");
  std::string text;
  if (examples != 0 && !footer.empty()) text += ".PP\n" + plain(footer.substr(0, examples)) + "\n";
  if (examples != std::string::npos) text += ".PP\nExamples:\n.PP\n.nf\n" + plain(footer.substr(footer.find('\n', examples) + 1)) + "\n.fi\n";
  return text;
}

std::string option_text(const HelpOption& option) {
  std::string names;
  for (const std::string& name : option.names) names += (names.empty() ? "\\fB" : ", \\fB") + plain(name) + "\\fR";
  if (option.takes_value && !option.positional) names += " \\fI" + plain(option.value_name) + "\\fR";
  std::string text = ".TP\n" + names + "\n" + plain(option.help) + "\n";
  if (!option.choices.empty()) {
    std::string choices;
    for (const std::string& choice : option.choices) choices += (choices.empty() ? "" : ", ") + choice;
    if (option.help.find(option.choices.front()) == std::string::npos) text += ".br\nOne of " + plain(choices) + ".\n";
  }
  return text;
}

void describe(const HelpVerb& verb, const std::string& path, std::string& text) {
  if (verb.verbs.empty()) {
    std::string arguments;
    for (const HelpOption& option : verb.options) {
      if (option.positional) arguments += " " + option.names.front();
    }
    text += fmt::format(".SS \"{}{}\"\n{}.\n", plain(path), plain(arguments), plain(verb.help));
    std::string group;
    for (const HelpOption& option : verb.options) {
      if (option.names.front() == "-h" || option.group == "Output") continue;  // the same everywhere
      if (option.group != group && option.group != "Options" && option.group != "Positionals") text += ".PP\n" + plain(option.group) + ":\n";
      group = option.group;
      text += option_text(option);
    }
  } else {
    text += fmt::format(".SS \"{}\"\n{}.\n", plain(path), plain(verb.help));
  }
  text += footer_text(verb.footer);
  for (const HelpVerb& below : verb.verbs) describe(below, path + " " + below.name, text);
}

}  // namespace

std::string man_page(const HelpVerb& program, const std::string& version) {
  std::string text = fmt::format(".TH W4MOE 1 \"\" \"w4moe {}\" \"User Commands\"\n", plain(version));
  text += ".SH NAME\nw4moe \\- fused mixture\\-of\\-experts kernels for 4\\-bit weights: plan, compile, run, keep\n";
  text += ".SH SYNOPSIS\n\\fBw4moe\\fR \\fIverb\\fR [\\fIoptions\\fR]\n.br\n\\fBw4moe\\fR \\fIverb\\fR \\fB\\-\\-help\\fR\n";
  text += ".SH DESCRIPTION\n" + plain(program.help) + ".\n";
  text += ".SH VERBS\n";
  for (const HelpVerb& verb : program.verbs) describe(verb, verb.name, text);
  text += ".SH OPTIONS OF EVERY VERB\n";
  for (const HelpOption& option : program.verbs.front().options) {
    if (option.group == "Output" || option.names.front() == "-h") text += option_text(option);
  }
  text += ".SH EXIT STATUS\n" + plain(program.footer) + "\n";
  text += ".SH ENVIRONMENT\nEach variable has a line of the same meaning in the configuration file.\n";
  const Result<Config> defaults = resolve_config({}, [](const char*) { return std::optional<std::string>(); });
  if (defaults) {
    for (const ConfigRow& row : defaults->rows) {
      text += fmt::format(".TP\n\\fB{}\\fR\n{}\n", plain(row.variable), row.name == "config" ? "The configuration file." : "Setting " + plain(row.name) + ".");
    }
  }
  text += ".TP\n\\fBNO_COLOR\\fR\nIf set and not empty, no colours.\n";
  text += ".SH FILES\n.TP\n$XDG_CONFIG_HOME/w4moe/config, ~/.config/w4moe/config\nThe configuration file: lines of the form key = value, and # comments.\n"
          ".TP\n$XDG_CACHE_HOME/w4moe, ~/.cache/w4moe\nThe kernel cache.\n";
  return text;
}

}  // namespace w4moe::cli
