//! The kernel's own description of its types (BTF, `/sys/kernel/btf/vmlinux`): places of fields.
//!
//! Problem: the place of a field in `task_struct` differs between kernels, and a program that reads
//! it must name the place. Idea: the kernel publishes a table of all its types. It is read once:
//! a walk notes where each type's entry begins, and then only the wanted ones are followed.
//!
//! Properties: any bytes are read without harm; chains of types are followed to a fixed depth; a
//! field that is missing, or a part of a word, is `None`.
//!
//! Source: the kernel's `Documentation/bpf/btf.rst`.

/// Magic number of a table in this machine's byte order.
const MAGIC: u16 = 0xeb9f;
/// Size of the fixed part of the header, and of each entry, in bytes.
const HEADER_BYTES: usize = 24;
const ENTRY_BYTES: usize = 12;
/// Size of a member of a structure, in bytes.
const MEMBER_BYTES: usize = 12;
/// Depth to which types are followed. Chosen: the kernel's own types need three.
const DEPTH_MAX: u32 = 16;
/// Maximal number of members that are looked at for one field. Chosen: the kernel's largest
/// structures have some hundreds.
const MEMBERS_MAX: u32 = 65_536;

/// Kinds of types.
const INT: u32 = 1;
const PTR: u32 = 2;
const STRUCT: u32 = 4;
const UNION: u32 = 5;
const ENUM: u32 = 6;
const TYPEDEF: u32 = 8;
const VOLATILE: u32 = 9;
const CONST: u32 = 10;
const RESTRICT: u32 = 11;
const FUNC: u32 = 12;
const TYPE_TAG: u32 = 18;

/// Number of a type in the table; 0 is `void`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct TypeId(pub(super) u32);

/// Place of a field in its structure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Field {
    /// Distance from the start of the structure, in bytes.
    pub(super) offset: u32,
    /// Size, in bytes.
    pub(super) bytes: u32,
}

/// The table.
#[derive(Debug)]
pub(super) struct Btf<'a> {
    types: &'a [u8],
    strings: &'a [u8],
    /// Start of each type's entry in `types`; the first one is that of type 1.
    starts: Vec<u32>,
}

/// Head of a type's entry.
#[derive(Clone, Copy, Debug)]
struct TypeEntry {
    name: u32,
    kind: u32,
    members: usize,
    /// Whether members of a structure may be parts of words.
    has_parts: bool,
    /// Size in bytes, or the number of another type.
    size_or_type: u32,
    /// End of the head in `types`.
    rest: usize,
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let four = bytes.get(at..at.checked_add(4)?)?;
    four.try_into().ok().map(u32::from_ne_bytes)
}

/// Returns a part of the table that the header names.
fn section(bytes: &[u8], header: usize, at: usize) -> Option<&[u8]> {
    let offset = usize::try_from(word(bytes, at)?).ok()?;
    let length = usize::try_from(word(bytes, at + 4)?).ok()?;
    let start = header.checked_add(offset)?;
    bytes.get(start..start.checked_add(length)?)
}

impl<'a> Btf<'a> {
    /// Reads the table of entries. `None` if the bytes are not such a table.
    pub(super) fn parse(bytes: &'a [u8]) -> Option<Self> {
        let magic: [u8; 2] = bytes.get(..2)?.try_into().ok()?;
        let header = usize::try_from(word(bytes, 4)?).ok()?;
        if u16::from_ne_bytes(magic) != MAGIC || header < HEADER_BYTES {
            return None;
        }
        let (types, strings) = (section(bytes, header, 8)?, section(bytes, header, 16)?);
        let mut btf = Self { types, strings, starts: Vec::new() };
        let mut at = 0;
        while at < types.len() {
            btf.starts.push(u32::try_from(at).ok()?);
            let entry = btf.entry_at(at)?;
            at = entry.rest.checked_add(tail(entry.kind, entry.members)?)?;
        }
        (at == types.len()).then_some(btf)
    }

    fn entry_at(&self, at: usize) -> Option<TypeEntry> {
        let (name, info) = (word(self.types, at)?, word(self.types, at.checked_add(4)?)?);
        Some(TypeEntry {
            name,
            kind: info >> 24 & 0x1f,
            members: usize::try_from(info & 0xffff).ok()?,
            has_parts: info >> 31 == 1,
            size_or_type: word(self.types, at.checked_add(8)?)?,
            rest: at.checked_add(ENTRY_BYTES)?,
        })
    }

    fn entry(&self, id: TypeId) -> Option<TypeEntry> {
        let at = usize::try_from(id.0.checked_sub(1)?).ok()?;
        self.entry_at(usize::try_from(*self.starts.get(at)?).ok()?)
    }

    /// Returns whether the text at this place is the name.
    fn is_named(&self, at: u32, name: &str) -> bool {
        let text = usize::try_from(at).ok().and_then(|at| self.strings.get(at..));
        text.is_some_and(|text| {
            text.strip_prefix(name.as_bytes()).is_some_and(|rest| rest.first() == Some(&0))
        })
    }

