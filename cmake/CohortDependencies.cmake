# What the library stands on. All of it is packaged by Debian 12 (scripts/install-deps.sh).
set(COHORT_TORCH "" CACHE PATH
    "Folder of PyPI's torch, as python3 -c 'import torch; print(*torch.__path__)' prints it; empty: the one that CMake finds")
include(CohortTorch)
find_package(Threads REQUIRED)
find_package(OpenMP REQUIRED COMPONENTS CXX)
find_package(ZLIB REQUIRED)
find_package(JPEG REQUIRED)
find_package(PNG REQUIRED)
find_package(yaml-cpp REQUIRED)
find_package(spdlog REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CURL REQUIRED)
find_package(OpenSSL REQUIRED)
find_package(Protobuf REQUIRED)
find_package(gRPC CONFIG REQUIRED)
find_package(CLI11 REQUIRED)  # headers only: who links the library does not need it

find_program(COHORT_CCACHE ccache)
if(COHORT_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # The precompiled header needs these; ccache refuses to cache without them. CCACHE_DEPEND: what a file includes is read
  # from the compiler's own list; the preprocessor run for it took a seventh of a build with nothing cached.
  set(CMAKE_CXX_COMPILER_LAUNCHER
      ${CMAKE_COMMAND} -E env CCACHE_DEPEND=1 CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
      ${COHORT_CCACHE})
endif()

set(COHORT_HAS_CUDA OFF)
if(cuda IN_LIST COHORT_WINGS AND (TARGET torch_cuda OR TARGET cohort_torch_cuda))
  set(COHORT_HAS_CUDA ON)
endif()
include(CohortCudaCode)

# nvcc compiles kernels for the cards where it is of LibTorch's CUDA; elsewhere LibTorch's own operations do their work.
set(COHORT_HAS_CUDA_KERNELS OFF)
if(COHORT_HAS_CUDA AND NOT COHORT_WITH_CUDA_KERNELS STREQUAL "OFF")
  find_program(COHORT_NVCC nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda PATH_SUFFIXES bin)
  set(nvcc_version "")
  if(COHORT_NVCC)
    execute_process(COMMAND ${COHORT_NVCC} --version OUTPUT_VARIABLE nvcc_version)
    string(REGEX REPLACE ".*release ([0-9]+)\\..*" "\\1" nvcc_version "${nvcc_version}")
  endif()
  if(COHORT_NVCC AND (NOT COHORT_CUDA_MAJOR OR nvcc_version STREQUAL COHORT_CUDA_MAJOR))
    set(COHORT_HAS_CUDA_KERNELS ON)
    cohort_cuda_code(COHORT_CUDA_CODE)
  elseif(COHORT_WITH_CUDA_KERNELS STREQUAL "ON")
    message(FATAL_ERROR "COHORT_WITH_CUDA_KERNELS is ON, but nvcc is \"${COHORT_NVCC}\" of CUDA \"${nvcc_version}\", wanted "
                        "one of LibTorch's CUDA ${COHORT_CUDA_MAJOR}")
  endif()
elseif(COHORT_WITH_CUDA_KERNELS STREQUAL "ON")
  message(FATAL_ERROR "COHORT_WITH_CUDA_KERNELS is ON, but this LibTorch is without CUDA (COHORT_TORCH), or COHORT_WINGS is without cuda")
endif()
# NCCL's header, which LibTorch comes without: its group between processes includes it, and so does ours between devices.
find_path(COHORT_NCCL_HEADERS nccl.h HINTS ${COHORT_CUDA_HEADERS} ${CUDA_TOOLKIT_INCLUDE} ${CUDAToolkit_INCLUDE_DIRS})
set(COHORT_HAS_NCCL OFF)
if(COHORT_HAS_CUDA AND COHORT_NCCL_HEADERS AND COHORT_WITH_NCCL)
  set(COHORT_HAS_NCCL ON)
elseif(COHORT_WITH_NCCL AND NOT COHORT_WITH_NCCL STREQUAL "AUTO")
  message(FATAL_ERROR "COHORT_WITH_NCCL is ON, but this LibTorch is without CUDA (COHORT_TORCH), COHORT_WINGS is without cuda, or there is no nccl.h "
                      "(COHORT_NCCL_HEADERS is \"${COHORT_NCCL_HEADERS}\")")
endif()

# cohort_optional(<name> <package> [component...]): sets COHORT_HAS_<name> by COHORT_WITH_<name>. It asks whether the package
# was found, not for a target: FindMPI leaves one behind that has no header.
macro(cohort_optional name package)
  set(${package}_FOUND OFF)
  if(COHORT_WITH_${name} STREQUAL "AUTO")
    find_package(${package} QUIET COMPONENTS ${ARGN})
  elseif(COHORT_WITH_${name})
    find_package(${package} REQUIRED COMPONENTS ${ARGN})
  endif()
  set(COHORT_HAS_${name} OFF)
  if(${package}_FOUND)
    set(COHORT_HAS_${name} ON)
  endif()
endmacro()
foreach(name GLOO MPI)
  string(TOLOWER ${name} wing)
  if(NOT wing IN_LIST COHORT_WINGS)
    if(COHORT_WITH_${name} AND NOT COHORT_WITH_${name} STREQUAL "AUTO")
      message(FATAL_ERROR "COHORT_WITH_${name} is ON, wanted the wing ${wing} in COHORT_WINGS, too")
    endif()
    set(COHORT_WITH_${name} OFF)
  endif()
endforeach()
cohort_optional(GLOO Gloo)
set(COHORT_GLOO_MODULE OFF)
if(COHORT_HAS_GLOO AND COHORT_TORCH)
  # That LibTorch has another Gloo in it: see src/wings/gloo/collective/open_module.cpp.
  set(COHORT_GLOO_MODULE ON)
  if(COHORT_SANITIZER MATCHES "address|thread")
    message(FATAL_ERROR "COHORT_SANITIZER=${COHORT_SANITIZER} and COHORT_TORCH: that sanitizer refuses the module in which Gloo "
                        "is then; wanted COHORT_WITH_GLOO=OFF, or no COHORT_TORCH")
  endif()
endif()
# The component of C++, although only MPI's functions in C are called: a project of C++ alone cannot look for the one of C.
cohort_optional(MPI MPI CXX)
message(STATUS "cohort: CUDA ${COHORT_HAS_CUDA} (kernels ${COHORT_HAS_CUDA_KERNELS}), Gloo ${COHORT_HAS_GLOO}, MPI ${COHORT_HAS_MPI}, NCCL ${COHORT_HAS_NCCL}")

# What the library links besides LibTorch; cohortConfig.cmake.in finds the same.
set(COHORT_LIBRARIES OpenMP::OpenMP_CXX spdlog::spdlog nlohmann_json::nlohmann_json ZLIB::ZLIB JPEG::JPEG PNG::PNG yaml-cpp CURL::libcurl
                     OpenSSL::SSL OpenSSL::Crypto gRPC::grpc++ protobuf::libprotobuf isal ${CMAKE_DL_LIBS})
if(COHORT_HAS_GLOO AND NOT COHORT_GLOO_MODULE)
  list(APPEND COHORT_LIBRARIES gloo)
endif()
# MPI is not in COHORT_LIBRARIES. Only the wing mpi includes its header, and only this is compiled again when make test
# installs MPI after make demo.
set(COHORT_MPI "")
if(COHORT_HAS_MPI)
  set(COHORT_MPI MPI::MPI_CXX)
endif()

# Keras' files are HDF5 in zip archives. The headers of Debian's HDF5 are in a folder of their own.
if(keras IN_LIST COHORT_WINGS)
  find_path(COHORT_HDF5_HEADERS hdf5.h PATH_SUFFIXES hdf5/serial REQUIRED)
  find_package(LibArchive REQUIRED)
  list(APPEND COHORT_LIBRARIES hdf5_serial archive)
endif()

# Prometheus' text format, and the HTTP server that answers for it.
if(monitoring IN_LIST COHORT_WINGS)
  find_path(COHORT_PROMETHEUS_HEADERS prometheus/registry.h REQUIRED)
  list(APPEND COHORT_LIBRARIES prometheus-cpp-core cpp-httplib)
endif()

if(COHORT_TORCH)
  # No folder where the loader looks: what is installed looks where it was linked, and for our module beside the library.
  set(CMAKE_INSTALL_RPATH_USE_LINK_PATH ON)
  set(CMAKE_INSTALL_RPATH $ORIGIN/../${CMAKE_INSTALL_LIBDIR})
endif()
