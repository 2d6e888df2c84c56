// Errors about a program's text.
#pragma once

#include <functional>
#include <string>

#include "device/xla/client.h"

namespace cohort {

// Checks the numbers of replicas and partitions that the head of the text says, if it does. A plugin may pass over them
// and run a program whose collectives wait for devices that it does not have. InvalidArgument: the options say others.
void check_text(const std::string& text, const XlaCompileOptions& options);

// Calls the function, which compiles the text. An error of the plugin that names a line of it, under whatever code,
// becomes InvalidArgument with that line.
void blame_text(const std::string& text, const std::function<void()>& compile);

}  // namespace cohort
