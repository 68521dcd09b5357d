//! What a thread carries from node to node, in eight words of its frame.
//!
//! | kind | words 1 to 4 | component, address, badge | the receiver |
//! |---|---|---|---|
//! | [`Migrate`](HandoffKind::Migrate) | nothing | nothing | restores the registers that the thread left on this ISA, or starts it |
//! | [`Jump`](HandoffKind::Jump) | argument; frame pointer | nothing; program counter, stack pointer | sets these, forgets the rest |
//! | [`Invoke`](HandoffKind::Invoke) | arguments | the callee, its entry point, the badge | enters the callee |
//! | [`Return`](HandoffKind::Return) | results | the caller; program counter, stack pointer | returns to the caller |
//! | [`Fail`](HandoffKind::Fail) | status; entry of the stack to return to, or [`NO_ENTRY`]; the kind that has failed, and from where | as for a return | returns the status |
//! | [`Call`](HandoffKind::Call), [`Answer`](HandoffKind::Answer) | arguments or result, in words 1 to 6; the function in word 7 | | goes on at a gate; see [`super::crossing`] |
//! | [`Lost`](HandoffKind::Lost) | error; depth; the kind that has failed, and from where | | goes on at a gate |
//! | [`Move`](HandoffKind::Move) | as before | nothing | leaves the registers as they are |
//! | [`Load`](HandoffKind::Load) | nothing; the registers are in `saved` and `saved_fp` | nothing | sets these, and forgets what the thread did on any ISA |
//!
//! The receiver relies on none of these words before it has won the thread: they belong to the thread's owner. It trusts
//! them no more than other shared words: a component is checked when it is entered, an address when it is put into a
//! register.

use core::sync::atomic::Ordering;

use dyad_machine::Platform;
use dyad_object::component::Entry;
use dyad_object::thread::Thread;

/// Why a thread is handed over: word 0 of what it carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum HandoffKind {
    /// The thread migrates: it goes on in the context it left on the receiver's ISA, or starts there.
    Migrate = 1,
    /// The thread invokes a component that runs there.
    Invoke = 2,
    /// The thread returns from such an invocation.
    Return = 3,
    /// The node that the thread was on or on its way to has died: its call returns an error. See
    /// `dyad_recovery::threads`, also for the words.
    Fail = 4,
    /// The node on which the thread was ready has died: the thread goes on as it is.
    Move = 5,
    /// The thread goes on at a place it has named; see [`super::jump`].
    Jump = 6,
    /// The thread goes on with registers that it carries; see [`crate::syscall::ops::registers`].
    Load = 7,
    /// The thread calls a function that exists on the receiver's ISA only; see [`super::crossing`].
    Call = 8,
    /// The thread returns from such a function.
    Answer = 9,
    /// The node that such a function ran on has died: the call returns an error.
    Lost = 10,
}

impl HandoffKind {
    /// All of them, in the order of their numbers.
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

    /// The kind that a receiver takes a number for. A number that is none stands for [`Migrate`](HandoffKind::Migrate),
    /// which uses no other word.
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

    /// Whether it is a crossing call or its return. These are no migrations.
    #[inline(always)]
    pub const fn crosses(self) -> bool {
        matches!(self, HandoffKind::Call | HandoffKind::Answer)
    }

    /// Whether the thread is soon back, if it comes back at all.
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

    /// Marks for the simulator that the thread has come.
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

/// In `carried`: no invocation is returned from.
pub const NO_ENTRY: u64 = u64::MAX;

/// Stores what a thread is to do where it goes, and its four words. Its owner does this before it gives the thread up:
/// the owner word announces it.
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

/// The eight words.
#[inline(always)]
pub(crate) fn carried(t: &Thread) -> [u64; 8] {
    core::array::from_fn(|i| t.carried[i].load(Ordering::Relaxed))
}

/// Markers for the simulator: where the parts of an invocation that crosses begin and end. They are
/// here because programs cannot see these places.
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
    /// It has come.
    pub const CAME: u32 = word(MarkerOp::Begin, 1);
    /// The answer has been sent.
    pub const ANSWERED: u32 = word(MarkerOp::End, 1);
    /// It has come back.
    pub const CAME_BACK: u32 = word(MarkerOp::Begin, 2);
    /// The same four of a crossing call.
    pub const CALL_SENT: u32 = call(MarkerOp::End, 0);
    /// See above.
    pub const CALLED: u32 = call(MarkerOp::Begin, 1);
    /// See above.
    pub const CALL_ANSWERED: u32 = call(MarkerOp::End, 1);
    /// See above.
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
