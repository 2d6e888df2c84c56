// A folder of this machine that belongs to this user alone.
#pragma once

#include <string>

namespace cohort {

// Returns $XDG_RUNTIME_DIR/cohort-UID, or /tmp/cohort-UID without that variable. The folder is made if it is not there.
// Nobody else can look into it. Unavailable: it cannot be made. FailedPrecondition: it is not this user's alone.
std::string own_folder();

}  // namespace cohort
