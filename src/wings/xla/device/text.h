// Compiling a program's text: what is common to devices and to topologies.
#pragma once

#include <functional>
#include <string>
#include <type_traits>
#include <utility>

#include "wings/xla/device/client.h"
#include "wings/xla/device/within.h"

namespace cohort {

// Checks the numbers of replicas and partitions that the head of the text says, if it does. A plugin may pass over them
// and run a program whose collectives wait for devices that it does not have. InvalidArgument: the options say others.
void check_text(const std::string& text, const XlaCompileOptions& options);

// Calls the function, which compiles the text. An error of the plugin that names a line of it, under whatever code,
// becomes InvalidArgument with that line.
void blame_text(const std::string& text, const std::function<void()>& compile);

// Returns the text as PJRT takes it. The text has to outlive the result.
pjrt::Program program_of(std::string& text);

// Returns what `build` makes of the text within the limit of the options. `build` runs on a thread of its own, so it
// has to own all that it uses. Throws what blame_text() and within() throw.
template <typename Build>
auto compile_text(const XlaPlugin& plugin, const std::string& text, const XlaCompileOptions& options, Build build) {
  using Handle = std::invoke_result_t<Build, pjrt::Program&>;
  const auto task = [code = text, build = std::move(build)]() mutable {
    pjrt::Program program = program_of(code);
    return build(program);
  };
  Handle made;
  blame_text(text, [&] {
    made = within<Handle>(options.limit, "the plugin " + plugin.name() + " to compile the program", task);
  });
  return made;
}

}  // namespace cohort
