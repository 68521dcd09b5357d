//! The aligner: one address for everything, on every ISA.
//!
//! Both back ends compile the same IR, so both objects have the same functions and data under the
//! same names. The aligner reads their section tables, whose sizes are final, and lays out one
//! address space:
//!
//! | what | where | slot |
//! |---|---|---|
//! | code | [`TEXT_BASE`] on | as large as the larger of the versions |
//! | functions of one ISA | [`only_window`] of it | the same |
//! | code of the builtins | after it, its own page on | not aligned: nothing may take its address |
//! | jump tables and constant pools | [`ISA_RO_BASE`](dyad_abi::user::ISA_RO_BASE) on | per ISA: only the code of that ISA knows where they are |
//! | constants, data, zeros | [`SHARED_BASE`] on | one copy, so size and kind must be the same |
//!
//! What does not fit this picture is an error, because each case has been seen to give programs
//! that run wrong without any tool complaining: a constant that a back end has put among its
//! mergeable ones, a section that the linker has collected for one ISA only, statics that the
//! AArch64 back end has merged into one writable section. For the same reason the linker never
//! collects sections.

mod error;
mod script;

pub(crate) use script::{GATES, PRIVATE, PRIVATE_DATA, PRIVATE_RELRO, TEXT, TEXT_OUTSIDE, only};

pub use error::{AlignError, Item, Misfit};

use crate::object::{Object, Section, Target};
use dyad_abi::Isa;
use dyad_abi::user::{ONLY_BASE, PAGE_SIZE, SHARED_BASE, TEXT_BASE, gate, only_window};
use std::collections::{BTreeSet, HashMap, HashSet};

/// Room that is kept after the aligned code for the builtins, which are small.
const BUILTINS_ROOM: u64 = 1 << 20;
/// The x86-64 small code model puts addresses into signed 32-bit fields.
pub(crate) const SHARED_LIMIT: u64 = 1 << 31;
/// Alignment of functions on both ISAs.
const CODE_ALIGN: u64 = 16;

/// A place for one section of every ISA.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Name under which the object file is linked.
    pub file: String,
    /// Name of the section.
    pub section: String,
    /// Address.
    pub va: u64,
    /// Length, that of the larger version.
    pub size: u64,
    /// Names of what is in it.
    pub symbols: Vec<String>,
}

/// Kinds of shared memory, in address order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SharedKind {
    /// Constants.
    ReadOnly,
    /// Initialised data.
    Data,
    /// Data that starts as zeros.
    Zeros,
}

impl SharedKind {
    /// All kinds, in address order.
    pub const ALL: [SharedKind; 3] = [SharedKind::ReadOnly, SharedKind::Data, SharedKind::Zeros];

    /// Name of its section in linked programs.
    pub const fn output_section(self) -> &'static str {
        match self {
            SharedKind::ReadOnly => ".shared_ro",
            SharedKind::Data => ".shared_data",
            SharedKind::Zeros => ".shared_bss",
        }
    }

    fn of(section: &Section) -> SharedKind {
        match (section.is_writable(), section.is_zeros()) {
            (false, _) => SharedKind::ReadOnly,
            (true, false) => SharedKind::Data,
            (true, true) => SharedKind::Zeros,
        }
    }
}

/// Where everything goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Code, in address order.
    pub text: Vec<Slot>,
    /// Functions of one ISA, in address order, by ISA index.
    pub only: [Vec<Slot>; 2],
    /// Shared memory, in address order, by [`SharedKind`].
    pub shared: [Vec<Slot>; 3],
    /// Object file and name of the per-ISA constants, by ISA index.
    pub private: [Vec<(String, String)>; 2],
    /// Names under which the program's object files are linked.
    pub files: Vec<String>,
    /// Bytes of code per ISA, without padding.
    pub code_bytes: [u64; 2],
    /// One past the last address of aligned code.
    pub text_end: u64,
}

/// What a section is to the layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    Code,
    /// Of this ISA.
    Only(Isa),
    /// Where kernels have threads go on that cross: not the same on every ISA.
    Gates,
    /// Known to the code of its ISA only.
    Private,
    Shared(SharedKind),
}

struct Side<'a> {
    object: &'a Object,
    functions: HashSet<&'a str>,
}

