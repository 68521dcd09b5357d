//! Attackers: a component with capabilities of its own, which tries what it can do to others.
//!
//! The first thread of an attacker, and one more for a second CPU, choose between single operations of all types
//! ([`any`]) and [`plays`]: sequences of operations that make a state and then act on it. Children are threads that
//! those configure, dispatch, stop and give up: they call services, or choose operations, too.
//!
//! An attacker knows of the victim only how to invoke its services. What it finds out by itself is that it can read a
//! secret, and that a copy has more rights than its source; everything else is found by victims and by the warden.

#![allow(unsafe_code)]

use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

use dyad_abi::cap::{CapIndex, CapType, ReceiveOp, SinvOp, ThreadOp, call_word};
use dyad_services::rt::Call;
use dyad_sys::raw;

use crate::plan::{
    BROKEN_INTO, PROOF, TALLIES, TALLY, ask, at, found, is_over, mix, report, tally, word, word_of,
    wrong,
};

mod any;
mod plays;

pub use plays::{MEMORY_FRAMES, Play};

/// Most threads of an attacker: two first ones, then children.
const THREADS: usize = 16;
/// Where the generator of each thread is. In statics: a thread that migrates begins anew.
static STATES: [AtomicU64; THREADS] = [const { AtomicU64::new(0) }; THREADS];

/// A thread of the attacker.
#[derive(Clone, Copy, Debug)]
pub struct Actor {
    /// Its number: 0 and 1 are first threads.
    pub n: usize,
}

impl Actor {
    fn new(n: usize) -> Actor {
        let n = n % THREADS;
        if STATES[n].load(Relaxed) == 0 {
            let seed = report(word::SEED).load(Relaxed);
            STATES[n].store(mix(seed ^ mix(n as u64 + 1)) | 1, Relaxed);
        }
        Actor { n }
    }

    /// The next number.
    pub fn next(&self) -> u64 {
        let state = STATES[self.n]
            .load(Relaxed)
            .wrapping_add(dyad_random::GOLDEN);
        STATES[self.n].store(state, Relaxed);
        mix(state)
    }

    /// A number below `n`.
    pub fn below(&self, n: u64) -> u64 {
        self.next() % n
    }

    /// One time in `n`.
    pub fn rarely(&self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// One of these.
    pub fn pick<T: Copy>(&self, list: &[T]) -> T {
        list[self.below(list.len() as u64) as usize]
    }

    /// Whether this is a first thread, which must not wait.
    pub fn is_first(&self) -> bool {
        self.n < 2
    }
}

/// Notes a call before it is made. Gives its place in the ring.
fn note(a: &Actor, word: u64, args: [u64; 5]) -> usize {
    let n = report(word::OPS).fetch_add(1, Relaxed);
    let at = word::RING + n as usize % word::RING_CALLS * word::CALL_WORDS;
    let words = [n, a.n as u64, word]
        .into_iter()
        .chain(args)
        .chain([u64::MAX, 0]);
    for (i, w) in words.enumerate() {
        report(at + i).store(w, Relaxed);
    }
    at
}

/// Judges a value that came back.
fn judge(value: u64) {
    if mix(value) == report(word::SECRET_MIXED).load(Relaxed) {
        found(wrong::LEAK, report(word::OPS).load(Relaxed));
    }
}

fn finish(ty: CapType, at: usize, operation: u64, status: u64, value: u64) -> Result<u64, u64> {
    report(at + 8).store(status, Relaxed);
    report(at + 9).store(value, Relaxed);
    let counted = tally(ty, operation);
    word_of(TALLY, counted).fetch_add(1, Relaxed);
    report(word::STATUSES + (status as usize).min(31)).fetch_add(1, Relaxed);
    match status {
        0 => {
            word_of(TALLY, TALLIES + counted).fetch_add(1, Relaxed);
            judge(value);
            Ok(value)
        }
        e => Err(e),
    }
}

/// Makes a call that is no invocation. The operation is counted as one of `ty`.
pub fn call(
    a: &Actor,
    ty: CapType,
    cap: CapIndex,
    operation: u64,
    args: [u64; 5],
) -> Result<u64, u64> {
    let args = without_waiting(a, operation, args);
    let word = call_word(cap, 0) | operation << 32;
    let at = note(a, word, args);
    let [a0, a1, a2, a3, _] = args;
    let r = match operation & 0xffff_ffff {
        // Whatever the type, the kernel keeps no registers in a call of this number: it may be an invocation.
        0 => raw::invoke1(word, [a0, a1, a2, a3]),
        // SAFETY: 1. Addresses that operations write to are in the window or in a buffer of this thread. 2. Nothing
        // of the attacker's own but the window is unmapped; where it harms itself, the warden has it begin anew.
        _ => unsafe { raw::call_raw(word, args) },
    };
    finish(ty, at, operation, r.status, r.value)
}

/// A first thread does not wait at endpoints: nobody would wake it. Other types have operations of the same number, and
/// slots change under the generator, so this looks at the number only.
fn without_waiting(a: &Actor, operation: u64, [index, until, rest @ ..]: [u64; 5]) -> [u64; 5] {
    let waits = operation & 0xffff_ffff == ReceiveOp::Receive as u64 && a.is_first();
    let until = if waits && index < 64 { 1 } else { until };
    [index, until, rest[0], rest[1], rest[2]]
}

/// Invokes.
pub fn invoke(a: &Actor, cap: CapIndex, words: [u64; 4]) -> Result<u64, u64> {
    let word = call_word(cap, SinvOp::Invoke as u32);
    let [w0, w1, w2, w3] = words;
    let at = note(a, word, [w0, w1, w2, w3, 0]);
    let mut reply = [0; 4];
    let status = raw::invoke(word, words, &mut reply);
    if status == 0 {
        reply.into_iter().for_each(judge);
    }
    finish(CapType::Sinv, at, SinvOp::Invoke as u64, status, reply[1])
}

/// What runs in a service if its registers can be written: leaves a mark in the component that it runs in.
pub extern "C" fn gadget() -> ! {
    loop {
        word_of(PROOF, 1).store(BROKEN_INTO, Relaxed);
        // SAFETY: 1. In an attacker's own component nothing of the thread is needed any more; elsewhere it must
        // never get here.
        unsafe { raw::end_invocation([0; 4]) };
    }
}

/// The address of [`gadget`].
pub fn gadget_address() -> u64 {
    gadget as extern "C" fn() -> ! as *const () as u64
}

/// Life of a first thread.
pub fn live(n: u64) -> ! {
    let a = Actor::new(n as usize);
    plays::prepare(&a);
    while !is_over() {
        match a.below(4) {
            0 => plays::play(&a),
            _ => any::operation(&a),
        }
    }
    end(at::thread(n))
}

/// What a child does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// Calls the service that runs everywhere.
    Work,
    /// Calls the service at home on the first node.
    Cross,
    /// Random operations.
    Any,
    /// Has the service invoke itself.
    Deeper,
    /// Moves the budgets of the attacker to and fro.
    Drain,
    /// Touches the window.
    Touch,
    /// Calls the attacker's own component.
    Own,
    /// Does nothing, for ever.
    Spin,
}

