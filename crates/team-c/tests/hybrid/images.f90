! The images of a coarray program as a team: the team's sums equal co_sum's, and a barrier of the team keeps coarrays in step.
module teams
    use iso_c_binding
    implicit none
    ! struct trimtab_team_options and trimtab_collective of team.h
    type, bind(c) :: options_of
        integer(c_size_t) :: size
        integer(c_int32_t) :: ranks, wait
        integer(c_size_t) :: heap, cell
        integer(c_int64_t) :: deadline, gather
        integer(c_int32_t) :: tables
    end type
    type, bind(c) :: collective
        integer(c_size_t) :: size
        integer(c_int32_t) :: kind, elements, operation, sync
        integer(c_size_t) :: count
        integer(c_int32_t) :: root
        type(c_ptr) :: input, output
        type(c_funptr) :: own
        type(c_ptr) :: context
    end type
    integer(c_int32_t), parameter :: allreduce = 4, f64 = 11, addition = 0, mine = 5
    interface
        integer(c_int) function trimtab_team_options_fill(options, size, ranks) bind(c)
            import
            type(options_of) :: options
            integer(c_size_t), value :: size
            integer(c_int32_t), value :: ranks
        end function
        integer(c_int) function trimtab_team_of_job(rank, key, options, team) bind(c)
            import
            integer(c_int32_t), value :: rank
            character(kind=c_char) :: key(*)
            type(options_of) :: options
            integer(c_int64_t) :: team
        end function
        integer(c_int) function trimtab_team_join(team, number, rank) bind(c)
            import
            integer(c_int64_t), value :: team, number
            integer(c_int64_t) :: rank
        end function
        integer(c_int) function trimtab_call(rank, call) bind(c)
            import
            integer(c_int64_t), value :: rank
            type(collective) :: call
        end function
        integer(c_int) function trimtab_barrier(rank) bind(c)
            import
            integer(c_int64_t), value :: rank
        end function
        integer(c_int) function trimtab_rank_leave(rank) bind(c)
            import
            integer(c_int64_t), value :: rank
        end function
    end interface
contains
    subroutine ok(code)
        integer(c_int), value :: code
        if (code /= 0) error stop 'a call of the team failed'
    end subroutine
end module

program images
    use teams
    implicit none
    integer, parameter :: most = 3000
    type(options_of) :: options
    type(collective) :: call
    integer(c_int64_t) :: team, rank, clock
    integer :: me, all, next, n, i
    real(c_double), target :: in(most), out(most)
    real(c_double) :: sums(most)
    real(c_double) :: shared(most)[*]
    character(len=40) :: key

    me = this_image()
    all = num_images()
    next = mod(me, all) + 1
    ! A name that is unique to this run: the time at image 1, to the nanosecond.
    call system_clock(clock)
    call co_broadcast(clock, source_image=1)
    write (key, '(a, i0)') 'images-', clock
    call ok(trimtab_team_options_fill(options, c_sizeof(options), int(all, c_int32_t)))
    call ok(trimtab_team_of_job(int(me - 1, c_int32_t), trim(key)//c_null_char, options, team))
    call ok(trimtab_team_join(team, int(me - 1, c_int64_t), rank))
    n = 1
    do while (n <= most)
        in(:n) = [(me * 1000.0d0 + i, i = 1, n)]
        call%size = c_sizeof(call)
        call%kind = allreduce
        call%elements = f64
        call%operation = addition
        call%sync = mine
        call%count = n
        call%root = 0
        call%input = c_loc(in)
        call%output = c_loc(out)
        call%own = c_null_funptr
        call%context = c_null_ptr
        call ok(trimtab_call(rank, call))
        sums(:n) = in(:n)
        call co_sum(sums(:n))
        if (any(sums(:n) /= out(:n))) error stop 'the team and co_sum do not agree'
        ! Each image sees its neighbour's value after the barrier.
        shared(:n) = out(:n) + me
        sync all
        call ok(trimtab_barrier(rank))
        if (any(shared(:n)[next] /= out(:n) + next)) error stop 'a neighbour has something else'
        ! Other images may need this one's help to read its memory, and it gives none while it waits in a team.
        sync all
        call ok(trimtab_barrier(rank))
        n = n * 10 + 1
    end do
    call ok(trimtab_rank_leave(rank))
    sync all
    print '(a, i0, a, i0, a)', 'image ', me, ' of ', all, ' agrees'
end program
