//! Facts of an ELF executable that matter to a launcher.
//!
//! Only the headers, the dynamic section, its strings and the notes are read, each with a bound.
//! The size of the file does not matter, and a hostile file cannot cause large reads or
//! allocations.

use crate::text;
use object::Endianness;
use object::elf::{self, FileHeader32, FileHeader64};
use object::read::ReadRef;
use object::read::elf::{Dyn, FileHeader, ProgramHeader, SectionHeader};
use serde::Serialize;
use std::cell::OnceCell;
use std::fs::File;
use std::iter;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use trimtab_core::place::runtimes::Runtime;

/// Offset of the word size in the identification at the head of the file.
const CLASS_AT: usize = 4;
/// Largest size of the program headers, in bytes: the kernel refuses programs with more
/// (`load_elf_phdrs`).
const PROGRAM_HEADERS_BYTES_MAX: u64 = 64 << 10;
/// Bound in bytes for the dynamic section, the notes, the section headers and their names, each.
/// Chosen: the largest seen in a distribution are some 10 KiB.
const PART_BYTES_MAX: u64 = 1 << 20;
/// Bytes in which the end of a string is searched for: nearly always enough, and the most.
const STRING_BYTES: [u64; 2] = [256, 4096];
/// Bytes that are read at once: from the dynamic section of a small program to its end.
const PIECE_BYTES: usize = 8 << 10;
/// Bytes before a part that are read with it: the names of the sections are before their headers.
const BEFORE_BYTES: u64 = 1 << 10;
/// Pieces start at pages, as the kernel caches files.
const PAGE_BYTES: u64 = 4 << 10;
/// Alignment of the numbers in a part, in bytes.
const ALIGNMENT_BYTES: usize = 8;
/// Bound for the number of libraries listed. Chosen: large desktop programs name a hundred.
const LIBRARIES_MAX: usize = 1024;

/// Facts of an executable, from its file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Binary {
    /// Word size, 32 or 64 bits.
    pub word_size: WordSize,
    /// The processor, as `e_machine` numbers it (62 is x86-64, 183 is 64-bit Arm).
    pub machine: u16,
    /// The dynamic loader that it requests, printable; `None` for static programs.
    pub loader: Option<String>,
    /// The libraries it links directly, printable, in the order of search.
    pub needed: Vec<String>,
    /// The OpenMP runtime among them. A runtime that a library of the program loads is not seen.
    pub openmp: Option<Runtime>,
    /// Whether the Go compiler made it.
    pub go: bool,
}

/// The word size of an executable.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum WordSize {
    /// 32 bits.
    Bits32,
    /// 64 bits.
    Bits64,
}

/// How a program is linked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Linkage {
    /// All in one file: nothing can be preloaded.
    Static,
    /// By a dynamic loader.
    Dynamic,
}

impl Binary {
    /// Returns static or dynamic.
    pub fn linkage(&self) -> Linkage {
        if self.loader.is_some() { Linkage::Dynamic } else { Linkage::Static }
    }

    /// Reads the executable of which `head` is the beginning; `None` if it is damaged.
    pub(super) fn read(file: File, bytes: u64, head: &[u8]) -> Option<Self> {
        let data = Window { file, bytes, head: Piece::new(0, head.to_vec()) };
        match *head.get(CLASS_AT)? {
            elf::ELFCLASS32 => Parts::<FileHeader32<Endianness>>::read(&data)?.facts(WordSize::Bits32),
            elf::ELFCLASS64 => Parts::<FileHeader64<Endianness>>::read(&data)?.facts(WordSize::Bits64),
            _ => None,
        }
    }
}

/// The headers of an executable, from which its other parts are found.
struct Parts<'a, Elf: FileHeader> {
    data: &'a Window,
    endian: Endianness,
    header: &'a Elf,
    segments: &'a [Elf::ProgramHeader],
}

impl<'a, Elf: FileHeader<Endian = Endianness>> Parts<'a, Elf> {
    fn read(data: &'a Window) -> Option<Self> {
        let header = Elf::parse(data).ok()?;
        let endian = header.endian().ok()?;
        let count = header.e_phnum(endian);
        if count == elf::PN_XNUM
            || u64::from(count) * size_of::<Elf::ProgramHeader>() as u64 > PROGRAM_HEADERS_BYTES_MAX
        {
            return None;
        }
        let segments = header.program_headers(endian, data).ok()?;
        Some(Self { data, endian, header, segments })
    }

    fn facts(&self, word_size: WordSize) -> Option<Binary> {
        let needed = self.needed()?;
        Some(Binary {
            word_size,
            machine: self.header.e_machine(self.endian),
            loader: self.loader(),
            openmp: needed.iter().find_map(|name| Runtime::openmp_library(name)),
            needed,
            go: self.has_go_note() || self.has_go_section().unwrap_or(false),
        })
    }

