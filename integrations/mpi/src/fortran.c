/* The same functions for Fortran. Open MPI's functions for Fortran call PMPI_, so they are taken over here, for mpif.h, `use mpi` and
 * `use mpi_f08`, whose handles begin with the same integer. */
#include "trimtab_mpi.h"
#ifdef OPEN_MPI

extern char mpi_fortran_in_place_, mpi_fortran_bottom_;
#pragma weak mpi_fortran_in_place_
#pragma weak mpi_fortran_bottom_

static void *from_fortran(void *address) {
    if (&mpi_fortran_in_place_ && address == (void *)&mpi_fortran_in_place_) return MPI_IN_PLACE;
    if (&mpi_fortran_bottom_ && address == (void *)&mpi_fortran_bottom_) return MPI_BOTTOM;
    return address;
}

#define BUFFER(name) from_fortran(name)
#define TYPE(name) PMPI_Type_f2c(*name)
#define OP(name) PMPI_Op_f2c(*name)
#define COMM(name) PMPI_Comm_f2c(*name)
#define FORTRAN(name, declared, call)                                 \
    static void fortran_##name declared {                             \
        int done = call;                                              \
        if (error) *error = done;                                     \
    }                                                                 \
    EXPORT void mpi_##name##_ declared __attribute__((alias("fortran_" #name))); \
    EXPORT void mpi_##name##__ declared __attribute__((alias("fortran_" #name))); \
    EXPORT void mpi_##name##_f08_ declared __attribute__((alias("fortran_" #name)));

/* The types of an alltoallw; of as many ranks as the communicator has, if it is not in place. */
static int alltoallw(void *from, MPI_Fint *given, MPI_Fint *given_places, MPI_Fint *types, void *to, MPI_Fint *got, MPI_Fint *got_places,
                     MPI_Fint *to_types, MPI_Comm comm) {
    int ranks = 0, inter = 0, error = PMPI_Comm_test_inter(comm, &inter);
    if (error == MPI_SUCCESS) error = inter ? PMPI_Comm_remote_size(comm, &ranks) : PMPI_Comm_size(comm, &ranks);
    if (error != MPI_SUCCESS) return error;
    MPI_Datatype *all = malloc(2 * sizeof *all * (size_t)ranks);
    if (!all) return MPI_ERR_NO_MEM;
    for (int i = 0; i < ranks; i++) {
        all[i] = from == MPI_IN_PLACE ? MPI_DATATYPE_NULL : PMPI_Type_f2c(types[i]);
        all[ranks + i] = PMPI_Type_f2c(to_types[i]);
    }
    error = MPI_Alltoallw(from, given, given_places, all, to, got, got_places, all + ranks, comm);
    free(all);
    return error;
}

#define F MPI_Fint *
FORTRAN(barrier, (F comm, F error), MPI_Barrier(COMM(comm)))
FORTRAN(bcast, (void *buffer, F count, F type, F root, F comm, F error), MPI_Bcast(BUFFER(buffer), *count, TYPE(type), *root, COMM(comm)))
FORTRAN(reduce, (void *from, void *to, F count, F type, F op, F root, F comm, F error),
        MPI_Reduce(BUFFER(from), BUFFER(to), *count, TYPE(type), OP(op), *root, COMM(comm)))
FORTRAN(allreduce, (void *from, void *to, F count, F type, F op, F comm, F error),
        MPI_Allreduce(BUFFER(from), BUFFER(to), *count, TYPE(type), OP(op), COMM(comm)))
FORTRAN(scan, (void *from, void *to, F count, F type, F op, F comm, F error),
        MPI_Scan(BUFFER(from), BUFFER(to), *count, TYPE(type), OP(op), COMM(comm)))
FORTRAN(exscan, (void *from, void *to, F count, F type, F op, F comm, F error),
        MPI_Exscan(BUFFER(from), BUFFER(to), *count, TYPE(type), OP(op), COMM(comm)))
FORTRAN(reduce_scatter_block, (void *from, void *to, F count, F type, F op, F comm, F error),
        MPI_Reduce_scatter_block(BUFFER(from), BUFFER(to), *count, TYPE(type), OP(op), COMM(comm)))
