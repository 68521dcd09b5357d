//! The registers of interpreted threads, by ISA: from and to pages, and what calls do with them.

use dyad_abi::Isa;
use dyad_abi::emulation::{Registers, initial_float_control};
use dyad_emulate::{Cpu, Fault, Memory, a64, x86};

/// Registers that are interpreted.
pub trait Guest: Cpu {
    /// Reads the registers from a page.
    fn of(registers: &Registers) -> Self;
    /// Converts the registers for a page.
    fn registers(&self) -> Registers;
    /// At the start of a function: the caller's frame pointer and the return address.
    fn frame_and_back(&self, memory: &mut impl Memory) -> Result<[u64; 2], Fault>;
    /// Word and arguments of the system call that has just been executed.
    fn call(&self) -> [u64; 6];
    /// Makes as if it had not been.
    fn before_call(&mut self);
    /// Sets the registers as an operation leaves them: status and value; zeros in those that the C convention
    /// does not preserve.
    fn set_result(&mut self, status: u64, value: u64);
    /// Sets the registers as an invocation leaves them: status and results; zeros elsewhere.
    fn set_results(&mut self, status: u64, results: [u64; 4]);
}

/// The DWARF number of each general register, in the order of encodings.
const DWARF: [usize; 16] = [0, 2, 1, 3, 7, 6, 4, 5, 8, 9, 10, 11, 12, 13, 14, 15];
const RAX: usize = 0;
const RCX: usize = 1;
const RDX: usize = 2;
const RSP: usize = 4;
const RBP: usize = 5;
const RSI: usize = 6;
const RDI: usize = 7;
/// Bytes of `syscall`.
const SYSCALL: u64 = 2;

fn whole([low, high]: [u64; 2]) -> u128 {
    u128::from(low) | u128::from(high) << 64
}

fn halves(v: u128) -> [u64; 2] {
    [v as u64, (v >> 64) as u64]
}

impl Guest for x86::State {
    fn of(r: &Registers) -> Self {
        x86::State {
            gpr: DWARF.map(|n| r.general[n]),
            rip: r.pc,
            rflags: r.flags,
            xmm: core::array::from_fn(|n| whole(r.vector[n])),
            mxcsr: r.float_control,
            fs_base: r.thread_pointer,
        }
    }

    fn registers(&self) -> Registers {
        let mut r = Registers::new(Isa::X86_64);
        for (n, value) in DWARF.into_iter().zip(self.gpr) {
            r.general[n] = value;
        }
        for (to, from) in r.vector.iter_mut().zip(self.xmm) {
            *to = halves(from);
        }
        (r.pc, r.flags) = (self.rip, self.rflags);
        (r.thread_pointer, r.float_control) = (self.fs_base, self.mxcsr);
        r
    }

    fn frame_and_back(&self, memory: &mut impl Memory) -> Result<[u64; 2], Fault> {
        let back = memory.load(self.gpr[RSP])?;
        Ok([self.gpr[RBP], u64::from_le_bytes(back)])
    }

    fn call(&self) -> [u64; 6] {
        [RDI, RSI, RDX, 10, 8, 9].map(|n| self.gpr[n])
    }

    fn before_call(&mut self) {
        self.rip -= SYSCALL;
    }

    fn set_result(&mut self, status: u64, value: u64) {
        for n in [RCX, RSI, RDI, 8, 9, 10, 11] {
            self.gpr[n] = 0;
        }
        (self.gpr[RAX], self.gpr[RDX]) = (status, value);
    }

    fn set_results(&mut self, status: u64, results: [u64; 4]) {
        let sp = self.gpr[RSP];
        *self = x86::State {
            rip: self.rip,
            fs_base: self.fs_base,
            ..x86::State::default()
        };
        self.gpr[RSP] = sp;
        for (n, value) in [RDX, RSI, RDI, 8].into_iter().zip(results) {
            self.gpr[n] = value;
        }
        self.gpr[RAX] = status;
    }
}

impl Guest for a64::State {
    fn of(r: &Registers) -> Self {
        a64::State {
            x: core::array::from_fn(|n| r.general[n]),
            sp: r.general[31],
            pc: r.pc,
            nzcv: r.flags & 0xf000_0000,
            v: core::array::from_fn(|n| whole(r.vector[n])),
            fpcr: r.float_control,
            fpsr: r.float_status,
            tpidr: r.thread_pointer,
            monitor: a64::Monitor::default(),
        }
    }

