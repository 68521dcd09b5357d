//! Operands at which something happens: what an operation leaves in flags, and what each condition makes of it;
//! floating-point results near everything that has to be noted. Executed one by one, and as code that is taken apart
//! and kept.

use crate::support;

use dyad_abi::Isa;
use dyad_emulate::{Access, Cpu, Fault, Memory, Refusal, Width, a64, x86};
use support::memory::{Use, Windows};
use support::{run, step};

const PC: u64 = 0x1_0000;

const INTEGERS: [u64; 14] = [
    0,
    1,
    2,
    0x7f,
    0x80,
    0xff,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    0x1_0000_0000,
    0x7fff_ffff_ffff_ffff,
    0x8000_0000_0000_0000,
    0x8000_0000_8000_0080,
    u64::MAX,
];

fn code(bytes: &[u8]) -> Windows {
    let mut memory = Windows::default();
    memory.add(PC, bytes.to_vec(), Use::Code);
    memory
}

/// Operations on RAX and RCX that set flags.
fn x86_operations() -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for prefix in [&[][..], &[0x66], &[0x48]] {
        let with = |bytes: &[u8]| [prefix, bytes].concat();
        for op in 0..8 {
            all.push(with(&[op << 3 | 1, 0xc8]));
        }
        // INC, DEC, NEG; TEST, IMUL; SHL, SHR, SAR, ROL, ROR by 3; SHL, SAR by CL.
        for bytes in [
            &[0xff, 0xc0][..],
            &[0xff, 0xc8],
            &[0xf7, 0xd8],
            &[0x85, 0xc8],
            &[0x0f, 0xaf, 0xc1],
            &[0xc1, 0xe0, 3],
            &[0xc1, 0xe8, 3],
            &[0xc1, 0xf8, 3],
            &[0xc1, 0xc0, 3],
            &[0xc1, 0xc8, 3],
            &[0xd3, 0xe0],
            &[0xd3, 0xf8],
            &[0xf7, 0xe1],
        ] {
            all.push(with(bytes));
        }
    }
    for op in 0..8 {
        all.push(vec![op << 3, 0xc8]);
    }
    all
}

#[test]
fn conditions_of_x86_64() {
    for operation in x86_operations() {
        for condition in 0..16 {
            // SETcc DL; DEC RDX keeps the carry; SETcc BL; ADC RDX, 0.
            let after = [
                &[0x0f, 0x90 | condition, 0xc2][..],
                &[0x48, 0xff, 0xca],
                &[0x0f, 0x90 | condition, 0xc3],
                &[0x48, 0x83, 0xd2, 0],
            ];
            let mut memory = code(&[&operation[..], &after.concat()].concat());
            for (a, b) in pairs(&INTEGERS) {
                let mut state = x86::State {
                    rip: PC,
                    rflags: 2 | (a ^ b >> 1) & 0x8d5,
                    ..x86::State::default()
                };
                (state.gpr[0], state.gpr[1]) = (a, b);
                run(&mut state, &mut memory, |_| false, 5, 5);
            }
        }
    }
}

#[test]
fn conditions_of_aarch64() {
    // ADDS, SUBS, ANDS, BICS, ADCS, SBCS, CCMP, CCMN X0, X1.
    let operations = [
        0xab01_0000,
        0xeb01_0000,
        0xea01_0000,
        0xea21_0000,
        0xba01_0000,
        0xfa01_0000,
        0xfa41_1005,
        0xba41_000a_u32,
    ];
    for operation in operations.into_iter().flat_map(|o| [o, o & !(1 << 31)]) {
        for condition in 0..16 {
            // CSINC X2, X0, X1; CCMP X0, X1; CSINV X3, X0, X1; ADC X4, X0, X1.
            let words = [
                operation,
                0x9a81_0402 | condition << 12,
                0xfa41_0003 | condition << 12,
                0xda81_0003 | condition << 12,
                0x9a01_0004,
            ];
            let mut memory = code(&words.map(u32::to_le_bytes).concat());
            for (a, b) in pairs(&INTEGERS) {
                let mut state = a64::State {
                    pc: PC,
                    nzcv: (a ^ b >> 1) & 0xf000_0000,
                    ..a64::State::default()
                };
                (state.x[0], state.x[1]) = (a, b);
                run(&mut state, &mut memory, |_| false, 5, 5);
            }
        }
    }
}

