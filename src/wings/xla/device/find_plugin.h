// Finds plugins.
#pragma once

#include <string_view>
#include <vector>

#include "wings/xla/device/plugin.h"

namespace cohort {

// Returns the plugins that are there, without loading them, in the order in which they are looked for:
//   PJRT_NAMES_AND_LIBRARY_PATHS   "name:path,name:path", as JAX reads it
//   TPU_LIBRARY_PATH               libtpu
//   the folder "plugins" of the build folder that the running program lies in (scripts/install-deps.sh xla)
//   libtpu.so among the system's libraries
//   the Python packages of the virtual environment, of the user and of the system: libtpu, xla-cpu-pjrt, JAX's for CUDA
// If several plugins have one name only the first is returned. Reads the environment and folders. Thread-safe.
// InvalidArgument: PJRT_NAMES_AND_LIBRARY_PATHS cannot be read. NotFound: a variable names a file that is not there.
std::vector<XlaPluginPlace> list_xla_plugins();

// Returns the plugin that a user means: by the path of a file (with a slash or ending in ".so"), by the name of one of
// the list ("cpu"), or, with an empty text, the first of the list. NotFound: there is none; the message says where was
// looked. "source" names who asks, such as "--xla_plugin".
XlaPluginPlace find_xla_plugin(std::string_view wanted, std::string_view source = "--xla_plugin");

}  // namespace cohort
