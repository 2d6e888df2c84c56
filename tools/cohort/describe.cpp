// cohort describe: every flag of every command and every key of a configuration, as JSON. A flag is described where it
// is added to the command line, a key by its struct; scripts/option-tables makes the tables of the documentation and
// the page of manual of them. With --names it prints the commands, or the flags of one, a line each, for completion:
// the form of --help differs between versions of CLI11.
#include <iostream>
#include <nlohmann/json.hpp>

#include "cohort/models/experiment.h"
#include "commands.h"
#include "config/types.h"
#include "models/experiment_group.h"

namespace cohort::cli {

namespace {

// Returns a flag's meaning without the names of a table, which have a page of their own in the documentation.
std::string meaning_of(const CLI::Option& option, const Config& config) {
  std::string meaning = option.get_description();
  for (const ConfigFields::Field& field : config.fields()) {
    if (field.names.empty() || !option.check_name(field.flag)) continue;
    const std::size_t at = meaning.find(": " + field.names);
    if (at != std::string::npos) meaning.erase(at, 2 + field.names.size());
  }
  return meaning;
}

nlohmann::ordered_json flags_of(const CLI::App& command, const Config& config) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const CLI::Option* option : command.get_options()) {
    if (option == command.get_help_ptr()) continue;
    nlohmann::ordered_json names = nlohmann::ordered_json::array();
    for (const std::string& name : option->get_snames()) names.push_back("-" + name);
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    if (names.empty()) names.push_back(option->get_name());
    list.push_back(
        {{"names", names}, {"default", option->get_default_str()}, {"meaning", meaning_of(*option, config)}});
  }
  return list;
}

nlohmann::ordered_json keys_of(const Config& config) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const ConfigFields::Field& field : config.fields()) {
    list.push_back({{"path", field.path},
                    {"type", type_name(field.target)},
                    {"default", field.default_value},
                    {"meaning", field.help},
                    {"choices", field.choices},
                    {"bounds", field.bounds},
                    {"flag", field.flag}});
  }
  return list;
}

std::vector<const CLI::App*> commands_of(const CLI::App& whole) {
  return whole.get_subcommands([](const CLI::App* each) { return !each->get_group().empty(); });
}

void print_names(const CLI::App& whole, const std::string& of) {
  for (const CLI::App* command : commands_of(whole)) {
    if (of.empty()) std::cout << command->get_name() << "\n";
    if (command->get_name() != of) continue;
    for (const CLI::Option* option : command->get_options()) {
      for (const std::string& name : option->get_lnames()) std::cout << "--" << name << "\n";
    }
  }
}

}  // namespace

Command add_describe(CLI::App& app, const CLI::App& whole) {
  const auto only_names = std::make_shared<bool>(false);
  const auto of = std::make_shared<std::string>();
  app.add_flag("--names", *only_names, "the names of the commands, or of the flags of one, and nothing else");
  app.add_option("command", *of, "the command whose flags --names prints");
  return [&whole, only_names, of] {
    if (*only_names) {
      print_names(whole, *of);
      return 0;
    }
    // The defaults are those of the structs. One task is that of an experiment, others have names of their own.
    std::vector<std::pair<std::string, std::shared_ptr<Task>>> tasks;
    for (const TaskKind& kind : by_place<TaskKind>()) tasks.emplace_back(kind.name, kind.make());
    const auto nest_tasks = [&](ConfigFields& fields, bool of_experiment) {
      for (const auto& [name, task] : tasks) {
        if ((name == "task") == of_experiment) fields.nest(name, *task);
      }
    };
    TrainerConfig trainer;
    RuntimeConfig runtime;
    const Config other_tasks([&](ConfigFields& fields) { nest_tasks(fields, /*of_experiment=*/false); });
    const Config config([&](ConfigFields& fields) {
      nest_tasks(fields, /*of_experiment=*/true);
      fields.nest("trainer", trainer);
      fields.nest("runtime", runtime);
    });
    nlohmann::ordered_json commands;
    for (const CLI::App* command : commands_of(whole)) {
      commands[command->get_name()] = flags_of(*command, config);
    }
    nlohmann::ordered_json keys = keys_of(config);
    for (const auto& key : keys_of(other_tasks)) keys.push_back(key);
    std::cout << nlohmann::ordered_json{{"commands", commands}, {"keys", keys}}.dump(1) << "\n";
    return 0;
  };
}

}  // namespace cohort::cli
