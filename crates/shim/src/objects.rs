//! Loaded objects: the object that holds an address, and the symbols that an object defines.
//!
//! Problem: several OpenMP runtimes may be loaded at once (each Python wheel brings its own), and a
//! call must reach the runtime that its caller is linked to. `RTLD_NEXT` finds only the first, and
//! none at all for plug-ins opened without `RTLD_GLOBAL`. `dlopen` and `dlsym` could search in the
//! caller's scope, but they take the loader's main lock. A thread that opens a library holds that
//! lock while it waits, in the library's constructor, for threads it has created. A region opened
//! in such a thread would wait without end. Idea: read the tables that the loader itself reads,
//! under the lock of the list of objects only, which every C++ exception takes too.
//!
//! Properties: nothing is allocated, and only addresses are kept after a visit. Malformed tables
//! define no symbols.

use libc::{c_int, c_void, dl_phdr_info, size_t};
use std::ffi::CStr;
use std::ops::{ControlFlow, Range};
use std::ptr::null_mut;

/// Loaded object, for the length of a visit.
pub(crate) struct Object<'a> {
    info: &'a dl_phdr_info,
}

/// Visits the loaded objects in load order, the program first, until the visitor breaks. Returns
/// the visitor's result.
pub(crate) fn visit<B>(mut visitor: impl FnMut(&Object<'_>) -> ControlFlow<B>) -> Option<B> {
    struct Visit<'v, B> {
        visitor: &'v mut dyn FnMut(&Object<'_>) -> ControlFlow<B>,
        answer: Option<B>,
    }
    unsafe extern "C" fn step<B>(info: *mut dl_phdr_info, _: size_t, visit: *mut c_void) -> c_int {
        // SAFETY: `info` is valid for this call, and `visit` is the one passed below.
        let (info, visit) = unsafe { (&*info, &mut *visit.cast::<Visit<'_, B>>()) };
        match (visit.visitor)(&Object { info }) {
            ControlFlow::Continue(()) => 0,
            ControlFlow::Break(answer) => {
                visit.answer = Some(answer);
                1
            }
        }
    }
    let mut visit = Visit { visitor: &mut visitor, answer: None };
    // SAFETY: `step` has the type asked for, and `visit` lives throughout. A panic in the visitor
    // would unwind through the loader's lock: visitors index nothing unchecked and allocate
    // nothing.
    unsafe { libc::dl_iterate_phdr(Some(step::<B>), (&raw mut visit).cast()) };
    visit.answer
}

/// Returns the address of a name in the first object behind this library, in load order; null if no
/// object defines it. For C libraries without `dlsym`. These are so old that they have no objects
/// that are loaded later with local scope.
pub(crate) fn next(name: &CStr) -> *mut c_void {
    let own = next as *const c_void as usize;
    let mut behind = false;
    let found = visit(|object| {
        if behind && let Some(found) = object.defines(name) {
            return ControlFlow::Break(found);
        }
        behind |= object.holds(own);
        ControlFlow::Continue(())
    });
    found.map_or(null_mut(), std::ptr::with_exposed_provenance_mut)
}

impl Object<'_> {
    /// Returns the path from which the object was loaded; empty for the program itself.
    pub(crate) fn path(&self) -> &[u8] {
        if self.info.dlpi_name.is_null() {
            return &[];
        }
        // SAFETY: a name is a C string and lives as long as the object.
        unsafe { CStr::from_ptr(self.info.dlpi_name) }.to_bytes()
    }

    /// Returns the last part of the path.
    pub(crate) fn file(&self) -> &[u8] {
        self.path().rsplit(|&byte| byte == b'/').next().unwrap_or_default()
    }

    /// Returns whether an address lies in the object.
    pub(crate) fn holds(&self, address: usize) -> bool {
        self.loaded().any(|segment| segment.contains(&address))
    }

    /// Returns the range from its first to its last address.
    pub(crate) fn range(&self) -> Range<usize> {
        let start = self.loaded().map(|segment| segment.start).min();
        let end = self.loaded().map(|segment| segment.end).max();
        start.unwrap_or(0)..end.unwrap_or(0)
    }

    fn loaded(&self) -> impl Iterator<Item = Range<usize>> {
        self.headers().iter().filter(|header| header.p_type == libc::PT_LOAD).map(|header| {
            let start = self.base().wrapping_add(header.p_vaddr as usize);
            start..start.saturating_add(header.p_memsz as usize)
        })
    }

    fn base(&self) -> usize {
        self.info.dlpi_addr as usize
    }

    fn headers(&self) -> &[libc::Elf64_Phdr] {
        if self.info.dlpi_phdr.is_null() {
            return &[];
        }
        // SAFETY: the object has `dlpi_phnum` headers there.
        unsafe { std::slice::from_raw_parts(self.info.dlpi_phdr, self.info.dlpi_phnum.into()) }
    }

    /// Returns the address of a function or variable that the object defines.
    pub(crate) fn defines(&self, name: &CStr) -> Option<usize> {
        self.tables()?.find(name.to_bytes())
    }

    /// Returns whether the object names a library, by file name, among those it needs.
    pub(crate) fn needs(&self, file: &[u8]) -> bool {
        let Some(tables) = self.tables() else { return false };
        tables.entries().any(|(tag, value)| {
            tag == DT_NEEDED && tables.string(value).is_some_and(|name| last(name) == file)
        })
    }

    /// Returns the name by which other objects need this one.
    pub(crate) fn soname(&self) -> Option<&[u8]> {
        let tables = self.tables()?;
        let (_, value) = tables.entries().find(|&(tag, _)| tag == DT_SONAME)?;
        tables.string(value).map(last)
    }

    fn tables(&self) -> Option<Tables<'_>> {
        let dynamic = self.headers().iter().find(|header| header.p_type == libc::PT_DYNAMIC)?;
        let mut tables = Tables {
            object: self,
            dynamic: self.at(dynamic.p_vaddr)?,
            strings: 0,
            length: 0,
            symbols: 0,
            hash: 0,
            versions: None,
        };
        let (mut strings, mut length, mut symbols, mut hash) = (None, 0, None, None);
        for (tag, value) in tables.entries() {
            match tag {
                DT_STRTAB => strings = self.at(value),
                DT_STRSZ => length = value as usize,
                DT_SYMTAB => symbols = self.at(value),
                DT_GNU_HASH => hash = self.at(value),
                DT_VERSYM => tables.versions = self.at(value),
                _ => {}
            }
        }
        (tables.strings, tables.length, tables.symbols, tables.hash) =
            (strings?, length, symbols?, hash.unwrap_or(0));
        Some(tables)
    }

    /// Returns an address in this object: unchanged if the loader has relocated it, else relative
    /// to the base.
    fn at(&self, value: u64) -> Option<usize> {
        let value = usize::try_from(value).ok()?;
        [value, self.base().wrapping_add(value)].into_iter().find(|&address| self.holds(address))
    }
}

