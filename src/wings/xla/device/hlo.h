// XLA's optimised program (HLO), read from the bytes that PJRT gives.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "wings/xla/device/program.h"

namespace cohort {

// Returns what a device takes and gives. DataLoss: the bytes are no program; the others likewise.
XlaSignature read_signature(std::string_view bytes);
// Returns the program, an operation a line.
std::string print_hlo(std::string_view bytes);
// Returns the collectives, by name.
std::vector<XlaCollective> list_collectives(std::string_view bytes);
// Returns how often each kind of operation is there, those of called computations included.
std::map<std::string, int64_t> count_operations(std::string_view bytes);

}  // namespace cohort
