//! What the analysis has to know about an ISA and its calling conventions.

use super::lanes::{Lanes, Owner};
use super::{a64, x86};
use dyad_abi::Isa;

/// An ISA as the analysis sees it.
#[derive(Clone, Debug)]
pub(super) struct Arch {
    /// Which one.
    pub isa: Isa,
    /// The stack pointer.
    pub sp: u8,
    /// The frame pointer.
    pub fp: u8,
    /// The link register, if calls put the return address into one.
    pub link: Option<u8>,
    /// The stack pointer at a function's entry, relative to the CFA: what the call has pushed.
    pub entry_sp: i64,
    /// How far below the stack pointer a function may reach.
    pub red_zone: i64,
    /// What functions of the C convention leave as it is, stack and frame pointer aside.
    pub callee_saved: Lanes,
    /// What may hold results of a call, by any convention.
    pub returned: Lanes,
    /// What may hold arguments, by any convention.
    pub arguments: Lanes,
}

impl Arch {
    /// The ISA's.
    pub fn of(isa: Isa) -> Arch {
        match isa {
            Isa::X86_64 => Arch {
                isa,
                sp: x86::RSP,
                fp: x86::RBP,
                link: None,
                entry_sp: -8,
                red_zone: 128,
                callee_saved: Lanes::generals([3, 12, 13, 14, 15]),
                // rax, rdx, rcx and as many vector registers.
                returned: Lanes::generals([0, 2, 1]).or(Lanes::vectors(0..4, 16)),
                // rbx is no convention's; r10 is for nested functions, which Rust has not.
                arguments: Lanes::generals([0, 1, 2, 6, 7, 8, 9, 11, 12, 13, 14, 15])
                    .or(Lanes::vectors(0..8, 16)),
            },
            Isa::Aarch64 => Arch {
                isa,
                sp: a64::SP,
                fp: a64::FP,
                link: Some(a64::LR),
                entry_sp: 0,
                red_zone: 0,
                callee_saved: Lanes::generals(19..29).or(Lanes::vectors(8..16, 8)),
                returned: Lanes::generals(0..4).or(Lanes::vectors(0..4, 16)),
                // x19 is no convention's; x16 to x18 belong to linkers and platforms.
                arguments: Lanes::generals((0..16).chain(20..29)).or(Lanes::vectors(0..8, 16)),
            },
        }
    }

    /// The stack and the frame pointer.
    pub fn pointers(&self) -> Lanes {
        Lanes::generals([self.sp, self.fp])
    }

    /// Everything but the stack and the frame pointer.
    pub fn everything_else(&self) -> Lanes {
        let flags = match self.isa {
            Isa::X86_64 => x86::all_flags(),
            Isa::Aarch64 => a64::all_flags(),
        };
        Lanes::generals(0..32)
            .or(Lanes::vectors(0..32, 16))
            .or(flags)
            .minus(self.pointers())
    }

    /// The name of what lanes belong to.
    pub fn name(&self, owner: Owner) -> String {
        match (self.isa, owner) {
            (Isa::X86_64, Owner::General(n)) => {
                x86::NAMES.get(usize::from(n)).unwrap_or(&"?").to_string()
            }
            (Isa::X86_64, Owner::Vector(n)) => format!("xmm{n}"),
            (Isa::Aarch64, Owner::General(a64::SP)) => "sp".to_owned(),
            (Isa::Aarch64, Owner::General(n)) => format!("x{n}"),
            (Isa::Aarch64, Owner::Vector(n)) => format!("v{n}"),
            (_, Owner::Flags) => "the flags".to_owned(),
        }
    }

    /// The distance of the stack pointer from the CFA where a call is made, by the frame's size in
    /// the stack map.
    pub fn sp_at_site(&self, frame: u64) -> Option<i64> {
        self.entry_sp.checked_sub(i64::try_from(frame).ok()?)
    }
}
