# Targets: one object library a layer, one library of them all, one executable a test file.

# Everything that compiles our sources: include paths, warnings, LibTorch.
add_library(cohort_compile INTERFACE)
target_include_directories(cohort_compile INTERFACE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
target_include_directories(cohort_compile SYSTEM INTERFACE ${TORCH_INCLUDE_DIRS} ${PROJECT_BINARY_DIR}/generated)
target_compile_options(cohort_compile INTERFACE
  -Wall -Wextra -Wno-unused-parameter -Wno-missing-field-initializers -fno-math-errno
  -fPIC)  # everywhere: the precompiled header is shared by the library and the programs
if(CMAKE_UNITY_BUILD AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_compile_options(cohort_compile INTERFACE
    -Wno-subobject-linkage  # it takes a group of files for a header
    --param=ggc-min-heapsize=2097152)  # in KiB: below that its collection of garbage takes a sixth of the time, for a fifth of the memory
endif()
target_link_libraries(cohort_compile INTERFACE ${TORCH_LIBRARIES} Threads::Threads ${COHORT_LIBRARIES})
# What protoc makes is there before anything is compiled; also what clang-tidy needs before it can read our sources.
add_custom_target(cohort_generated)
add_dependencies(cohort_compile cohort_generated)
# See the header: Clang 14 and LibTorch 1.13.
set(COHORT_CLANG_COMPAT ${PROJECT_SOURCE_DIR}/cmake/clang_libstdcxx.h)
target_compile_options(cohort_compile INTERFACE $<$<CXX_COMPILER_ID:Clang>:SHELL:-include ${COHORT_CLANG_COMPAT}>)
# The shared library shows what the public headers declare: every other name is hidden, and to our sources each public header
# is one that makes its names visible. With the module cohort_gloo all are visible: it takes the library's own.
if(BUILD_SHARED_LIBS AND NOT COHORT_GLOO_MODULE)
  target_compile_options(cohort_compile INTERFACE -fvisibility=hidden -fvisibility-inlines-hidden)
  file(GLOB_RECURSE headers CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/include/cohort/*.h)
  foreach(header IN LISTS headers)
    file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/visible/${header} @ONLY CONTENT
"#pragma once
#pragma GCC visibility push(default)
#include \"@PROJECT_SOURCE_DIR@/include/@header@\"
#pragma GCC visibility pop
")
  endforeach()
  target_include_directories(cohort_compile BEFORE INTERFACE ${PROJECT_BINARY_DIR}/visible)
endif()
if(COHORT_SANITIZER)
  target_compile_options(cohort_compile INTERFACE -fsanitize=${COHORT_SANITIZER} -fno-omit-frame-pointer -g1)
  target_link_options(cohort_compile INTERFACE -fsanitize=${COHORT_SANITIZER})
endif()

# cohort_precompiled(<target> <header>...): a precompiled header of these and the standard library's. GCC instantiates what
# LibTorch's inline functions use anew in every file, twice as much of torch/torch.h as of torch/types.h: the whole is for
# programs that include the whole.
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/pch_anchor.cpp CONTENT "\n")
function(cohort_precompiled target)
  add_library(${target} OBJECT EXCLUDE_FROM_ALL ${PROJECT_BINARY_DIR}/pch_anchor.cpp)
  target_link_libraries(${target} PRIVATE cohort_compile)
  target_precompile_headers(${target} PRIVATE ${ARGN} <spdlog/spdlog.h>
    <algorithm> <array> <chrono> <cmath> <deque> <filesystem> <fstream> <functional> <map> <memory> <mutex> <optional>
    <span> <string> <string_view> <thread> <unordered_map> <variant> <vector>)
endfunction()
set(COHORT_LIGHT_TORCH <torch/types.h> <ATen/Functions.h> <torch/nn/module.h>)
cohort_precompiled(cohort_pch ${COHORT_LIGHT_TORCH})
if(COHORT_BUILD_TESTS)
  find_package(GTest REQUIRED)
  set(COHORT_TEST_HEADERS <gmock/gmock.h> <gtest/gtest.h>)
endif()
cohort_precompiled(cohort_torch_pch <torch/torch.h> ${COHORT_TEST_HEADERS})
if(COHORT_BUILD_TESTS)  # one for all, because making another takes longer than reading what is not needed
  target_link_libraries(cohort_torch_pch PRIVATE GTest::gmock)
endif()

# cohort_compile_settings(<target>): it gets the whole precompiled header if it includes torch/torch.h.
function(cohort_compile_settings target)
  target_link_libraries(${target} PRIVATE cohort_compile)
  set(precompiled cohort_pch)
  get_target_property(sources ${target} SOURCES)
  foreach(source IN LISTS sources)
    get_filename_component(source ${source} ABSOLUTE)
    if(EXISTS ${source})  # one that is generated does not yet
      file(STRINGS ${source} whole_torch REGEX "^#include <torch/torch.h>")
      if(whole_torch)
        set(precompiled cohort_torch_pch)
      endif()
    endif()
  endforeach()
  target_precompile_headers(${target} REUSE_FROM ${precompiled})
  if(COHORT_BUILD_TESTS AND precompiled STREQUAL cohort_torch_pch)  # it is read only where the same names are defined
    target_compile_definitions(${target} PRIVATE $<TARGET_PROPERTY:GTest::gtest,INTERFACE_COMPILE_DEFINITIONS>)
    target_compile_options(${target} PRIVATE $<TARGET_PROPERTY:GTest::gtest,INTERFACE_COMPILE_OPTIONS>)
  endif()
endfunction()

# The presets compile the files of a target in groups (CMAKE_UNITY_BUILD), in a fifth of the time: names in anonymous
# namespaces have to be unique within a layer. clang-tidy sees each file by itself.

# cohort_layer(<name> <source>...): a layer of src/, in the order of docs/architecture.md.
function(cohort_layer name)
  add_library(cohort_${name} OBJECT ${ARGN})
  cohort_compile_settings(cohort_${name})
  set_property(GLOBAL APPEND PROPERTY COHORT_LAYERS ${name})
endfunction()

# cohort_wing(<name> <source>...): a wing, src/wings/<name>, which has a function install_<name>() in install.cpp.
function(cohort_wing name)
  cohort_layer(wing_${name} install.cpp ${ARGN})
endfunction()

# cohort_wing_needs(<name> <wing>...): a wing that uses others.
function(cohort_wing_needs name)
  foreach(wing IN LISTS ARGN)
    if(NOT wing IN_LIST COHORT_WINGS)
      message(FATAL_ERROR "COHORT_WINGS has ${name}, which needs ${wing}, too")
    endif()
  endforeach()
endfunction()

# cohort_installed_wings(<out>): writes install_wings() (src/base/extension.h) for COHORT_WINGS, and returns its file.
function(cohort_installed_wings out)
  foreach(wing IN LISTS COHORT_WINGS)
    if(EXISTS ${PROJECT_SOURCE_DIR}/src/wings/${wing})
      string(APPEND declarations "void install_${wing}();\n")
      string(APPEND calls "    install_${wing}();\n")
    endif()
  endforeach()
  set(${out} ${PROJECT_BINARY_DIR}/generated/wings.cpp PARENT_SCOPE)
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/generated/wings.cpp @ONLY CONTENT
"#include \"base/extension.h\"

namespace cohort {

@declarations@
void install_wings() {
  static const bool installed = [] {
@calls@    return true;
  }();
  static_cast<void>(installed);
}

}  // namespace cohort
")
endfunction()

# cohort_cuda_kernels(<source.cu>): the loops of cohort_kernel_variants, compiled for cards of CUDA. Products and sums are not
# contracted, so that an element gets the bits that a CPU gives it.
function(cohort_cuda_kernels source)
  get_filename_component(name ${source} NAME_WE)
  set(object ${CMAKE_CURRENT_BINARY_DIR}/${name}${CMAKE_CXX_OUTPUT_EXTENSION})
  get_filename_component(folder ${CMAKE_CURRENT_SOURCE_DIR}/${source} DIRECTORY)
  file(GLOB headers CONFIGURE_DEPENDS ${folder}/*.h ${PROJECT_SOURCE_DIR}/src/ops/kernels/*.h
       ${PROJECT_SOURCE_DIR}/src/optimizer/kernels/*.h)
  add_custom_command(
    OUTPUT ${object}
    COMMAND ${COHORT_NVCC} -ccbin ${CMAKE_CXX_COMPILER} -std=c++17 -O3 --fmad=false ${COHORT_CUDA_CODE} -Xcompiler=-fPIC
            -I ${PROJECT_SOURCE_DIR}/src -c ${CMAKE_CURRENT_SOURCE_DIR}/${source} -o ${object}
    DEPENDS ${source} ${headers} VERBATIM)
  set_source_files_properties(${object} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
  add_custom_target(cohort_${name} DEPENDS ${object})
  set_property(GLOBAL APPEND PROPERTY COHORT_CUDA_OBJECTS ${object})
  set_property(GLOBAL APPEND PROPERTY COHORT_CUDA_TARGETS cohort_${name})
endfunction()

# cohort_proto(<out> <file.proto>): its messages in C++, as sources; included by file name.
function(cohort_proto out file)
  get_filename_component(name ${file} NAME_WE)
  get_filename_component(folder ${CMAKE_CURRENT_SOURCE_DIR}/${file} DIRECTORY)
  set(generated ${PROJECT_BINARY_DIR}/generated)
  set(stem ${generated}/${name})
  set(rpc ${PROJECT_SOURCE_DIR}/src/rpc)  # whose messages others import
  file(MAKE_DIRECTORY ${generated})
  set(sources ${stem}.pb.cc)
  set(headers ${stem}.pb.h)
  add_custom_command(
    OUTPUT ${sources} ${headers}
    COMMAND protobuf::protoc --cpp_out=${generated} -I ${folder} -I ${rpc} ${CMAKE_CURRENT_SOURCE_DIR}/${file}
    DEPENDS ${file} ${rpc}/frame.proto VERBATIM)
  add_custom_target(cohort_${name}_proto DEPENDS ${sources})
  add_dependencies(cohort_generated cohort_${name}_proto)
  set_source_files_properties(${sources} PROPERTIES SKIP_PRECOMPILE_HEADERS ON COMPILE_OPTIONS -w)
  set(${out} ${sources} ${headers} PARENT_SCOPE)
endfunction()

# The library that users link: every layer in one archive (or one shared object with BUILD_SHARED_LIBS).
function(cohort_library)
  get_property(layers GLOBAL PROPERTY COHORT_LAYERS)
  foreach(layer IN LISTS layers)
    list(APPEND objects $<TARGET_OBJECTS:cohort_${layer}>)
  endforeach()
  get_property(of_cuda GLOBAL PROPERTY COHORT_CUDA_OBJECTS)
  get_property(made_by GLOBAL PROPERTY COHORT_CUDA_TARGETS)
  set_source_files_properties(${of_cuda} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)  # they are of another folder
  list(APPEND objects ${of_cuda})
  add_library(cohort ${objects})
  add_library(cohort::cohort ALIAS cohort)
  target_compile_features(cohort PUBLIC cxx_std_20)
  if(made_by)
    add_dependencies(cohort ${made_by})
  endif()
  set(installed $<INSTALL_PREFIX>/${CMAKE_INSTALL_LIBDIR}/cmake/cohort/clang_libstdcxx.h)
  target_compile_options(cohort INTERFACE
    $<$<CXX_COMPILER_ID:Clang>:SHELL:-include $<BUILD_INTERFACE:${COHORT_CLANG_COMPAT}>$<INSTALL_INTERFACE:${installed}>>)
  target_include_directories(cohort PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
                                           $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_include_directories(cohort SYSTEM PUBLIC "$<BUILD_INTERFACE:${TORCH_INCLUDE_DIRS}>")
  target_link_libraries(cohort PUBLIC ${TORCH_LIBRARIES} Threads::Threads
                        PRIVATE ${COHORT_LIBRARIES} ${COHORT_MPI})
  target_link_options(cohort PRIVATE LINKER:--as-needed,--no-undefined)
  if(COHORT_GLOO_MODULE)  # opened by its plain name
    add_dependencies(cohort cohort_gloo)
    target_link_options(cohort INTERFACE $<BUILD_INTERFACE:LINKER:-rpath,${CMAKE_LIBRARY_OUTPUT_DIRECTORY}>
                                         $<INSTALL_INTERFACE:LINKER:-rpath,$<INSTALL_PREFIX>/${CMAKE_INSTALL_LIBDIR}>)
    set_target_properties(cohort PROPERTIES BUILD_RPATH $ORIGIN)
  endif()
  if(COHORT_SANITIZER)
    target_link_options(cohort PUBLIC -fsanitize=${COHORT_SANITIZER})
  endif()
  set_target_properties(cohort PROPERTIES VERSION ${PROJECT_VERSION} LINKER_LANGUAGE CXX
                        SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})  # until 1.0, a minor version may break
  # Our own programs and tests use what is hidden, too: they have the layers in them.
  set(inside cohort)
  if(BUILD_SHARED_LIBS)
    set(inside cohort_inside)
    add_library(cohort_inside STATIC EXCLUDE_FROM_ALL ${objects})
    if(made_by)
      add_dependencies(cohort_inside ${made_by})
    endif()
    target_link_libraries(cohort_inside PUBLIC cohort_compile ${COHORT_MPI})
    set_target_properties(cohort_inside PROPERTIES LINKER_LANGUAGE CXX)
    if(COHORT_GLOO_MODULE)
      add_dependencies(cohort_inside cohort_gloo)
      target_link_options(cohort_inside INTERFACE LINKER:-rpath,${CMAKE_LIBRARY_OUTPUT_DIRECTORY})
    endif()
  endif()
  set(COHORT_INSIDE ${inside} PARENT_SCOPE)
endfunction()

# cohort_executable(<name> <source>...): a program of ours (tool, example, benchmark).
function(cohort_executable name)
  add_executable(${name} ${ARGN})
  cohort_compile_settings(${name})
  target_link_libraries(${name} PRIVATE ${COHORT_INSIDE})
endfunction()

# cohort_kernel_variants(<out> <name>_impl.h [isa...]): writes the sources <name>_{baseline,avx2,avx512}.cpp, or those of the given
# instruction sets. They compile the same loops, and the fastest one that the CPU has is picked at run time (src/ops/kernels/isa.h).
# - Always -O3, also in the dev preset: an unvectorised update would make every training test slow.
# - No contraction to fused multiply-adds: every operation rounds by itself, so that the result for an element depends
#   neither on the instruction set nor on whether the vector body or the scalar tail of a loop met it.
# - No precompiled header: it was made with other flags, and an inline function of the standard library compiled here for
#   AVX-512 could be the copy that the linker keeps for everybody.
function(cohort_kernel_variants out loops)
  set(common -O3 -fno-math-errno -fno-trapping-math -ffp-contract=off)
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    set(avx2 -mavx2 -mfma)
    set(avx512 ${avx2} -mavx512f -mavx512bw -mavx512dq -mavx512vl -mprefer-vector-width=512)
  endif()
  set(isas ${ARGN})
  if(NOT isas)
    set(isas baseline avx2 avx512)
  endif()
  get_filename_component(name ${loops} NAME_WE)
  string(REGEX REPLACE "_impl$" "" name ${name})
  file(RELATIVE_PATH header ${PROJECT_SOURCE_DIR}/src ${CMAKE_CURRENT_SOURCE_DIR}/${loops})
  foreach(isa IN LISTS isas)
    set(source ${CMAKE_CURRENT_BINARY_DIR}/${name}_${isa}.cpp)
    file(CONFIGURE OUTPUT ${source} @ONLY CONTENT "#define COHORT_ISA @isa@\n#include \"@header@\"\n")
    set_source_files_properties(${source} PROPERTIES SKIP_PRECOMPILE_HEADERS ON COMPILE_OPTIONS "${common};${${isa}}")
    list(APPEND sources ${source})
  endforeach()
  set(${out} ${sources} PARENT_SCOPE)
endfunction()
