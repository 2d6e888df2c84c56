// Reading and writing views of a memory.
#pragma once

#include <optional>

#include "wings/xla/record/stablehlo/text.h"

namespace cohort::record::stablehlo {

// Returns the elements of the memory (row-major) that a view with these sizes, strides and offset has.
Operand strided_read(Text& text, const Operand& memory, const Dims& sizes, const Dims& strides, int64_t offset);
// Returns the memory with the value in the place of those elements. No stride is 0 where there is more than one
// element.
Operand strided_write(Text& text, const Operand& memory, const Operand& value, const Dims& sizes, const Dims& strides,
                      int64_t offset);
// Returns the memory with the value added to those elements; elements that the view has several times get several.
Operand strided_add(Text& text, const Operand& memory, const Operand& value, const Dims& sizes, const Dims& strides,
                    int64_t offset);

}  // namespace cohort::record::stablehlo
