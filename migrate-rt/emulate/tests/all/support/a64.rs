//! AArch64 cases: an instruction word and the state in which it is executed.

use super::Random;
use super::machine::{CODE, HERE, RECORD_LEN, SCRATCH, SCRATCH_AT};
use super::memory::{Use, Windows};
use dyad_emulate::a64::State;
use dyad_emulate::{Event, Refusal};
use std::fmt::Write;

/// Offsets in a record.
const X: usize = 0;
const SP: usize = 248;
const NZCV: usize = 256;
const FPCR: usize = 264;
const FPSR: usize = 272;
const LANDED: usize = 280;
const WORD: usize = 288;
const V: usize = 512;

/// Slots around the instruction, itself included.
const SLOTS: usize = 64;

/// What words of a form look like.
#[derive(Clone, Copy)]
pub struct Form {
    pub name: &'static str,
    /// Bits from 31 down: 0, 1, or x for any; spaces are for the eye.
    pub bits: &'static str,
    pub kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Registers have any values.
    Any,
    /// Bits 9 to 5 are the number of a register with an address.
    Memory,
    /// Bits 9 to 5 are the number of a register with the address of a slot.
    Branch,
    /// Vector registers hold floating-point numbers, the rounding mode is any.
    Float,
    /// Vector registers hold small bytes, as indices of tables.
    Indices,
}

/// One case, from a form and a number.
pub struct Case {
    pub word: u32,
    pub state: State,
    pub memory: Windows,
}

impl Case {
    pub fn new(form: &Form, index: u64) -> Case {
        let mut random = Random::new(form.name, index);
        let mut word = 0;
        let mut bits = 0;
        for c in form.bits.chars().filter(|c| *c != ' ') {
            let bit = match c {
                '0' => 0,
                '1' => 1,
                'x' => random.next() as u32 & 1,
                // Should be one.
                'i' => {
                    random.next();
                    1
                }
                _ => panic!("{}: {c}", form.name),
            };
            word = word << 1 | bit;
            bits += 1;
        }
        assert_eq!(bits, 32, "{}", form.name);
        let mut state = State {
            pc: HERE,
            sp: SCRATCH + 512 + 16 * random.below(8),
            nzcv: random.below(16) << 28,
            ..State::default()
        };
        for x in &mut state.x {
            *x = random.integer();
        }
        for v in &mut state.v {
            let mut half = || match form.kind {
                Kind::Float => random.float(),
                Kind::Indices => random.next() & 0x4f4f_4f4f_4f4f_4f4f,
                _ => random.integer(),
            };
            *v = u128::from(half()) << 64 | u128::from(half());
        }
        if form.kind == Kind::Float {
            // Equal operands, opposite ones, and ones whose bits differ little.
            for at in [0, 1, 2, 3] {
                let (from, to) = (random.below(32), random.below(32));
                let sign = 0x8000_0000_8000_0000_8000_0000_8000_0000;
                let value = state.v[from as usize];
                state.v[to as usize] = match at {
                    0 => value,
                    1 => value ^ sign,
                    2 => value ^ u128::from(random.below(4)),
                    _ => value ^ sign ^ u128::from(random.below(4)) << 64,
                };
            }
            state.fpcr = [0, 0, 1 << 22, 2 << 22, 3 << 22][random.below(5) as usize];
        }
        let rn = (word >> 5 & 31) as usize;
        let rm = (word >> 16 & 31) as usize;
        match form.kind {
            Kind::Memory => {
                if rm != 31 {
                    state.x[rm] = (random.below(64) as i64 - 32) as u64;
                }
                if rn != 31 {
                    let align = [1, 8, 16, 16][random.below(4) as usize];
                    state.x[rn] = SCRATCH + 512 + random.below(128) / align * align;
                }
            }
            Kind::Branch if rn != 31 => state.x[rn] = CODE + 4 * random.below(SLOTS as u64),
            _ => {}
        }
        let mut memory = Windows::default();
        let mut code = vec![0; 4 * SLOTS];
        code[64..68].copy_from_slice(&word.to_le_bytes());
        memory.add(CODE, code, Use::Code);
        let mut data: Vec<u8> = (0..128)
            .flat_map(|_| random.integer().to_le_bytes())
            .collect();
        // What compare-and-swap compares with is there in half of the cases.
        let rs = rm;
        if form.kind == Kind::Memory && rn != 31 && rs != 31 && random.below(2) == 0 {
            let at = (state.x[rn].wrapping_sub(SCRATCH)) as usize;
            if let Some(place) = data.get_mut(at..at + 8) {
                place.copy_from_slice(&state.x[rs].to_le_bytes());
            }
        }
        memory.add(SCRATCH, data, Use::Data);
        Case {
            word,
            state,
            memory,
        }
    }

    pub fn record(&self) -> Vec<u8> {
        record(&self.state, &self.memory, self.word)
    }

    /// Executes it; `None` if the word is not known or is an exception.
    pub fn run(&mut self) -> Option<Vec<u8>> {
        match super::step(&mut self.state, &mut self.memory) {
            Ok(Event::Continue | Event::Call { .. } | Event::Return) => {}
            Ok(Event::SystemCall | Event::Trap(_)) => return None,
            Err(Refusal::Unknown { .. } | Refusal::Fault { .. } | Refusal::Unsupported { .. }) => {
                return None;
            }
        }
        let landed = self.state.pc.wrapping_sub(CODE);
        if !landed.is_multiple_of(4) || landed / 4 >= SLOTS as u64 || self.state.pc == HERE {
            return None;
        }
        Some(self.record())
    }
}

