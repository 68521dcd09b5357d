// SPDX-License-Identifier: GPL-2.0-or-later
//! Instructions that cost more than others because of what they do to the CPU, and where traps enter the kernel.
//!
//! | operation | x86-64 | AArch64 |
//! |---|---|---|
//! | trap | SYSCALL | SVC |
//! | return | IRET, SYSRET | ERET |
//! | switch of the root | MOV to CR3 | MSR to TTBR0_EL1, TTBR1_EL1 |
//! | invalidation of translations | INVLPG, INVPCID | TLBI |
//! | fence | MFENCE | DSB, ISB |
//!
//! Faults and interrupts are no instructions. They, and SVC too, enter the kernel at one of its [`Vectors`].

use dyad_abi::Isa;
use dyad_sim_model::system::Operation;

use crate::classify::is_system_call;
use crate::prefixes::split;

/// The operation that the instruction `code` is; `None` for almost all.
pub fn operation(isa: Isa, code: &[u8]) -> Option<Operation> {
    if is_system_call(isa, code) {
        return Some(Operation::Trap);
    }
    match isa {
        Isa::X86_64 => x86(code),
        Isa::Aarch64 => aarch64(u32::from_le_bytes(code.try_into().ok()?)),
    }
}

fn x86(code: &[u8]) -> Option<Operation> {
    let (prefixes, rest) = split(code);
    let second_opcode = prefixes.operand_size || prefixes.repeat;
    match *rest {
        [0xcf] | [0x0f, 0x07] => Some(Operation::Return),
        [0x0f, 0x22, modrm] if modrm >> 3 & 7 == 3 && prefixes.rex & 4 == 0 => {
            Some(Operation::RootSwitch)
        }
        [0x0f, 0x01, modrm, ..] if modrm < 0xc0 && modrm >> 3 & 7 == 7 => {
            Some(Operation::TlbInvalidation)
        }
        [0x0f, 0x38, 0x82, ..] if prefixes.operand_size => Some(Operation::TlbInvalidation),
        [0x0f, 0xae, 0xf0..=0xf7] if !second_opcode => Some(Operation::Fence),
        _ => None,
    }
}

fn aarch64(word: u32) -> Option<Operation> {
    // System instructions have op0, op1, CRn, CRm, op2 and a register in fixed places.
    match word {
        0xd69f_03e0 => Some(Operation::Return),
        // TTBR0_EL1, TTBR1_EL1.
        _ if matches!(word & !0x1f, 0xd518_2000 | 0xd518_2020) => Some(Operation::RootSwitch),
        // TLBI: SYS with CRn 8 (or 9, with nXS), any op1.
        _ if word & 0xfff8_e000 == 0xd508_8000 => Some(Operation::TlbInvalidation),
        // DSB, ISB: CRm says for which accesses. DSB with nXS is an opcode of its own.
        _ if matches!(word & !0xf00, 0xd503_309f | 0xd503_30df) || word & !0xc00 == 0xd503_323f => {
            Some(Operation::Fence)
        }
        _ => None,
    }
}

/// Where traps enter a kernel: its exception vectors, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vectors {
    isa: Isa,
    first: u64,
}

impl Vectors {
    /// The vectors that begin at an address.
    pub const fn new(isa: Isa, first: u64) -> Vectors {
        Vectors { isa, first }
    }

    /// Whether a trap begins with the instruction at an address.
    pub const fn begin_at(self, address: u64) -> bool {
        // AArch64 prescribes the distance; on x86-64 it is that of the kernel's stubs.
        let (number, bytes) = match self.isa {
            Isa::X86_64 => (256, 16),
            Isa::Aarch64 => (16, 128),
        };
        let offset = address.wrapping_sub(self.first);
        offset < number * bytes && offset.is_multiple_of(bytes)
    }
}

