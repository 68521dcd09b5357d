//! Code in a frame that goes from owner to owner: no owner executes what a former one wrote, a request that is old
//! changes nothing, and a node has one message for a frame however often it is asked.
//!
//! All sequences of steps up to a length, of a node that asks and one that executes; and with loom, a node that asks while the
//! other handles messages.

use std::cell::Cell;
use std::collections::HashSet;

use crate::common::races::{Quiet, UNTYPED, memory, race, word};
use crate::common::{self, races};
use crate::common::{Unrecorded, initialise, node, w1};
use dyad_coherence::model::explore;
use dyad_coherence::{GlobalMem, Word, WordAt};
use dyad_retype::{FrameTable, Order, Refused, Use, executed};

/// The node that executes.
const N: u8 = 1;

/// The second word of the frame, by itself.
#[derive(Clone, Copy)]
struct Alone<'a>(&'a Cell<u64>);

impl Word for Alone<'_> {
    fn load(&self) -> u64 {
        self.0.get()
    }

    fn replace(&self, old: u64, new: u64) -> Result<u64, u64> {
        let now = self.0.get();
        if now != old {
            return Err(now);
        }
        self.0.set(new);
        Ok(old)
    }

    fn add(&self, n: u64) -> u64 {
        self.0.replace(self.0.get().wrapping_add(n))
    }

    fn fence(&self) {}
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct State {
    w1: u64,
    /// Messages that the executing node has not taken.
    messages: u8,
    /// What is in the frame; grows.
    code: u8,
    /// What the executing node holds translations of.
    translated: Option<u8>,
    mapped: bool,
    /// The owner has asked while the frame was executable.
    overlapped: bool,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Try,
    Handle,
    Run,
    Unmap,
    Write,
    HandOver,
}

const STEPS: [Step; 6] = [
    Step::Try,
    Step::Handle,
    Step::Run,
    Step::Unmap,
    Step::Write,
    Step::HandOver,
];

impl State {
    fn after(mut self, step: Step) -> State {
        let cell = Cell::new(self.w1);
        let w = Alone(&cell);
        let n = node(N.into());
        let bit = executed::bit(n);
        match step {
            Step::Try => {
                self.overlapped |= self.mapped;
                let asked = executed::ask(&w, bit).unwrap();
                let lost = asked.before != 0 && self.messages == 0;
                self.messages += u8::from(asked.now != 0 || lost);
                assert!(self.messages <= 1, "more than one request");
                match executed::begin(&w, bit, 0) {
                    Ok(()) => self.mapped = true,
                    Err(why) => assert_eq!(why, Refused::NotQuiesced),
                }
            }
            Step::Handle if self.messages > 0 => {
                self.messages -= 1;
                if executed::is_asked(&w, n) {
                    self.translated = None;
                    executed::done(&w, n).unwrap();
                }
            }
            Step::Run if self.mapped => {
                let runs = *self.translated.get_or_insert(self.code);
                assert_eq!(runs, self.code, "former code is executed");
            }
            Step::Unmap => self.mapped = false,
            Step::Write if !self.mapped && !self.overlapped && self.code < 3 => self.code += 1,
            Step::HandOver if !self.mapped && self.code < 3 => {
                self.code += 1;
                self.overlapped = false;
                hand_over(&cell);
            }
            _ => {}
        }
        self.w1 = cell.get();
        self
    }
}

/// Untypes and retypes the frame, as the rows do.
fn hand_over(w1_of: &Cell<u64>) {
    use std::sync::atomic::Ordering::Relaxed;
    let mem = dyad_coherence::HostMem::new();
    mem.store(common::w0(0), word(1, UNTYPED, 0), Relaxed);
    mem.store(w1(0), w1_of.get(), Relaxed);
    let t = FrameTable::new(&mem, common::pools(), node(0));
    let mut claim = t
        .from_untyped_begin(common::frame(0), None, &Quiet, &Unrecorded)
        .unwrap();
    initialise(&mem, &mut claim);
    t.from_untyped_finish(claim, Use::User, &Unrecorded)
        .unwrap();
    w1_of.set(mem.load(w1(0), Relaxed));
}

fn every_sequence() {
    let first = State {
        w1: 0,
        messages: 0,
        code: 0,
        translated: None,
        mapped: false,
        overlapped: false,
    };
    let mut seen = HashSet::from([first]);
    let mut open = vec![first];
    while let Some(s) = open.pop() {
        for next in STEPS.map(|step| s.after(step)) {
            if seen.insert(next) {
                open.push(next);
            }
        }
    }
    let ran = |s: &State| s.translated == Some(3);
    assert!(seen.iter().any(ran), "the last code is executed, too");
}

#[test]
fn no_owner_executes_the_code_of_a_former_one() {
    every_sequence();
}

