//! What warden, attacker and victim agree on: addresses, slots, and words of pages that two of them
//! have mapped.

use dyad_abi::cap::CapType;

pub use dyad_hostile::report::{REPORT, found, report, word_of};

/// A page of each component that the warden has mapped, too. Only an attacker that has broken in can write to
/// the victim's page.
pub const SECRET: u64 = REPORT + 0x1000;
/// A page that both components may write to.
pub const MAILBOX: u64 = REPORT + 0x2000;
/// A page of the victim, which the attacker may only read.
pub const SHOWN: u64 = REPORT + 0x3000;
/// Memory that faults fill, in each component.
pub const HEAP: u64 = 0x3_0000_0000;
/// Pages of it.
pub const HEAP_PAGES: u64 = 64;
/// Where nothing is in a component: for pages that attacks map.
pub const NOWHERE: u64 = 0x30_0000_0000;

/// What is in word 0 of the victim's secret page, and nowhere else.
pub const SECRET_WORD: u64 = 0x5ec2_e7aa_0b5e_55ed;
/// What a gadget leaves in word 1 of the secret page of the component that it runs in.
pub const BROKEN_INTO: u64 = 0xbad0_c0de_0bad_c0de;
/// What the victim's page that it shows has in every word.
pub const SHOWN_WORD: u64 = 0x0123_4567_89ab_cdef;

/// In the argument of a thread: it is the attacker's. Below: the case from bit 8 on, the number of the thread.
pub const ATTACKER: u64 = 1 << 40;
/// In the argument of a thread: it is the victim's.
pub const VICTIM: u64 = 1 << 41;
/// Badges of the victim's service have this bit; an attacker's own entry does not.
pub const SERVICE: u64 = 1 << 8;
/// The victim's badge at its own service.
pub const OWNER: u64 = SERVICE | 1;
/// The attacker's badge there.
pub const CLIENT: u64 = SERVICE | 7;

/// Words of report pages.
pub mod word {
    /// What the component's first thread does: one of `state`.
    pub const STATE: usize = 0;
    /// Attempts of the attacker.
    pub const TRIES: usize = 1;
    /// Attempts that succeeded and must not.
    pub const ACHIEVED: usize = 2;
    /// Line of the first of them, and what it got.
    pub const ACHIEVED_AT: usize = 3;
    /// Attempts that were refused with an error that they must not get.
    pub const ODD: usize = 5;
    /// Line of the first of them, and its status.
    pub const ODD_AT: usize = 6;
    /// Nodes of the system.
    pub const NODES: usize = 8;
    /// CPUs of each node.
    pub const CPUS: usize = 9;
    /// The attacker asks the warden for its next step; the warden answers with the same number.
    pub const ASK: usize = 12;
    /// See `ASK`.
    pub const ANSWER: usize = 13;
    /// What the victim's first thread does beside checking itself: one of `duty`.
    pub const DUTY: usize = 14;
    /// Rounds in which the victim has checked itself.
    pub const ROUNDS: usize = 15;
    pub use dyad_hostile::report::{WRONG, WRONG_DETAIL};
    /// Bits that may come to the victim's endpoint.
    pub const EXPECTED: usize = 18;
    /// Nodes where the victim's service may run, by bit; 0: everywhere.
    pub const HOME: usize = 19;
    /// Invocations of the service by clients.
    pub const CALLS: usize = 20;
    /// Words for a case.
    pub const NOTES: usize = 32;
    /// Words on the mailbox page.
    pub const COUNT: usize = 0;
}

/// What the first thread of a component does.
pub mod state {
    /// The victim has begun to check itself; the attacker has begun.
    pub const AT_WORK: u64 = 1;
    /// The attacker has tried everything.
    pub const DONE: u64 = 2;
}

/// What the victim does beside checking itself.
pub mod duty {
    /// Sends, and counts how often somebody has run before the call is over.
    pub const SEND: u64 = 1;
    /// Invokes a service on another node.
    pub const CROSS: u64 = 2;
}

/// What the victim can find wrong.
pub mod wrong {
    dyad_hostile::wrongs! {
        MEMORY = 1, "its memory has changed";
        TABLE = 2, "its capability table has changed";
        STACK = 3, "a stack of its service was written to";
        BADGE = 4, "a forged badge";
        ANSWER = 5, "a wrong answer of its service";
        MESSAGE = 6, "a forged message";
        HOME = 7, "its service runs outside of its home";
        FLAGS = 8, "its service runs with the client's flags";
        REFUSED = 9, "an operation of its own was refused";
        EVENT = 10, "a forged event";
    }
}

/// What the victim's service does: the first word of a call.
pub mod call {
    /// `(a, b)`: answers [`answer`](super::answer).
    pub const ECHO: u64 = 1;
    /// `(n)`: works for a while on its stack. Answers the token.
    pub const WORK: u64 = 2;
    /// The secret word, for the owner.
    pub const SECRET: u64 = 3;
    /// Copies memory.
    pub const COPY: u64 = 4;
}

/// What the service answers to `ECHO`.
pub const fn answer(a: u64, b: u64) -> u64 {
    a.wrapping_mul(dyad_random::GOLDEN) ^ b.rotate_left(17)
}

/// Slots of a component's table. Those of the kernel's own ABI are as in every program.
pub mod at {
    use super::CapType;

    /// The component's own table, if the attack needs it.
    pub const TABLE: u32 = 1;
    /// Its own address space, if the attack needs it.
    pub const SPACE: u32 = 2;
    /// Its own component, if the attack needs it.
    pub const COMPONENT: u32 = 3;
    /// Its first thread: `Yield` and `Exit`.
    pub const THREAD: u32 = 4;
    /// Endpoints of its own: the victim waits at line 0.
    pub const ENDPOINTS: u32 = 5;
    /// The second thread of the attacker, if the attack needs it.
    pub const HELPER: u32 = 6;
    /// Ids that the attacker may give to its threads, if the attack needs them.
    pub const IDS: u32 = 7;
    /// The hardware of node `n`: `Now`, `Where`, `NodeState`.
    pub const fn hardware(n: u64) -> u32 {
        8 + n as u32
    }
    /// Invokes the victim's service.
    pub const SERVICE: u32 = 20;
    /// What a case is about.
    pub const SUBJECT: u32 = 24;
    /// A capability of a type with all rights.
    pub const fn full(ty: CapType) -> u32 {
        64 + ty as u32
    }
    /// A capability of a type without any right.
    pub const fn bare(ty: CapType) -> u32 {
        80 + ty as u32
    }
    /// A capability of a type with all rights, and a guard.
    pub const fn guarded(ty: CapType) -> u32 {
        96 + ty as u32
    }
    /// The first of many slots that are free.
    pub const FREE: u32 = 128;
    /// A slot that stays empty.
    pub const EMPTY: u32 = 63;
    /// Leaves of a component's table.
    pub const LEAVES: u32 = 5;
}
