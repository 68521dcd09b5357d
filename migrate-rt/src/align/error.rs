//! What cannot have one address on every ISA, and what to do about it.

use crate::object::{Object, Section};
use crate::source::{Place, Symbols};
use dyad_abi::Isa;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Everything about a program that cannot have one address on every ISA.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlignError {
    /// What it is.
    pub misfits: Vec<Misfit>,
    /// What the sections define that it is about, by section.
    pub items: BTreeMap<String, Item>,
}

/// A function or static of the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// Its symbol.
    pub symbol: String,
    /// Where it is in the source, if that has been found.
    pub source: Option<Place>,
}

impl AlignError {
    /// With what the sections of `objects` define.
    pub(super) fn of(misfits: Vec<Misfit>, objects: [&[Object]; 2]) -> AlignError {
        let wanted: BTreeSet<&str> = misfits.iter().filter_map(Misfit::section).collect();
        let sections = objects.into_iter().flatten().flat_map(|o| &o.sections);
        let of = |section: &Section| {
            let symbol = section.symbols.first()?.clone();
            let item = Item {
                symbol,
                source: None,
            };
            Some((section.name.clone(), item))
        };
        let items = sections.filter(|s| wanted.contains(s.name.as_str()));
        AlignError {
            items: items.filter_map(of).collect(),
            misfits,
        }
    }

    /// With the places of the items that can be found in the program's IR.
    pub(crate) fn with_sources(mut self, ir: &str) -> AlignError {
        let symbols = Symbols::of(ir);
        for item in self.items.values_mut() {
            item.source = symbols.place(&item.symbol);
        }
        self
    }
}

/// Something that cannot have one address on every ISA.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Misfit {
    /// A section that one ISA has and the other has not.
    OnlyIn {
        /// The ISA that has it.
        isa: Isa,
        /// Its name.
        section: String,
        /// Whether the program may write it.
        writable: bool,
    },
    /// A section that is not the same thing on every ISA.
    Differs {
        /// Its name.
        section: String,
        /// In what.
        what: String,
    },
    /// A constant that a back end has put among those which linkers merge.
    Mergeable {
        /// The ISA.
        isa: Isa,
        /// The section.
        section: String,
        /// The constant.
        symbol: String,
    },
    /// Shared data that points to constants of one ISA.
    PointsToPrivate {
        /// The ISA.
        isa: Isa,
        /// The section that points.
        section: String,
        /// What it points to.
        target: String,
    },
    /// The address of a function that comes from outside of the program, and whose address is
    /// another one on every ISA, becomes data.
    AddressOfOutside {
        /// The ISA.
        isa: Isa,
        /// The section that takes the address.
        section: String,
        /// The function.
        symbol: String,
    },
    /// A section without symbols, so that nobody could tell whether it is in its place.
    Nameless {
        /// The ISA.
        isa: Isa,
        /// Its name.
        section: String,
    },
    /// A section that there is twice, so that it cannot be placed by name.
    Twice {
        /// The ISA.
        isa: Isa,
        /// Its name.
        section: String,
    },
    /// Thread-local data.
    ThreadLocal {
        /// The section.
        section: String,
    },
    /// Functions to run before or after the program.
    Constructors {
        /// The section.
        section: String,
    },
    /// More than the region has room for.
    TooLarge {
        /// What is too large: `code` or `data`.
        region: &'static str,
        /// Where it would end.
        end: u64,
        /// Where it has to end.
        limit: u64,
        /// What takes most room there, and how much.
        largest: Option<(String, u64)>,
    },
}

impl Misfit {
    pub(super) fn only_in(isa: Isa, section: &Section) -> Misfit {
        Misfit::OnlyIn {
            isa,
            section: section.name.clone(),
            writable: section.is_writable(),
        }
    }