fn pairs(values: &[u64]) -> impl Iterator<Item = (u64, u64)> {
    (values.iter()).flat_map(move |&a| values.iter().map(move |&b| (a, b)))
}

/// Numbers of a format near what is special: exponents at which results may be tiny or too large, with all and
/// with no bits of the fraction.
fn numbers(fraction: u32, top: u64) -> Vec<u64> {
    let bias = top / 2;
    let ones = (1u64 << fraction) - 1;
    let exponents = [
        0,
        1,
        2,
        bias / 2,
        bias - 1,
        bias,
        bias + 1,
        bias + 62,
        bias + 63,
        top - 2,
        top - 1,
        top,
    ];
    let mut all = Vec::new();
    for exponent in exponents {
        for part in [0, 1, ones / 3, ones - 1, ones] {
            let bits = exponent << fraction | part;
            all.extend([bits, bits | (top + 1) << fraction]);
        }
    }
    all
}

#[test]
fn numbers_of_x86_64() {
    for (prefix, all) in [(0xf2, numbers(52, 0x7ff)), (0xf3, numbers(23, 0xff))] {
        // ADD, MUL, SUB, DIV; UCOMIS; CVTTS2SI of 4 and 8 bytes; CVTSI2S.
        let instructions = [
            vec![prefix, 0x0f, 0x58, 0xc1],
            vec![prefix, 0x0f, 0x59, 0xc1],
            vec![prefix, 0x0f, 0x5c, 0xc1],
            vec![prefix, 0x0f, 0x5e, 0xc1],
            if prefix == 0xf2 {
                vec![0x66, 0x0f, 0x2e, 0xc1]
            } else {
                vec![0x0f, 0x2e, 0xc1]
            },
            vec![prefix, 0x0f, 0x2c, 0xc0],
            vec![prefix, 0x48, 0x0f, 0x2c, 0xc0],
            vec![prefix, 0x0f, 0x2a, 0xc0],
            vec![prefix, 0x48, 0x0f, 0x2a, 0xc0],
        ];
        for instruction in instructions {
            for (a, b) in pairs(&all) {
                for mxcsr in [0x1f80, 0x1fa0, 0x3fa0, 0x1fbf] {
                    let mut state = x86::State {
                        rip: PC,
                        mxcsr,
                        ..x86::State::default()
                    };
                    (state.xmm[0], state.xmm[1]) = (u128::from(a) | 7 << 64, b.into());
                    state.gpr[0] = a;
                    step(&mut state, &mut code(&instruction)).unwrap();
                }
            }
        }
    }
}

#[test]
fn numbers_of_aarch64() {
    for (double, all) in [(1, numbers(52, 0x7ff)), (0, numbers(23, 0xff))] {
        // FMUL, FDIV, FADD, FSUB; FCMP; FCVTZS, FCVTZU of W and X; SCVTF, UCVTF of W and X.
        for word in [
            0x1e21_0800,
            0x1e21_1800,
            0x1e21_2800,
            0x1e21_3800,
            0x1e21_2000,
            0x1e38_0000,
            0x9e38_0000,
            0x1e39_0000,
            0x9e39_0000,
            0x1e22_0000,
            0x9e22_0000,
            0x1e23_0000,
            0x9e23_0000_u32,
        ] {
            let instruction = (word | double << 22).to_le_bytes();
            for (a, b) in pairs(&all) {
                for (fpcr, fpsr) in [(0, 0), (0, 0x10), (2 << 22, 0x10), (0, 0x9f)] {
                    let mut state = a64::State {
                        pc: PC,
                        fpcr,
                        fpsr,
                        ..a64::State::default()
                    };
                    (state.v[0], state.v[1]) = (u128::from(a) | 7 << 64, b.into());
                    state.x[0] = a;
                    step(&mut state, &mut code(&instruction)).unwrap();
                }
            }
        }
    }
}

