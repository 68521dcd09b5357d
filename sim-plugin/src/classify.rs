// SPDX-License-Identifier: GPL-2.0-or-later
//! What kind of instruction a piece of machine code is, as far as windows count kinds.
//!
//! | kind | x86-64 | AArch64 |
//! |---|---|---|
//! | atomic | LOCK prefix; XCHG with memory | LSE atomics and SWP, CAS, CASP; store-exclusive, which ends a load-exclusive pair |
//! | flush | CLFLUSH, CLFLUSHOPT, CLWB | DC IVAC, CVAC, CVAU, CVAP, CVADP, CIVAC |
//! | fence | MFENCE, SFENCE, LFENCE | DMB, DSB, ISB, SB |

use dyad_abi::Isa;

use crate::prefixes::split;

/// A kind of instruction that is counted apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An atomic read-modify-write. An attempt counts, whether it succeeds or not.
    Atomic,
    /// Write-back or invalidation of a cache line.
    Flush,
    /// A memory barrier.
    Fence,
    /// Everything else.
    Plain,
}

/// The kind of the instruction `code`.
pub fn kind(isa: Isa, code: &[u8]) -> Kind {
    match isa {
        Isa::X86_64 => x86(code),
        Isa::Aarch64 => match code.try_into() {
            Ok(bytes) => aarch64(u32::from_le_bytes(bytes)),
            Err(_) => Kind::Plain,
        },
    }
}

/// Whether the instruction `code` may halt its CPU: HLT and MWAIT; WFI and WFE, and calls to firmware,
/// by which CPUs are switched off.
pub fn may_halt(isa: Isa, code: &[u8]) -> bool {
    match (isa, code) {
        (Isa::X86_64, [0xf4] | [0x0f, 0x01, 0xc9]) => true,
        (Isa::X86_64, _) => false,
        (Isa::Aarch64, _) => code.try_into().is_ok_and(|bytes| {
            let word = u32::from_le_bytes(bytes);
            let firmware = matches!(word & 0xffe0_001f, 0xd400_0002 | 0xd400_0003);
            firmware || matches!(word, 0xd503_207f | 0xd503_205f)
        }),
    }
}

/// Whether the instruction `code` is a system call.
pub fn is_system_call(isa: Isa, code: &[u8]) -> bool {
    match isa {
        Isa::X86_64 => code == [0x0f, 0x05],
        Isa::Aarch64 => code == 0xd400_0001u32.to_le_bytes(),
    }
}

/// Whether no access of the instruction `code` is longer than 8 bytes. `false` if that is not obvious.
pub fn is_narrow(isa: Isa, code: &[u8]) -> bool {
    match isa {
        Isa::X86_64 => x86_is_narrow(code),
        Isa::Aarch64 => {
            let Ok(bytes) = code.try_into() else {
                return false;
            };
            let word = u32::from_le_bytes(bytes);
            // Loads and stores of one general register, with any form of address (bits 29 to 27 are 7, bit
            // 26, for vectors, is clear); loads relative to the program counter.
            word & 0x3c00_0000 == 0x3800_0000 || word & 0x3f00_0000 == 0x1800_0000
        }
    }
}

fn x86_is_narrow(code: &[u8]) -> bool {
    let (_, rest) = split(code);
    match *rest {
        // CMOV, SETcc, MOVZX, MOVSX, BT, IMUL; the rest of the two-byte opcodes has vectors in it.
        [0x0f, second, ..] => {
            matches!(second, 0x40..=0x4f | 0x90..=0x9f | 0xa3 | 0xaf | 0xb6 | 0xb7 | 0xba | 0xbe | 0xbf)
        }
        // VEX, EVEX, and XOP or POP by the same byte.
        [0xc4 | 0xc5 | 0x62 | 0x8f, ..] => false,
        // The x87's load and store up to 10 bytes, and more.
        [0xd8..=0xdf, ..] => false,
        [_, ..] => true,
        [] => false,
    }
}

fn x86(code: &[u8]) -> Kind {
    let (prefixes, rest) = split(code);
    if prefixes.lock {
        return Kind::Atomic;
    }
    let (operand_size, repeat) = (prefixes.operand_size, prefixes.repeat);
    match *rest {
        [0x86 | 0x87, modrm, ..] if modrm < 0xc0 => Kind::Atomic,
        [0x0f, 0xae, modrm, ..] => {
            let operation = modrm >> 3 & 7;
            match (modrm >= 0xc0, operation) {
                (true, 5..=7) if !operand_size && !repeat => Kind::Fence,
                (false, 7) if !repeat => Kind::Flush,
                (false, 6) if operand_size => Kind::Flush,
                _ => Kind::Plain,
            }
        }
        _ => Kind::Plain,
    }
}

