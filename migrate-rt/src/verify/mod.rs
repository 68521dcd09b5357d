//! Proof, on machine code, that threads can migrate.
//!
//! The spine pass sees to it that nothing is live in registers or on native stacks where a thread may
//! change its ISA. Back ends know nothing of that promise and have been seen to break it (a constant
//! kept in a stack slot across a call). The verifier therefore reads what was linked, instruction by
//! instruction, and takes nobody's word.

mod finding;
mod spine;

pub use finding::{Finding, Kind, Source, VerifyError};
pub use spine::{SiteAt, SpineInfo, same_sites};

/// What has been verified.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    /// Spine functions.
    pub functions: usize,
    /// Instructions in them: each was decoded, is known, and is reached from its function's entry, or
    /// is padding behind the end of a flow.
    pub instructions: usize,
    /// Of these, padding.
    pub padding: usize,
    /// Sites, each behind a call.
    pub sites: usize,
    /// Reads of native stack slots, frame records left aside.
    pub slot_loads: usize,
    /// Of these, reads below the stack pointer (x86-64 has a red zone).
    pub red_zone: usize,
    /// Reads of registers, counted by instruction and register.
    pub register_reads: usize,
    /// Calls through pointers that have no site: the pass says that none of their targets migrates.
    pub plain_indirect_calls: usize,
}
