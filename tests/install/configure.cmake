# Ways to the library that need no compiling to be seen wrong: each only configures.
function(configure folder)
  file(REMOVE_RECURSE ${WORK}/${folder})
  execute_process(COMMAND ${CMAKE_COMMAND} -B ${WORK}/${folder} ${COHORT_OPTIONS} ${ARGN} RESULT_VARIABLE code OUTPUT_VARIABLE out
                  ERROR_VARIABLE out)
  if(NOT code EQUAL 0)
    message(FATAL_ERROR "${folder}: cmake ${ARGN}\n${out}")
  endif()
  set(out "${out}" PARENT_SCOPE)
endfunction()
function(want what text pattern)
  if(NOT text MATCHES "${pattern}")
    message(FATAL_ERROR "${what}: wanted ${pattern} in\n${text}")
  endif()
endfunction()

# FetchContent: the program's link line has LibTorch's files, not the names of targets that its folder does not know.
configure(fetched -S ${CMAKE_CURRENT_LIST_DIR}/fetched -G "Unix Makefiles" -DCOHORT_SOURCES=${SOURCES} -DCOHORT_BUILD_TOOLS=OFF)
file(READ ${WORK}/fetched/CMakeFiles/fetched.dir/link.txt line)
want("FetchContent" "${line}" "libtorch_cpu\\.so")
if(line MATCHES "-ltorch_library|-lisal-|-lcohort_")
  message(FATAL_ERROR "FetchContent: names of targets in the link line: ${line}")
endif()

# A machine without MPI, where FindMPI leaves a target behind all the same.
file(WRITE ${WORK}/no_mpi/mpi-cxx.pc "Name: MPI\nDescription: none\nVersion: 0\nRequires: nothing-of-that-name\n")
file(COPY_FILE ${WORK}/no_mpi/mpi-cxx.pc ${WORK}/no_mpi/mpi-c.pc)
set(ENV{PKG_CONFIG_PATH} ${WORK}/no_mpi)
set(library_only -S ${SOURCES} -DCOHORT_BUILD_TESTS=OFF -DCOHORT_BUILD_EXAMPLES=OFF -DCOHORT_BUILD_TOOLS=OFF)
configure(without_mpi ${library_only} -DMPI_EXECUTABLE_SUFFIX=.none)
want("without MPI" "${out}" "MPI OFF")

# The shared library: what pkg-config says.
unset(ENV{PKG_CONFIG_PATH})
configure(shared ${library_only} -DBUILD_SHARED_LIBS=ON)
set(ENV{PKG_CONFIG_PATH} ${WORK}/shared)
execute_process(COMMAND pkg-config --cflags --libs cohort OUTPUT_VARIABLE line ERROR_VARIABLE line)
want("pkg-config" "${line}" "-std=c\\+\\+20.*-lcohort.*-ltorch_cpu")