impl Task {
    /// All tasks.
    pub const ALL: [Task; 8] = [
        Task::Work,
        Task::Cross,
        Task::Any,
        Task::Deeper,
        Task::Drain,
        Task::Touch,
        Task::Own,
        Task::Spin,
    ];
}

/// Life of a child: the number has the task in bits 8 and up.
pub fn child(n: u64) -> ! {
    let c = n & 0xff;
    let a = Actor::new(2 + c as usize);
    let task = Task::ALL[(n >> 8) as usize % Task::ALL.len()];
    while !is_over() {
        match task {
            Task::Work => {
                let _ = invoke(&a, at::SERVICE, [ask::WORK, a.below(20_000), 0, 0]);
            }
            Task::Cross => {
                let _ = invoke(&a, at::HOMELY, [ask::WORK, a.below(20_000), 0, 0]);
            }
            Task::Any => any::operation(&a),
            Task::Deeper => {
                let to = a.pick(&[at::SERVICE, at::HOMELY]);
                let _ = invoke(&a, to, [ask::DEEPER, a.below(20), 0, 0]);
            }
            Task::Drain => plays::drain(&a),
            Task::Touch => plays::touch(&a),
            Task::Own => {
                let _ = invoke(&a, at::OWN, [a.next(), a.next(), a.next(), a.next()]);
            }
            Task::Spin => raw::relax(),
        }
        // What only the thread itself may do, now and then.
        if a.rarely(16) && task == Task::Any {
            itself(&a, at::child(c));
        }
    }
    end(at::child(c))
}

/// Operations that only the thread itself may perform.
fn itself(a: &Actor, me: CapIndex) {
    let nodes = report(word::NODES).load(Relaxed);
    let op = a.pick(&[
        ThreadOp::Migrate,
        ThreadOp::Yield,
        ThreadOp::Yield,
        ThreadOp::Exit,
        ThreadOp::Jump,
        ThreadOp::Load,
    ]);
    let args = match op {
        ThreadOp::Jump => [
            a.below(nodes + 1),
            gadget_address(),
            PROOF,
            a.next(),
            a.next(),
        ],
        ThreadOp::Load => [crate::plan::REPORT, a.below(nodes + 1), 0, 0, 0],
        _ => [a.below(nodes + 1), 0, 0, 0, 0],
    };
    let _ = call(a, CapType::Thread, me, op as u64, args);
}

fn end(me: CapIndex) -> ! {
    loop {
        // SAFETY: 1. Exit takes no address.
        let _ = unsafe { raw::call_raw(call_word(me, ThreadOp::Exit as u32), [0; 5]) };
        raw::relax();
    }
}

/// A fault: ends the thread.
pub fn faulted(_: Call) -> [u64; 4] {
    report(word::FAULTS).fetch_add(1, Relaxed);
    [1, 0, 0, 0]
}

/// An invocation of the attacker's own component.
pub fn invoked(call: Call) -> [u64; 4] {
    let [a, b, ..] = call.words;
    // Deeper, into a service, or back.
    if a & 3 == 0 {
        let word = call_word(at::SERVICE, SinvOp::Invoke as u32);
        let r = raw::invoke1(word, [ask::WORK, b % 4096, 0, 0]);
        judge(r.value);
    }
    [1, a, b, 0]
}
