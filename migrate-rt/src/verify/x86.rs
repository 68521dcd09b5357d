//! x86-64 instructions: what they read, write and do to the flow of control.
//!
//! iced-x86 decodes, and knows the access of explicit operands and of flags. The verifier accepts the
//! instructions listed here and no others; VEX and EVEX encodings are not even decoded.

mod lists;
mod scan;
mod sse;
mod sum;

pub(super) use scan::refine;

use super::insn::{Flow, Insn, Place, Refused, Transfer};
use super::lanes::{Lanes, flag, general};
use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Formatter, GasFormatter, InstructionInfoFactory,
    Mnemonic, OpAccess, OpKind, Register, RflagsBits,
};
use lists::{CONDITIONAL_SETS, ORDINARY, forbidden};

const RAX: u8 = 0;
const RCX: u8 = 1;
const RDX: u8 = 2;
const RBX: u8 = 3;
/// The stack pointer.
pub(super) const RSP: u8 = 4;
/// The frame pointer.
pub(super) const RBP: u8 = 5;
const RSI: u8 = 6;
const RDI: u8 = 7;

/// Names of the general-purpose registers, by number.
pub(super) const NAMES: [&str; 16] = [
    "rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13",
    "r14", "r15",
];

/// The direction flag is left out: it is clear at all times, and what changes it is refused.
const FLAGS: [u32; 6] = [
    RflagsBits::CF,
    RflagsBits::PF,
    RflagsBits::AF,
    RflagsBits::ZF,
    RflagsBits::SF,
    RflagsBits::OF,
];

fn flags(bits: u32) -> Lanes {
    let mut lanes = Lanes::NONE;
    for (i, bit) in FLAGS.iter().enumerate() {
        lanes.set(flag(i as u16), bits & bit != 0);
    }
    lanes
}

/// All flags.
pub(super) fn all_flags() -> Lanes {
    flags(u32::MAX)
}

/// First lane and number of lanes of a register: general-purpose and SSE registers only.
fn lanes_of(reg: Register) -> Option<(u16, u16)> {
    if matches!(
        reg,
        Register::AH | Register::BH | Register::CH | Register::DH
    ) {
        return Some((general(number(reg)?, 1), 1));
    }
    if reg.is_gpr() {
        return Some((general(number(reg)?, 0), reg.size() as u16));
    }
    let xmm = reg
        .is_xmm()
        .then(|| reg.number() as u8)
        .filter(|n| *n < 16)?;
    Some((super::lanes::vector(xmm, 0), 16))
}

/// The number of a general-purpose register.
fn number(reg: Register) -> Option<u8> {
    reg.is_gpr().then(|| reg.full_register().number() as u8)
}

/// The lanes that a write to a register sets: 32-bit writes set all of it.
fn written(reg: Register) -> Option<Lanes> {
    let (first, count) = lanes_of(reg)?;
    let count = if reg.is_gpr32() { 8 } else { count };
    Some(Lanes::range(first, count))
}

fn read(reg: Register) -> Option<Lanes> {
    let (first, count) = lanes_of(reg)?;
    Some(Lanes::range(first, count))
}

/// Decodes the instruction at the start of `bytes`, which is at `va`, and gives its text. Bytes that
/// are no instruction give a refused one of one byte.
pub(super) fn decode(bytes: &[u8], va: u64) -> Insn {
    let raw = raw(bytes, va);
    if raw.is_invalid() {
        let mut insn = Insn::new(va, 1);
        insn.refuse(Refused::Unknown);
        insn.flow = Flow::Trap;
        return insn;
    }
    Translation::new(raw).finish()
}

/// The text of the instruction at the start of `bytes`.
pub(super) fn text(bytes: &[u8], va: u64) -> String {
    let raw = raw(bytes, va);
    if raw.is_invalid() {
        return format!("byte {:#04x}", bytes.first().copied().unwrap_or(0));
    }
    let mut text = String::new();
    let mut formatter = GasFormatter::new();
    formatter
        .options_mut()
        .set_space_after_operand_separator(true);
    formatter.options_mut().set_branch_leading_zeros(false);
    formatter.format(&raw, &mut text);
    text
}

