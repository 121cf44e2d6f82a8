! A program that calls omp_set_nesting_info without the module, as a Fortran 77 program would: the call has the length of
! the text as a hidden last argument.
program implicit
  integer omp_set_nesting_info
  external omp_set_nesting_info
  character*30 text
  text = '2,scatter'
  print '(i0,1x,i0,1x,i0)', omp_set_nesting_info(text), omp_set_nesting_info('2,scatter,2,subcompact'), &
    omp_set_nesting_info('2,nearby')
end program