    fn named(&self, kind: u32, name: &str) -> Option<TypeId> {
        let ids = (1u32..).zip(&self.starts);
        let mut found =
            ids.filter_map(|(id, start)| Some((id, self.entry_at(usize::try_from(*start).ok()?)?)));
        found
            .find(|(_, entry)| entry.kind == kind && self.is_named(entry.name, name))
            .map(|(id, _)| TypeId(id))
    }

    /// Returns the structure of this name.
    pub(super) fn structure(&self, name: &str) -> Option<TypeId> {
        self.named(STRUCT, name)
    }

    /// Returns the function of this name.
    pub(super) fn function(&self, name: &str) -> Option<TypeId> {
        self.named(FUNC, name)
    }

    /// Follows names of types and their qualifiers to the type itself.
    fn bare(&self, mut id: TypeId) -> Option<TypeEntry> {
        for _ in 0..DEPTH_MAX {
            let entry = self.entry(id)?;
            match entry.kind {
                TYPEDEF | VOLATILE | CONST | RESTRICT | TYPE_TAG => id = TypeId(entry.size_or_type),
                _ => return Some(entry),
            }
        }
        None
    }

    /// Returns the place of a number or pointer in a structure; dots lead into structures inside
    /// it, as in `se.sum_exec_runtime`.
    pub(super) fn field(&self, of: TypeId, path: &str) -> Option<Field> {
        let mut entry = self.bare(of)?;
        let (mut offset, mut left) = (0u32, MEMBERS_MAX);
        for name in path.split('.') {
            let (place, member) = self.member(&entry, name, DEPTH_MAX, &mut left)?;
            offset = offset.checked_add(place)?;
            entry = self.bare(member)?;
        }
        let bytes = match entry.kind {
            INT | ENUM => entry.size_or_type,
            PTR => u32::try_from(size_of::<usize>()).ok()?,
            _ => return None,
        };
        Some(Field { offset, bytes })
    }

    /// Returns place and type of a member, which may be inside a member without a name.
    /// `left` is the number of members that may still be looked at.
    fn member(&self, of: &TypeEntry, name: &str, depth: u32, left: &mut u32) -> Option<(u32, TypeId)> {
        if !matches!(of.kind, STRUCT | UNION) || depth == 0 {
            return None;
        }
        for number in 0..of.members {
            *left = left.checked_sub(1)?;
            let at = of.rest.checked_add(number.checked_mul(MEMBER_BYTES)?)?;
            let (text, id, place) =
                (word(self.types, at)?, TypeId(word(self.types, at + 4)?), word(self.types, at + 8)?);
            // The upper byte has the number of bits of a part of a word.
            let (bits, part) = if of.has_parts { (place & 0x00ff_ffff, place >> 24) } else { (place, 0) };
            if self.is_named(text, name) {
                return (part == 0 && bits % 8 == 0).then_some((bits / 8, id));
            }
            if self.is_named(text, "")
                && let Some(inner) = self.bare(id)
                && let Some((inside, id)) = self.member(&inner, name, depth - 1, left)
            {
                return Some(((bits / 8).checked_add(inside)?, id));
            }
        }
        None
    }
}