/// One owner runs code, and the next one tries to, once.
fn two_owners() {
    let steps = [
        Step::Try,
        Step::Run,
        Step::Unmap,
        Step::HandOver,
        Step::Try,
        Step::Run,
    ];
    let first = State {
        w1: 0,
        messages: 0,
        code: 0,
        translated: None,
        mapped: false,
        overlapped: false,
    };
    let last = steps.into_iter().fold(first, State::after);
    assert!(!last.mapped && last.messages == 1);
}

#[test]
fn the_next_owner_waits_until_translations_are_gone() {
    two_owners();
}

/// The sequence that has been seen: a loader tries again and again, and the queue is worked off late.
fn late_requests() {
    let cell = Cell::new(u64::from(1u8 << N));
    let (w, n) = (Alone(&cell), node(N.into()));
    let bit = executed::bit(n);
    let mut sent = 0;
    for _ in 0..3 {
        sent += u32::from(executed::ask(&w, bit).unwrap().now != 0);
        assert_eq!(executed::begin(&w, bit, 0), Err(Refused::NotQuiesced));
    }
    let handle = || {
        if executed::is_asked(&w, n) {
            executed::done(&w, n).unwrap();
        }
    };
    handle();
    executed::begin(&w, bit, 0).unwrap();
    for _ in 0..3 {
        handle();
    }
    assert!(executed::is_stale(&w, n), "nobody asks the node again");
    assert_eq!(sent, 1);
}

#[test]
fn requests_that_come_late_change_nothing() {
    late_requests();
}

#[test]
fn a_node_that_is_gone_or_could_not_be_told_is_asked_anew_or_not_at_all() {
    let cell = Cell::new(0x5500 | 0b11);
    let (w, n) = (Alone(&cell), node(N.into()));
    let bit = executed::bit(n);
    assert_eq!(executed::ask(&w, bit).unwrap().now, bit);
    executed::take_back(&w, n).unwrap();
    assert_eq!(cell.get(), 0x5503);
    assert_eq!(executed::ask(&w, bit).unwrap().now, bit);
    executed::done(&w, n).unwrap();
    executed::take_back(&w, n).unwrap();
    assert_eq!(cell.get(), 1 << 57 | 0x5501, "it has been told");
    executed::gone(&w, n).unwrap();
    assert_eq!(cell.get(), 0x5501);
}

/// A block is handed on frame by frame: each has its own word.
#[test]
fn all_frames_of_a_block_are_handed_on() {
    use dyad_retype::{FrameType, FrameWord, Version};
    use std::sync::atomic::Ordering::Relaxed;
    let mem = dyad_coherence::HostMem::new();
    let order = Order::new(2).unwrap();
    let head = FrameWord::new(Version(1), FrameType::Untyped(order));
    mem.store(common::w0(0), head.bits(), Relaxed);
    for i in 0..4 {
        if i != 0 {
            let tail = FrameType::Tail(Order::new(u64::from(u64::trailing_zeros(i))).unwrap());
            let tail = FrameWord::new(Version(1), tail).bits();
            mem.store(common::w0(i), tail, Relaxed);
        }
        // Node 1 has rewritten it, node 2 is asked.
        mem.store(w1(i), 0b110 << 56 | 0b100, Relaxed);
    }
    let t = FrameTable::new(&mem, common::pools(), node(0));
    let mut claim = t
        .from_untyped_begin(common::frame(0), None, &Quiet, &Unrecorded)
        .unwrap();
    initialise(&mem, &mut claim);
    t.from_untyped_finish(claim, Use::User, &Unrecorded)
        .unwrap();
    for i in 0..4 {
        assert_eq!(mem.load(w1(i), Relaxed), 0b100 << 56 | 0b110, "frame {i}");
    }
}

/// Two messages are in the rings; a node tries to execute while the other handles both.
fn tries_and_messages() {
    let mem = memory(&[word(1, races::USER, 0)]);
    let n = node(N.into());
    let bit = executed::bit(n);
    let of = |m| WordAt { mem: m, at: w1(0) };
    executed::begin(&of(&*mem), bit, 0).unwrap();
    executed::ask(&of(&*mem), bit).unwrap();
    let (begun, rewritten) = race(
        &mem,
        move |m| {
            let w = WordAt { mem: m, at: w1(0) };
            (0..2).any(|_| {
                loom::thread::yield_now();
                executed::begin(&w, bit, 0).is_ok()
            })
        },
        // On this thread: a mutant lacks its step here.
        move |m| {
            let w = WordAt { mem: m, at: w1(0) };
            let mut times = 0;
            for _ in 0..2 {
                if executed::is_asked(&w, n) {
                    times += 1;
                    executed::done(&w, n).unwrap();
                }
                loom::thread::yield_now();
            }
            times
        },
    );
    assert_eq!(rewritten, 1, "rewritten a second time");
    let w = of(&*mem);
    assert_eq!(
        executed::is_stale(&w, n),
        begun,
        "what is begun stays noted"
    );
}

#[test]
fn a_late_message_does_not_clear_what_has_begun() {
    explore(None, tries_and_messages);
}
