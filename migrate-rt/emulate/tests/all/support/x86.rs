//! x86-64 cases: an instruction and the state in which it is executed.

use super::Random;
use super::machine::{CODE, HERE, RECORD, RECORD_LEN, SCRATCH, SCRATCH_AT};
use super::memory::{Use, Windows};
use dyad_emulate::Event;
use dyad_emulate::x86::State;
use std::fmt::Write;

/// Offsets in a record.
const GPR: usize = 0;
const RFLAGS: usize = 128;
const MXCSR: usize = 136;
const LANDED: usize = 144;
pub const BYTES: usize = 160;
const XMM: usize = 256;

/// Bytes of code in a record: the instruction and a jump to the last slot.
const BYTES_LEN: usize = 32;

/// Slots to land in.
const SLOTS: u64 = 16;
/// The slot of the next instruction.
const NEXT: u64 = SLOTS;
/// Offset of the first slot in the code window.
const SLOTS_AT: u64 = 128;

pub const CF: u64 = 1;
pub const PF: u64 = 1 << 2;
pub const AF: u64 = 1 << 4;
pub const ZF: u64 = 1 << 6;
pub const SF: u64 = 1 << 7;
pub const OF: u64 = 1 << 11;
pub const STATUS: u64 = CF | PF | AF | ZF | SF | OF;

