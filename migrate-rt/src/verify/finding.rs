//! What the verifier finds: kinds, what they mean, and what the program's author can do.

use crate::source::Place;
use dyad_abi::Isa;
use std::fmt;

/// In which way machine code breaks what migration relies on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// The program file cannot be used: not an ELF file of the ISA, or its headers lie.
    BadImage,
    /// A spine function has no symbol, no size, or no bytes.
    NoFunction,
    /// Bytes that are no instruction, or one that the verifier has no rules for.
    UnknownInstruction,
    /// An instruction that changes or reads state which does not travel: floating-point control,
    /// segment bases, the thread pointer, kernel entry.
    ForbiddenInstruction,
    /// Instructions that no path from the function's entry reaches.
    Unreached,
    /// A jump whose target is in a register or in memory.
    IndirectJump,
    /// Control leaves the function neither by a return nor by a tail call: it runs off the end or
    /// jumps into another function.
    FlowLeaves,
    /// A jump to a function that can be on the stack at a migration point, or a tail call that
    /// leaves the frame where it is.
    TailCall,
    /// A call of a function that can migrate, without an entry in the site table.
    CallWithoutSite,
    /// A call in another convention than a function has that it may reach, or a call of which the convention
    /// cannot be established.
    Convention,
    /// A site that is not behind a call of its function.
    NoCallAtSite,
    /// A site number, or a return address, that appears twice.
    DuplicateSite,
    /// A site that only one of the ISAs has.
    SiteOnOneIsa,
    /// No frame record (outer frame pointer, return address) where the frame transform changes it,
    /// or code that reads or overwrites the record.
    FrameRecord,
    /// The stack pointer at a site is not where the stack map says.
    FrameSize,
    /// A stack pointer that is not a constant distance from the frame's start.
    DynamicStack,
    /// A return with a stack pointer, a frame pointer or a return address that is not the caller's.
    BadReturn,
    /// A register that was written before a site is read after it.
    RegisterAcrossSite,
    /// A register is read that nothing has written since the function's entry or the last call.
    UndefinedRegister,
    /// A native stack slot is read that has not been written, on every path, since the last site.
    SlotAcrossSite,
    /// A native stack slot is read that has not been written, on every path, since the entry.
    UndefinedSlot,
    /// A native stack slot whose address depends on a value.
    UnknownSlot,
    /// An access outside of the function's frame: above it, or below the stack pointer.
    OutsideFrame,
    /// The address of a native stack slot is stored, handed to a call, or computed with.
    FrameAddress,
    /// An argument on the caller's native stack is read after a site.
    IncomingArgument,
    /// A register is saved for the caller and restored after a site.
    SavedRegister,
}

