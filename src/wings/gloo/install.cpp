// Gives the core what this wing has.
#include "base/extension.h"
#include "collective/process/transports.h"
#include "wings/gloo/collective/gloo.h"

namespace cohort {

void install_gloo() {
  extend(TransportRow{.name = "gloo", .make = make_gloo});
}

}  // namespace cohort
