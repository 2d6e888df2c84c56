// Slurm's compressed lists.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace cohort {

// "n[01-03,7],m5" -> n01 n02 n03 n7 m5, in that order; leading zeros are kept, brackets may occur several times in a
// name. Errors name `source`, the text and the place. More than a million hosts: InvalidArgument.
std::vector<std::string> expand_host_list(std::string_view text, const std::string& source);

// "3(x2),2,1" -> 3 3 2 1.
std::vector<int> expand_task_counts(std::string_view text, const std::string& source);

}  // namespace cohort
