//! Facts of an ELF executable that matter to a launcher.
//!
//! Only the headers, the dynamic section, its strings and the notes are read, each with a bound.
//! The size of the file does not matter, and a hostile file cannot cause large reads or
//! allocations.

use crate::text;
use object::Endianness;
use object::elf::{self, FileHeader32, FileHeader64};
use object::read::elf::{Dyn, FileHeader, ProgramHeader, SectionHeader};
use object::read::{ReadCache, ReadCacheOps, ReadRef};
use serde::Serialize;
use std::fs::File;
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
        let head_piece = Piece { start: 0, bytes: head.to_vec() };
        let piece = Piece { start: 0, bytes: Vec::new() };
        let data = ReadCache::new(Window { file, bytes, at: 0, head: head_piece, piece });
        match *head.get(CLASS_AT)? {
            elf::ELFCLASS32 => Parts::<FileHeader32<Endianness>>::read(&data)?.facts(WordSize::Bits32),
            elf::ELFCLASS64 => Parts::<FileHeader64<Endianness>>::read(&data)?.facts(WordSize::Bits64),
            _ => None,
        }
    }
}

/// The headers of an executable, from which its other parts are found.
struct Parts<'a, Elf: FileHeader> {
    data: &'a ReadCache<Window>,
    endian: Endianness,
    header: &'a Elf,
    segments: &'a [Elf::ProgramHeader],
}

impl<'a, Elf: FileHeader<Endian = Endianness>> Parts<'a, Elf> {
    fn read(data: &'a ReadCache<Window>) -> Option<Self> {
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
            let bytes: &'a [u8] = self.data.read_bytes_at(range.start, length).ok()?;
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
}

impl Piece {
    /// Copies the bytes from an offset, if all of them are in this piece.
    fn copy(&self, at: u64, buffer: &mut [u8]) -> Option<()> {
        let begin = usize::try_from(at.checked_sub(self.start)?).ok()?;
        buffer.copy_from_slice(self.bytes.get(begin..begin.checked_add(buffer.len())?)?);
        Some(())
    }
}

/// A file as the reader of parts sees it. Linkers put the parts close together, so a part is read
/// with its surroundings: the beginning and one more piece hold all parts of a small program.
struct Window {
    file: File,
    bytes: u64,
    at: u64,
    head: Piece,
    /// The piece that was read last.
    piece: Piece,
}

impl Window {
    /// Copies the bytes from an offset, and reads them if they are not known.
    fn fill(&mut self, at: u64, buffer: &mut [u8]) -> Option<()> {
        if let Some(known) = self.head.copy(at, buffer).or_else(|| self.piece.copy(at, buffer)) {
            return Some(known);
        }
        let before = at.saturating_sub(BEFORE_BYTES);
        let start = before - before % PAGE_BYTES;
        let needed = usize::try_from(at - start).ok()?.checked_add(buffer.len())?;
        let mut bytes = vec![0; needed.max(PIECE_BYTES)];
        let length = self.file.read_at(&mut bytes, start).ok()?;
        bytes.truncate(length);
        self.piece = Piece { start, bytes };
        self.piece.copy(at, buffer)
    }
}

impl ReadCacheOps for Window {
    fn len(&mut self) -> Result<u64, ()> {
        Ok(self.bytes)
    }

    fn seek(&mut self, at: u64) -> Result<u64, ()> {
        self.at = at;
        Ok(at)
    }

    fn read(&mut self, buffer: &mut [u8]) -> Result<usize, ()> {
        let left = self.bytes.saturating_sub(self.at);
        let length = usize::try_from(left).map_or(buffer.len(), |left| left.min(buffer.len()));
        self.read_exact(&mut buffer[..length])?;
        Ok(length)
    }

    fn read_exact(&mut self, buffer: &mut [u8]) -> Result<(), ()> {
        self.fill(self.at, buffer).ok_or(())?;
        self.at = self.at.checked_add(buffer.len() as u64).ok_or(())?;
        Ok(())
    }
}
