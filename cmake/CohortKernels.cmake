# cohort_kernels(<prefix>): the flags of <prefix>_baseline.cpp, <prefix>_avx2.cpp and <prefix>_avx512.cpp, which are the
# same loops compiled for three instruction sets; the fastest one that the CPU has is picked at run time.
#
# - Always -O3, also in presets that build quickly: without it the loops do not become vector code.
# - No contraction to fused multiply-adds: every operation rounds by itself, so that the result for an element depends
#   neither on the instruction set nor on whether the vector body or the scalar tail of a loop met it.
# - No precompiled header: it was made with other flags, and inline functions of the standard library compiled here for
#   AVX-512 could be the copies that the linker keeps for everybody.
function(cohort_kernels prefix)
  set(common -O3 -fno-math-errno -fno-trapping-math -ffp-contract=off)
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
    set(avx2 -mavx2 -mfma)
    set(avx512 ${avx2} -mavx512f -mavx512bw -mavx512dq -mavx512vl -mprefer-vector-width=512)
  endif()
  foreach(isa baseline avx2 avx512)
    set_source_files_properties(${prefix}_${isa}.cpp PROPERTIES COMPILE_OPTIONS "${common};${${isa}}"
                                                                SKIP_PRECOMPILE_HEADERS ON)
  endforeach()
endfunction()
