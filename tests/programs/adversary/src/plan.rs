//! What the components of the program agree on: addresses, slots, thread ids, words of report pages.

use core::sync::atomic::Ordering::Acquire;

use dyad_abi::cap::{CapIndex, CapType};
use dyad_abi::user::PAGE_SIZE;

pub use dyad_hostile::report::{REPORT, found, report, word_of};

/// Pages of a component that no other component has mapped: each word holds [`pattern`].
pub const PRIVATE: u64 = REPORT + 0x10_0000;
/// How many.
pub const PRIVATE_PAGES: u64 = 4;
/// The page behind them, for the word that is a secret, and for the mark of broken in.
pub const PROOF: u64 = PRIVATE + PRIVATE_PAGES * PAGE_SIZE;
/// What [`crate::attacker::gadget`] leaves in word 1 of the proof page of the component in which it runs.
pub const BROKEN_INTO: u64 = 0xbad0_c0de_0bad_c0de;
/// Addresses of an attacker's own space that it maps and unmaps at random.
pub const WINDOW: u64 = 0x2000_0000_0000;
/// Pages of the window.
pub const WINDOW_PAGES: u64 = 64;

/// Most nodes with a program of the victim and an attacker of their own.
pub const SIDES: u64 = 2;
/// Children of an attacker.
pub const CHILDREN: u64 = 6;

/// Id of the victim's thread on a node, which the victim's own range of ids begins with.
pub const fn victim_id(node: u64) -> u64 {
    96 + 8 * node
}
/// First id of an attacker: its first thread has that, its children those behind it.
pub const fn attacker_id(n: u64) -> u64 {
    128 + 32 * n
}
/// Ids of an attacker.
pub const ATTACKER_IDS: u64 = 16;
/// Ids whose stacks services have: those of victims and attackers.
pub const SERVED_IDS: core::ops::Range<u64> = 96..256;

/// What a thread does: its argument is `role << 16 | number`, beside the address of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Role {
    /// Root thread of a CPU.
    Worker = 1,
    /// Thread of the victim on a node.
    Victim = 2,
    /// First thread of an attacker.
    Attacker = 3,
    /// Child of an attacker: the number is that of the child.
    Child = 4,
    /// Thread that the victim makes by itself.
    Helper = 5,
}

impl Role {
    /// The argument for a thread.
    pub const fn arg(self, n: u64) -> u64 {
        1 << 40 | (self as u64) << 16 | n
    }

    /// What a thread with this argument does, and its number.
    pub const fn of(arg: u64) -> Option<(Role, u64)> {
        if arg >> 40 != 1 {
            return None;
        }
        let role = match arg >> 16 & 0xff {
            1 => Role::Worker,
            2 => Role::Victim,
            3 => Role::Attacker,
            4 => Role::Child,
            5 => Role::Helper,
            _ => return None,
        };
        Some((role, arg & 0xffff))
    }
}

/// Badges of services.
pub mod badge {
    /// Of the victim's thread on a node.
    pub const fn victim(node: u64) -> u64 {
        0x1_0000 | node
    }
    /// Of an attacker.
    pub const fn attacker(n: u64) -> u64 {
        0x2_0000 | n
    }
    /// Of the entry that attackers have to their own component.
    pub const OWN: u64 = 0x3_0000;
    /// Of faults of an attacker.
    pub const FAULT: u64 = 0x4_0000;
}

/// What a service does: the first word of a call.
pub mod ask {
    /// `(sequence number, a)`: answers [`super::answer`]; sequence numbers of a victim's thread come one after the other.
    pub const NEXT: u64 = 1;
    /// `(n)`: works on its stack, with the secret in registers.
    pub const WORK: u64 = 2;
    /// `(depth)`: invokes the next service, which invokes itself `depth` times.
    pub const DEEPER: u64 = 3;
}

/// What the service answers to `NEXT`.
pub const fn answer(n: u64, a: u64) -> u64 {
    mix(n ^ a.rotate_left(17))
}

/// Words of report pages. The first ones are written by the warden before the component runs.
pub mod word {
    /// Seed of the component.
    pub const SEED: usize = 0;
    /// Number of the component.
    pub const NUMBER: usize = 1;
    /// Nodes.
    pub const NODES: usize = 2;
    /// CPUs of each.
    pub const CPUS: usize = 3;
    /// Of attackers: [`super::mix`] of the secret.
    pub const SECRET_MIXED: usize = 4;
    /// Of victims: rounds that each thread makes; 0: any number.
    pub const ROUNDS: usize = 5;
    /// Of services: nodes where it may run, by bit; 0: everywhere.
    pub const HOME: usize = 6;
    /// Of attackers: plays that are left out, by bit.
    pub const WITHOUT: usize = 7;
    /// Entry of the program, and of invocations.
    pub const ENTRY: usize = 8;
    /// Entry of invocations.
    pub const INVOKED: usize = 9;
    /// Of victims: not 0: they note the time, too, which is a channel.
    pub const NOTE_TIME: usize = 11;
    /// Not 0: everything is over.
    pub const DONE: usize = 10;

    pub use dyad_hostile::report::{WRONG, WRONG_DETAIL};
    /// Victim: rounds that its thread on a node has made.
    pub const fn made(node: u64) -> usize {
        20 + node as usize
    }
    /// Victim: hash of what its thread on a node has observed.
    pub const fn trace(node: u64) -> usize {
        22 + node as usize
    }
    /// Service: calls of victims, of attackers.
    pub const CALLS: usize = 24;
    /// Service: sequence number of the last call of each victim's thread.
    pub const fn last(node: u64) -> usize {
        26 + node as usize
    }

