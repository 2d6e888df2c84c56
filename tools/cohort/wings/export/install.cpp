// The commands of this wing.
#include "base/extension.h"
#include "commands.h"
#include "wings/export/export.h"

namespace cohort::cli {

void install_export_commands() {
  extend(CommandRow{"export", "write the model of a run for inference", add_export});
}

}  // namespace cohort::cli
