// "host:port" and "[v6]:port", as clusters write addresses.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace cohort {

struct Address {
  std::string host;  // without brackets
  int port = 0;      // 1 to 65535

  std::string to_string() const;  // brackets again around a host with a colon
};

// Nothing when the text is no address.
std::optional<Address> parse_address(std::string_view text);

// A whole decimal number that fits; nothing otherwise.
std::optional<int> parse_int(std::string_view text);

}  // namespace cohort