    /// Attacker: faults of its threads.
    pub const FAULTS: usize = 30;
    /// Attacker: operations of all its threads.
    pub const OPS: usize = 32;
    /// Attacker: plays that were begun, by number.
    pub const PLAYS: usize = 40;
    /// Attacker: results by status.
    pub const STATUSES: usize = 64;
    /// Attacker: its last calls, as a ring of [`CALL_WORDS`] each.
    pub const RING: usize = 128;
    /// Words of a call in the ring: number of the operation, thread, call word, five arguments, status, value.
    pub const CALL_WORDS: usize = 10;
    /// Calls in the ring.
    pub const RING_CALLS: usize = 32;
}

/// A second page of each component that the warden has mapped, too. Attackers: one word for each operation, by
/// [`tally`]: how often it was tried, and `TALLIES` words further on, how often it succeeded.
pub const TALLY: u64 = REPORT + PAGE_SIZE;
/// Words for operations.
pub const TALLIES: usize = 256;
/// The word of an operation of a type.
pub const fn tally(ty: CapType, operation: u64) -> usize {
    ty as usize * 16 + (operation % 16) as usize
}
const _: () = assert!((CapType::ALL.len() + 1) * 16 <= TALLIES);

/// What a component can find wrong.
pub mod wrong {
    dyad_hostile::wrongs! {
        MEMORY = 1, "private memory has changed";
        BROKEN = 2, "an attacker's code has run in it";
        TABLE = 3, "its capability table has changed";
        STACK = 4, "another thread has written to a stack";
        BADGE = 5, "a forged badge";
        SEQUENCE = 6, "a call was lost or repeated";
        ANSWER = 7, "a wrong answer";
        MESSAGE = 8, "a forged message";
        HOME = 9, "it runs outside of its home";
        REGISTER = 10, "a register has changed";
        REFUSED = 11, "an operation of its own was refused";
        LEAK = 12, "an attacker has read the secret";
        OBJECT = 13, "an object of its own has changed";
    }
}

/// Slots of components.
pub mod at {
    use super::{CapIndex, CapType};

    /// Own capability table: attackers all rights, victims reading.
    pub const TABLE: CapIndex = CapIndex(1);
    /// Own space: attackers only.
    pub const SPACE: CapIndex = CapIndex(2);
    /// Own component.
    pub const COMPONENT: CapIndex = CapIndex(3);
    /// Own endpoints: those of an attacker are the scheduler's of its children.
    pub const ENDPOINTS: CapIndex = CapIndex(5);
    /// Own budgets.
    pub const TIME: CapIndex = CapIndex(6);
    /// Own thread ids.
    pub const IDS: CapIndex = CapIndex(7);
    /// The hardware of a node: the time, where, states of nodes. Given out as in every program.
    pub const fn hardware(n: u64) -> CapIndex {
        CapIndex(8 + n as u32)
    }
    /// Own memory.
    pub const MEMORY: CapIndex = CapIndex(16);
    /// Invokes the service that runs everywhere.
    pub const SERVICE: CapIndex = CapIndex(20);
    /// Invokes the service that is at home on the first node.
    pub const HOMELY: CapIndex = CapIndex(21);
    /// Attacker: invokes its own component.
    pub const OWN: CapIndex = CapIndex(22);
    /// Attacker: one line of the endpoints of the workers, which are the schedulers of victims.
    pub const LINE: CapIndex = CapIndex(23);
    /// The component's first thread; of the victim, that of a node.
    pub const fn thread(n: u64) -> CapIndex {
        CapIndex(24 + n as u32)
    }
    /// Attacker: its child. Victim: the thread that it makes on a node.
    pub const fn child(n: u64) -> CapIndex {
        CapIndex(32 + n as u32)
    }
    /// Attacker: a second budget.
    pub const TIME_2: CapIndex = CapIndex(40);
    /// Attacker: a component in which threads of its may run, too.
    pub const SPARE: CapIndex = CapIndex(41);
    /// Leaves of a table.
    pub const LEAVES: u32 = 8;
    /// Victim: invokes the service that runs everywhere, as the thread of a node.
    pub const fn service(node: u64) -> CapIndex {
        CapIndex(54 + n32(node))
    }
    /// Victim: invokes the service that is at home on the first node, as the thread of a node.
    pub const fn homely(node: u64) -> CapIndex {
        CapIndex(58 + n32(node))
    }
    const fn n32(n: u64) -> u32 {
        n as u32
    }
    /// Victim: its sending ends first, then places that are empty most of the time.
    pub const fn scratch(n: u64) -> CapIndex {
        CapIndex(64 + n as u32)
    }

    /// Slots of a type.
    pub const POOL: u64 = 32;
    /// Attacker: slot `k` of those in which capabilities of a type are, mostly.
    pub const fn pool(ty: CapType, k: u64) -> CapIndex {
        CapIndex(64 + (ty as u32 - 1) * POOL as u32 + (k % POOL) as u32)
    }
    const _: () = assert!(pool(CapType::ThreadIds, POOL - 1).0 < 64 * LEAVES);
}

pub use dyad_random::mix;

/// What word `i` of private memory holds.
pub const fn pattern(i: u64) -> u64 {
    mix(i ^ 0x7a77_e211)
}

/// Whether everything is over.
pub fn is_over() -> bool {
    report(word::DONE).load(Acquire) != 0
}
