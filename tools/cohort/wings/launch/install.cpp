// The command of this wing.
#include "base/extension.h"
#include "commands.h"
#include "wings/launch/launch.h"

namespace cohort::cli {

void install_launch_commands() {
  extend(CommandRow{
      .name = "launch", .description = "start the workers of a program", .add = {}, .add_with_program = add_launch});
}

}  // namespace cohort::cli
