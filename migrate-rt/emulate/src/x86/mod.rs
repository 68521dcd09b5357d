//! x86-64 at user level, in 64-bit mode: the integer instructions of the baseline, SSE and SSE2.
//!
//! Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 1 chapters 10 and 11
//! (SSE), volume 2 chapters 2 (formats) to 5 (instructions) and appendix A (opcode maps), volume 3
//! chapter 10 (locked operations). Flags that the manual leaves undefined are zero, or what they
//! were; nobody may look at them.

mod alu;
mod context;
mod decode;
mod fast;
mod integer;
mod sse;
mod string;
mod two;

use crate::{Access, Cpu, Event, Fault, FaultKind, Memory, Refusal, Run};
use context::{Context, Flow};
use decode::{Instruction, LONGEST};
pub use fast::Cache;

/// Registers of a thread.
#[repr(C)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// RAX, RCX, RDX, RBX, RSP, RBP, RSI, RDI, R8 to R15.
    pub gpr: [u64; 16],
    /// Program counter.
    pub rip: u64,
    /// Flags. The status flags and the direction flag are used and changed, the others kept.
    pub rflags: u64,
    /// XMM0 to XMM15.
    pub xmm: [u128; 16],
    /// Floating-point control and status. All exceptions have to be masked, and denormal numbers be
    /// themselves; the rounding mode can be any.
    pub mxcsr: u64,
    /// Base of the FS segment, the thread pointer.
    pub fs_base: u64,
}

impl Default for State {
    /// Zeros, and what the control registers hold when a program starts.
    fn default() -> State {
        State {
            gpr: [0; 16],
            rip: 0,
            rflags: 2,
            xmm: [0; 16],
            mxcsr: 0x1f80,
            fs_base: 0,
        }
    }
}

impl Cpu for State {
    type Cache = Cache;

    fn run<M: Memory>(
        &mut self,
        memory: &mut M,
        cache: &mut Cache,
        stop: impl Fn(u64) -> bool,
        limit: u64,
    ) -> Run {
        fast::run(self, memory, cache, stop, limit)
    }

    fn pc(&self) -> u64 {
        self.rip
    }

    fn step<M: Memory>(&mut self, memory: &mut M) -> Result<Event, Refusal> {
        let pc = self.rip;
        let mut bytes = [0; LONGEST];
        let len = memory
            .fetch(pc, &mut bytes)
            .map_err(|fault| Refusal::Fault { pc, fault })?;
        let bytes = &bytes[..len.min(LONGEST)];
        let instruction = match Instruction::decode(bytes) {
            Ok(instruction) => instruction,
            // The instruction goes on where there is no code.
            Err(decode::Error::Short) if bytes.len() < LONGEST => {
                let fault = Fault {
                    va: pc.wrapping_add(bytes.len() as u64),
                    access: Access::Fetch,
                    kind: FaultKind::Unmapped,
                };
                return Err(Refusal::Fault { pc, fault });
            }
            Err(_) => return Err(crate::Stop::Unknown.at(pc, bytes)),
        };
        let next = pc.wrapping_add(instruction.len.into());
        let mut context = Context {
            state: self,
            memory,
            i: instruction,
            next,
        };
        let flow = if instruction.two {
            two::execute(&mut context)
        } else {
            integer::execute(&mut context)
        };
        match flow {
            Ok(Flow::Next) => {
                self.rip = next;
                Ok(Event::Continue)
            }
            Ok(Flow::Event(event)) => Ok(event),
            Err(stop) => Err(stop.at(pc, &bytes[..instruction.len.into()])),
        }
    }
}

/// Length in bytes of the instruction that `bytes` begin with, if its opcode is one that is known at
/// all; for tools that go over code.
pub fn length(bytes: &[u8]) -> Option<usize> {
    let bytes = &bytes[..bytes.len().min(LONGEST)];
    Instruction::decode(bytes).ok().map(|i| i.len.into())
}
