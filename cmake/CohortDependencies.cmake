# What the library stands on. All of it is packaged by Debian 12 (scripts/install-deps.sh).
find_package(Torch REQUIRED QUIET)
find_package(Threads REQUIRED)
find_package(OpenMP REQUIRED COMPONENTS CXX)
find_package(ZLIB REQUIRED)
find_package(spdlog REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CURL REQUIRED)
find_package(Protobuf REQUIRED)
find_package(gRPC CONFIG REQUIRED)

find_program(COHORT_CCACHE ccache)
if(COHORT_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # The precompiled header needs these; ccache refuses to cache without them.
  set(CMAKE_CXX_COMPILER_LAUNCHER
      ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
      ${COHORT_CCACHE})
endif()

if(COHORT_WITH_NCCL STREQUAL "AUTO")
  if(TARGET torch_cuda)
    set(COHORT_HAS_NCCL ON)
  else()
    set(COHORT_HAS_NCCL OFF)
  endif()
else()
  set(COHORT_HAS_NCCL ${COHORT_WITH_NCCL})
endif()

if(COHORT_WITH_MPI STREQUAL "AUTO")
  find_package(MPI QUIET COMPONENTS C)
  set(COHORT_HAS_MPI ${MPI_C_FOUND})
elseif(COHORT_WITH_MPI)
  find_package(MPI REQUIRED COMPONENTS C)
  set(COHORT_HAS_MPI ON)
else()
  set(COHORT_HAS_MPI OFF)
endif()

# What the library links besides LibTorch; cohortConfig.cmake.in finds the same.
set(COHORT_LIBRARIES OpenMP::OpenMP_CXX spdlog::spdlog nlohmann_json::nlohmann_json ZLIB::ZLIB CURL::libcurl
                     gRPC::grpc++ protobuf::libprotobuf ${CMAKE_DL_LIBS})
if(COHORT_HAS_MPI)
  list(APPEND COHORT_LIBRARIES MPI::MPI_C)
endif()