fn raw(bytes: &[u8], va: u64) -> iced_x86::Instruction {
    Decoder::with_ip(64, bytes, va, DecoderOptions::NONE).decode()
}

/// An instruction on its way from the decoder's form to the common one.
struct Translation {
    raw: iced_x86::Instruction,
    accesses: Vec<OpAccess>,
    insn: Insn,
}

impl Translation {
    fn new(raw: iced_x86::Instruction) -> Translation {
        let mut factory = InstructionInfoFactory::new();
        let info = factory.info(&raw);
        let accesses = (0..raw.op_count()).map(|i| info.op_access(i)).collect();
        let insn = Insn::new(raw.ip(), raw.len() as u8);
        Translation {
            raw,
            accesses,
            insn,
        }
    }

    fn finish(mut self) -> Insn {
        self.insn.flow = self.flow();
        if self.translate().is_none() {
            self.insn.refuse(Refused::Unknown);
        }
        self.insn
    }

    /// Control flow holds for instructions that are refused as well.
    fn flow(&self) -> Flow {
        let raw = &self.raw;
        match raw.flow_control() {
            FlowControl::Next => Flow::Next,
            FlowControl::UnconditionalBranch => Flow::Jump(raw.near_branch_target()),
            FlowControl::ConditionalBranch => Flow::Branch(raw.near_branch_target()),
            FlowControl::Call if raw.is_call_near() => Flow::Call(raw.near_branch_target()),
            // `syscall` counts as a call; control comes back behind it.
            FlowControl::Call => Flow::Next,
            FlowControl::IndirectCall => Flow::IndirectCall,
            FlowControl::Return => Flow::Return(0),
            FlowControl::IndirectBranch => Flow::IndirectJump,
            FlowControl::Interrupt | FlowControl::Exception | FlowControl::XbeginXabortXend => {
                Flow::Trap
            }
        }
    }

    fn op(&self, i: u32) -> Register {
        match self.raw.op_kind(i) {
            OpKind::Register => self.raw.op_register(i),
            _ => Register::None,
        }
    }

    fn is_mem(&self, i: u32) -> bool {
        i < self.raw.op_count() && self.raw.op_kind(i) == OpKind::Memory
    }

    /// The memory operand; none if its address is formed from other than 64-bit registers.
    fn place(&self) -> Option<Place> {
        let raw = &self.raw;
        let register = |reg: Register| match reg {
            Register::None | Register::RIP => Some(None),
            reg if reg.is_gpr64() => Some(Some(number(reg)?)),
            _ => None,
        };
        Some(Place {
            base: register(raw.memory_base())?,
            index: register(raw.memory_index())?,
            offset: raw.memory_displacement64() as i64,
            elsewhere: raw.segment_prefix() != Register::None,
        })
    }

    fn bytes(&self) -> Option<u16> {
        let bytes = self.raw.memory_size().size() as u16;
        (1..=16).contains(&bytes).then_some(bytes)
    }

    fn access(&mut self, transfer: Transfer) -> Option<()> {
        let (place, bytes) = (self.place()?, self.bytes()?);
        self.insn.access(place, bytes, transfer);
        Some(())
    }

    fn translate(&mut self) -> Option<()> {
        let raw = self.raw;
        if raw.mnemonic() == Mnemonic::Nop {
            self.insn.padding = true;
            return Some(());
        }
        let segments = [Register::None, Register::FS];
        if !segments.contains(&raw.segment_prefix()) {
            return None;
        }
        // The thread control block's own address is the only thing that is read through a segment.
        if raw.segment_prefix() == Register::FS && raw.mnemonic() != Mnemonic::Mov
            || (0..raw.op_count()).any(|i| self.op(i).is_segment_register())
        {
            self.insn.refuse(Refused::Forbidden("segment registers"));
        }
        if let Some(what) = forbidden(raw.mnemonic()) {
            self.insn.refuse(Refused::Forbidden(what));
            return Some(());
        }
        if self.is_fence() {
            self.insn.spoil(all_flags());
            return Some(());
        }
        let shift = matches!(
            raw.mnemonic(),
            Mnemonic::Shl
                | Mnemonic::Sal
                | Mnemonic::Shr
                | Mnemonic::Sar
                | Mnemonic::Rol
                | Mnemonic::Ror
                | Mnemonic::Rcl
                | Mnemonic::Rcr
                | Mnemonic::Shld
                | Mnemonic::Shrd
        );
        let set = raw.rflags_written() | raw.rflags_cleared() | raw.rflags_set();
        self.insn.read(flags(raw.rflags_read()));
        // A shift by zero leaves the flags alone, so they may be old ones afterwards.
        if shift && self.op(raw.op_count() - 1).is_gpr8() {
            self.insn.spoil(flags(set | raw.rflags_undefined()));
        } else {
            self.insn.set(flags(set));
            self.insn.spoil(flags(raw.rflags_undefined()));
        }
        if sse::translate(self)? {
            return Some(());
        }
        self.integer()
    }

