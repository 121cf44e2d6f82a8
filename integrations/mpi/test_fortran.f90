! Collectives of Fortran, by `use mpi`; with -DF08 by `use mpi_f08`: the results are known.
program test_fortran
#ifdef F08
  use mpi_f08
#else
  use mpi
#endif
  implicit none
  integer :: me, all, i, round
  integer, allocatable :: counts(:), places(:), whole(:), mine(:)
  double precision :: x(3), total(3)
  complex(kind(1d0)) :: z
  integer :: error
  call mpi_init(error)
  call mpi_comm_rank(mpi_comm_world, me, error)
  call mpi_comm_size(mpi_comm_world, all, error)
  allocate (counts(all), places(all), whole(all * (all + 1) / 2), mine(all))
  do round = 1, 20
    call mpi_barrier(mpi_comm_world, error)
    x = [dble(me), 1d0, dble(round)]
    call mpi_allreduce(x, total, 3, mpi_double_precision, mpi_sum, mpi_comm_world, error)
    call is(total(1) == dble(all * (all - 1) / 2) .and. total(2) == dble(all) .and. total(3) == dble(all * round))
    call mpi_allreduce(mpi_in_place, x, 3, mpi_double_precision, mpi_max, mpi_comm_world, error)
    call is(x(1) == dble(all - 1))
    z = cmplx(me, -1, kind(1d0))
    call mpi_allreduce(mpi_in_place, z, 1, mpi_double_complex, mpi_sum, mpi_comm_world, error)
    call is(dble(z) == dble(all * (all - 1) / 2) .and. aimag(z) == -dble(all))
    i = merge(round, -1, me == 0)
    call mpi_bcast(i, 1, mpi_integer, 0, mpi_comm_world, error)
    call is(i == round)
    counts = [(i, i = 1, all)]
    places = [(i * (i - 1) / 2, i = 1, all)]
    whole = -1
    whole(places(me + 1) + 1:places(me + 1) + me + 1) = me
    call mpi_allgatherv(mpi_in_place, 0, mpi_integer, whole, counts, places, mpi_integer, mpi_comm_world, error)
    call is(all_of(whole, all))
    mine = me
    call mpi_alltoall(mpi_in_place, 1, mpi_integer, mine, 1, mpi_integer, mpi_comm_world, error)
    call is(all_equal(mine, all))
    i = me
    call mpi_scan(me, i, 1, mpi_integer, mpi_sum, mpi_comm_world, error)
    call is(i == me * (me + 1) / 2)
    i = me
    call mpi_exscan(mpi_in_place, i, 1, mpi_integer, mpi_sum, mpi_comm_world, error)
    call is(me == 0 .or. i == me * (me - 1) / 2)
  end do
  call mpi_finalize(error)
contains
  subroutine is(right)
    logical, intent(in) :: right
    integer :: failed
    if (right) return
    print *, 'rank', me, 'round', round, 'wrong'
    call mpi_abort(mpi_comm_world, 3, failed)
  end subroutine
  logical function all_of(whole, ranks)
    integer, intent(in) :: whole(:), ranks
    integer :: r
    all_of = .true.
    do r = 1, ranks
      if (any(whole(r * (r - 1) / 2 + 1:r * (r + 1) / 2) /= r - 1)) all_of = .false.
    end do
  end function
  logical function all_equal(mine, ranks)
    integer, intent(in) :: mine(:), ranks
    integer :: r
    all_equal = .not. any(mine /= [(r, r = 0, ranks - 1)])
  end function
end program
