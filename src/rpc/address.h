// Addresses as clusters write them: "host:port" and "[v6]:port".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/number_in.h"

namespace cohort {

struct Address {
  std::string host;  // the host without brackets
  int port = 0;      // 1 to 65535

  std::string to_string() const;  // puts a host with a colon into brackets again
};

// Returns the address, or nothing if the text is none.
std::optional<Address> parse_address(std::string_view text);

}  // namespace cohort
