/* The collectives that are taken over, for counts of type COUNT and displacements of type PLACE; WIDE if those are not `int`. calls.c reads
 * this file for both. */

COLLECTIVE(Bcast, (void *buffer, COUNT count, MPI_Datatype type, int root, MPI_Comm comm), (buffer, count, type, root, comm),
           broadcast(part, blocks_of(buffer, count, type), root))

/* ---- Calls that combine */

COLLECTIVE(Reduce, (const void *from, void *to, COUNT count, MPI_Datatype type, MPI_Op op, int root, MPI_Comm comm),
           (from, to, count, type, op, root, comm), combine(part, TRIMTAB_REDUCE, from, to, count, type, op, root))

COLLECTIVE(Allreduce, (const void *from, void *to, COUNT count, MPI_Datatype type, MPI_Op op, MPI_Comm comm),
           (from, to, count, type, op, comm), combine(part, TRIMTAB_ALLREDUCE, from, to, count, type, op, 0))

COLLECTIVE(Scan, (const void *from, void *to, COUNT count, MPI_Datatype type, MPI_Op op, MPI_Comm comm),
           (from, to, count, type, op, comm), combine(part, TRIMTAB_SCAN, from, to, count, type, op, 0))

COLLECTIVE(Exscan, (const void *from, void *to, COUNT count, MPI_Datatype type, MPI_Op op, MPI_Comm comm),
           (from, to, count, type, op, comm), combine(part, TRIMTAB_EXSCAN, from, to, count, type, op, 0))

COLLECTIVE(Reduce_scatter_block, (const void *from, void *to, COUNT count, MPI_Datatype type, MPI_Op op, MPI_Comm comm),
           (from, to, count, type, op, comm), combine(part, TRIMTAB_REDUCE_SCATTER, from, to, count, type, op, 0))

/* Blocks of different sizes are left to MPI: their count is negative. */
COLLECTIVE(Reduce_scatter, (const void *from, void *to, const COUNT counts[], MPI_Datatype type, MPI_Op op, MPI_Comm comm),
           (from, to, counts, type, op, comm),
           combine(part, TRIMTAB_REDUCE_SCATTER, from, to, alike(part, counts, WIDE), type, op, 0))

/* ---- Calls that move blocks */

COLLECTIVE(Gather,
           (const void *from, COUNT given, MPI_Datatype type, void *to, COUNT got, MPI_Datatype to_type, int root, MPI_Comm comm),
           (from, given, type, to, got, to_type, root, comm),
           move(part, TRIMTAB_GATHER, blocks_of(from, given, type), blocks_of(to, got, to_type), root))

COLLECTIVE(Allgather, (const void *from, COUNT given, MPI_Datatype type, void *to, COUNT got, MPI_Datatype to_type, MPI_Comm comm),
           (from, given, type, to, got, to_type, comm),
           move(part, TRIMTAB_ALLGATHER, blocks_of(from, given, type), blocks_of(to, got, to_type), 0))

COLLECTIVE(Scatter,
           (const void *from, COUNT given, MPI_Datatype type, void *to, COUNT got, MPI_Datatype to_type, int root, MPI_Comm comm),
           (from, given, type, to, got, to_type, root, comm),
           move(part, TRIMTAB_SCATTER, blocks_of(from, given, type), blocks_of(to, got, to_type), root))

COLLECTIVE(Alltoall, (const void *from, COUNT given, MPI_Datatype type, void *to, COUNT got, MPI_Datatype to_type, MPI_Comm comm),
           (from, given, type, to, got, to_type, comm),
           move(part, TRIMTAB_ALLTOALL, blocks_of(from, given, type), blocks_of(to, got, to_type), 0))

/* ---- The same with blocks of different sizes and places */

COLLECTIVE(Gatherv,
           (const void *from, COUNT given, MPI_Datatype type, void *to, const COUNT counts[], const PLACE places[], MPI_Datatype to_type,
            int root, MPI_Comm comm),
           (from, given, type, to, counts, places, to_type, root, comm),
           move(part, TRIMTAB_GATHER, blocks_of(from, given, type), varied_of(to, counts, places, WIDE, to_type, NULL), root))

COLLECTIVE(Allgatherv,
           (const void *from, COUNT given, MPI_Datatype type, void *to, const COUNT counts[], const PLACE places[], MPI_Datatype to_type,
            MPI_Comm comm),
           (from, given, type, to, counts, places, to_type, comm),
           move(part, TRIMTAB_ALLGATHER, blocks_of(from, given, type), varied_of(to, counts, places, WIDE, to_type, NULL), 0))

COLLECTIVE(Scatterv,
           (const void *from, const COUNT counts[], const PLACE places[], MPI_Datatype type, void *to, COUNT got, MPI_Datatype to_type,
            int root, MPI_Comm comm),
           (from, counts, places, type, to, got, to_type, root, comm),
           move(part, TRIMTAB_SCATTER, varied_of(from, counts, places, WIDE, type, NULL), blocks_of(to, got, to_type), root))

COLLECTIVE(Alltoallv,
           (const void *from, const COUNT given[], const PLACE given_places[], MPI_Datatype type, void *to, const COUNT got[],
            const PLACE got_places[], MPI_Datatype to_type, MPI_Comm comm),
           (from, given, given_places, type, to, got, got_places, to_type, comm),
           move(part, TRIMTAB_ALLTOALL, varied_of(from, given, given_places, WIDE, type, NULL),
                varied_of(to, got, got_places, WIDE, to_type, NULL), 0))

COLLECTIVE(Alltoallw,
           (const void *from, const COUNT given[], const PLACE given_places[], const MPI_Datatype types[], void *to, const COUNT got[],
            const PLACE got_places[], const MPI_Datatype to_types[], MPI_Comm comm),
           (from, given, given_places, types, to, got, got_places, to_types, comm),
           move(part, TRIMTAB_ALLTOALL, varied_of(from, given, given_places, WIDE, MPI_DATATYPE_NULL, types),
                varied_of(to, got, got_places, WIDE, MPI_DATATYPE_NULL, to_types), 0))

#undef NAME
#undef COUNT
#undef PLACE
#undef WIDE
