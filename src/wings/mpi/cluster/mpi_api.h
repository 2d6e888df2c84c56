// mpi.h without the C++ bindings that MPI dropped in 2012 and some libraries still carry. Only builds with MPI include
// it.
#pragma once

#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>