fn last(path: &[u8]) -> &[u8] {
    path.rsplit(|&byte| byte == b'/').next().unwrap_or_default()
}

const DT_NEEDED: u64 = 1;
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
const DT_STRSZ: u64 = 10;
const DT_SONAME: u64 = 14;
const DT_GNU_HASH: u64 = 0x6fff_fef5;
const DT_VERSYM: u64 = 0x6fff_fff0;
/// Bit in the table of versions: a version that only programs get that were linked when it was the
/// newest.
const OLD_VERSION: u16 = 0x8000;
/// Bound of the entries read from a table that has no length.
const ENTRIES_MAX: usize = 1 << 12;

/// Tables of an object that name its symbols.
struct Tables<'a> {
    object: &'a Object<'a>,
    dynamic: usize,
    strings: usize,
    length: usize,
    symbols: usize,
    /// Address of the hash table; 0 if there is none.
    hash: usize,
    /// Address of the version numbers, one for each symbol.
    versions: Option<usize>,
}

impl<'a> Tables<'a> {
    /// Yields the dynamic section's entries, tag and value.
    fn entries(&self) -> impl Iterator<Item = (u64, u64)> + use<'a> {
        let (object, dynamic) = (self.object, self.dynamic);
        (0..ENTRIES_MAX)
            .map_while(move |at| {
                let entry: usize = dynamic.checked_add(at * 16)?;
                Some((read::<u64>(object, entry)?, read::<u64>(object, entry + 8)?))
            })
            .take_while(|&(tag, _)| tag != 0)
    }

    fn string(&self, at: u64) -> Option<&'a [u8]> {
        let at = usize::try_from(at).ok().filter(|&at| at < self.length)?;
        let start = self.strings.checked_add(at)?;
        let end = self.strings.checked_add(self.length)?;
        if !self.object.holds(start) || !self.object.holds(end.checked_sub(1)?) {
            return None;
        }
        // SAFETY: from `start` to `end` is mapped and readable, being part of the object's string
        // table, and constant.
        let bytes = unsafe { std::slice::from_raw_parts(start as *const u8, end - start) };
        bytes.split(|&byte| byte == 0).next()
    }

    /// Finds a name in the same way as the loader: a filter, a bucket, a chain.
    fn find(&self, name: &[u8]) -> Option<usize> {
        let word = |at: usize| read::<u32>(self.object, self.hash.checked_add(at)?);
        if self.hash == 0 {
            return None;
        }
        let (buckets, first, filters) = (word(0)? as usize, word(4)?, word(8)? as usize);
        let hash = name.iter().fold(5381u32, |hash, &byte| hash.wrapping_mul(33).wrapping_add(byte.into()));
        let table = 16 + filters.checked_mul(8)?;
        let start = word(table + (hash as usize).checked_rem(buckets)? * 4)?;
        if start < first {
            return None;
        }
        let chains = table + buckets.checked_mul(4)?;
        for symbol in (start..).take(ENTRIES_MAX) {
            let chain = word(chains + (symbol - first) as usize * 4)?;
            if chain | 1 == hash | 1 {
                let entry = self.symbols.checked_add(symbol as usize * 24)?;
                let defined = read::<u16>(self.object, entry + 6)? != 0;
                let old = self.versions.is_some_and(|versions| {
                    let version = read::<u16>(self.object, versions + symbol as usize * 2);
                    version.is_some_and(|version| version & OLD_VERSION != 0)
                });
                if defined && !old && self.string(read::<u32>(self.object, entry)?.into()) == Some(name) {
                    let value = usize::try_from(read::<u64>(self.object, entry + 8)?).ok()?;
                    return Some(self.object.base().wrapping_add(value))
                        .filter(|&found| self.object.holds(found));
                }
            }
            if chain & 1 == 1 {
                return None;
            }
        }
        None
    }
}