fn aarch64(word: u32) -> Kind {
    let is = |mask: u32, value: u32| word & mask == value;
    // Atomic memory operations: o3 (bit 15) is clear, or it is a swap (opc, bits 14 to 12, clear).
    let lse = is(0x3b20_0c00, 0x3820_0000) && (word & 1 << 15 == 0 || word & 7 << 12 == 0);
    let cas = is(0x3fa0_7c00, 0x08a0_7c00) || is(0xbfa0_7c00, 0x0820_7c00);
    let store_exclusive = is(0x3fe0_7c00, 0x0800_7c00) || is(0xbfe0_0000, 0x8820_0000);
    if lse && word & 1 << 26 == 0 || cas || store_exclusive {
        return Kind::Atomic;
    }
    // SYS #op1, C7, Cm, #1: IVAC; CVAC, CVAU, CVAP, CVADP, CIVAC.
    if is(0xffff_ffe0, 0xd508_7620) {
        return Kind::Flush;
    }
    if is(0xffff_f0e0, 0xd50b_7020) && matches!(word >> 8 & 15, 10..=14) {
        return Kind::Flush;
    }
    // CRm in bits 11 to 8 says which; 0xff is SB.
    let barrier = is(0xffff_f01f, 0xd503_301f) && matches!(word >> 5 & 7, 4..=6);
    if barrier || word == 0xd503_30ff || is(0xffff_f3ff, 0xd503_323f) {
        return Kind::Fence;
    }
    Kind::Plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_calls_are_told_from_other_instructions() {
        assert!(is_system_call(Isa::X86_64, &[0x0f, 0x05]));
        assert!(!is_system_call(Isa::X86_64, &[0x0f, 0x0b]));
        assert!(is_system_call(Isa::Aarch64, &[1, 0, 0, 0xd4]));
        assert!(!is_system_call(Isa::Aarch64, &[2, 0, 0, 0xd4]));
    }

    #[test]
    fn what_halts_a_cpu_is_known() {
        let x86: [(bool, &[u8]); 4] = [
            (true, &[0xf4]),              // hlt
            (true, &[0x0f, 0x01, 0xc9]),  // mwait
            (false, &[0xf3, 0x90]),       // pause
            (false, &[0x0f, 0x01, 0xc8]), // monitor
        ];
        for (expected, code) in x86 {
            assert_eq!(may_halt(Isa::X86_64, code), expected, "{code:02x?}");
        }
        let aarch64: [(bool, u32); 7] = [
            (true, 0xd503_207f),  // wfi
            (true, 0xd503_205f),  // wfe
            (true, 0xd400_0002),  // hvc #0
            (true, 0xd400_0023),  // smc #1
            (false, 0xd400_0001), // svc #0
            (false, 0xd503_203f), // yield
            (false, 0xd503_209f), // sev
        ];
        for (expected, word) in aarch64 {
            let halts = may_halt(Isa::Aarch64, &word.to_le_bytes());
            assert_eq!(halts, expected, "{word:#x}");
        }
    }

    #[test]
    fn narrow_is_what_cannot_access_more_than_eight_bytes() {
        let x86: [(bool, &[u8]); 10] = [
            (true, &[0x48, 0x8b, 0x07]),        // mov rax, [rdi]
            (true, &[0x89, 0x47, 0x08]),        // mov [rdi+8], eax
            (true, &[0x0f, 0xb6, 0x07]),        // movzx eax, byte [rdi]
            (true, &[0x48, 0x0f, 0xaf, 0x07]),  // imul rax, [rdi]
            (true, &[0x50]),                    // push rax
            (false, &[0x0f, 0x10, 0x07]),       // movups xmm0, [rdi]
            (false, &[0xf3, 0x0f, 0x6f, 0x07]), // movdqu xmm0, [rdi]
            (false, &[0xc5, 0xfc, 0x10, 0x07]), // vmovups ymm0, [rdi]
            (false, &[0xdb, 0x2f]),             // fld tbyte [rdi]
            (false, &[]),
        ];
        for (expected, code) in x86 {
            assert_eq!(is_narrow(Isa::X86_64, code), expected, "{code:02x?}");
        }
        let aarch64: [(bool, u32); 9] = [
            (true, 0xf940_0000),  // ldr x0, [x0]
            (true, 0xb900_0401),  // str w1, [x0, #4]
            (true, 0xf860_6801),  // ldr x1, [x0, x0]
            (true, 0x3841_0401),  // ldrb w1, [x0], #16
            (true, 0x5800_0040),  // ldr x0, 8 bytes on
            (false, 0xa900_0400), // stp x0, x1, [x0]
            (false, 0x3dc0_0000), // ldr q0, [x0]
            (false, 0x3ca0_6801), // str q1, [x0, x0]
            (false, 0x9c00_0040), // ldr q0, 8 bytes on
        ];
        for (expected, word) in aarch64 {
            let found = is_narrow(Isa::Aarch64, &word.to_le_bytes());
            assert_eq!(found, expected, "{word:08x}");
        }
    }

    #[test]
    fn x86_instructions() {
        let golden: [(Kind, &[u8]); 22] = [
            (Kind::Atomic, &[0xf0, 0x48, 0x0f, 0xc1, 0x07]), // lock xadd [rdi], rax
            (Kind::Atomic, &[0x66, 0xf0, 0x0f, 0xb1, 0x0f]), // lock cmpxchg [rdi], cx
            (Kind::Atomic, &[0xf0, 0x83, 0x0c, 0x24, 0x00]), // lock or [rsp], 0
            (Kind::Atomic, &[0x48, 0x87, 0x07]),             // xchg [rdi], rax
            (Kind::Atomic, &[0x86, 0x47, 0x01]),             // xchg [rdi+1], al
            (Kind::Plain, &[0x48, 0x87, 0xc8]),              // xchg rax, rcx
            (Kind::Plain, &[0x90]),                          // nop
            (Kind::Flush, &[0x0f, 0xae, 0x3f]),              // clflush [rdi]
            (Kind::Flush, &[0x66, 0x0f, 0xae, 0x3f]),        // clflushopt [rdi]
            (Kind::Flush, &[0x66, 0x41, 0x0f, 0xae, 0x30]),  // clwb [r8]
            (Kind::Plain, &[0x0f, 0xae, 0x37]),              // xsaveopt [rdi]
            (Kind::Plain, &[0xf3, 0x0f, 0xae, 0x37]),        // clrssbsy [rdi]
            (Kind::Fence, &[0x0f, 0xae, 0xf0]),              // mfence
            (Kind::Fence, &[0x0f, 0xae, 0xe8]),              // lfence
            (Kind::Fence, &[0x0f, 0xae, 0xf8]),              // sfence
            (Kind::Plain, &[0x66, 0x0f, 0xae, 0xf0]),        // tpause eax
            (Kind::Plain, &[0xf3, 0x0f, 0xae, 0xf0]),        // umonitor rax
            (Kind::Plain, &[0x0f, 0xae, 0x17]),              // ldmxcsr [rdi]
            (Kind::Plain, &[0x48, 0x89, 0x07]),              // mov [rdi], rax
            (Kind::Plain, &[0xf3, 0x48, 0xab]),              // rep stosq
            (Kind::Plain, &[0x0f, 0xae]),
            (Kind::Plain, &[]),
        ];
        for (expected, code) in golden {
            assert_eq!(kind(Isa::X86_64, code), expected, "{code:02x?}");
        }
    }

    #[test]
    fn aarch64_instructions() {
        let golden: [(Kind, u32); 33] = [
            (Kind::Atomic, 0xf820_0001), // ldadd x0, x1, [x0]
            (Kind::Atomic, 0xf8e0_301f), // ldsetal x0, xzr, [x0]
            (Kind::Atomic, 0xb8a1_8002), // swpa w1, w2, [x0]
            (Kind::Atomic, 0x38e1_7002), // lduminalb w1, w2, [x0]
            (Kind::Plain, 0xf8bf_c001),  // ldapr x1, [x0]
            (Kind::Atomic, 0xc8a1_7c02), // cas x1, x2, [x0]
            (Kind::Atomic, 0x88e1_fc02), // casal w1, w2, [x0]
            (Kind::Atomic, 0x4820_7c02), // casp x0, x1, x2, x3, [x0]
            (Kind::Atomic, 0xc801_7c02), // stxr w1, x2, [x0]
            (Kind::Atomic, 0x8801_fc02), // stlxr w1, w2, [x0]
            (Kind::Atomic, 0xc821_0c02), // stxp w1, x2, x3, [x0]
            (Kind::Plain, 0xc85f_7c02),  // ldxr x2, [x0]
            (Kind::Plain, 0xc87f_0c02),  // ldxp x2, x3, [x0]
            (Kind::Plain, 0xc8df_fc02),  // ldar x2, [x0]
            (Kind::Plain, 0xc89f_fc02),  // stlr x2, [x0]
            (Kind::Flush, 0xd508_7620),  // dc ivac, x0
            (Kind::Flush, 0xd50b_7a21),  // dc cvac, x1
            (Kind::Flush, 0xd50b_7b21),  // dc cvau, x1
            (Kind::Flush, 0xd50b_7c21),  // dc cvap, x1
            (Kind::Flush, 0xd50b_7e3e),  // dc civac, x30
            (Kind::Plain, 0xd50b_7420),  // dc zva, x0
            (Kind::Plain, 0xd50b_7520),  // ic ivau, x0
            (Kind::Fence, 0xd503_3bbf),  // dmb ish
            (Kind::Fence, 0xd503_3f9f),  // dsb sy
            (Kind::Fence, 0xd503_3fdf),  // isb
            (Kind::Fence, 0xd503_30ff),  // sb
            (Kind::Plain, 0xd503_3f5f),  // clrex
            (Kind::Plain, 0xd503_201f),  // nop
            (Kind::Plain, 0xf860_6801),  // ldr x1, [x0, x0]
            (Kind::Plain, 0xf820_6801),  // str x1, [x0, x0]
            (Kind::Plain, 0x3ca0_6801),  // str q1, [x0, x0]
            (Kind::Plain, 0xa900_0400),  // stp x0, x1, [x0]
            (Kind::Plain, 0xf841_0401),  // ldr x1, [x0], #16
        ];
        for (expected, word) in golden {
            let found = kind(Isa::Aarch64, &word.to_le_bytes());
            assert_eq!(found, expected, "{word:08x}");
        }
        assert_eq!(kind(Isa::Aarch64, &[0xbf]), Kind::Plain);
    }
}
