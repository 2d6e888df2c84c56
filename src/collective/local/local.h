// The back end for ranks that are threads of one process.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "cohort/communicator.h"
#include "collective/local/rendezvous.h"
#include "collective/ops/cross_device_ops.h"

namespace cohort {

// One rank's end; `meeting` and `ops` are shared by all and outlive it.
std::unique_ptr<Communicator> make_local(Rendezvous& meeting, const CrossDeviceOps& ops, int rank);

}  // namespace cohort
