//! An instruction of either ISA, in the terms that the analysis needs.

use super::lanes::Lanes;
use std::ops::Range;

/// Where control goes after an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    /// To the next instruction.
    Next,
    /// To the target.
    Jump(u64),
    /// To the target or to the next instruction.
    Branch(u64),
    /// To the target, and from there back to the next instruction.
    Call(u64),
    /// To wherever, and from there back to the next instruction.
    IndirectCall,
    /// To the caller. On AArch64 through this register; it is the link register's number then.
    Return(u8),
    /// To wherever.
    IndirectJump,
    /// Nowhere: it traps.
    Trap,
}

/// The memory that an access is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// Register with the base address, if any.
    pub base: Option<u8>,
    /// Whether a register is added: the index, or an extent that depends on a value.
    pub index: Option<u8>,
    /// A constant that is added. Without base: the address.
    pub offset: i64,
    /// Whether the address is relative to a segment base or otherwise no stack's.
    pub elsewhere: bool,
}

impl Place {
    /// `offset` from register `base`.
    pub fn at(base: u8, offset: i64) -> Place {
        Place {
            base: Some(base),
            index: None,
            offset,
            elsewhere: false,
        }
    }
}

/// What an access does with the value in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transfer {
    /// Reads it, byte for byte, into lanes from this one. The rest of the register is up to the
    /// instruction's `sets`.
    Load(u16),
    /// Reads it and computes with it.
    Observe,
    /// Writes lanes from this one, byte for byte.
    Store(u16),
    /// Writes something that the instruction has computed, or a constant.
    Define,
    /// Reads an operand of the instruction's [`Sum`].
    Operand,
    /// Writes the result of the instruction's [`Sum`], whose operand in a register begins with that lane.
    Result(Option<u16>),
}

/// An access to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Access {
    /// Where.
    pub place: Place,
    /// Number of bytes.
    pub bytes: u16,
    /// What for.
    pub transfer: Transfer,
}

/// Lanes that are derived from others, element by element, without anything being decided by them: a
/// copy has one source; in a sum of vectors, an element comes from two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Derive {
    /// First lane of the result.
    pub to: u16,
    /// First lanes of the sources.
    pub from: [Option<u16>; 2],
    /// Lanes in all.
    pub lanes: u16,
    /// Lanes of an element: each of them comes from all lanes of the sources' elements.
    pub element: u16,
}

/// Arithmetic on registers of which only the low bytes may have a meaning: on x86-64, a byte is made alone,
/// and what is computed with it is 32 bits wide. The lowest byte has to be there. Such a register is spilled whole, and
/// added to slots whole, so an operand or the result in a slot counts byte by byte as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sum {
    /// First lane of the result; none: the result goes to memory ([`Transfer::Result`]).
    pub to: Option<u16>,
    /// First lanes of the operands that are in registers. Another one may be in memory ([`Transfer::Operand`]).
    pub from: [Option<u16>; 2],
    /// Lanes of the result that come from operands; none: it is about the flags only.
    pub lanes: u16,
    /// Lanes of each operand.
    pub width: u16,
    /// Whether a lane of the result depends on lower ones, too.
    pub carries: bool,
    /// Flags that depend on all lanes.
    pub flags: Lanes,
}

impl Sum {
    /// Which bytes of the operands byte `i` of the result comes from.
    pub fn bytes(self, i: u16) -> Range<u16> {
        let first = if self.carries { 0 } else { i };
        first..i + 1
    }

    /// The lanes of operands that lane `i` of the result comes from.
    pub fn sources(self, i: u16) -> impl Iterator<Item = u16> + Clone {
        let from = self.from.into_iter().flatten();
        from.flat_map(move |s| self.bytes(i).map(move |b| s + b))
    }

    /// All lanes of operands.
    pub fn all(self) -> impl Iterator<Item = u16> + Clone {
        let from = self.from.into_iter().flatten();
        from.flat_map(move |s| s..s + self.width)
    }

    /// The lanes of the result, if it is in a register.
    pub fn result(self) -> Lanes {
        self.to
            .map_or(Lanes::NONE, |to| Lanes::range(to, self.lanes))
    }

    /// The lowest lanes of operands, if there is a result.
    pub fn lowest(self) -> Lanes {
        let from = self.from.into_iter().flatten().filter(|_| self.lanes > 0);
        from.fold(Lanes::NONE, |all, s| all.or(Lanes::range(s, 1)))
    }
}

/// Address arithmetic: what it does to the distance from the CFA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Offset {
    /// Register that is set.
    pub to: u8,
    /// Register that it comes from.
    pub from: u8,
    /// What is added.
    pub by: i64,
}