/// Returns the size of the part of an entry behind its head, in bytes.
fn tail(kind: u32, members: usize) -> Option<usize> {
    const ARRAY: u32 = 3;
    const FWD: u32 = 7;
    const FUNC_PROTO: u32 = 13;
    const VAR: u32 = 14;
    const DATASEC: u32 = 15;
    const FLOAT: u32 = 16;
    const DECL_TAG: u32 = 17;
    const ENUM64: u32 = 19;
    match kind {
        INT | VAR | DECL_TAG => Some(4),
        PTR | FWD | TYPEDEF | VOLATILE | CONST | RESTRICT | FUNC | FLOAT | TYPE_TAG => Some(0),
        ARRAY => Some(12),
        STRUCT | UNION | DATASEC | ENUM64 => members.checked_mul(12),
        ENUM | FUNC_PROTO => members.checked_mul(8),
        _ => None,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A table that is written entry by entry.
    #[derive(Default)]
    struct TableWriter {
        types: Vec<u32>,
        strings: Vec<u8>,
    }

    impl TableWriter {
        fn name(&mut self, name: &str) -> u32 {
            if self.strings.is_empty() {
                self.strings.push(0);
            }
            if name.is_empty() {
                return 0;
            }
            let at = self.strings.len();
            self.strings.extend(name.bytes().chain([0]));
            u32::try_from(at).unwrap()
        }

        fn entry(&mut self, name: &str, kind: u32, parts: bool, size: u32, members: &[(&str, u32, u32)]) {
            let name = self.name(name);
            let members_len = u32::try_from(members.len()).unwrap();
            self.types.extend([name, kind << 24 | members_len | u32::from(parts) << 31, size]);
            for (name, id, place) in members {
                let name = self.name(name);
                self.types.extend([name, *id, *place]);
            }
            if kind == INT {
                self.types.push(64);
            }
        }

        fn bytes(&self) -> Vec<u8> {
            let types: Vec<u8> = self.types.iter().flat_map(|word| word.to_ne_bytes()).collect();
            let length = |bytes: &[u8]| u32::try_from(bytes.len()).unwrap();
            let (types_len, strings_len) = (length(&types), length(&self.strings));
            let mut bytes = MAGIC.to_ne_bytes().to_vec();
            bytes.extend([1, 0]);
            bytes.extend(
                [24, 0, types_len, types_len, strings_len].iter().flat_map(|word| word.to_ne_bytes()),
            );
            bytes.extend(types);
            bytes.extend(&self.strings);
            bytes
        }
    }

    /// Types 1 `u64`, 2 `int`, 3 `const u64` with another name, 4 `se`, 5 without a name, 6 `task`,
    /// 7 a function.
    pub(in crate::task_iterator) fn small() -> Vec<u8> {
        let mut table = TableWriter::default();
        table.entry("u64", INT, false, 8, &[]);
        table.entry("int", INT, false, 4, &[]);
        table.entry("time", TYPEDEF, false, 8, &[]);
        table.entry("se", STRUCT, false, 16, &[("load", 1, 0), ("sum", 3, 64)]);
        table.entry("", UNION, false, 8, &[("left", 2, 0), ("right", 2, 32)]);
        table.entry(
            "task",
            STRUCT,
            true,
            40,
            &[("se", 4, 64), ("bit", 2, 1 << 24 | 192), ("", 5, 224), ("pid", 2, 288)],
        );
        table.entry("step", FUNC, false, 2, &[]);
        table.entry("again", CONST, false, 1, &[]);
        // Type 3 is a name for type 8, a constant of type 1.
        table.bytes()
    }

    #[test]
    fn fields_are_found_in_structures_inside_structures_and_unions_without_names() {
        let bytes = small();
        let btf = Btf::parse(&bytes).unwrap();
        let task = btf.structure("task").unwrap();
        let field = |path: &str| btf.field(task, path).map(|field| (field.offset, field.bytes));
        assert_eq!(task, TypeId(6));
        assert_eq!(field("se.sum"), Some((16, 8)), "through two names of its type");
        assert_eq!((field("se.load"), field("pid")), (Some((8, 8)), Some((36, 4))));
        assert_eq!((field("left"), field("right")), (Some((28, 4)), Some((32, 4))));
        for missing in ["bit", "se", "se.none", "none", "pid.inside", "", "se."] {
            assert_eq!(field(missing), None, "{missing:?}");
        }
        assert_eq!(btf.function("step"), Some(TypeId(7)));
        assert_eq!((btf.function("task"), btf.structure("step"), btf.structure("tas")), (None, None, None));
    }

    #[test]
    fn a_table_that_is_cut_is_no_table() {
        let bytes = small();
        for length in 0..bytes.len() {
            assert!(Btf::parse(&bytes[..length]).is_none(), "{length} bytes");
        }
    }

    #[test]
    fn a_circle_of_types_ends() {
        let mut table = TableWriter::default();
        table.entry("a", TYPEDEF, false, 2, &[]);
        table.entry("b", TYPEDEF, false, 1, &[]);
        table.entry("s", STRUCT, false, 8, &[("", 3, 0), ("x", 1, 0)]);
        let bytes = table.bytes();
        let btf = Btf::parse(&bytes).unwrap();
        let s = btf.structure("s").unwrap();
        assert_eq!((btf.field(s, "x"), btf.field(s, "y"), btf.field(TypeId(0), "x")), (None, None, None));
        // Thirty members of its own type: 30^16 ways lead through it.
        let mut table = TableWriter::default();
        table.entry("s", STRUCT, false, 8, &[("", 1, 0); 30]);
        let bytes = table.bytes();
        let btf = Btf::parse(&bytes).unwrap();
        assert_eq!(btf.field(btf.structure("s").unwrap(), "x"), None);
    }

    #[test]
    fn this_kernels_table_places_what_every_kernel_has() {
        let Ok(bytes) = std::fs::read("/sys/kernel/btf/vmlinux") else {
            return crate::skip::skipped("this kernel does not describe its types");
        };
        let btf = Btf::parse(&bytes).unwrap();
        let task = btf.structure("task_struct").unwrap();
        let places = ["pid", "tgid", "nvcsw"].map(|name| btf.field(task, name).unwrap());
        assert_eq!(places.map(|field| field.bytes), [4, 4, u32::try_from(size_of::<usize>()).unwrap()]);
        assert_eq!(places[1].offset, places[0].offset + 4, "pid and tgid are neighbours");
        assert_eq!(btf.field(task, "no_such_field"), None);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_are_read_without_harm(
            bytes in prop::collection::vec(any::<u8>(), 0..400),
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
        ) {
            let mut changed = small();
            for (at, to) in changes {
                let at = at.index(changed.len());
                changed[at] = to;
            }
            for bytes in [bytes, changed] {
                if let Some(btf) = Btf::parse(&bytes) {
                    for id in 0..12 {
                        let _ = (btf.field(TypeId(id), "se.sum"), btf.field(TypeId(id), "right"));
                    }
                    let _ = (btf.function("step"), btf.structure("task"));
                }
            }
        }
    }
}
