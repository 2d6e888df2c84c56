// The version of these headers, for programs that compile with several of them; `cohort --version` prints that of the
// command line.
#pragma once

#define COHORT_VERSION_MAJOR 0
#define COHORT_VERSION_MINOR 1
#define COHORT_VERSION_PATCH 0

#define COHORT_VERSION "0.1.0"
