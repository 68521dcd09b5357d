//! What a thread carries from node to node, in eight words of its frame.
//!
//! | kind | words 1 to 4 | component, address, badge | the receiver |
//! |---|---|---|---|
//! | [`Migrate`](HandoffKind::Migrate) | nothing | nothing | restores the registers that the thread left on this ISA, or starts it |
//! | [`Jump`](HandoffKind::Jump) | argument; frame pointer | nothing; program counter, stack pointer | sets these, drops all other registers |
//! | [`Invoke`](HandoffKind::Invoke) | arguments | the callee, its entry point, the badge | enters the callee |
//! | [`Return`](HandoffKind::Return) | results | the caller; program counter, stack pointer | returns to the caller |
//! | [`Fail`](HandoffKind::Fail) | status; entry of the stack to return to, or [`NO_ENTRY`]; the kind that has failed, and from where | as for a return | returns the status |
//! | [`Call`](HandoffKind::Call), [`Answer`](HandoffKind::Answer) | arguments or result, in words 1 to 6; the function in word 7 | | continues the thread at a gate; see [`super::crossing`] |
//! | [`Lost`](HandoffKind::Lost) | error; depth; the kind that has failed, and from where | | continues the thread at a gate |
//! | [`Move`](HandoffKind::Move) | as before | nothing | leaves the registers as they are |
//! | [`Load`](HandoffKind::Load) | nothing; the registers are in `saved` and `saved_fp` | nothing | sets these, and drops the thread's state on every ISA |
//!
//! The receiver reads none of these words before it has won the thread: they belong to the thread's owner. It
//! trusts them no more than other shared words: a component is checked when it is entered, an address when it
//! is put into a register.

use core::sync::atomic::Ordering;

use dyad_machine::Platform;
use dyad_object::component::Entry;
use dyad_object::thread::Thread;

/// The reason for a handoff: word 0 of what the thread carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum HandoffKind {
    /// The thread migrates: it continues in the context that it left on the receiver's ISA, or starts there.
    Migrate = 1,
    /// The thread invokes a component that runs on the receiver.
    Invoke = 2,
    /// The thread returns from an invocation of another node's component.
    Return = 3,
    /// The node that the thread was on, or in transit to, has died: the thread's call returns an error. The
    /// words are described in `dyad_recovery::threads`.
    Fail = 4,
    /// The node on which the thread was ready has died: the thread continues unchanged.
    Move = 5,
    /// The thread continues at an address that it has named; see [`super::jump`].
    Jump = 6,
    /// The thread continues with registers that it carries; see [`crate::syscall::ops::registers`].
    Load = 7,
    /// The thread calls a function that exists on the receiver's ISA only; see [`super::crossing`].
    Call = 8,
    /// The thread returns from a crossing call.
    Answer = 9,
    /// The node that ran a crossing call has died: the call returns an error.
    Lost = 10,
}

impl HandoffKind {
    /// All kinds, in the order of their numbers.
    pub const ALL: [HandoffKind; 10] = [
        HandoffKind::Migrate,
        HandoffKind::Invoke,
        HandoffKind::Return,
        HandoffKind::Fail,
        HandoffKind::Move,
        HandoffKind::Jump,
        HandoffKind::Load,
        HandoffKind::Call,
        HandoffKind::Answer,
        HandoffKind::Lost,
    ];

    /// The kind with a number. An undefined number yields [`Migrate`](HandoffKind::Migrate), which uses no
    /// other word.
    #[inline(always)]
    pub const fn from_word(word: u64) -> HandoffKind {
        match word {
            2 => HandoffKind::Invoke,
            3 => HandoffKind::Return,
            4 => HandoffKind::Fail,
            5 => HandoffKind::Move,
            6 => HandoffKind::Jump,
            7 => HandoffKind::Load,
            8 => HandoffKind::Call,
            9 => HandoffKind::Answer,
            10 => HandoffKind::Lost,
            _ => HandoffKind::Migrate,
        }
    }

    /// The kind with a number, if there is one.
    pub fn of_number(word: u64) -> Option<HandoffKind> {
        let kind = HandoffKind::from_word(word);
        (kind as u64 == word).then_some(kind)
    }

    /// The kind of a thread, which the caller owns.
    #[inline(always)]
    pub fn of(t: &Thread) -> HandoffKind {
        HandoffKind::from_word(t.carried[0].load(Ordering::Relaxed))
    }

    /// Whether this is a crossing call or its return, which do not count as migrations.
    #[inline(always)]
    pub const fn crosses(self) -> bool {
        matches!(self, HandoffKind::Call | HandoffKind::Answer)
    }

