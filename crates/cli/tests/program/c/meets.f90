! Like meets.c with MPI, through Fortran's modern module.
program meets
    use, intrinsic :: iso_fortran_env, only: int64, real64
    use mpi_f08
    implicit none
    integer :: times, us, at, rank, count
    real(real64) :: one, sum, begin, end
    character(16) :: word

    call get_command_argument(1, word)
    read (word, *) times
    call get_command_argument(2, word)
    read (word, *) us
    call MPI_Init()
    call MPI_Comm_rank(MPI_COMM_WORLD, rank)
    one = 1
    call MPI_Barrier(MPI_COMM_WORLD)
    begin = MPI_Wtime()
    do at = 1, times
        call work()
        select case (mod(at, 3))
        case (0)
            ! With and without the argument for the error code.
            call MPI_Barrier(MPI_COMM_WORLD)
        case (1)
            call MPI_Allreduce(one, sum, 1, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, count)
            if (count /= MPI_SUCCESS .or. sum < 1.5) stop 1
        case default
            call MPI_Bcast(sum, 1, MPI_DOUBLE_PRECISION, 0, MPI_COMM_WORLD)
        end select
    end do
    end = MPI_Wtime()
    if (rank == 0) print '(i0, 1x, i0, 1x, f0.0)', times, 1000 * us, 1e9_real64 * (end - begin) / times
    call MPI_Finalize()

contains

    subroutine work()
        real(real64) :: until
        until = MPI_Wtime() + 1e-6_real64 * us
        do while (MPI_Wtime() < until)
        end do
    end subroutine
end program
