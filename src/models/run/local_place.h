// Places of files: a path that this machine has, and not an address.
#pragma once

#include <string>

namespace cohort {

// Fails with InvalidArgument if the place, or one of several with commas between them, is an address such as
// gs://bucket/data. The message opens with `what`, such as "[train] --model_dir".
void require_local(const std::string& what, const std::string& place);

}  // namespace cohort