    /// The section that it is about.
    fn section(&self) -> Option<&str> {
        match self {
            Misfit::OnlyIn { section, .. }
            | Misfit::Differs { section, .. }
            | Misfit::Mergeable { section, .. }
            | Misfit::PointsToPrivate { section, .. }
            | Misfit::AddressOfOutside { section, .. }
            | Misfit::Nameless { section, .. }
            | Misfit::Twice { section, .. }
            | Misfit::ThreadLocal { section }
            | Misfit::Constructors { section } => Some(section),
            Misfit::TooLarge { largest, .. } => largest.as_ref().map(|(section, _)| &**section),
        }
    }
}

/// The name of a section, with the symbol it is named after made readable.
fn readable(section: &str) -> String {
    for prefix in [
        ".text.unlikely.",
        ".text.",
        ".rodata.",
        ".data.rel.ro.",
        ".data.",
        ".bss.",
    ] {
        if let Some(symbol) = section.strip_prefix(prefix)
            && symbol.starts_with("_R")
        {
            return format!("{} ({prefix}*)", crate::demangle(symbol));
        }
    }
    section.to_owned()
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Misfit::OnlyIn {
                isa,
                section,
                writable: true,
            } => write!(
                f,
                "writable section {} exists on {isa} only: its back end has merged or renamed statics, which would \
                 have two addresses (global merging has to be off)",
                readable(section)
            ),
            Misfit::OnlyIn { isa, section, .. } => write!(
                f,
                "section {} exists on {isa} only: it has been removed for, or invented by, one ISA",
                readable(section)
            ),
            Misfit::Differs { section, what } => write!(
                f,
                "section {} is not the same on both ISAs, it differs in {what}",
                readable(section)
            ),
            Misfit::Mergeable {
                isa,
                section,
                symbol,
            } => write!(
                f,
                "constant {} is in the mergeable section {section} on {isa}, among constants that only this ISA has \
                 (it must not be unnamed_addr)",
                crate::demangle(symbol)
            ),
            Misfit::PointsToPrivate {
                isa,
                section,
                target,
            } => write!(
                f,
                "{} points to {target}, which is placed for {isa} only",
                readable(section)
            ),
            Misfit::AddressOfOutside {
                isa,
                section,
                symbol,
            } => write!(
                f,
                "{} takes the address of {symbol}, which is not in the program and is another one on every ISA ({isa}): \
                 define it, or call it through a function of the program",
                readable(section)
            ),
            Misfit::Nameless { isa, section } => write!(
                f,
                "section {} has no symbol on {isa}, so its place cannot be checked",
                readable(section)
            ),
            Misfit::Twice { isa, section } => {
                write!(f, "there are two sections {} on {isa}", readable(section))
            }
            Misfit::ThreadLocal { section } => write!(
                f,
                "{} is thread-local: there is no ELF TLS, use the slots of the thread control block",
                readable(section)
            ),
            Misfit::Constructors { section } => write!(
                f,
                "{section} lists functions to run before or after the program: nobody runs them, call them from main"
            ),
            Misfit::TooLarge {
                region,
                end,
                limit,
                largest,
            } => {
                write!(
                    f,
                    "the program's {region} would end at {end:#x} but has to end below {limit:#x}"
                )?;
                if let Some((section, size)) = largest {
                    write!(f, "; {size} bytes of it are {}", readable(section))?;
                }
                f.write_str(match *region {
                    "data" => ": put large data on the heap",
                    "code" => {
                        ": call generic functions with fewer types, or make two programs of it"
                    }
                    _ => ": put less into #[dyad::isa] functions, what they call is not in there",
                })
            }
        }
    }
}

impl fmt::Display for AlignError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 8;
        f.write_str("the program cannot have the same addresses on every ISA:")?;
        for misfit in self.misfits.iter().take(SHOWN) {
            write!(f, "\n  {misfit}")?;
            let Some(item) = misfit.section().and_then(|s| self.items.get(s)) else {
                continue;
            };
            write!(f, "\n    it is {}", crate::demangle(&item.symbol))?;
            if let Some(source) = &item.source {
                write!(f, " ({source})")?;
            }
        }
        if self.misfits.len() > SHOWN {
            write!(f, "\n  and {} more", self.misfits.len() - SHOWN)?;
        }
        Ok(())
    }
}

impl std::error::Error for AlignError {}
