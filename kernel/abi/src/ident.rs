//! Identifiers: instruction sets, nodes, CPUs.

use core::fmt;

/// Most nodes a system can have. Sized so that one bit per (node, CPU) fits a 64-bit word.
pub const MAX_NODES: usize = 8;
/// Most CPUs a node can have (GICv2 has eight CPU interfaces).
pub const MAX_CPUS: usize = 8;
/// Number of instruction sets.
pub const ISA_COUNT: usize = 2;

/// An instruction set architecture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Isa {
    /// x86-64.
    X86_64 = 0,
    /// AArch64 (Armv8-A, 64-bit).
    Aarch64 = 1,
}

impl Isa {
    /// Both instruction sets, in index order.
    pub const ALL: [Isa; ISA_COUNT] = [Isa::X86_64, Isa::Aarch64];

    /// Index into per-ISA arrays.
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The instruction set with this index.
    pub const fn from_index(i: u64) -> Option<Isa> {
        match i {
            0 => Some(Isa::X86_64),
            1 => Some(Isa::Aarch64),
            _ => None,
        }
    }

    /// The other instruction set.
    pub const fn other(self) -> Isa {
        match self {
            Isa::X86_64 => Isa::Aarch64,
            Isa::Aarch64 => Isa::X86_64,
        }
    }

    /// The name used on command lines and in records: `x86_64` or `aarch64`.
    pub const fn name(self) -> &'static str {
        match self {
            Isa::X86_64 => "x86_64",
            Isa::Aarch64 => "aarch64",
        }
    }

    /// Parses the name given by [`Isa::name`].
    pub fn parse(s: &str) -> Option<Isa> {
        Isa::ALL.into_iter().find(|i| i.name() == s)
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

macro_rules! small_id {
    ($(#[$m:meta])* $name:ident, $max:expr) => {
        $(#[$m])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(transparent)]
        pub struct $name(u8);

        impl $name {
            /// The identifier with this number, if it is in range.
            pub const fn new(n: u64) -> Option<Self> {
                if n < $max as u64 { Some(Self(n as u8)) } else { None }
            }

            /// Index into arrays of that many entries.
            pub const fn index(self) -> usize {
                self.0 as usize
            }

            /// All identifiers below `n` (or below the maximum).
            pub fn first(n: usize) -> impl Iterator<Item = Self> + Clone {
                (0..n.min($max) as u8).map(Self)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

small_id!(
    /// A node: one machine of the system. Nodes are numbered in the order of `--nodes`.
    NodeId,
    MAX_NODES
);
small_id!(
    /// A CPU within its node.
    CpuId,
    MAX_CPUS
);