/// The operation that begins with the instruction `code` at an address: a trap where it enters the kernel, or what the
/// instruction does. SVC is priced at its vector, if the vectors are known.
pub fn begins(isa: Isa, vectors: Option<Vectors>, at: u64, code: &[u8]) -> Option<Operation> {
    match (vectors, operation(isa, code)) {
        (Some(vectors), _) if vectors.begin_at(at) => Some(Operation::Trap),
        (Some(_), Some(Operation::Trap)) if isa == Isa::Aarch64 => None,
        (_, operation) => operation,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Operation::{Fence, Return, RootSwitch, TlbInvalidation, Trap};

    #[test]
    fn x86_operations() {
        let golden: [(&[u8], Option<Operation>); 25] = [
            (&[0x0f, 0x05], Some(Trap)),                              // syscall
            (&[0x48, 0xcf], Some(Return)),                            // iretq
            (&[0xcf], Some(Return)),                                  // iretd
            (&[0x48, 0x0f, 0x07], Some(Return)),                      // sysretq
            (&[0x0f, 0x22, 0xd8], Some(RootSwitch)),                  // mov cr3, rax
            (&[0x41, 0x0f, 0x22, 0xdf], Some(RootSwitch)),            // mov cr3, r15
            (&[0x0f, 0x01, 0x38], Some(TlbInvalidation)),             // invlpg [rax]
            (&[0x41, 0x0f, 0x01, 0x3c, 0x24], Some(TlbInvalidation)), // invlpg [r12]
            (&[0x66, 0x0f, 0x38, 0x82, 0x08], Some(TlbInvalidation)), // invpcid rcx, [rax]
            (&[0x0f, 0xae, 0xf0], Some(Fence)),                       // mfence
            (&[0x0f, 0x0b], None),                                    // ud2
            (&[0xc3], None),                                          // ret
            (&[0xcb], None),                                          // retf
            (&[0x0f, 0x22, 0xe0], None),                              // mov cr4, rax
            (&[0x44, 0x0f, 0x22, 0xc0], None),                        // mov cr8, rax
            (&[0x44, 0x0f, 0x22, 0xd8], None),                        // mov cr11, rax
            (&[0x0f, 0x20, 0xd8], None),                              // mov rax, cr3
            (&[0x0f, 0x01, 0xf8], None),                              // swapgs
            (&[0x0f, 0x01, 0x10], None),                              // lgdt [rax]
            (&[0x0f, 0xae, 0xe8], None),                              // lfence
            (&[0x0f, 0xae, 0xf8], None),                              // sfence
            (&[0x66, 0x0f, 0xae, 0xf0], None),                        // tpause eax
            (&[0xf3, 0x0f, 0xae, 0xf0], None),                        // umonitor rax
            (&[0x0f, 0xae, 0x37], None),                              // xsaveopt [rdi]
            (&[], None),
        ];
        for (code, expected) in golden {
            assert_eq!(operation(Isa::X86_64, code), expected, "{code:02x?}");
        }
    }

    #[test]
    fn aarch64_operations() {
        let golden: [(u32, Option<Operation>); 28] = [
            (0xd400_0001, Some(Trap)),            // svc #0
            (0xd69f_03e0, Some(Return)),          // eret
            (0xd518_2000, Some(RootSwitch)),      // msr ttbr0_el1, x0
            (0xd518_2029, Some(RootSwitch)),      // msr ttbr1_el1, x9
            (0xd508_871f, Some(TlbInvalidation)), // tlbi vmalle1
            (0xd508_831f, Some(TlbInvalidation)), // tlbi vmalle1is
            (0xd508_8328, Some(TlbInvalidation)), // tlbi vae1is, x8
            (0xd508_875f, Some(TlbInvalidation)), // tlbi aside1, xzr
            (0xd508_811f, Some(TlbInvalidation)), // tlbi vmalle1os
            (0xd50c_871f, Some(TlbInvalidation)), // tlbi alle2
            (0xd503_3f9f, Some(Fence)),           // dsb sy
            (0xd503_3b9f, Some(Fence)),           // dsb ish
            (0xd503_3a9f, Some(Fence)),           // dsb ishst
            (0xd503_3e3f, Some(Fence)),           // dsb synxs
            (0xd503_3fdf, Some(Fence)),           // isb
            (0xd503_3fbf, None),                  // dmb sy
            (0xd503_3bbf, None),                  // dmb ish
            (0xd503_3f5f, None),                  // clrex
            (0xd503_30ff, None),                  // sb
            (0xd518_2040, None),                  // msr tcr_el1, x0
            (0xd538_2000, None),                  // mrs x0, ttbr0_el1
            (0xd518_1000, None),                  // msr sctlr_el1, x0
            (0xd518_d080, None),                  // msr tpidr_el1, x0
            (0xd50b_7e20, None),                  // dc civac, x0
            (0xd508_751f, None),                  // ic iallu
            (0xd400_0002, None),                  // hvc #0
            (0xd65f_03c0, None),                  // ret
            (0xd503_201f, None),                  // nop
        ];
        for (word, expected) in golden {
            let found = operation(Isa::Aarch64, &word.to_le_bytes());
            assert_eq!(found, expected, "{word:08x}");
        }
        assert_eq!(operation(Isa::Aarch64, &[0xe0, 0x03]), None, "too short");
    }

    #[test]
    fn traps_are_priced_once_where_they_enter() {
        const FIRST: u64 = 0xffff_ffff_8000_1000;
        let (push, svc): (&[u8], &[u8]) = (&[0x6a, 0x00], &[1, 0, 0, 0xd4]);
        let x86 = Some(Vectors::new(Isa::X86_64, FIRST));
        for (offset, expected) in [
            (0, Some(Trap)),
            (2, None),
            (14 * 16, Some(Trap)),
            (255 * 16, Some(Trap)),
            (256 * 16, None),
        ] {
            let found = begins(Isa::X86_64, x86, FIRST + offset, push);
            assert_eq!(found, expected, "{offset}");
        }
        assert_eq!(begins(Isa::X86_64, x86, FIRST - 16, push), None);
        // SYSCALL enters elsewhere.
        let call = begins(Isa::X86_64, x86, 0x40_0000, &[0x0f, 0x05]);
        assert_eq!(call, Some(Trap));
        let arm = Some(Vectors::new(Isa::Aarch64, FIRST));
        let store = &0xa900_07e0u32.to_le_bytes();
        for (offset, expected) in [
            (0, Some(Trap)),
            (4, None),
            (16, None),
            (8 * 128, Some(Trap)),
            (16 * 128, None),
        ] {
            let found = begins(Isa::Aarch64, arm, FIRST + offset, store);
            assert_eq!(found, expected, "{offset}");
        }
        assert_eq!(begins(Isa::Aarch64, arm, 0x40_0000, svc), None);
        assert_eq!(begins(Isa::Aarch64, None, 0x40_0000, svc), Some(Trap));
        assert_eq!(begins(Isa::X86_64, None, FIRST, push), None);
        // What else an instruction does counts as ever.
        let fence = &0xd503_3f9fu32.to_le_bytes();
        assert_eq!(begins(Isa::Aarch64, arm, 0x40_0000, fence), Some(Fence));
    }
}
