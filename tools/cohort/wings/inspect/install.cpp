// The commands of this wing.
#include "base/extension.h"
#include "wings/inspect/inspect.h"

namespace cohort::cli {

void install_inspect_commands() {
  extend(CommandRow{"checkpoint", "look into checkpoints, compare them, make files of weights", add_checkpoint});
  extend(CommandRow{"report", "show runs of train on a page of HTML", add_report});
}

}  // namespace cohort::cli
