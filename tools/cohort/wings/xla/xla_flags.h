// The flags of commands that use XLA's plugins.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <optional>
#include <string>

#include "wings/xla/device/client.h"

namespace cohort::cli {

struct XlaFlags {
  std::optional<std::string> plugin;
  std::string options;
  std::string topology;
};

// Adds the flags to a command. The values come to be in `flags`, which has to live as long as the command.
void add_xla_flags(CLI::App& app, XlaFlags& flags);

// Loads the plugin that is named; without a name that of TPUs for a topology, else the first that is found.
XlaPluginPtr load_plugin(const XlaFlags& flags);

// Adds the flags to `cohort devices`. Returns what prints the plugins that there are, or the devices of the one that
// the flags name.
std::function<void()> add_plugins(CLI::App& app);

}  // namespace cohort::cli
