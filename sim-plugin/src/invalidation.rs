// SPDX-License-Identifier: GPL-2.0-or-later
//! What instructions do to simulated TLBs, and to the root of translations. Of interest only if TLBs are simulated.
//!
//! | | x86-64 | AArch64 |
//! |---|---|---|
//! | another root | MOV to CR3; drops what is not global | MSR to TTBR0_EL1, TTBR1_EL1; drops nothing |
//! | drops a page | INVLPG | TLBI VAE1, VAAE1, VALE1, VAALE1 |
//! | drops what is not global | - | TLBI ASIDE1: kernels have one ASID |
//! | drops all | MOV to CR0, CR4; INVPCID | any other TLBI |
//!
//! TLBI with IS or OS reaches all CPUs of the machine. INVPCID, and TLBI of a range, drop more here than on hardware; no kernel of
//! Dyad executes them.

use std::sync::{Mutex, PoisonError};

use dyad_abi::Isa;
use dyad_abi::ident::MAX_CPUS;
use dyad_sim_model::translation::{Dropped, Mmu};

use crate::maintenance::{Operand, Scope, tlbi_scope, x86_operand};
use crate::prefixes::split;
use crate::system::operation;
use dyad_sim_model::system::Operation;

/// What an instruction does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Change {
    /// It drops everything.
    All,
    /// It drops what is not global.
    NotGlobal,
    /// It drops the page of an address, which its operand has.
    Page(Operand),
    /// It drops the page of which a register has the number; register 31 is zero.
    PageNumber(u8),
    /// It writes a register to the root of both halves, or of the `upper` one only (AArch64); register 31 is zero there.
    Root {
        /// Whether it is TTBR1_EL1.
        upper: bool,
        /// The register.
        register: u8,
    },
}

/// An instruction that changes TLBs or the root.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Invalidation {
    /// What it does.
    pub change: Change,
    /// Whether it does so to all CPUs of the machine.
    pub machine: bool,
    /// Its address.
    pub at: u64,
}

impl Invalidation {
    /// What the instruction `code` at an address does; `None` for almost all.
    pub fn of(isa: Isa, code: &[u8], at: u64) -> Option<Invalidation> {
        let (change, machine) = match isa {
            Isa::X86_64 => (x86(code)?, false),
            Isa::Aarch64 => aarch64(u32::from_le_bytes(code.try_into().ok()?))?,
        };
        Some(Invalidation {
            change,
            machine,
            at,
        })
    }

    /// Does it to a CPU's TLBs. Returns what the other CPUs are to drop too. A register that cannot be read makes it drop all.
    pub fn apply(
        &self,
        isa: Isa,
        mmu: &mut Mmu,
        mut read: impl FnMut(u8) -> Option<u64>,
    ) -> Option<Dropped> {
        let mut register = |n| match (isa, n) {
            (Isa::Aarch64, 31) => Some(0),
            _ => read(n),
        };
        let dropped = match self.change {
            Change::All => Some(Dropped::All),
            Change::NotGlobal => Some(Dropped::NotGlobal),
            Change::Page(operand) => operand.address(self.at, register).map(Dropped::Page),
            Change::PageNumber(n) => register(n).map(|value| {
                // Bits 43 to 0 are those of the address from bit 12 on; the last one is repeated above.
                Dropped::Page(((value << 20) as i64 >> 8) as u64)
            }),
            Change::Root { upper, register: n } => {
                if let Some(value) = register(n) {
                    mmu.switch_root(upper, value);
                    return None;
                }
                None
            }
        };
        let dropped = dropped.unwrap_or(Dropped::All);
        mmu.invalidate(dropped);
        self.machine.then_some(dropped)
    }
}

fn x86(code: &[u8]) -> Option<Change> {
    let (prefixes, rest) = split(code);
    match *rest {
        [0x0f, 0x22, modrm] if prefixes.rex & 4 == 0 => match modrm >> 3 & 7 {
            0 | 4 => Some(Change::All),
            3 => Some(Change::Root {
                upper: false,
                register: modrm & 7 | (prefixes.rex & 1) << 3,
            }),
            _ => None,
        },
        _ if operation(Isa::X86_64, code) != Some(Operation::TlbInvalidation) => None,
        [0x0f, 0x01, modrm, ref tail @ ..] => {
            let operand = x86_operand(modrm, prefixes.rex, tail, code.len());
            Some(operand.map_or(Change::All, Change::Page))
        }
        _ => Some(Change::All),
    }
}

fn aarch64(word: u32) -> Option<(Change, bool)> {
    let register = (word & 31) as u8;
    match operation(Isa::Aarch64, &word.to_le_bytes())? {
        Operation::RootSwitch => {
            let upper = word >> 5 & 7 == 1;
            Some((Change::Root { upper, register }, false))
        }
        Operation::TlbInvalidation => {
            let (op1, crm, op2) = (word >> 16 & 7, word >> 8 & 15, word >> 5 & 7);
            // 2, 5 and 6 are ranges.
            let plain = op1 == 0 && matches!(crm, 1 | 3 | 7);
            let change = match op2 {
                1 | 3 | 5 | 7 if plain => Change::PageNumber(register),
                2 if plain => Change::NotGlobal,
                _ => Change::All,
            };
            Some((change, tlbi_scope(word) == Scope::Machine))
        }
        _ => None,
    }
}

/// What other CPUs want a CPU to drop, by its number.
static MAILBOXES: [Mutex<Vec<Dropped>>; MAX_CPUS] = [const { Mutex::new(Vec::new()) }; MAX_CPUS];