    fn registers(&self) -> Registers {
        let mut r = Registers::new(Isa::Aarch64);
        r.general[..31].copy_from_slice(&self.x);
        r.general[31] = self.sp;
        for (to, from) in r.vector.iter_mut().zip(self.v) {
            *to = halves(from);
        }
        (r.pc, r.flags, r.thread_pointer) = (self.pc, self.nzcv, self.tpidr);
        (r.float_control, r.float_status) = (self.fpcr, self.fpsr);
        r
    }

    fn frame_and_back(&self, _: &mut impl Memory) -> Result<[u64; 2], Fault> {
        Ok([self.x[29], self.x[30]])
    }

    fn call(&self) -> [u64; 6] {
        core::array::from_fn(|n| self.x[n])
    }

    fn before_call(&mut self) {
        self.pc -= 4;
    }

    fn set_result(&mut self, status: u64, value: u64) {
        self.x[..19].fill(0);
        (self.x[0], self.x[1]) = (status, value);
    }

    fn set_results(&mut self, status: u64, results: [u64; 4]) {
        *self = a64::State {
            sp: self.sp,
            pc: self.pc,
            fpcr: initial_float_control(Isa::Aarch64),
            tpidr: self.tpidr,
            ..a64::State::default()
        };
        self.x[0] = status;
        self.x[1..5].copy_from_slice(&results);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dyad_abi::emulation::WORDS;

    /// Different words, but for those that the ISA has no register for.
    fn marked(isa: Isa) -> Registers {
        let words = core::array::from_fn(|i| 0x1000 + i as u64);
        let mut r = Registers::from_words(&words);
        r.isa = isa as u64;
        match isa {
            Isa::X86_64 => {
                r.general[16..].fill(0);
                r.vector[16..].fill([0; 2]);
                r.float_status = 0;
            }
            Isa::Aarch64 => r.flags = 0x6000_0000,
        }
        r
    }

    #[test]
    fn registers_come_back_as_they_were() {
        let (x, a) = (marked(Isa::X86_64), marked(Isa::Aarch64));
        assert_eq!(x86::State::of(&x).registers(), x);
        assert_eq!(a64::State::of(&a).registers(), a);
        assert_eq!(x.to_words().len(), WORDS);
        // The names of the psABI.
        let state = x86::State::of(&x);
        assert_eq!(state.gpr[RSP], x.general[7]);
        assert_eq!(state.gpr[RDI], x.general[5]);
        assert_eq!(state.call(), [5, 4, 1, 10, 8, 9].map(|n| x.general[n]));
    }

    #[test]
    fn calls_leave_what_kernels_leave() {
        let mut x = x86::State::of(&marked(Isa::X86_64));
        let before = x.clone();
        x.set_result(3, 4);
        assert_eq!((x.gpr[RAX], x.gpr[RDX], x.gpr[11]), (3, 4, 0));
        assert_eq!((x.gpr[3], &x.xmm), (before.gpr[3], &before.xmm));
        x.set_results(5, [6, 7, 8, 9]);
        assert_eq!([RAX, RDX, RSI, RDI, 8].map(|n| x.gpr[n]), [5, 6, 7, 8, 9]);
        assert_eq!((x.gpr[3], x.gpr[RSP]), (0, before.gpr[RSP]));
        assert_eq!((x.xmm, x.mxcsr), ([0; 16], 0x1f80));
        let mut a = a64::State::of(&marked(Isa::Aarch64));
        let before = a.clone();
        a.set_result(3, 4);
        assert_eq!((a.x[..3].as_ref(), a.x[18]), ([3, 4, 0].as_ref(), 0));
        assert_eq!((a.x[19], &a.v), (before.x[19], &before.v));
        a.set_results(5, [6, 7, 8, 9]);
        assert_eq!(a.x[..6], [5, 6, 7, 8, 9, 0]);
        assert_eq!((a.x[30], a.sp, a.tpidr), (0, before.sp, before.tpidr));
        assert_eq!((a.v, a.fpcr), ([0; 32], 0));
    }
}