FORTRAN(reduce_scatter, (void *from, void *to, F counts, F type, F op, F comm, F error),
        MPI_Reduce_scatter(BUFFER(from), BUFFER(to), counts, TYPE(type), OP(op), COMM(comm)))
FORTRAN(gather, (void *from, F given, F type, void *to, F got, F to_type, F root, F comm, F error),
        MPI_Gather(BUFFER(from), *given, TYPE(type), BUFFER(to), *got, TYPE(to_type), *root, COMM(comm)))
FORTRAN(allgather, (void *from, F given, F type, void *to, F got, F to_type, F comm, F error),
        MPI_Allgather(BUFFER(from), *given, TYPE(type), BUFFER(to), *got, TYPE(to_type), COMM(comm)))
FORTRAN(scatter, (void *from, F given, F type, void *to, F got, F to_type, F root, F comm, F error),
        MPI_Scatter(BUFFER(from), *given, TYPE(type), BUFFER(to), *got, TYPE(to_type), *root, COMM(comm)))
FORTRAN(alltoall, (void *from, F given, F type, void *to, F got, F to_type, F comm, F error),
        MPI_Alltoall(BUFFER(from), *given, TYPE(type), BUFFER(to), *got, TYPE(to_type), COMM(comm)))
FORTRAN(gatherv, (void *from, F given, F type, void *to, F counts, F places, F to_type, F root, F comm, F error),
        MPI_Gatherv(BUFFER(from), *given, TYPE(type), BUFFER(to), counts, places, TYPE(to_type), *root, COMM(comm)))
FORTRAN(allgatherv, (void *from, F given, F type, void *to, F counts, F places, F to_type, F comm, F error),
        MPI_Allgatherv(BUFFER(from), *given, TYPE(type), BUFFER(to), counts, places, TYPE(to_type), COMM(comm)))
FORTRAN(scatterv, (void *from, F counts, F places, F type, void *to, F got, F to_type, F root, F comm, F error),
        MPI_Scatterv(BUFFER(from), counts, places, TYPE(type), BUFFER(to), *got, TYPE(to_type), *root, COMM(comm)))
FORTRAN(alltoallv, (void *from, F given, F given_places, F type, void *to, F got, F got_places, F to_type, F comm, F error),
        MPI_Alltoallv(BUFFER(from), given, given_places, TYPE(type), BUFFER(to), got, got_places, TYPE(to_type), COMM(comm)))
FORTRAN(alltoallw, (void *from, F given, F given_places, F types, void *to, F got, F got_places, F to_types, F comm, F error),
        alltoallw(BUFFER(from), given, given_places, types, BUFFER(to), got, got_places, to_types, COMM(comm)))
FORTRAN(init, (F error), MPI_Init(NULL, NULL))
FORTRAN(init_thread, (F wanted, F given, F error), MPI_Init_thread(NULL, NULL, *wanted, given))
FORTRAN(finalize, (F error), MPI_Finalize())
#else
#include <dlfcn.h>

/* MPICH's call the functions above, but for those of `use mpi_f08` without buffers. */
typedef void (*f08_function)(void);

static f08_function next_of(const char *name) {
    f08_function next = (f08_function)dlsym(RTLD_NEXT, name);
    if (next) return next;
    fprintf(stderr, "trimtab: the MPI has no function %s behind this library\n", name);
    abort();
}

EXPORT void mpi_init_f08_(MPI_Fint *error) {
    ((void (*)(MPI_Fint *))next_of("mpi_init_f08_"))(error);
    if (!error || *error == MPI_SUCCESS) begin();
}

EXPORT void mpi_init_thread_f08_(MPI_Fint *wanted, MPI_Fint *given, MPI_Fint *error) {
    ((void (*)(MPI_Fint *, MPI_Fint *, MPI_Fint *))next_of("mpi_init_thread_f08_"))(wanted, given, error);
    if (!error || *error == MPI_SUCCESS) begin();
}

EXPORT void mpi_finalize_f08_(MPI_Fint *error) {
    end();
    ((void (*)(MPI_Fint *))next_of("mpi_finalize_f08_"))(error);
}

EXPORT void mpi_barrier_f08_(MPI_Fint *comm, MPI_Fint *error) {
    int done = MPI_Barrier(PMPI_Comm_f2c(*comm));
    if (error) *error = done;
}
#endif
