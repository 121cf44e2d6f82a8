! Additional constructs of Fortran: do, workshare, do concurrent; and the module trimtab_nesting.
! First argument: the value that omp_set_nesting_info should return for a valid text.
module checks
  use, intrinsic :: iso_c_binding
  implicit none
  interface
    subroutine check_thread(what) bind(c)
      import
      character(kind=c_char), intent(in) :: what(*)
    end subroutine
    subroutine check_outside(what) bind(c)
      import
      character(kind=c_char), intent(in) :: what(*)
    end subroutine
    subroutine check_truth(right, what) bind(c)
      import
      integer(c_int), value :: right
      character(kind=c_char), intent(in) :: what(*)
    end subroutine
    subroutine check_expect(shape, masks) bind(c)
      import
      character(kind=c_char), intent(in) :: shape(*), masks(*)
    end subroutine
    subroutine check_meet(arrived, n) bind(c)
      import
      integer(c_int) :: arrived
      integer(c_int), value :: n
    end subroutine
    integer(c_int) function check_all() bind(c)
      import
    end function
  end interface
contains
  subroutine look(what)
    character(len=*), intent(in) :: what
    call check_thread(what // c_null_char)
  end subroutine

  subroutine same(is, should, what)
    integer, intent(in) :: is, should
    character(len=*), intent(in) :: what
    call check_truth(merge(1_c_int, 0_c_int, is == should), what // c_null_char)
  end subroutine

  subroutine constructs(two)
    integer, intent(in) :: two
    integer :: i, j, total
    integer(c_int) :: met
    integer :: cells(1000)

    met = 0
    total = 0
    !$omp parallel num_threads(2) reduction(+:total) shared(met)
    call look('parallel')
    call check_meet(met, 2_c_int)
    total = total + 1
    !$omp end parallel
    call same(total, 2, 'parallel')

    met = 0
    total = 0
    !$omp parallel do num_threads(2) reduction(+:total)
    do i = 1, two
      call look('do')
      call check_meet(met, 2_c_int)
      total = total + i
    end do
    !$omp end parallel do
    call same(total, 3, 'do')

    met = 0
    total = 0
    !$omp parallel do num_threads(2) schedule(dynamic, 1)
    do i = 1, 2
      call look('dynamic do, constant')
      call check_meet(met, 2_c_int)
      !$omp atomic
      total = total + i
    end do
    !$omp end parallel do
    call same(total, 3, 'dynamic do, constant')

    met = 0
    total = 0
    !$omp parallel do num_threads(2) schedule(guided) collapse(2)
    do i = 1, two
      do j = 1, two - 1
        call look('guided do, variable')
        call check_meet(met, 2_c_int)
        !$omp atomic
        total = total + i * j
      end do
    end do
    !$omp end parallel do
    call same(total, 3, 'guided do, variable')

    total = 0
    !$omp parallel do num_threads(2) schedule(runtime)
    do i = 1, 2
      call look('runtime do')
      !$omp atomic
      total = total + i
    end do
    !$omp end parallel do
    call same(total, 3, 'runtime do')

    total = 0
    !$omp parallel do num_threads(2) ordered
    do i = 1, two
      !$omp ordered
      call look('ordered do')
      total = total * 10 + i
      !$omp end ordered
    end do
    !$omp end parallel do
    call same(total, 12, 'ordered do')

    met = 0
    total = 0
    !$omp parallel sections num_threads(2)
    !$omp section
    call look('first section')
    call check_meet(met, 2_c_int)
    !$omp atomic
    total = total + 1
    !$omp section
    call look('second section')
    call check_meet(met, 2_c_int)
    !$omp atomic
    total = total + 2
    !$omp end parallel sections
    call same(total, 3, 'sections')

    cells = 1
    !$omp parallel workshare num_threads(2)
    cells = cells + 1
    cells = cells * 2
    !$omp end parallel workshare
    call same(sum(cells), 4000, 'workshare')

    met = 0
    !$omp parallel num_threads(2)
    call look('after a workshare')
    call check_meet(met, 2_c_int)
    !$omp workshare
    cells = cells - 1
    !$omp end workshare
    !$omp single
    call look('single')
    !$omp end single
    !$omp end parallel
    call same(sum(cells), 3000, 'workshare in a region')

    do concurrent (i = 1:1000)
      cells(i) = i
    end do
    call same(sum(cells), 500500, 'do concurrent')

    total = 0
    !$omp parallel num_threads(2) reduction(task, +:total)
    call look('task reduction')
    !$omp task in_reduction(+:total)
    total = total + 5
    !$omp end task
    !$omp end parallel
    call same(total, 10, 'task reduction')

    total = 0
    !$omp parallel num_threads(2)
    !$omp single
    !$omp taskloop num_tasks(2) shared(total)
    do i = 1, 2
      call look('taskloop')
      !$omp atomic
      total = total + i
    end do
    !$omp end taskloop
    !$omp end single
    !$omp end parallel
    call same(total, 3, 'taskloop')
  end subroutine
end module

program fortran
  use checks
  use omp_lib
  use trimtab_nesting
  implicit none
  integer :: again, good, two
  character(len=8) :: argument
  character(len=40) :: text

  call get_command_argument(1, argument)
  read (argument, *) good
  two = 1 + min(1, omp_get_num_procs()) ! 2, but not for the compiler to know
  call omp_set_max_active_levels(3)
  do again = 1, 10
    call check_outside('before' // c_null_char)
    call constructs(two)
    call check_outside('between' // c_null_char)
    !$omp parallel num_threads(2)
    call look('outer')
    call constructs(two)
    call look('outer, after')
    !$omp end parallel
    call check_outside('after' // c_null_char)
  end do

  text = '2,scatter,2,subcompact'
  call same(omp_set_nesting_info(text), good, 'a good text')
  if (good == 0) call check_expect('2,2' // c_null_char, 'B,A/B,B,A,A' // c_null_char)
  !$omp parallel num_threads(2)
  call constructs(two)
  !$omp end parallel
  if (good == 0) call same(omp_set_nesting_info('2,nearby'), trimtab_nesting_bad_text, 'a bad text')
  !$omp parallel num_threads(2)
  call constructs(two)
  !$omp end parallel
  if (check_all() /= 0) stop 1
end program