impl Kind {
    /// What it means for a migrating thread.
    pub fn meaning(self) -> &'static str {
        match self {
            Kind::BadImage => "nothing about the program can be verified",
            Kind::NoFunction => "a function that may be on the stack cannot be verified",
            Kind::UnknownInstruction => {
                "the verifier cannot say what this instruction reads and writes"
            }
            Kind::ForbiddenInstruction => "this state stays behind when the thread migrates",
            Kind::Unreached => {
                "the verifier does not know how control gets here, so it cannot say what is live"
            }
            Kind::IndirectJump => "the verifier cannot see where control goes",
            Kind::FlowLeaves => "control runs into code with a frame of another shape",
            Kind::TailCall => {
                "a frame is replaced by another one without a return address to rewrite"
            }
            Kind::CallWithoutSite => {
                "the frame transform would meet a return address that it does not know"
            }
            Kind::Convention => {
                "callee and caller would take different registers for arguments, and for their own"
            }
            Kind::NoCallAtSite => "the site table names a return address that no call produces",
            Kind::DuplicateSite => "a return address would have two counterparts on the other ISA",
            Kind::SiteOnOneIsa => "a return address would have no counterpart on the other ISA",
            Kind::FrameRecord => "the frame transform would rewrite the wrong words",
            Kind::FrameSize => "the thread would resume with a wrong stack pointer",
            Kind::DynamicStack => "the size of the frame is not known when it is built again",
            Kind::BadReturn => "the caller would go on with a wrong frame",
            Kind::RegisterAcrossSite => {
                "registers do not travel: after a migration it holds another ISA's leavings"
            }
            Kind::UndefinedRegister => "the value comes from nowhere the verifier knows",
            Kind::SlotAcrossSite => {
                "native stacks do not travel: after a migration the slot holds nothing"
            }
            Kind::UndefinedSlot => "the value comes from nowhere the verifier knows",
            Kind::UnknownSlot => "the verifier cannot say which slot it is",
            Kind::OutsideFrame => "it touches a frame that is not its own, or none",
            Kind::FrameAddress => "the address means nothing on the other ISA's stack",
            Kind::IncomingArgument => {
                "the caller's native frame does not travel: the argument is gone after a migration"
            }
            Kind::SavedRegister => {
                "the caller would get back another ISA's leavings instead of its register"
            }
        }
    }

    /// What the program's author can do about it.
    pub fn remedy(self) -> &'static str {
        match self {
            Kind::BadImage | Kind::NoFunction => {
                "build the program again from scratch; if it stays, report it with the program"
            }
            Kind::UnknownInstruction => {
                "move what the source line does (vector code, core::arch, unusual arithmetic) into an \
                 #[inline(never)] function that never migrates"
            }
            Kind::ForbiddenInstruction => {
                "move inline assembly and core::arch calls into an #[inline(never)] function that never \
                 migrates, and leave the rounding mode as it is"
            }
            Kind::Unreached | Kind::IndirectJump | Kind::FlowLeaves => {
                "replace the match or loop of the source line by if-else, or move it into an \
                 #[inline(never)] function that never migrates"
            }
            Kind::TailCall | Kind::CallWithoutSite | Kind::Convention => {
                "make the call through a function of the program, not through a pointer that was cast \
                 or came from assembly"
            }
            Kind::NoCallAtSite | Kind::DuplicateSite | Kind::SiteOnOneIsa | Kind::FrameSize => {
                "the back ends disagree with the site table: mark the function #[inline(never)], and report \
                 it with the program"
            }
            Kind::FrameRecord | Kind::BadReturn => {
                "the back end has built another kind of frame: move over-aligned or very large locals of \
                 the function to the heap"
            }
            Kind::DynamicStack => {
                "a local's size or alignment is only known at run time, or its alignment is above 16: put \
                 it on the heap"
            }
            Kind::RegisterAcrossSite
            | Kind::UndefinedRegister
            | Kind::SlotAcrossSite
            | Kind::UndefinedSlot
            | Kind::SavedRegister
            | Kind::IncomingArgument => {
                "split the expression of the source line, so that the value is computed after the call that \
                 may migrate, or compute it in an #[inline(never)] function that never migrates"
            }
            Kind::UnknownSlot | Kind::OutsideFrame | Kind::FrameAddress => {
                "move the indexed local or vector of the source line to the heap, or into an \
                 #[inline(never)] function that never migrates"
            }
        }
    }
}

/// A place where a program's machine code cannot be migrated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Of which ISA the code is.
    pub isa: Isa,
    /// What is wrong.
    pub kind: Kind,
    /// The function, demangled.
    pub function: String,
    /// The instruction's address; 0 if it is about no instruction.
    pub va: u64,
    /// The instruction; empty if it is about none.
    pub instruction: String,
    /// Where it comes from, if the program has line tables.
    pub source: Option<Place>,
    /// What exactly: registers, slots, expected and found values.
    pub detail: String,
}

impl Finding {
    /// What the author of the program can do.
    pub fn remedy(&self) -> &'static str {
        self.kind.remedy()
    }
}

impl Finding {
    /// All but the function, in a line.
    pub(super) fn place(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.va != 0 {
            write!(f, " at {:#x}", self.va)?;
        }
        if !self.instruction.is_empty() {
            write!(f, " `{}`", self.instruction)?;
        }
        if let Some(source) = &self.source {
            write!(f, " ({source})")?;
        }
        if !self.detail.is_empty() {
            write!(f, ": {}", self.detail)?;
        }
        Ok(())
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {:?} in {}", self.isa, self.kind, self.function)?;
        self.place(f)?;
        let (meaning, remedy) = (self.kind.meaning(), self.remedy());
        write!(f, "\n    {meaning}\n    do: {remedy}")
    }
}
