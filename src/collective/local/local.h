// The back end for ranks that are threads of one process.
#pragma once

#include <memory>

#include "cohort/communicator.h"
#include "collective/algorithms/cross_device_sum.h"
#include "collective/local/rendezvous.h"

namespace cohort {

// Makes one rank's end. The meeting and the sum are shared by all ranks; the meeting must outlive the result.
std::unique_ptr<Communicator> make_local(Rendezvous& meeting, const CrossDeviceSum& sum, int rank);

}  // namespace cohort