/// Why an instruction cannot be accepted, whatever its operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// It is not one of those that the verifier has rules for.
    Unknown,
    /// It is about state that does not travel.
    Forbidden(&'static str),
}

/// An instruction. Its parts take effect in this order: accesses are made with the registers as they
/// are before it, then `derives`, `sums`, `spoils` and `sets`, then `offset`, then control goes on.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Insn {
    /// Its address.
    pub va: u64,
    /// Its length in bytes.
    pub len: u8,
    /// Where control goes.
    pub flow: Flow,
    /// The reason why the instruction is refused, if it is.
    pub refused: Option<Refused>,
    /// Whether it does nothing and may stand where control never comes.
    pub padding: bool,
    /// Lanes that it reads and computes with. Base and index registers are not among them.
    pub reads: Lanes,
    /// Lanes that have a value of the instruction's afterwards.
    pub sets: Lanes,
    /// Lanes that have no usable value afterwards.
    pub spoils: Lanes,
    /// Lanes that are derived from others.
    pub derives: Vec<Derive>,
    /// Lanes that are computed of others, which need not all be there.
    pub sums: Vec<Sum>,
    /// Accesses to memory, in order. They may be to the stack; the analysis finds out.
    pub accesses: Vec<Access>,
    /// Address arithmetic, in order. Its registers are neither read nor set otherwise.
    pub offsets: Vec<Offset>,
}

impl Insn {
    /// An instruction that does nothing.
    pub fn new(va: u64, len: u8) -> Insn {
        Insn {
            va,
            len,
            flow: Flow::Next,
            refused: None,
            padding: false,
            reads: Lanes::NONE,
            sets: Lanes::NONE,
            spoils: Lanes::NONE,
            derives: Vec::new(),
            sums: Vec::new(),
            accesses: Vec::new(),
            offsets: Vec::new(),
        }
    }

    /// The address behind it.
    pub fn end(&self) -> u64 {
        self.va + u64::from(self.len)
    }

    /// Marks it as refused, unless it is already.
    pub fn refuse(&mut self, why: Refused) {
        self.refused.get_or_insert(why);
    }

    /// Adds lanes that it reads.
    pub fn read(&mut self, lanes: Lanes) {
        self.reads = self.reads.or(lanes);
    }

    /// Adds lanes that it sets.
    pub fn set(&mut self, lanes: Lanes) {
        self.sets = self.sets.or(lanes);
    }

    /// Adds lanes that it leaves without value.
    pub fn spoil(&mut self, lanes: Lanes) {
        self.spoils = self.spoils.or(lanes);
    }

    /// Copies `lanes` lanes.
    pub fn copy(&mut self, to: u16, from: u16, lanes: u16) {
        self.derive(to, [Some(from), None], lanes, 1);
    }

    /// Derives lanes.
    pub fn derive(&mut self, to: u16, from: [Option<u16>; 2], lanes: u16, element: u16) {
        self.derives.push(Derive {
            to,
            from,
            lanes,
            element,
        });
    }

    /// Adds an access.
    pub fn access(&mut self, place: Place, bytes: u16, transfer: Transfer) {
        self.accesses.push(Access {
            place,
            bytes,
            transfer,
        });
    }

    /// Adds address arithmetic.
    pub fn offset(&mut self, to: u8, from: u8, by: i64) {
        self.offsets.push(Offset { to, from, by });
    }

    /// Every lane that it reads, addresses and copies included.
    pub fn all_reads(&self) -> Lanes {
        let mut lanes = self.reads;
        for derive in &self.derives {
            for from in derive.from.into_iter().flatten() {
                lanes = lanes.or(Lanes::range(from, derive.lanes));
            }
        }
        for lane in self.sums.iter().flat_map(|s| s.all()) {
            lanes.insert(lane);
        }
        for access in &self.accesses {
            let place = &access.place;
            lanes = lanes.or(Lanes::generals(place.base.into_iter().chain(place.index)));
            if let Transfer::Store(from) | Transfer::Result(Some(from)) = access.transfer {
                lanes = lanes.or(Lanes::range(from, access.bytes));
            }
        }
        lanes.or(Lanes::generals(self.offsets.iter().map(|o| o.from)))
    }

    /// Every lane that it changes.
    pub fn all_changes(&self) -> Lanes {
        let mut lanes = self.sets.or(self.spoils);
        for derive in &self.derives {
            lanes = lanes.or(Lanes::range(derive.to, derive.lanes));
        }
        for sum in &self.sums {
            lanes = lanes.or(sum.result()).or(sum.flags);
        }
        for access in &self.accesses {
            if let Transfer::Load(to) = access.transfer {
                lanes = lanes.or(Lanes::range(to, access.bytes));
            }
        }
        lanes.or(Lanes::generals(self.offsets.iter().map(|o| o.to)))
    }
}