/// Has all CPUs but one drop something, when they next find out that translations have changed.
pub fn post(from: u32, dropped: Dropped) {
    let others = MAILBOXES.iter().enumerate();
    for (_, mailbox) in others.filter(|(cpu, _)| *cpu != from as usize) {
        let mut all = mailbox.lock().unwrap_or_else(PoisonError::into_inner);
        // Dropping all says everything that was said before.
        if dropped == Dropped::All {
            all.clear();
        }
        all.push(dropped);
    }
}

/// What a CPU is to drop.
pub fn collect(cpu: u32) -> Vec<Dropped> {
    let mailbox = MAILBOXES.get(cpu as usize).map(Mutex::lock);
    mailbox.map_or_else(Vec::new, |all| {
        std::mem::take(&mut *all.unwrap_or_else(PoisonError::into_inner))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn root(upper: bool, register: u8) -> Change {
        Change::Root { upper, register }
    }

    fn page(base: u8, displacement: i64) -> Change {
        let base = Some(base);
        Change::Page(Operand {
            base,
            displacement,
            ..Operand::default()
        })
    }

    #[test]
    fn x86_instructions() {
        let golden: [(&[u8], Option<Change>); 11] = [
            (&[0x0f, 0x22, 0xd8], Some(root(false, 0))), // mov cr3, rax
            (&[0x41, 0x0f, 0x22, 0xdf], Some(root(false, 15))), // mov cr3, r15
            (&[0x0f, 0x22, 0xe0], Some(Change::All)),    // mov cr4, rax
            (&[0x0f, 0x22, 0xc0], Some(Change::All)),    // mov cr0, rax
            (&[0x0f, 0x22, 0xd0], None),                 // mov cr2, rax
            (&[0x44, 0x0f, 0x22, 0xc0], None),           // mov cr8, rax
            (&[0x0f, 0x01, 0x38], Some(page(0, 0))),     // invlpg [rax]
            (&[0x41, 0x0f, 0x01, 0x7f, 0x08], Some(page(15, 8))), // invlpg [r15+8]
            (&[0x66, 0x0f, 0x38, 0x82, 0x08], Some(Change::All)), // invpcid rcx, [rax]
            (&[0x0f, 0x30], None),                       // wrmsr
            (&[0x0f, 0x01, 0xf8], None),                 // swapgs
        ];
        for (code, change) in golden {
            let found = Invalidation::of(Isa::X86_64, code, 7);
            assert_eq!(found.map(|i| i.change), change, "{code:02x?}");
            assert!(found.is_none_or(|i| !i.machine && i.at == 7));
        }
    }

    #[test]
    fn aarch64_instructions() {
        let golden: [(u32, Option<(Change, bool)>); 14] = [
            (0xd518_2000, Some((root(false, 0), false))), // msr ttbr0_el1, x0
            (0xd518_203f, Some((root(true, 31), false))), // msr ttbr1_el1, xzr
            (0xd508_871f, Some((Change::All, false))),    // tlbi vmalle1
            (0xd508_831f, Some((Change::All, true))),     // tlbi vmalle1is
            (0xd508_811f, Some((Change::All, true))),     // tlbi vmalle1os
            (0xd508_875f, Some((Change::NotGlobal, false))), // tlbi aside1, xzr
            (0xd508_8343, Some((Change::NotGlobal, true))), // tlbi aside1is, x3
            (0xd508_8728, Some((Change::PageNumber(8), false))), // tlbi vae1, x8
            (0xd508_8328, Some((Change::PageNumber(8), true))), // tlbi vae1is, x8
            (0xd508_87e8, Some((Change::PageNumber(8), false))), // tlbi vaale1, x8
            (0xd508_8628, Some((Change::All, false))),    // tlbi rvae1, x8
            (0xd50c_871f, Some((Change::All, false))),    // tlbi alle2
            (0xd518_2040, None),                          // msr tcr_el1, x0
            (0xd503_3f9f, None),                          // dsb sy
        ];
        for (word, expected) in golden {
            let found = Invalidation::of(Isa::Aarch64, &word.to_le_bytes(), 0);
            let found = found.map(|i| (i.change, i.machine));
            assert_eq!(found, expected, "{word:08x}");
        }
    }

    #[test]
    fn numbers_of_pages_become_addresses() {
        use dyad_sim_model::translation::TlbConfig;
        let keys = TlbConfig {
            entries: 1,
            ways: 1,
            ..TlbConfig::default()
        };
        let mut mmu = Mmu::new(Isa::Aarch64, keys, true).unwrap();
        let invalidation = |change| Invalidation {
            change,
            machine: true,
            at: 0,
        };
        for (register, address) in [
            (0x1234, 0x123_4000),
            // An ASID and hints are above.
            (0xff8_0000_1234 | 0xabcd << 48, 0xffff_8000_0123_4000),
            (0xfff_ffff_ffff, 0xffff_ffff_ffff_f000),
        ] {
            let dropped = invalidation(Change::PageNumber(3))
                .apply(Isa::Aarch64, &mut mmu, |n| (n == 3).then_some(register));
            assert_eq!(dropped, Some(Dropped::Page(address)), "{register:#x}");
        }
        let unreadable =
            invalidation(Change::PageNumber(3)).apply(Isa::Aarch64, &mut mmu, |_| None);
        assert_eq!(unreadable, Some(Dropped::All));
        let switch = invalidation(root(false, 31)).apply(Isa::Aarch64, &mut mmu, |_| None);
        assert_eq!(switch, None);
    }

    #[test]
    fn others_are_told() {
        post(1, Dropped::Page(0x1000));
        post(1, Dropped::NotGlobal);
        assert_eq!(collect(1), []);
        assert_eq!(collect(0), [Dropped::Page(0x1000), Dropped::NotGlobal]);
        assert_eq!(collect(0), []);
        post(0, Dropped::All);
        assert_eq!(collect(2), [Dropped::All]);
    }
}