    /// Returns the segments of one type that are within the bound of a part.
    fn segments(&self, kind: u32) -> impl Iterator<Item = &'a Elf::ProgramHeader> {
        let endian = self.endian;
        self.segments.iter().filter(move |segment| {
            segment.p_type(endian) == kind && segment.p_filesz(endian).into() <= PART_BYTES_MAX
        })
    }

    fn loader(&self) -> Option<String> {
        let path = self.segments(elf::PT_INTERP).next()?.interpreter(self.endian, self.data);
        // A program that requests a loader with an unreadable name is still not static.
        Some(text::printable(path.ok().flatten().unwrap_or_default()))
    }

    /// Returns the names in the dynamic section; `None` if the section is malformed.
    fn needed(&self) -> Option<Vec<String>> {
        let Some(segment) =
            self.segments.iter().find(|segment| segment.p_type(self.endian) == elf::PT_DYNAMIC)
        else {
            return Some(Vec::new());
        };
        if segment.p_filesz(self.endian).into() > PART_BYTES_MAX {
            return None;
        }
        let entries = segment.dynamic(self.endian, self.data).ok()??;
        let end = entries.iter().position(|entry| entry.tag32(self.endian) == Some(elf::DT_NULL));
        let entries = &entries[..end.unwrap_or(entries.len())];
        let values = |tag: u32| {
            let tagged = entries.iter().filter(move |entry| entry.tag32(self.endian) == Some(tag));
            tagged.map(|entry| -> u64 { entry.d_val(self.endian).into() })
        };
        if values(elf::DT_NEEDED).next().is_none() {
            return Some(Vec::new());
        }
        let strings = self.strings(values(elf::DT_STRTAB).next()?, values(elf::DT_STRSZ).next()?)?;
        values(elf::DT_NEEDED)
            .take(LIBRARIES_MAX)
            .map(|offset| {
                let start = strings.start.checked_add(offset).filter(|start| *start < strings.end)?;
                self.string(start..strings.end).map(text::printable)
            })
            .collect()
    }

    /// Returns the string at the start of a range. Not `read_bytes_at_until`: its search first
    /// reads the processor's features, which takes 25 us in a virtual machine.
    fn string(&self, range: Range<u64>) -> Option<&'a [u8]> {
        STRING_BYTES.into_iter().find_map(|most| {
            let length = most.min(range.end - range.start);
            let bytes = self.data.get(range.start, length)?;
            bytes.split(|byte| *byte == 0).next().filter(|string| string.len() < bytes.len())
        })
    }

    /// Returns where in the file the strings are that are loaded at `address`.
    fn strings(&self, address: u64, size: u64) -> Option<Range<u64>> {
        let loaded = self.segments.iter().filter(|segment| segment.p_type(self.endian) == elf::PT_LOAD);
        let start = loaded.into_iter().find_map(|segment| {
            let into = address.checked_sub(segment.p_vaddr(self.endian).into())?;
            let (offset, length) = segment.file_range(self.endian);
            (into < length).then(|| offset.checked_add(into))?
        })?;
        Some(start..start.checked_add(size)?)
    }

    /// Returns whether the file has the note with the build id of a Go program, which survives
    /// stripping.
    fn has_go_note(&self) -> bool {
        let notes =
            self.segments(elf::PT_NOTE).filter_map(|segment| segment.notes(self.endian, self.data).ok()?);
        notes.flat_map(|notes| notes.map_while(Result::ok)).any(|note| note.name() == b"Go")
    }

    /// Returns whether the file has the section that every Go program has, also one without a build
    /// id.
    fn has_go_section(&self) -> Option<bool> {
        let count = self.header.e_shnum(self.endian);
        if count == 0 || u64::from(count) * size_of::<Elf::SectionHeader>() as u64 > PART_BYTES_MAX {
            return None;
        }
        let sections = self.header.section_headers(self.endian, self.data).ok()?;
        let names = sections.get(usize::from(self.header.e_shstrndx(self.endian)))?;
        if names.sh_size(self.endian).into() > PART_BYTES_MAX {
            return None;
        }
        let names = names.data(self.endian, self.data).ok()?;
        let is_go = |section: &Elf::SectionHeader| {
            let name = usize::try_from(section.sh_name(self.endian)).ok().and_then(|at| names.get(at..));
            name.is_some_and(|name| name.starts_with(b".go.buildinfo\0"))
        };
        Some(sections.iter().any(is_go))
    }
}

/// Bytes of a file, and their offset.
struct Piece {
    start: u64,
    bytes: Vec<u8>,
    /// The piece that was read next.
    next: OnceCell<Box<Self>>,
}

impl Piece {
    fn new(start: u64, bytes: Vec<u8>) -> Self {
        Self { start, bytes, next: OnceCell::new() }
    }

    /// Returns the bytes at an offset, if all of them are in this piece.
    fn get(&self, at: u64, length: u64) -> Option<&[u8]> {
        let begin = usize::try_from(at.checked_sub(self.start)?).ok()?;
        self.bytes.get(begin..begin.checked_add(usize::try_from(length).ok()?)?)
    }
}