    /// A fence, as the back end writes it: a word at the stack pointer becomes what it is. Nobody needs
    /// what that is, but for the flags.
    fn is_fence(&self) -> bool {
        let raw = &self.raw;
        raw.mnemonic() == Mnemonic::Or
            && raw.has_lock_prefix()
            && self.is_mem(0)
            && is_immediate(raw, 1)
            && raw.immediate(1) == 0
            && raw.memory_base() == Register::RSP
            && raw.memory_index() == Register::None
            && raw.segment_prefix() == Register::None
            && raw.memory_displacement64() == 0
    }

    fn integer(&mut self) -> Option<()> {
        let raw = self.raw;
        let (a, b) = (self.op(0), self.op(1.min(raw.op_count().saturating_sub(1))));
        let two = raw.op_count() == 2;
        match raw.mnemonic() {
            Mnemonic::Endbr64 => {}
            Mnemonic::Int3 => {
                self.insn.padding = true;
                self.insn.flow = Flow::Trap;
            }
            Mnemonic::Ud2 => self.insn.padding = true,
            Mnemonic::Pause
            | Mnemonic::Mfence
            | Mnemonic::Lfence
            | Mnemonic::Sfence
            | Mnemonic::Prefetchnta
            | Mnemonic::Prefetcht0
            | Mnemonic::Prefetcht1
            | Mnemonic::Prefetcht2 => {}
            // They fault as loads do; what memory holds is the same before and after.
            Mnemonic::Clwb | Mnemonic::Clflush | Mnemonic::Clflushopt => {
                self.access(Transfer::Observe)?;
            }
            Mnemonic::Push => self.push()?,
            Mnemonic::Pop => {
                let (to, 8) = lanes_of(a)? else { return None };
                self.insn.access(Place::at(RSP, 0), 8, Transfer::Load(to));
                self.insn.offset(RSP, RSP, 8);
            }
            Mnemonic::Ret if raw.op_count() == 0 => {}
            Mnemonic::Mov => self.mov()?,
            Mnemonic::Movzx => self.extend()?,
            Mnemonic::Lea => self.lea()?,
            Mnemonic::Add if a.is_gpr64() && is_immediate(&raw, 1) => {
                self.moved(a, raw.immediate(1) as i64)?;
            }
            Mnemonic::Sub if a.is_gpr64() && is_immediate(&raw, 1) => {
                self.moved(a, (raw.immediate(1) as i64).wrapping_neg())?;
            }
            // The result does not depend on the operand.
            Mnemonic::Xor | Mnemonic::Sub | Mnemonic::Sbb if two && a == b && a.is_gpr() => {
                self.insn.set(written(a)?);
            }
            Mnemonic::Mul | Mnemonic::Div | Mnemonic::Idiv => self.wide()?,
            Mnemonic::Imul if raw.op_count() == 1 => self.wide()?,
            Mnemonic::Cbw => self.implicit([(RAX, 1)], [(RAX, 2)]),
            Mnemonic::Cwde => self.implicit([(RAX, 2)], [(RAX, 8)]),
            Mnemonic::Cdqe => self.implicit([(RAX, 4)], [(RAX, 8)]),
            Mnemonic::Cwd => self.implicit([(RAX, 2)], [(RDX, 2)]),
            Mnemonic::Cdq => self.implicit([(RAX, 4)], [(RDX, 8)]),
            Mnemonic::Cqo => self.implicit([(RAX, 8)], [(RDX, 8)]),
            Mnemonic::Cmpxchg => {
                let bytes = lanes_of(b)?.1;
                self.operands()?;
                // A 32-bit comparison that fails extends rax, one that succeeds leaves it.
                self.implicit([(RAX, bytes)], [(RAX, bytes)]);
            }
            Mnemonic::Cmpxchg16b => {
                self.operands()?;
                self.implicit(
                    [(RAX, 8), (RDX, 8), (RBX, 8), (RCX, 8)],
                    [(RAX, 8), (RDX, 8)],
                );
            }
            Mnemonic::Movsb | Mnemonic::Movsw | Mnemonic::Movsq => self.string(&[RSI, RDI], 0),
            Mnemonic::Movsd if raw.is_string_instruction() => self.string(&[RSI, RDI], 0),
            Mnemonic::Stosb => self.string(&[RDI], 1),
            Mnemonic::Stosw => self.string(&[RDI], 2),
            Mnemonic::Stosd => self.string(&[RDI], 4),
            Mnemonic::Stosq => self.string(&[RDI], 8),
            // A bit number in a register can reach beyond the operand.
            Mnemonic::Bt | Mnemonic::Bts | Mnemonic::Btr | Mnemonic::Btc
                if self.is_mem(0) && !is_immediate(&raw, 1) =>
            {
                return None;
            }
            _ if self.sum()? => {}
            m if ORDINARY.contains(&m) => self.operands()?,
            _ if raw.is_jcc_short_or_near() => {}
            _ if raw.is_jmp_short_or_near() || raw.is_call_near() => {}
            Mnemonic::Call | Mnemonic::Jmp
                if matches!(self.insn.flow, Flow::IndirectCall | Flow::IndirectJump) =>
            {
                match self.is_mem(0) {
                    true => self.access(Transfer::Observe)?,
                    false => self.insn.read(read(a)?),
                }
            }
            m if CONDITIONAL_SETS.contains(&m) => self.operands()?,
            _ => return None,
        }
        Some(())
    }