impl<'a> Side<'a> {
    fn new(object: &'a Object) -> Side<'a> {
        let code = object.sections.iter().filter(|s| s.is_code());
        Side {
            object,
            functions: code
                .flat_map(|s| s.symbols.iter().map(String::as_str))
                .collect(),
        }
    }

    /// Back ends name a jump table after its function and give it no symbol.
    fn is_jump_table(&self, section: &Section) -> bool {
        let of = section.name.strip_prefix(".rodata.");
        of.is_some_and(|of| {
            ["", "unlikely.", "hot."]
                .iter()
                .filter_map(|p| of.strip_prefix(p))
                .any(|f| self.functions.contains(f))
        })
    }

    fn class(&self, section: &Section) -> Class {
        if section.name == script::GATES {
            return Class::Gates;
        }
        if section.is_code() {
            let only = |isa: &Isa| {
                section
                    .name
                    .starts_with(&format!("{}.", script::only(*isa)))
            };
            return Isa::ALL
                .into_iter()
                .find(only)
                .map_or(Class::Code, Class::Only);
        }
        let nameless = !section.is_writable() && section.symbols.is_empty();
        let pool = section.is_mergeable() || section.name == ".rodata";
        if nameless && (pool || self.is_jump_table(section)) {
            return Class::Private;
        }
        Class::Shared(SharedKind::of(section))
    }
}

fn check_alone(side: &Side<'_>, misfits: &mut Vec<Misfit>) {
    let isa = side.object.isa;
    let mut seen = HashSet::new();
    for s in &side.object.sections {
        let section = s.name.clone();
        if s.is_tls() {
            misfits.push(Misfit::ThreadLocal { section });
        } else if s.is_constructor_list() {
            misfits.push(Misfit::Constructors { section });
        } else if s.is_mergeable() && !s.symbols.is_empty() {
            misfits.push(Misfit::Mergeable {
                isa,
                section,
                symbol: s.symbols[0].clone(),
            });
        } else if side.class(s) != Class::Private && s.symbols.is_empty() {
            misfits.push(Misfit::Nameless { isa, section });
        } else if side.class(s) != Class::Private && !seen.insert(&s.name) {
            misfits.push(Misfit::Twice { isa, section });
        }
    }
}

/// Shared data may point to what has one address, code may jump to anything but not take the
/// address of what has several.
fn check_references(sides: &[Side<'_>], misfits: &mut Vec<Misfit>) {
    let defined: HashSet<&str> = sides
        .iter()
        .flat_map(|s| &s.object.sections)
        .flat_map(|s| s.symbols.iter().map(String::as_str))
        .collect();
    for side in sides {
        let isa = side.object.isa;
        for s in &side.object.sections {
            let class = side.class(s);
            let mut bad = BTreeSet::new();
            for r in &s.references {
                match &r.target {
                    Target::Section(name) if matches!(class, Class::Shared(_)) => {
                        let target = side.object.section(name);
                        if target.is_none_or(|t| side.class(t) == Class::Private) {
                            bad.insert((name, true));
                        }
                    }
                    Target::Symbol(name) if !r.branch && !defined.contains(name.as_str()) => {
                        bad.insert((name, false));
                    }
                    _ => (),
                }
            }
            let section = || s.name.clone();
            misfits.extend(bad.into_iter().map(|(target, private)| match private {
                true => Misfit::PointsToPrivate {
                    isa,
                    section: section(),
                    target: target.clone(),
                },
                false => Misfit::AddressOfOutside {
                    isa,
                    section: section(),
                    symbol: target.clone(),
                },
            }));
        }
    }
}

fn check_pair(x: (&Section, Class), a: (&Section, Class), misfits: &mut Vec<Misfit>) -> bool {
    let differs = |what| Misfit::Differs {
        section: a.0.name.clone(),
        what,
    };
    let before = misfits.len();
    if x.1 != a.1 {
        misfits.push(differs("kind".to_owned()));
    } else if let Class::Shared(_) = a.1 {
        if x.0.size != a.0.size {
            misfits.push(differs(format!(
                "size: {} and {} bytes",
                x.0.size, a.0.size
            )));
        }
        if (x.0.flags, x.0.kind) != (a.0.flags, a.0.kind) {
            misfits.push(differs("flags".to_owned()));
        }
    }
    misfits.len() == before
}

fn place(at: &mut u64, align: u64, size: u64) -> u64 {
    let va = at.next_multiple_of(align);
    *at = va + size;
    va
}

/// Lays out programs of which `objects` has the object files of every ISA, by ISA index. The first
/// file of one ISA corresponds to the first file of the other one, and so on.
///
/// # Errors
///
/// Everything that cannot have one address on every ISA.
pub fn plan(objects: [&[Object]; 2]) -> Result<Plan, AlignError> {
    let sides = objects.map(|o| o.iter().map(Side::new).collect::<Vec<_>>());
    let mut misfits = Vec::new();
    for per_isa in &sides {
        for side in per_isa {
            check_alone(side, &mut misfits);
        }
        check_references(per_isa, &mut misfits);
    }
    let mut plan = Plan {
        text: Vec::new(),
        only: Default::default(),
        shared: Default::default(),
        private: Default::default(),
        files: objects[0].iter().map(|o| o.file.clone()).collect(),
        code_bytes: [0; 2],
        text_end: TEXT_BASE,
    };
    let mut shared: [Vec<(Slot, u64)>; 3] = Default::default();
    let mut only_end = Isa::ALL.map(|isa| only_window(isa).0 + gate::FIRST);
    let [x_sides, a_sides] = &sides;
    for (x_side, a_side) in x_sides.iter().zip(a_sides) {
        let by_name: HashMap<_, _> = x_side
            .object
            .sections
            .iter()
            .map(|s| (s.name.as_str(), s))
            .collect();
        let mut alone: BTreeSet<_> = by_name.keys().copied().collect();
        for (side, private) in [x_side, a_side].into_iter().zip(&mut plan.private) {
            for s in &side.object.sections {
                let entry = (side.object.file.clone(), s.name.clone());
                if side.class(s) == Class::Private && !private.contains(&entry) {
                    private.push(entry);
                }
            }
        }
        for a in &a_side.object.sections {
            let a_class = a_side.class(a);
            let x = by_name.get(a.name.as_str()).copied();
            alone.remove(a.name.as_str());
            let Some(x) = x else {
                if a_class != Class::Private {
                    misfits.push(Misfit::only_in(Isa::Aarch64, a));
                }
                continue;
            };
            if !check_pair((x, x_side.class(x)), (a, a_class), &mut misfits) {
                continue;
            }
            let align = x.align.max(a.align);
            let mut slot = Slot {
                file: a_side.object.file.clone(),
                section: a.name.clone(),
                va: 0,
                size: x.size.max(a.size),
                symbols: a.symbols.clone(),
            };
            match a_class {
                Class::Private | Class::Gates => (),
                Class::Only(isa) => {
                    let at = &mut only_end[isa.index()];
                    slot.va = place(at, align.max(CODE_ALIGN), slot.size);
                    plan.only[isa.index()].push(slot);
                }
                Class::Code => {
                    plan.code_bytes[0] += x.size;
                    plan.code_bytes[1] += a.size;
                    slot.va = place(&mut plan.text_end, align.max(CODE_ALIGN), slot.size);
                    plan.text.push(slot);
                }
                Class::Shared(kind) => shared[kind as usize].push((slot, align)),
            }
        }
        for name in alone {
            let x = by_name[name];
            if x_side.class(x) != Class::Private {
                misfits.push(Misfit::only_in(Isa::X86_64, x));
            }
        }
    }
    // Kinds are mapped with different rights, so each starts on a page of its own.
    let mut at = SHARED_BASE;
    for (slots, out) in shared.into_iter().zip(&mut plan.shared) {
        at = at.next_multiple_of(PAGE_SIZE);
        for (mut slot, align) in slots {
            slot.va = place(&mut at, align, slot.size);
            out.push(slot);
        }
    }
    let [only_x, only_a] = only_end;
    let end_of = |isa| only_window(isa).1;
    let [of_x, of_a] = &plan.only;
    let data: Vec<Slot> = plan.shared.iter().flatten().cloned().collect();
    for (region, slots, end, limit) in [
        ("code", &plan.text, plan.text_end + BUILTINS_ROOM, ONLY_BASE),
        ("code of x86_64 only", of_x, only_x, end_of(Isa::X86_64)),
        ("code of aarch64 only", of_a, only_a, end_of(Isa::Aarch64)),
        ("data", &data, at, SHARED_LIMIT),
    ] {
        if end > limit {
            let largest = slots.iter().max_by_key(|s| s.size);
            misfits.push(Misfit::TooLarge {
                region,
                end,
                limit,
                largest: largest.map(|s| (s.section.clone(), s.size)),
            });
        }
    }
    match misfits.is_empty() {
        true => Ok(plan),
        false => Err(AlignError::of(misfits, objects)),
    }
}

impl Plan {
    /// Everything that has one address on every ISA.
    pub fn slots(&self) -> impl Iterator<Item = &Slot> {
        let only = self.only.iter().flatten();
        self.text
            .iter()
            .chain(only)
            .chain(self.shared.iter().flatten())
    }

    /// Shared bytes in the program's file, and bytes of zeros.
    pub fn shared_bytes(&self) -> (u64, u64) {
        let sum = |kind: SharedKind| {
            self.shared[kind as usize]
                .iter()
                .map(|s| s.size)
                .sum::<u64>()
        };
        (
            sum(SharedKind::ReadOnly) + sum(SharedKind::Data),
            sum(SharedKind::Zeros),
        )
    }
}