/// A file as the reader of parts sees it. Linkers put the parts close together, so a part is read
/// with its surroundings: the beginning and one more piece hold all parts of a small program. Each
/// piece is kept until the last part was read. Not `object`'s `ReadCache`: its map of parts needs
/// random numbers, and copies each part.
struct Window {
    file: File,
    bytes: u64,
    /// The beginning, and the pieces behind it.
    head: Piece,
}

impl Window {
    fn pieces(&self) -> impl Iterator<Item = &Piece> {
        iter::successors(Some(&self.head), |piece| piece.next.get().map(Box::as_ref))
    }

    /// Returns the bytes at an offset, and reads them if they are not known.
    fn get(&self, at: u64, length: u64) -> Option<&[u8]> {
        if at.checked_add(length)? > self.bytes {
            return None;
        }
        match self.pieces().find_map(|piece| piece.get(at, length)) {
            Some(known) => Some(known),
            None => self.keep(self.read(at, length)?)?.get(at, length),
        }
    }

    /// Does the same; numbers can be read in place from the result.
    fn aligned(&self, at: u64, length: u64) -> Option<&[u8]> {
        let is_aligned = |bytes: &&[u8]| bytes.as_ptr().addr().is_multiple_of(ALIGNMENT_BYTES);
        let bytes = self.get(at, length)?;
        if is_aligned(&bytes) {
            return Some(bytes);
        }
        match self.pieces().filter_map(|piece| piece.get(at, length)).find(is_aligned) {
            Some(known) => Some(known),
            None => self.keep(Piece::new(at, bytes.to_vec()))?.get(at, length),
        }
    }

    /// Reads a part with its surroundings.
    fn read(&self, at: u64, length: u64) -> Option<Piece> {
        let before = at.saturating_sub(BEFORE_BYTES);
        let start = before - before % PAGE_BYTES;
        let needed = usize::try_from((at - start).checked_add(length)?).ok()?;
        let mut bytes = vec![0; needed.max(PIECE_BYTES)];
        let length = self.file.read_at(&mut bytes, start).ok()?;
        bytes.truncate(length);
        Some(Piece::new(start, bytes))
    }

    /// Puts a piece behind the others.
    fn keep(&self, piece: Piece) -> Option<&Piece> {
        let last = self.pieces().last()?;
        Some(last.next.get_or_init(|| Box::new(piece)))
    }
}

impl<'a> ReadRef<'a> for &'a Window {
    fn len(self) -> Result<u64, ()> {
        Ok(self.bytes)
    }

    fn read_bytes_at(self, offset: u64, size: u64) -> Result<&'a [u8], ()> {
        if size == 0 {
            return Ok(&[]);
        }
        self.aligned(offset, size).ok_or(())
    }

    /// Reads a string that ends with a byte; no part that is read here has one.
    fn read_bytes_at_until(self, _: Range<u64>, _: u8) -> Result<&'a [u8], ()> {
        Err(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Makes a window on a file of `length` bytes, of which the first `head` are known.
    fn window(length: usize, head: usize) -> (Vec<u8>, Window) {
        let bytes: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&bytes, 0).unwrap();
        let head = Piece::new(0, bytes[..head].to_vec());
        (bytes, Window { file, bytes: length as u64, head })
    }

    proptest! {
        #[test]
        fn every_part_is_the_files_and_numbers_in_it_are_aligned(
            parts in prop::collection::vec((0u64..70_000, 0u64..10_000, any::<bool>()), 1..20),
        ) {
            let (bytes, window) = window(65_000, 4_096);
            for (at, length, aligned) in parts {
                let got = if aligned { window.aligned(at, length) } else { window.get(at, length) };
                let there = usize::try_from(at).unwrap()..usize::try_from(at + length).unwrap();
                prop_assert_eq!(got, bytes.get(there));
                // A part without bytes has no numbers.
                if let Some(got) = got.filter(|got| aligned && !got.is_empty()) {
                    prop_assert!(got.as_ptr().addr().is_multiple_of(ALIGNMENT_BYTES));
                }
            }
        }
    }

    #[test]
    fn parts_close_to_each_other_are_read_once() {
        let (_, window) = window(65_000, 4_096);
        for (at, pieces) in [(0, 1), (4_000, 1), (40_000, 2), (40_100, 2), (39_000, 2), (60_000, 3), (100, 3)]
        {
            window.get(at, 64).unwrap();
            assert_eq!(window.pieces().count(), pieces, "{at}");
        }
    }

    #[test]
    fn a_file_that_became_shorter_has_no_such_part() {
        let (_, window) = window(65_000, 4_096);
        window.file.set_len(20_000).unwrap();
        assert_eq!(window.get(40_000, 8), None);
        assert_eq!(window.get(19_990, 20), None);
        assert_eq!(window.get(u64::MAX, 1), None);
        assert!(window.get(19_990, 10).is_some());
    }
}
