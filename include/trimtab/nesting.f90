! Where the threads of nested OpenMP regions run: the call with which a program running under trimtab says so itself.
!
!     use trimtab_nesting
!     integer :: fault
!
!     fault = omp_set_nesting_info('4,scatter,2,subcompact')
!
!     !$omp parallel num_threads(4)     ! far apart: one on each of four NUMA nodes, where there are as many
!     !$omp parallel num_threads(2)     ! each of these teams close together, near its master
!
! What the text means, and when the call may be made, is told in nesting.h beside this file. The result:
!
!     trimtab_nesting_done       the map is in force
!     trimtab_nesting_bad_text   the text cannot be read; the map before stays in force
!     trimtab_nesting_no_map     trimtab is there, but not asked to place this process's threads
!     trimtab_nesting_nobody     the program does not run under trimtab, and goes on as if it had not called
!
! Compile this file with the program: modules are not portable between compilers. It is Fortran 2003, fixed or free
! callers alike; before glibc 2.34, link with -ldl.
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
    ! A null handle is RTLD_DEFAULT on Linux: look everywhere.
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

  ! Declares how regions nest and where their threads run. Blanks at the end of the text do not count.
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
      forgotten = last_fault() ! the program shall not find our failed search when it asks for its own
      outcome = trimtab_nesting_nobody
    end if
  end function omp_set_nesting_info

end module trimtab_nesting