fn record(state: &State, memory: &Windows, word: u32) -> Vec<u8> {
    let mut out = vec![0; RECORD_LEN];
    let mut put = |at: usize, value: u64| out[at..at + 8].copy_from_slice(&value.to_le_bytes());
    for (i, &x) in state.x.iter().enumerate() {
        put(X + 8 * i, x);
    }
    put(SP, state.sp);
    put(NZCV, state.nzcv);
    put(FPCR, state.fpcr);
    put(FPSR, state.fpsr);
    put(LANDED, state.pc.wrapping_sub(CODE) / 4);
    put(WORD, word.into());
    for (i, &v) in state.v.iter().enumerate() {
        put(V + 16 * i, v as u64);
        put(V + 16 * i + 8, (v >> 64) as u64);
    }
    out[SCRATCH_AT..].copy_from_slice(&memory.window(SCRATCH).bytes);
    out
}

/// In what two records differ.
pub fn difference(interpreted: &[u8], machine: &[u8]) -> String {
    let mut out = String::new();
    for at in (0..RECORD_LEN).step_by(8) {
        let value = |r: &[u8]| u64::from_le_bytes(r[at..at + 8].try_into().unwrap());
        let (a, b) = (value(interpreted), value(machine));
        if a == b {
            continue;
        }
        let name = match at {
            SP => "sp".into(),
            NZCV => "nzcv".into(),
            FPCR => "fpcr".into(),
            FPSR => "fpsr".into(),
            LANDED => "slot".into(),
            0..SP => format!("x{}", at / 8),
            V..SCRATCH_AT => format!("v{}.d[{}]", (at - V) / 16, at / 8 % 2),
            _ => format!("memory+{:#x}", at - SCRATCH_AT),
        };
        let _ = write!(out, "\n  {name}: interpreted {a:#018x}, machine {b:#018x}");
    }
    out
}

/// The program that runs records.
pub fn program() -> String {
    use std::fmt::Write;
    let mut s = String::new();
    let mut line = |l: String| {
        let _ = writeln!(s, "{l}");
    };
    let record = super::machine::RECORD >> 16;
    let code = CODE >> 16;
    for l in [
        ".section .text,\"ax\",%progbits",
        ".globl _start",
        "_start:",
        "next:",
        "mov x0, #0",
    ] {
        line(l.into());
    }
    line(format!("movz x1, #{record:#x}, lsl #16"));
    line(format!("mov x2, #{RECORD_LEN}"));
    line("mov x8, #63".into());
    line("svc #0".into());
    line(format!("cmp x0, #{RECORD_LEN}"));
    line("b.ne done".into());
    line(format!("movz x28, #{record:#x}, lsl #16"));
    line(format!("movz x27, #{code:#x}, lsl #16"));
    line(format!("ldr w26, [x28, #{WORD}]"));
    line("str w26, [x27, #64]!".into());
    for l in ["dc cvau, x27", "dsb ish", "ic ivau, x27", "dsb ish", "isb"] {
        line(l.into());
    }
    line(format!("ldr x27, [x28, #{SP}]"));
    line("mov sp, x27".into());
    for (name, at) in [("nzcv", NZCV), ("fpcr", FPCR), ("fpsr", FPSR)] {
        line(format!("ldr x27, [x28, #{at}]"));
        line(format!("msr {name}, x27"));
    }
    for i in 0..32 {
        line(format!("ldr q{i}, [x28, #{}]", V + 16 * i));
    }
    for i in (0..28).chain([29, 30, 28]) {
        line(format!("ldr x{i}, [x28, #{}]", 8 * i));
    }
    line("b here".into());
    line("save:".into());
    line(format!("str x27, [x28, #{LANDED}]"));
    line("mrs x27, tpidr_el0".into());
    line(format!("str x27, [x28, #{}]", 8 * 28));
    for i in (0..27).chain([29, 30]) {
        line(format!("str x{i}, [x28, #{}]", 8 * i));
    }
    line("mov x27, sp".into());
    line(format!("str x27, [x28, #{SP}]"));
    for (name, at) in [("nzcv", NZCV), ("fpcr", FPCR), ("fpsr", FPSR)] {
        line(format!("mrs x27, {name}"));
        line(format!("str x27, [x28, #{at}]"));
    }
    for i in 0..32 {
        line(format!("str q{i}, [x28, #{}]", V + 16 * i));
    }
    // What the program itself computes with must not inherit the case's mode.
    line("msr fpcr, xzr".into());
    line("mov x0, #1".into());
    line("mov x1, x28".into());
    line(format!("mov x2, #{RECORD_LEN}"));
    line("mov x8, #64".into());
    line("svc #0".into());
    line("b next".into());
    line("done: mov x0, #0".into());
    line("mov x8, #93".into());
    line("svc #0".into());
    line(".section .code,\"awx\",%progbits".into());
    for i in 0..SLOTS {
        let label = if i == 16 { "here: " } else { "" };
        line(format!("{label}b landed{i}"));
    }
    for i in 0..SLOTS {
        line(format!("landed{i}: msr tpidr_el0, x28"));
        line(format!("movz x28, #{record:#x}, lsl #16"));
        line(format!("str x27, [x28, #{}]", 8 * 27));
        line(format!("mov x27, #{i}"));
        line("b save".into());
    }
    line(".section .record,\"aw\",%nobits".into());
    line(format!(".zero {RECORD_LEN}"));
    s
}
