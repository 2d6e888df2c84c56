// TlsPem: the identity with which a task takes part in TLS.
#pragma once

#include <string>

namespace cohort {

// What one end shows and whom it believes, as PEM texts.
struct TlsPem {
  std::string ca;           // whoever has a certificate of this authority is believed
  std::string certificate;  // this task's
  std::string key;
  std::string name;  // the name that the other end's certificate has to have; empty: any
};

}  // namespace cohort