    /// Whether the thread is expected back soon.
    #[inline(always)]
    pub const fn is_brief(self) -> bool {
        let invokes = matches!(self, HandoffKind::Invoke | HandoffKind::Return);
        self.crosses() || invokes || matches!(self, HandoffKind::Jump)
    }

    /// Marks for the simulator that the thread has been sent.
    #[inline(always)]
    pub(crate) fn mark_sent<P: Platform>(self) {
        match self {
            HandoffKind::Invoke => P::mark::<{ mark::REQUESTED }>(),
            HandoffKind::Return => P::mark::<{ mark::ANSWERED }>(),
            HandoffKind::Call => P::mark::<{ mark::CALL_SENT }>(),
            HandoffKind::Answer => P::mark::<{ mark::CALL_ANSWERED }>(),
            _ => {}
        }
    }

    /// Marks for the simulator that the thread has arrived.
    #[inline(always)]
    pub(crate) fn mark_arrival<P: Platform>(self) {
        match self {
            HandoffKind::Invoke => P::mark::<{ mark::CAME }>(),
            HandoffKind::Return => P::mark::<{ mark::CAME_BACK }>(),
            HandoffKind::Call => P::mark::<{ mark::CALLED }>(),
            HandoffKind::Answer => P::mark::<{ mark::CALL_BACK }>(),
            _ => {}
        }
    }
}

/// In `carried`: the failure ends no invocation.
pub const NO_ENTRY: u64 = u64::MAX;

/// Stores in a thread the reason for its handoff, four words and an entry. The owner does this before it
/// gives the thread away: the owner word publishes it.
pub fn store_handoff(t: &Thread, kind: HandoffKind, words: [u64; 4], to: Entry) {
    for (w, v) in t.carried.iter().zip([
        kind as u64,
        words[0],
        words[1],
        words[2],
        words[3],
        to.component.bits(),
        to.address,
        to.badge,
    ]) {
        w.store(v, Ordering::Relaxed);
    }
}

/// The eight words that a thread carries.
#[inline(always)]
pub(crate) fn carried(t: &Thread) -> [u64; 8] {
    core::array::from_fn(|i| t.carried[i].load(Ordering::Relaxed))
}

/// Markers for the simulator at the beginning and end of each part of an invocation that crosses nodes. They
/// are here because programs cannot see these places.
mod mark {
    use dyad_abi::marker::{BenchMemory, BenchOp, Marker, MarkerOp};

    const fn word(op: MarkerOp, part: u16) -> u32 {
        part_of(BenchOp::IpcCrossIsaRoundTrip, op, part)
    }

    const fn call(op: MarkerOp, part: u16) -> u32 {
        part_of(BenchOp::CrossingCallRoundTrip, op, part)
    }

    const fn part_of(what: BenchOp, op: MarkerOp, part: u16) -> u32 {
        let id = what.part(BenchMemory::Fused, part);
        Marker { op, id }.word()
    }

    /// The request has been sent.
    pub const REQUESTED: u32 = word(MarkerOp::End, 0);
    /// The request has arrived.
    pub const CAME: u32 = word(MarkerOp::Begin, 1);
    /// The answer has been sent.
    pub const ANSWERED: u32 = word(MarkerOp::End, 1);
    /// The answer has arrived.
    pub const CAME_BACK: u32 = word(MarkerOp::Begin, 2);
    /// The request of a crossing call has been sent.
    pub const CALL_SENT: u32 = call(MarkerOp::End, 0);
    /// The request of a crossing call has arrived.
    pub const CALLED: u32 = call(MarkerOp::Begin, 1);
    /// The answer of a crossing call has been sent.
    pub const CALL_ANSWERED: u32 = call(MarkerOp::End, 1);
    /// The answer of a crossing call has arrived.
    pub const CALL_BACK: u32 = call(MarkerOp::Begin, 2);
}

#[cfg(test)]
mod tests {
    use super::HandoffKind;

    #[test]
    fn kinds_keep_their_numbers() {
        for (i, kind) in HandoffKind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, i + 1);
            assert_eq!(HandoffKind::from_word(kind as u64), kind);
            assert_eq!(HandoffKind::of_number(kind as u64), Some(kind));
        }
        for none in [0, 11, u64::MAX] {
            assert_eq!(HandoffKind::from_word(none), HandoffKind::Migrate);
            assert_eq!(HandoffKind::of_number(none), None);
        }
    }
}
