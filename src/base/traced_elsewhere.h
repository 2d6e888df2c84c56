// For threads whose work others account for in traces.
#pragma once

namespace cohort {

// Leaves out the spans of this thread from now on: another thread, which waits for it, has spans of its own for what it
// does meanwhile.
void leave_out_own_spans();

}  // namespace cohort
