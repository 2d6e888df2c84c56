// Gives the core what this wing has.
#include "base/extension.h"
#include "wings/gin/config/gin.h"

namespace cohort {

void install_gin() {
  extend(GinFormat{.read = read_gin});
}

}  // namespace cohort