/// Reads a number at an address of the object; `None` outside it.
fn read<T: Copy>(object: &Object<'_>, at: usize) -> Option<T> {
    let last = at.checked_add(size_of::<T>() - 1)?;
    if !object.holds(at) || !object.holds(last) {
        return None;
    }
    // SAFETY: both ends lie in loaded segments of the object, which are longer than any gap
    // between; the dynamic section and the tables it names are readable. Numbers of any value are
    // valid.
    Some(unsafe { (at as *const T).read_unaligned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(mut test: impl FnMut(&Object<'_>) -> bool) -> Option<Range<usize>> {
        visit(
            |object| {
                if test(object) { ControlFlow::Break(object.range()) } else { ControlFlow::Continue(()) }
            },
        )
    }

    #[test]
    fn functions_are_found_where_the_loader_finds_them() {
        let c_library = first(|object| object.file().starts_with(b"libc.so")).unwrap();
        for (name, address) in
            [(c"getpid", libc::getpid as *const c_void), (c"dlsym", libc::dlsym as *const c_void)]
        {
            let found =
                visit(|object| object.defines(name).map_or(ControlFlow::Continue(()), ControlFlow::Break));
            assert_eq!(found, Some(address as usize), "{name:?}");
            assert!(c_library.contains(&(address as usize)));
        }
        assert_eq!(first(|object| object.defines(c"no_such_function_anywhere").is_some()), None);
    }

    #[test]
    fn objects_list_the_libraries_they_need() {
        let own = functions_are_found_where_the_loader_finds_them as *const c_void as usize;
        assert!(first(|object| object.holds(own) && object.needs(b"libc.so.6")).is_some());
        assert!(first(|object| object.holds(own) && object.needs(b"libgomp.so.1")).is_none());
        assert!(first(|object| object.soname() == Some(b"libc.so.6")).is_some());
        assert!(first(|object| object.holds(usize::MAX)).is_none());
    }
}
