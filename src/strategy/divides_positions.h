// DividesPositions: models that keep what lies between their divided products in parts along the positions
// (MeshOptions::sequence_parallel).
#pragma once

#include <string>

namespace cohort {

class DividesPositions {
 public:
  virtual ~DividesPositions() = default;
  // Called once a copy, by the layout that cuts the products along the axis.
  virtual void divide_positions(const std::string& axis) = 0;
};

}  // namespace cohort
