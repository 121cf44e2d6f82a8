! Images that add and meet; each says its number.
program images
  implicit none
  integer(8) :: total[*], i, round
  total = 0
  do round = 1, 40
     do i = this_image(), 4000000, num_images()
        total = total + mod(i * round, 1013_8)
     end do
     sync all
  end do
  call co_sum(total)
  print *, 'image', this_image(), 'of', num_images(), 'total', total
end program