    /// What every explicit operand's access says.
    fn operands(&mut self) -> Option<()> {
        for i in 0..self.raw.op_count() {
            let access = self.accesses[i as usize];
            let (reads, writes) = match access {
                OpAccess::Read | OpAccess::CondRead => (true, false),
                OpAccess::Write => (false, true),
                OpAccess::ReadWrite => (true, true),
                // The old value is there when the new one is not.
                OpAccess::ReadCondWrite | OpAccess::CondWrite => (true, true),
                OpAccess::None | OpAccess::NoMemAccess => (false, false),
            };
            match self.raw.op_kind(i) {
                OpKind::Register => {
                    let reg = self.raw.op_register(i);
                    if reads {
                        self.insn.read(read(reg)?);
                    }
                    if writes {
                        self.insn.set(written(reg)?);
                    }
                }
                OpKind::Memory => {
                    if reads {
                        self.access(Transfer::Observe)?;
                    }
                    if writes {
                        self.access(Transfer::Define)?;
                    }
                }
                _ if is_immediate(&self.raw, i) => {}
                _ => return None,
            }
        }
        Some(())
    }

    fn implicit<const R: usize, const W: usize>(
        &mut self,
        reads: [(u8, u16); R],
        sets: [(u8, u16); W],
    ) {
        for (reg, bytes) in reads {
            self.insn.read(Lanes::general(reg, bytes));
        }
        for (reg, bytes) in sets {
            self.insn.set(Lanes::general(reg, bytes));
        }
    }