/// What instructions of a form look like.
#[derive(Clone, Copy)]
pub struct Form {
    pub name: &'static str,
    /// Opcodes, one of which is chosen. 66, F2, F3 and F0 at their start are prefixes.
    pub opcodes: &'static [&'static [u8]],
    /// Operand sizes other than 4 bytes: with 66, with REX.W.
    pub sizes: Sizes,
    pub operands: Operands,
    /// Bytes of the immediate.
    pub immediate: Immediate,
    pub kind: Kind,
    /// Status flags that are undefined.
    pub undefined: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Sizes {
    All,
    /// 4 or 8 bytes.
    Wide,
    /// Neither prefix.
    One,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Operands {
    /// No ModRM.
    None,
    /// The low three bits of the opcode are a register.
    InOpcode,
    /// ModRM with a register in `reg`.
    Both,
    /// ... and no memory.
    Registers,
    /// ... and no other register.
    Memory,
    /// ModRM with one of these opcode extensions in `reg`.
    Group(&'static [u8]),
    /// ... and no memory.
    GroupRegister(&'static [u8]),
    /// ... and memory.
    GroupMemory(&'static [u8]),
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Immediate {
    None,
    B1,
    /// 1 byte, less than 8.
    Predicate,
    B4,
    /// 2 or 4 bytes.
    Operand,
    /// 2, 4 or 8 bytes.
    Full,
    /// 1 byte, a branch to a slot.
    Branch1,
    /// 4 bytes, a branch to a slot.
    Branch4,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Any,
    /// The register in `reg` counts bits.
    BitNumber,
    /// RDX is often such that the quotient fits.
    Divide,
    /// A count beyond the operand's width leaves flags, and of double shifts the result, undefined.
    Shift,
    /// RSI, RDI and RCX say what is copied.
    String,
    /// The operand is the address of a slot, and the stack is in memory.
    Branch,
    /// The stack holds the address of a slot.
    Return,
    /// RBP is the address of something in memory.
    Frame,
    /// RAX is often equal to the operand.
    Compare,
    /// XMM registers and memory hold floating-point numbers, the rounding mode is any.
    Float,
    /// Addresses are multiples of 16.
    Aligned,
}

pub struct Case {
    pub bytes: Vec<u8>,
    pub state: State,
    pub memory: Windows,
    /// Flags that are not compared.
    pub undefined: u64,
}

impl Case {
    pub fn new(form: &Form, index: u64) -> Case {
        let mut random = Random::new(form.name, index);
        let r = &mut random;
        let mut state = State {
            rip: HERE,
            fs_base: SCRATCH,
            rflags: 0x202 | r.next() & STATUS,
            ..State::default()
        };
        let float = form.kind == Kind::Float;
        let value = |r: &mut Random| {
            if float && r.below(8) != 0 {
                r.float()
            } else {
                r.integer()
            }
        };
        for gpr in &mut state.gpr {
            *gpr = r.integer();
        }
        for xmm in &mut state.xmm {
            *xmm = u128::from(value(r)) << 64 | u128::from(value(r));
        }
        if float {
            for change in 0..4 {
                let (from, to) = (r.below(16) as usize, r.below(16) as usize);
                let sign = 0x8000_0000_8000_0000_8000_0000_8000_0000;
                state.xmm[to] = match change {
                    0 => state.xmm[from],
                    1 => state.xmm[from] ^ sign,
                    2 => state.xmm[from] ^ u128::from(r.below(4)),
                    _ => state.xmm[from] ^ sign ^ u128::from(r.below(4)) << 64,
                };
            }
            state.mxcsr = 0x1f80 | [0, 0, 1, 2, 3][r.below(5) as usize] << 13;
        }
        let mut data: Vec<u8> = (0..128).flat_map(|_| value(r).to_le_bytes()).collect();
        state.gpr[4] = SCRATCH + 512 + 8 * r.below(8);
        match form.kind {
            Kind::Divide if r.below(2) == 0 => {
                let high = [0, r.below(64), (state.gpr[0] as i64 >> 63) as u64];
                state.gpr[2] = high[r.below(3) as usize];
            }
            Kind::String => {
                state.gpr[1] = r.below(24);
                state.gpr[6] = SCRATCH + 256 + r.below(256);
                state.gpr[7] = SCRATCH + 256 + r.below(256);
                state.rflags |= r.below(2) << 10;
            }
            Kind::Frame => state.gpr[5] = SCRATCH + 8 * r.below(64),
            _ => {}
        }

        let mut bytes = Vec::new();
        let opcode = form.opcodes[r.below(form.opcodes.len() as u64) as usize];
        let mut opcode = opcode.to_vec();
        let mut operand16 = false;
        let mut wide = 0;
        match (form.sizes, r.below(3)) {
            (Sizes::All, 0) => operand16 = true,
            (Sizes::All | Sizes::Wide, 1) => wide = 8,
            _ => {}
        }
        if operand16 {
            bytes.push(0x66);
        }
        while matches!(opcode[0], 0x66 | 0xf0 | 0xf2 | 0xf3) {
            bytes.push(opcode.remove(0));
        }
        let memory_allowed = !matches!(
            form.operands,
            Operands::None | Operands::InOpcode | Operands::Registers | Operands::GroupRegister(_)
        );
        let memory_only = matches!(form.operands, Operands::Memory | Operands::GroupMemory(_));
        let memory = memory_only || memory_allowed && r.below(2) == 0;
        let fs = memory && r.below(8) == 0;
        if fs {
            bytes.push(0x64);
        }
        let mut rex = wide | r.below(8) as u8;
        if wide != 0 || r.below(2) == 0 {
            rex |= 0x40;
            bytes.push(rex);
        } else {
            rex = 0;
        }
        if form.operands == Operands::InOpcode {
            *opcode.last_mut().unwrap() |= r.below(8) as u8;
        }
        bytes.extend(&opcode);
        let immediate = match form.immediate {
            Immediate::None => 0,
            Immediate::B1 | Immediate::Predicate | Immediate::Branch1 => 1,
            Immediate::Full if wide != 0 => 8,
            Immediate::Full | Immediate::Operand if operand16 && wide == 0 => 2,
            _ => 4,
        };
        let reg = match form.operands {
            Operands::None | Operands::InOpcode => None,
            Operands::Group(of) | Operands::GroupRegister(of) | Operands::GroupMemory(of) => {
                Some(of[r.below(of.len() as u64) as usize])
            }
            _ => Some(r.below(8) as u8),
        };
        if let Some(reg) = reg {
            let number = usize::from(reg | (rex & 4) << 1);
            if form.kind == Kind::BitNumber {
                state.gpr[number] = (r.below(1000) as i64 - 500) as u64;
            }
            if memory {
                let align = match form.kind {
                    Kind::Aligned | Kind::Float => 16,
                    _ => [1, 8][r.below(2) as usize],
                };
                let target = SCRATCH + 256 + r.below(512) / align * align;
                if form.kind == Kind::Compare && r.below(2) == 0 {
                    let at = (target - SCRATCH) as usize;
                    state.gpr[0] = u64::from_le_bytes(data[at..at + 8].try_into().unwrap());
                }
                if form.kind == Kind::Branch {
                    let at = (target - SCRATCH) as usize;
                    data[at..at + 8].copy_from_slice(&slot(r).to_le_bytes());
                }
                let target = if fs { target - SCRATCH } else { target };
                operand(r, &mut bytes, &mut state, reg, rex, target, immediate);
            } else {
                let rm = r.below(8) as u8;
                bytes.push(0xc0 | reg << 3 | rm);
                let number = usize::from(rm | (rex & 1) << 3);
                match form.kind {
                    Kind::Branch => state.gpr[number] = slot(r),
                    Kind::Compare if r.below(2) == 0 => state.gpr[0] = state.gpr[number],
                    _ => {}
                }
            }
        }
        if form.kind == Kind::Return {
            let at = (state.gpr[4] - SCRATCH) as usize;
            data[at..at + 8].copy_from_slice(&slot(r).to_le_bytes());
        }
        let next = HERE + (bytes.len() + immediate) as u64;
        match form.immediate {
            Immediate::Branch1 | Immediate::Branch4 => {
                let offset = slot(r).wrapping_sub(next);
                bytes.extend(&offset.to_le_bytes()[..immediate]);
            }
            Immediate::Predicate => bytes.push(r.below(8) as u8),
            _ => bytes.extend(&r.integer().to_le_bytes()[..immediate]),
        }
        let mut undefined = form.undefined;
        if form.kind == Kind::Shift {
            let size = match (opcode[opcode.len() - 1], rex & 8, operand16) {
                (0xc0 | 0xd2, ..) => 8,
                (_, 8, _) => 64,
                (_, _, true) => 16,
                _ => 32,
            };
            let count = if immediate == 1 {
                bytes[bytes.len() - 1]
            } else {
                state.gpr[1] as u8
            };
            let count = count & if size == 64 { 63 } else { 31 };
            if count == 0 {
                undefined = 0;
            } else if count >= size {
                undefined |= CF;
            }
            if opcode[0] == 0x0f && count > size {
                // Nothing is known about the result: another instruction instead, a NOP.
                bytes = vec![0x90];
            }
        }
        let mut memory = Windows::default();
        let mut code = bytes.clone();
        code.push(0xe9);
        let jump = CODE + SLOTS_AT + 8 * NEXT;
        let offset = jump.wrapping_sub(HERE + bytes.len() as u64 + 5) as u32;
        code.extend(offset.to_le_bytes());
        code.resize(BYTES_LEN, 0xcc);
        memory.add(HERE, code, Use::Code);
        memory.add(SCRATCH, data, Use::Data);
        Case {
            bytes,
            state,
            memory,
            undefined,
        }
    }

    pub fn record(&self) -> Vec<u8> {
        let mut out = vec![0; RECORD_LEN];
        let mut put = |at: usize, value: u64| out[at..at + 8].copy_from_slice(&value.to_le_bytes());
        for (i, &x) in self.state.gpr.iter().enumerate() {
            put(GPR + 8 * i, x);
        }
        put(RFLAGS, self.state.rflags);
        put(MXCSR, self.state.mxcsr);
        let landed = self.state.rip.wrapping_sub(CODE + SLOTS_AT);
        let next = HERE + self.bytes.len() as u64;
        put(
            LANDED,
            if self.state.rip == next {
                NEXT
            } else {
                landed / 8
            },
        );
        for (i, &v) in self.state.xmm.iter().enumerate() {
            put(XMM + 16 * i, v as u64);
            put(XMM + 16 * i + 8, (v >> 64) as u64);
        }
        let code = &self.memory.window(HERE).bytes;
        out[BYTES..BYTES + BYTES_LEN].copy_from_slice(code);
        out[SCRATCH_AT..].copy_from_slice(&self.memory.window(SCRATCH).bytes);
        out
    }

    /// Executes it; `None` if it is not known or is an exception.
    pub fn run(&mut self) -> Option<Vec<u8>> {
        loop {
            match super::step(&mut self.state, &mut self.memory) {
                Ok(Event::Continue | Event::Call { .. } | Event::Return) => {}
                Ok(Event::SystemCall | Event::Trap(_)) | Err(_) => return None,
            }
            // A part of a string.
            if self.state.rip != HERE {
                break;
            }
        }
        let landed = self.state.rip.wrapping_sub(CODE + SLOTS_AT);
        let in_slot = landed.is_multiple_of(8) && landed / 8 < SLOTS;
        let next = self.state.rip == HERE + self.bytes.len() as u64;
        (in_slot || next).then(|| self.record())
    }

    /// A record without what is undefined.
    pub fn defined(&self, record: &[u8]) -> Vec<u8> {
        let mut record = record.to_vec();
        let flags = u64::from_le_bytes(record[RFLAGS..RFLAGS + 8].try_into().unwrap());
        record[RFLAGS..RFLAGS + 8].copy_from_slice(&(flags & !self.undefined).to_le_bytes());
        record
    }
}

/// Address of a slot.
fn slot(random: &mut Random) -> u64 {
    // As far as a branch of one byte reaches.
    CODE + SLOTS_AT + 8 * random.below(SLOTS - 5)
}

/// ModRM, SIB and displacement of a memory operand at `target`, and registers to go with them.
fn operand(
    r: &mut Random,
    bytes: &mut Vec<u8>,
    state: &mut State,
    reg: u8,
    rex: u8,
    target: u64,
    immediate: usize,
) {
    let displacement = match r.below(3) {
        0 => 0,
        1 => r.below(256) as i8 as i64,
        _ => r.next() as i32 as i64 >> r.below(24),
    };
    match r.below(8) {
        0 => {
            bytes.push(reg << 3 | 5);
            let next = HERE + (bytes.len() + 4 + immediate) as u64;
            bytes.extend((target.wrapping_sub(next) as u32).to_le_bytes());
        }
        1 => {
            bytes.extend([reg << 3 | 4, 0x25]);
            bytes.extend((target as u32).to_le_bytes());
        }
        form => {
            let base = r.below(8) as u8;
            let wide_base = base | (rex & 1) << 3;
            let mut index = None;
            if base == 4 || form < 5 {
                let number = r.below(8) as u8;
                let wide = number | (rex & 2) << 2;
                // Number 4 is no index. An index that is the base would change with it.
                index = if wide == wide_base {
                    Some((4, 4 | (rex & 2) << 2))
                } else {
                    Some((number, wide))
                };
                if index.is_some_and(|(_, wide)| wide == wide_base && wide != 4) {
                    index = None;
                }
            }
            let small = i8::try_from(displacement).is_ok();
            // Without a displacement, base 5 means something else.
            let mode = match displacement {
                0 if base != 5 => 0,
                _ if small => 1,
                _ => 2,
            };
            let mut rest = target.wrapping_sub(displacement as u64);
            match index {
                Some((number, wide)) => {
                    let scale = r.below(4) as u8;
                    bytes.extend([mode << 6 | reg << 3 | 4, scale << 6 | number << 3 | base]);
                    if wide != 4 {
                        rest = rest.wrapping_sub(state.gpr[usize::from(wide)] << scale);
                    }
                }
                None if base == 4 => bytes.extend([mode << 6 | reg << 3 | 4, 0x20 | base]),
                None => bytes.push(mode << 6 | reg << 3 | base),
            }
            match mode {
                1 => bytes.push(displacement as u8),
                2 => bytes.extend((displacement as u32).to_le_bytes()),
                _ => {}
            }
            state.gpr[usize::from(wide_base)] = rest;
        }
    }
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
            RFLAGS => "rflags".into(),
            MXCSR => "mxcsr".into(),
            LANDED => "slot".into(),
            0..RFLAGS => format!("gpr[{}]", at / 8),
            XMM..SCRATCH_AT => format!("xmm{}[{}]", (at - XMM) / 16, at / 8 % 2),
            _ => format!("memory+{:#x}", at.wrapping_sub(SCRATCH_AT)),
        };
        let _ = write!(out, "\n  {name}: interpreted {a:#018x}, machine {b:#018x}");
    }
    out
}

/// The program that runs records.
pub fn program() -> String {
    let mut s = String::new();
    let mut line = |l: String| {
        let _ = writeln!(s, "{l}");
    };
    let r = |at: usize| format!("{:#x}", RECORD + at as u64);
    let names = [
        "rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12",
        "r13", "r14", "r15",
    ];
    line(".section .text,\"ax\",@progbits".into());
    line(".globl _start".into());
    line(format!(
        "_start: movl $158, %eax; movl $0x1002, %edi; movl ${SCRATCH:#x}, %esi"
    ));
    line("syscall".into());
    line(format!(
        "next: xorl %eax, %eax; xorl %edi, %edi; movl ${RECORD:#x}, %esi"
    ));
    line(format!("movl ${RECORD_LEN}, %edx; syscall"));
    line(format!("cmpq ${RECORD_LEN}, %rax; jne done"));
    for at in (0..BYTES_LEN).step_by(8) {
        line(format!(
            "movq {}, %rax; movq %rax, {:#x}",
            r(BYTES + at),
            HERE + at as u64
        ));
    }
    // Code that was changed is executed after a serialising instruction.
    line("xorl %eax, %eax; cpuid".into());
    line(format!("ldmxcsr {}", r(MXCSR)));
    for i in 0..16 {
        line(format!("movups {}, %xmm{i}", r(XMM + 16 * i)));
    }
    line(format!("movl $stack, %esp; pushq {}; popfq", r(RFLAGS)));
    for (i, name) in names.iter().enumerate() {
        line(format!("movq {}, %{name}", r(GPR + 8 * i)));
    }
    line("jmp here".into());
    line("save:".into());
    for (i, name) in names.iter().enumerate() {
        line(format!("movq %{name}, {}", r(GPR + 8 * i)));
    }
    line(format!(
        "movl $stack, %esp; pushfq; popq {}; cld",
        r(RFLAGS)
    ));
    line(format!("stmxcsr {}", r(MXCSR)));
    for i in 0..16 {
        line(format!("movups %xmm{i}, {}", r(XMM + 16 * i)));
    }
    line(format!(
        "movl $1, %eax; movl $1, %edi; movl ${RECORD:#x}, %esi"
    ));
    line(format!("movl ${RECORD_LEN}, %edx; syscall; jmp next"));
    line("done: movl $60, %eax; xorl %edi, %edi; syscall".into());
    for i in 0..=SLOTS {
        line(format!("landed{i}: movq ${i}, {}; jmp save", r(LANDED)));
    }
    line(".section .code,\"awx\",@progbits".into());
    line(".zero 64".into());
    line(format!("here: .zero {}", SLOTS_AT - 64));
    for i in 0..=SLOTS {
        line(format!("jmp landed{i}; .p2align 3"));
    }
    line(".section .record,\"aw\",@nobits".into());
    line(format!(".zero {RECORD_LEN}; .zero 1024; stack: .zero 16"));
    s
}
