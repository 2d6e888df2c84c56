// The version of these headers, for programs that compile with several of them; `cohort --version` prints that of the
// command line.
#pragma once

// The first number: programs have to change for another one.
#define COHORT_VERSION_MAJOR 0
// The second number: it grows with features.
#define COHORT_VERSION_MINOR 1
// The third number: it grows with corrections.
#define COHORT_VERSION_PATCH 0
// All three as text.
#define COHORT_VERSION "0.1.0"
