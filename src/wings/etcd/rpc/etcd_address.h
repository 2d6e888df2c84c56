// EtcdAddress: where the members of an etcd cluster listen, and who may speak to them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace cohort {

// A value, from "etcd://[USER:PASSWORD@]HOST:PORT[,HOST:PORT...][/JOB]". With "etcds" for "etcd" the calls go over TLS.
struct EtcdAddress {
  std::vector<std::string> endpoints;  // "host:port" of each member, one at least
  bool tls = false;                    // the calls go over TLS
  std::string user = "";               // empty: etcd asks for no user
  std::string password = "";           // the password of the user
  std::string job = "";                // tells this job's keys from those of others; empty: the text does not say

  // Returns "etcd at host:port, host:port", without the password.
  std::string shown() const;
};

// Returns the address. InvalidArgument: the text is none.
EtcdAddress parse_etcd_address(std::string_view text);

}  // namespace cohort
