// The entry of a fuzzer: libFuzzer's, or one under the fuzzer's name, which seeds_test.cpp calls beside the others.
#pragma once

#ifdef COHORT_FUZZERS_BY_NAME
#define COHORT_FUZZER_ENTRY(name) extern "C" int fuzz_##name
#else
#define COHORT_FUZZER_ENTRY(name) extern "C" int LLVMFuzzerTestOneInput
#endif
