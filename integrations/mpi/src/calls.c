/* MPI's functions. Each is one line of collectives.h, which is read once for counts of `int`, and once for the functions of MPI-4 with large
 * counts (MPI_Bcast_c), if this MPI has them. */
#include "trimtab_mpi.h"

/* Defines MPI's function `name`, whose parameters are `declared`: `carried` carries it out if the communicator has a team, or returns
 * LEFT_TO_MPI. Then MPI does, with the same arguments. */
#define COLLECTIVE(name, declared, arguments, carried)             \
    EXPORT int NAME(MPI_##name) declared {                         \
        struct part *part = part_of(comm);                         \
        if (part) {                                                \
            part->call = "MPI_" #name;                             \
            int error = carried;                                   \
            if (error != LEFT_TO_MPI) return error;                \
        }                                                          \
        return returned(NAME(PMPI_##name) arguments);              \
    }

EXPORT int MPI_Barrier(MPI_Comm comm) {
    struct part *part = part_of(comm);
    if (!part) return returned(PMPI_Barrier(comm));
    part->call = "MPI_Barrier";
    return wait_for_all(part);
}

#define NAME(name) name
#define COUNT int
#define PLACE int
#define WIDE 0
#include "collectives.h"

#if MPI_VERSION >= 4
#define NAME(name) name##_c
#define COUNT MPI_Count
#define PLACE MPI_Aint
#define WIDE 1
#include "collectives.h"
#endif
