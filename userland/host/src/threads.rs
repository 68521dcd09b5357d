//! Threads of programs in the emulated system: host threads, each of which knows its number and where it
//! says it is. The first one of a program is its two sides.
//!
//! A thread that is lost with its node gets no further than to its next call, which does nothing: what it
//! does in memory until then it has done before the machine died.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use dyad_abi::cap::CapIndex;
use dyad_abi::service::{program, slot, thread_id as id_of};
use dyad_abi::user::MAX_PROGRAM_THREADS;
use dyad_abi::{Error, NodeId, Result};

use super::{CURRENT, Program, State, info_page};

std::thread_local! {
    static NUMBER: Cell<u64> = const { Cell::new(0) };
    /// The node of the thread, if the thread is not the first one.
    static NODE: Cell<usize> = const { Cell::new(0) };
    /// Whether a thread is in an invocation of this program, and another program's.
    static INVOKED: Cell<bool> = const { Cell::new(false) };
}

/// Calls `f` as in an invocation of the program: by a thread that is none of the program's, and cannot wait.
pub fn invoked<R>(f: impl FnOnce() -> R) -> R {
    struct Before(bool);
    impl Drop for Before {
        fn drop(&mut self) {
            INVOKED.set(self.0);
        }
    }
    let _before = Before(INVOKED.replace(true));
    f()
}

/// Whether the calling thread is in an invocation.
pub fn in_invocation() -> bool {
    INVOKED.get()
}

/// What a program has of its threads.
pub(super) struct Threads {
    /// Those that run, the first apart. A number that was lost stays.
    running: u64,
    /// Whether there ever were any.
    any: bool,
    /// Those to which something has been sent.
    sent: u64,
    /// Those that were lost with their nodes.
    lost: u64,
    /// Where each is.
    places: [usize; MAX_PROGRAM_THREADS as usize],
}

impl Default for Threads {
    fn default() -> Threads {
        Threads {
            running: 0,
            any: false,
            sent: 0,
            lost: 0,
            places: [0; MAX_PROGRAM_THREADS as usize],
        }
    }
}

impl Threads {
    /// A node has died, and with it those that were there.
    pub(super) fn lose(&mut self, node: usize) {
        let on = |&n: &u64| self.running >> n & 1 != 0 && self.places[n as usize] == node;
        let bits = (1..MAX_PROGRAM_THREADS).filter(on);
        self.lose_all(bits.fold(0, |all, n| all | 1 << n));
    }

    pub(super) fn lose_all(&mut self, bits: u64) {
        self.lost |= bits;
        // All are woken, so that they learn it.
        self.sent = u64::MAX;
    }

    fn take(&mut self, n: u64) -> bool {
        let was = self.sent >> n & 1 != 0;
        self.sent &= !(1 << n);
        was
    }

    fn put(&mut self, n: u64) {
        self.sent |= 1 << n;
    }
}

/// Id of the calling thread; `None` in an invocation.
pub fn thread_id() -> Option<u32> {
    (!in_invocation()).then(|| id_of(program::FIRST, NUMBER.get()))
}

/// The node that the calling thread is on.
pub(super) fn node(state: &State) -> usize {
    match NUMBER.get() {
        0 => state.here,
        _ => NODE.get(),
    }
}

/// From now on the calling thread is there.
pub(super) fn relocate(state: &mut State, node: NodeId) {
    match NUMBER.get() {
        0 => state.here = node.index(),
        n => {
            NODE.set(node.index());
            state.threads.places[n as usize] = node.index();
        }
    }
}

/// The calling thread goes no further if it has been lost with its node.
pub(super) fn go_on(program: &Program) {
    if program.state().threads.lost >> NUMBER.get() & 1 != 0 {
        loop {
            std::thread::park();
        }
    }
}

/// What the process service has noted of them; in an invocation nothing, as there.
pub(super) fn lost(program: &Program) -> u64 {
    match in_invocation() {
        true => 0,
        false => program.state().threads.lost,
    }
}

/// The calling thread, or the one that a capability wakes.
pub(super) fn is_own(index: CapIndex) -> bool {
    index == slot::thread(NUMBER.get())
}

pub(super) fn woken_by(index: CapIndex) -> Option<u64> {
    (0..MAX_PROGRAM_THREADS).find(|&n| slot::wake(n) == index)
}

pub(super) fn send(program: &Program, n: u64) -> Result<()> {
    let mut state = program.state();
    if state.threads.lost >> n & 1 != 0 {
        return Err(Error::NodeDead);
    }
    state.threads.put(n);
    program.changed.notify_all();
    Ok(())
}

/// `Receive`, until `deadline`; 0 for ever, 1 not at all.
pub(super) fn receive(program: &Program, line: u64, deadline: u64) -> Result<u64> {
    if line != NUMBER.get() {
        return Err(Error::BadArgument);
    }
    let mut state = program.state();
    loop {
        if state.threads.lost >> line & 1 != 0 {
            drop(state);
            go_on(program);
            return Err(Error::Corrupt);
        }
        if state.threads.take(line) {
            return Ok(1);
        }
        let now = program.now(&state);
        if deadline == 0 && !state.threads.any {
            panic!("this program waits for ever");
        }
        if deadline != 0 && deadline <= now {
            return Ok(0);
        }
        if !state.threads.any {
            // Nothing else happens in this system, so time can jump.
            state.skipped += deadline - now;
            return Ok(0);
        }
        let left = match deadline {
            0 => Duration::from_secs(1),
            _ => Duration::from_nanos(deadline - now),
        };
        let waited = program.changed.wait_timeout(state, left);
        state = waited.unwrap_or_else(PoisonError::into_inner).0;
    }
}

/// `START`.
pub(super) fn start(program: &Arc<Program>, n: u64, place: u64) -> Result<u64> {
    let entry = program.entry.ok_or(Error::Denied)?;
    if n == 0 || n >= MAX_PROGRAM_THREADS {
        return Err(Error::BadArgument);
    }
    let node = NodeId::new(place & 0xff).ok_or(Error::NoSuchNode)?;
    let mut state = program.state();
    let live = state.live.get(node.index());
    if !*live.ok_or(Error::NoSuchNode)? {
        return Err(Error::NodeDead);
    }
    if place >> 8 != 0 {
        return Err(Error::BadArgument);
    }
    if state.threads.running >> n & 1 != 0 {
        return Err(Error::Again);
    }
    state.threads.running |= 1 << n;
    state.threads.places[n as usize] = node.index();
    state.threads.any = true;
    drop(state);
    let program = program.clone();
    std::thread::spawn(move || {
        CURRENT.set(Some(program.clone()));
        NUMBER.set(n);
        NODE.set(node.index());
        let _ = catch_unwind(AssertUnwindSafe(|| -> () { entry(info_page() | n) }));
        program.finish(101);
    });
    Ok(id_of(program::FIRST, n).into())
}

/// `END_THREAD`.
pub(super) fn end(program: &Program) -> Result<u64> {
    let n = NUMBER.get();
    if n == 0 {
        return Err(Error::Denied);
    }
    let mut state: MutexGuard<'_, State> = program.state();
    state.threads.running &= !(1 << n);
    drop(state);
    loop {
        std::thread::park();
    }
}
