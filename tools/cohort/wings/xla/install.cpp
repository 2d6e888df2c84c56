// The commands of this wing.
#include "base/extension.h"
#include "commands.h"
#include "wings/xla/compile.h"
#include "wings/xla/run.h"
#include "wings/xla/xla_flags.h"

namespace cohort::cli {

void install_xla_commands() {
  extend(CommandRow{"compile", "compile a program for devices that need not be here", add_compile});
  extend(CommandRow{"run", "run a program of StableHLO on tensors of a file", add_run});
  extend(DevicesPart{add_plugins});
}

}  // namespace cohort::cli