/// Code, and a line of data; what is done to lines is noted.
struct Lines {
    code: Vec<u8>,
    done: Vec<(u64, bool)>,
}

const LINE: u64 = 0x2_0000;

impl Memory for Lines {
    fn fetch(&mut self, va: u64, bytes: &mut [u8]) -> Result<usize, Fault> {
        code(&self.code).fetch(va, bytes)
    }

    fn load<const N: usize>(&mut self, va: u64) -> Result<[u8; N], Fault> {
        code(&self.code).load(va)
    }

    fn store<const N: usize>(&mut self, va: u64, bytes: [u8; N]) -> Result<(), Fault> {
        code(&self.code).store(va, bytes)
    }

    fn compare_exchange(&mut self, va: u64, w: Width, old: u128, new: u128) -> Result<u128, Fault> {
        code(&self.code).compare_exchange(va, w, old, new)
    }

    fn maintain(&mut self, va: u64, stays: bool) -> Result<(), Fault> {
        if va & !63 != LINE {
            return self.load::<1>(va).map(drop);
        }
        self.done.push((va, stays));
        Ok(())
    }
}

/// What an instruction does to the line at an address in RDI or X0.
fn maintained(isa: Isa, instruction: &[u8], at: u64) -> Result<Vec<(u64, bool)>, Refusal> {
    let mut memory = Lines {
        code: instruction.to_vec(),
        done: Vec::new(),
    };
    let end = PC + instruction.len() as u64;
    let pc = match isa {
        Isa::X86_64 => {
            let mut state = x86::State {
                rip: PC,
                ..x86::State::default()
            };
            state.gpr[7] = at;
            state.step(&mut memory)?;
            state.rip
        }
        Isa::Aarch64 => {
            let mut state = a64::State {
                pc: PC,
                ..a64::State::default()
            };
            state.x[0] = at;
            state.step(&mut memory)?;
            state.pc
        }
    };
    assert_eq!(pc, end, "{isa}: {instruction:x?}");
    Ok(memory.done)
}

#[test]
fn lines_are_written_back_and_dropped() {
    for (isa, instruction, stays) in [
        (Isa::X86_64, &[0x0f, 0xae, 0x3f][..], false), // clflush [rdi]
        (Isa::X86_64, &[0x66, 0x0f, 0xae, 0x3f], false), // clflushopt [rdi]
        (Isa::X86_64, &[0x66, 0x0f, 0xae, 0x37], true), // clwb [rdi]
        (Isa::Aarch64, &0xd50b_7a20u32.to_le_bytes(), true), // dc cvac, x0
        (Isa::Aarch64, &0xd50b_7e20u32.to_le_bytes(), false), // dc civac, x0
    ] {
        let done = maintained(isa, instruction, LINE + 8);
        assert_eq!(done.ok(), Some(vec![(LINE + 8, stays)]), "{instruction:x?}");
        // Where there is no memory it faults, as a load.
        match maintained(isa, instruction, LINE + 64) {
            Err(Refusal::Fault { fault, .. }) => {
                assert_eq!((fault.va, fault.access), (LINE + 64, Access::Load));
            }
            other => panic!("{instruction:x?}: {other:?}"),
        }
    }
    // XSAVEOPT, DC ZVA: not these.
    for (isa, instruction) in [
        (Isa::X86_64, &[0x0f, 0xae, 0x37][..]),
        (Isa::Aarch64, &0xd50b_7420u32.to_le_bytes()),
    ] {
        let refused = maintained(isa, instruction, LINE);
        assert!(matches!(refused, Err(r) if !matches!(r, Refusal::Fault { .. })));
    }
}
