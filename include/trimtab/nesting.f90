! Placement of the threads of nested OpenMP regions: a call by which a program that runs under trimtab sets it itself.
!
!     use trimtab_nesting
!     integer :: fault
!
!     fault = omp_set_nesting_info('4,scatter,2,subcompact')
!
!     !$omp parallel num_threads(4)     ! far apart: one on each of four NUMA nodes, if there are four
!     !$omp parallel num_threads(2)     ! each of these teams close together, near its master
!
! nesting.h beside this file explains the text, and when the call may be made. The result:
!
!     trimtab_nesting_done       the map is in force
!     trimtab_nesting_bad_text   the text cannot be parsed; the previous map stays in force
!     trimtab_nesting_no_map     trimtab is there, but does not place this process's threads
!     trimtab_nesting_nobody     the program does not run under trimtab, and the call has no effect
!
! Compile this file with the program: modules are not portable between compilers. It is Fortran 2003, for callers in
! fixed or free form; before glibc 2.34, link with -ldl.
module trimtab_nesting
  use, intrinsic :: iso_c_binding, only: c_associated, c_char, c_f_procpointer, c_funptr, c_int, c_null_char, c_null_ptr, c_ptr
  implicit none
  private

  integer, parameter, public :: trimtab_nesting_done = 0
  integer, parameter, public :: trimtab_nesting_bad_text = 1
  integer, parameter, public :: trimtab_nesting_no_map = 2
  integer, parameter, public :: trimtab_nesting_nobody = -1
  public :: omp_set_nesting_info

  interface
    ! A null handle is RTLD_DEFAULT on Linux: search everywhere.
    type(c_funptr) function look_up(handle, name) bind(c, name='dlsym')
      import :: c_char, c_funptr, c_ptr
      type(c_ptr), value :: handle
      character(kind=c_char), intent(in) :: name(*)
    end function look_up

    type(c_ptr) function last_fault() bind(c, name='dlerror')
      import :: c_ptr
    end function last_fault
  end interface

  abstract interface
    integer(c_int) function setter(text) bind(c)
      import :: c_char, c_int
      character(kind=c_char), intent(in) :: text(*)
    end function setter
  end interface

contains

  ! Sets how regions nest and where their threads run. Blanks at the end of the text are ignored.
  integer function omp_set_nesting_info(text) result(outcome)
    character(len=*), intent(in) :: text
    procedure(setter), pointer :: set
    type(c_funptr) :: found
    type(c_ptr) :: forgotten

    found = look_up(c_null_ptr, 'trimtab_set_nesting_info' // c_null_char)
    if (c_associated(found)) then
      call c_f_procpointer(found, set)
      outcome = int(set(trim(text) // c_null_char))
    else
      forgotten = last_fault() ! clears the error of this search, so that the program does not see it
      outcome = trimtab_nesting_nobody
    end if
  end function omp_set_nesting_info

end module trimtab_nesting
