// The flags of commands that use XLA's plugins.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

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

// Prints a line for each device.
void print_xla_devices(const std::vector<XlaDevice>& devices);

// Prints the plugins that there are, or the devices of the one that the flags name.
void print_xla_plugins(const XlaFlags& flags);

// Returns "15.7 GiB", or less for less.
std::string bytes_text(int64_t bytes);

}  // namespace cohort::cli