    fn push(&mut self) -> Option<()> {
        let raw = self.raw;
        let transfer = match raw.op_kind(0) {
            OpKind::Register => match lanes_of(raw.op_register(0))? {
                (from, 8) => Transfer::Store(from),
                _ => return None,
            },
            OpKind::Memory => {
                self.insn.access(self.place()?, 8, Transfer::Observe);
                Transfer::Define
            }
            _ if is_immediate(&raw, 0) => Transfer::Define,
            _ => return None,
        };
        if raw.stack_pointer_increment() != -8 {
            return None;
        }
        self.insn.access(Place::at(RSP, -8), 8, transfer);
        self.insn.offset(RSP, RSP, -8);
        Some(())
    }

    fn mov(&mut self) -> Option<()> {
        let (a, b) = (self.op(0), self.op(1));
        if self.is_mem(0) {
            let transfer = match lanes_of(b) {
                Some((from, _)) => Transfer::Store(from),
                None if is_immediate(&self.raw, 1) => Transfer::Define,
                None => return None,
            };
            return self.access(transfer);
        }
        let (to, bytes) = lanes_of(a)?;
        if self.is_mem(1) {
            self.access(Transfer::Load(to))?;
        } else if a.is_gpr64() && b.is_gpr64() {
            self.insn.offset(number(a)?, number(b)?, 0);
        } else if let Some((from, _)) = lanes_of(b) {
            self.insn.copy(to, from, bytes);
        } else if is_immediate(&self.raw, 1) {
            self.insn.set(written(a)?);
        } else {
            return None;
        }
        if a.is_gpr32() {
            self.insn.set(Lanes::range(to + 4, 4));
        }
        Some(())
    }

    /// `movzx`: the low bytes are copied, the rest is zeros.
    fn extend(&mut self) -> Option<()> {
        let (to, bytes) = lanes_of(self.op(0))?;
        let bytes = if self.op(0).is_gpr32() { 8 } else { bytes };
        let narrow = if self.is_mem(1) {
            self.access(Transfer::Load(to))?;
            self.bytes()?
        } else {
            let (from, narrow) = lanes_of(self.op(1))?;
            self.insn.copy(to, from, narrow);
            narrow
        };
        self.insn.set(Lanes::range(to + narrow, bytes - narrow));
        Some(())
    }

    fn lea(&mut self) -> Option<()> {
        let (place, to) = (self.place()?, self.op(0));
        match (place.base, place.index) {
            (Some(base), None) if to.is_gpr64() => {
                self.insn.offset(number(to)?, base, place.offset);
            }
            (base, index) => {
                self.add_up(to, [base, index].map(|r| r.map(|r| general(r, 0))), true)?
            }
        }
        Some(())
    }

    /// Multiplication and division with rdx:rax.
    fn wide(&mut self) -> Option<()> {
        let bytes = match self.is_mem(0) {
            true => self.bytes()?,
            false => lanes_of(self.op(0))?.1,
        };
        self.operands()?;
        let divides = self.raw.mnemonic() != Mnemonic::Mul && self.raw.mnemonic() != Mnemonic::Imul;
        let set = if bytes == 4 { 8 } else { bytes };
        if bytes == 1 {
            self.implicit([(RAX, if divides { 2 } else { 1 })], [(RAX, 2)]);
        } else {
            self.implicit([(RAX, bytes)], [(RAX, set), (RDX, set)]);
        }
        if divides && bytes > 1 {
            self.implicit([(RDX, bytes)], []);
        }
        Some(())
    }

    /// String instructions: the addresses count as values, so that a native stack's is found, and
    /// there is no telling how far the access goes.
    fn string(&mut self, addresses: &[u8], value: u16) {
        let repeated = self.raw.has_rep_prefix() || self.raw.has_repne_prefix();
        let counter = repeated.then_some(RCX);
        for reg in addresses.iter().copied().chain(counter) {
            self.implicit([(reg, 8)], [(reg, 8)]);
        }
        self.implicit([(RAX, value)], []);
    }
}

fn is_immediate(raw: &iced_x86::Instruction, i: u32) -> bool {
    i < raw.op_count()
        && matches!(
            raw.op_kind(i),
            OpKind::Immediate8
                | OpKind::Immediate16
                | OpKind::Immediate32
                | OpKind::Immediate64
                | OpKind::Immediate8to16
                | OpKind::Immediate8to32
                | OpKind::Immediate8to64
                | OpKind::Immediate32to64
        )
}
