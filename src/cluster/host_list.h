// The compressed lists of Slurm.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace cohort {

// Expands "n[01-03,7],m5" to n01 n02 n03 n7 m5, in that order. Leading zeros are kept, and brackets may occur several
// times in a name. InvalidArgument names `source`, the text and the place; more than a million hosts are one, too.
std::vector<std::string> expand_host_list(std::string_view text, const std::string& source);

// Expands "3(x2),2,1" to 3 3 2 1.
std::vector<int> expand_task_counts(std::string_view text, const std::string& source);

}  // namespace cohort
