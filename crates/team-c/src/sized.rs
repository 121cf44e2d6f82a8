//! Structures of callers that contain their size: fields that an earlier header lacks get their
//! defaults; a structure of a later header is refused.
use std::mem::MaybeUninit;
use trimtab_team::{Error, Result};

/// A structure of plain data whose first field is its size in bytes, according to the caller's
/// header. Later versions only add fields at the end.
pub(crate) trait SelfSized: Copy {
    /// Its name in messages.
    const WHAT: &'static str;
    /// The sizes of all versions so far, the last one that of this type.
    const KNOWN: &'static [usize];
    /// Returns the defaults.
    fn usual() -> Self;
}

/// Checks that a size is that of a version of a structure.
fn known<T: SelfSized>(size: usize) -> Result<usize> {
    let own = size_of::<T>();
    if T::KNOWN.contains(&size) && size <= own {
        return Ok(size);
    }
    let what = T::WHAT;
    Err(Error::Argument(if size > own {
        format!(
            "the {what} has {size} bytes, and this library knows {own}: the program was built with a later header and needs a library of that version"
        )
    } else {
        format!(
            "the size of the {what} is not that of any version ({size} bytes): its first field is the size of the structure, as the header's functions set it"
        )
    }))
}

/// Reads a caller's structure of any version.
///
/// # Safety
/// `from` is null, or valid for reading a size, and then as many bytes as that size, if it is that
/// of a version of `T`.
pub(crate) unsafe fn read_sized<T: SelfSized>(from: *const T) -> Result<T> {
    if from.is_null() {
        return Err(Error::Argument(format!("there is no {}", T::WHAT)));
    }
    // SAFETY: not null, and so the structure's first field by the caller's promise.
    let size = known::<T>(unsafe { from.cast::<usize>().read_unaligned() })?;
    let mut whole = MaybeUninit::new(T::usual());
    // SAFETY: no more than both have, by the caller's promise and the check above; plain data of
    // another version of the same structure.
    unsafe {
        std::ptr::copy_nonoverlapping(from.cast::<u8>(), whole.as_mut_ptr().cast::<u8>(), size);
        Ok(whole.assume_init())
    }
}

/// Writes the part of a structure for which the caller has room.
///
/// # Safety
/// `to` is null, or valid for writing `size` bytes.
pub(crate) unsafe fn write_sized<T: SelfSized>(to: *mut T, size: usize, value: T) -> Result<()> {
    crate::handles::check_address(to)?;
    let size = known::<T>(size)?;
    // SAFETY: no more than the value has, and no more than the room.
    unsafe { std::ptr::copy_nonoverlapping((&raw const value).cast::<u8>(), to.cast::<u8>(), size) };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(C)]
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    struct First {
        size: usize,
        one: u64,
    }

    #[repr(C)]
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    struct Second {
        size: usize,
        one: u64,
        two: u64,
    }

    impl SelfSized for Second {
        const WHAT: &'static str = "thing";
        const KNOWN: &'static [usize] = &[size_of::<First>(), size_of::<Self>()];
        fn usual() -> Self {
            Self { size: size_of::<Self>(), one: 11, two: 22 }
        }
    }

    #[test]
    fn programs_of_earlier_headers_work_and_those_of_later_ones_get_an_error() {
        let first = First { size: 16, one: 5 };
        // SAFETY: it has the number of bytes that its size field states.
        let read = unsafe { read_sized((&raw const first).cast::<Second>()) }.unwrap();
        assert_eq!(read, Second { size: 16, one: 5, two: 22 });
        for size in [0, 8, 15, 17, 25, usize::MAX] {
            let second = Second { size, one: 5, two: 6 };
            // SAFETY: as above; of other sizes nothing but the size is read.
            let words = unsafe { read_sized(&raw const second) }.unwrap_err().to_string();
            assert_eq!(words.contains("later header"), size > 24, "{words}");
        }
        // The bytes behind the structure of an earlier header belong to the caller.
        let mut room = [First { size: 1, one: 2 }; 2];
        // SAFETY: the first of the two.
        unsafe { write_sized(room.as_mut_ptr().cast(), 16, Second { size: 16, ..Second::usual() }) }.unwrap();
        assert_eq!(room, [First { size: 16, one: 11 }, First { size: 1, one: 2 }]);
        // SAFETY: nothing is written for an unknown size, and nothing to nowhere.
        unsafe {
            assert!(write_sized(room.as_mut_ptr().cast(), 23, Second::usual()).is_err());
            assert!(write_sized(std::ptr::null_mut(), 24, Second::usual()).is_err());
        }
    }
}
