//! Threads that change their ISA inside of plain functions: the part of the runtime that does it.
//!
//! The build has seen to it that at a migration point nothing that matters is in registers or on the
//! native stack but frame records (`migrate-rt`, module `spine`). Here they are laid out anew on the
//! thread's stack of the other ISA, and the thread goes on there.
//!
//! ```text
//!   running ──point, asked to go──▶ leaving ──frames laid out, `Jump`──▶ running, on the other ISA's
//!      ▲                              │ refused                          stack; result: 0
//!      └────── result: error ◀────────┘ (below a function that is entered from outside: it stays asked)
//! ```
//!
//! | step | order |
//! |---|---|
//! | asking: the request word | relaxed: it says only where to go |
//! | leaving: frames and result, then `Jump` | the kernel's hand-over, release and acquire |
//!
//! Nothing here runs twice at the same time: all words but the request are the thread's own.
//!
//! A thread that runs async tasks goes elsewhere between their polls only: its executor has to know where it is, and
//! which tasks are at home there. At a point within a task it stays asked ([`runs_tasks`]).

use core::sync::atomic::{AtomicBool, Ordering};

use dyad_abi::service::slot;
use dyad_abi::user::migrate_word::{REQUEST, RESULT, WITH_PAGES};
use dyad_abi::{Error, NodeId, Result};
use dyad_sys::cap::{Cap, Thread};
pub use dyad_sys::tcb::{Block, block};
use dyad_sys::thread::{Number, number};

#[cfg(target_os = "none")]
mod stub {
    unsafe extern "C" {
        pub safe fn dyad_migrate_point();
        pub safe fn dyad_point_address() -> u64;
        pub fn dyad_spine_enter(argument: u64, top: u64) -> !;
        pub static dyad_sites: [u64; dyad_migrate::HEADER_WORDS];
    }
}

crate::program_local! {
    /// Whether the program's first thread runs tasks.
    static RUNS_TASKS: AtomicBool = AtomicBool::new(false);
}

/// Declares that the program's first thread runs tasks from here on: it does not move at migration points.
pub fn runs_tasks() {
    RUNS_TASKS.with_any(|r| r.store(true, Ordering::Relaxed));
}

/// The calling thread, if it [runs tasks](runs_tasks).
fn of_tasks() -> Option<Cap<Thread>> {
    let number = number().filter(|n| *n == Number::FIRST)?;
    let runs = RUNS_TASKS.with_any(|r| r.load(Ordering::Relaxed));
    runs.then_some(Cap::at(slot::thread(number.get())))
}

/// Whether the calling thread may move at a point.
fn may_go() -> Result<()> {
    match of_tasks() {
        Some(_) => Err(Error::Denied),
        None => Ok(()),
    }
}

/// How far the calling thread's data stack is used: an address, which is lower for each frame on the stack.
pub fn data_stack_pointer() -> u64 {
    block().data_sp.load(Ordering::Relaxed)
}

/// A place where the calling thread may change its node, if it has been asked to.
///
/// Costs a few instructions if it has not.
#[inline(always)]
pub fn point() {
    if block().migrate[REQUEST].load(Ordering::Relaxed) != 0 {
        go();
    }
}

/// Leaves for where the request word says.
#[cold]
#[inline(always)]
fn go() {
    #[cfg(target_os = "none")]
    stub::dyad_migrate_point();
    // On the host there is one ISA: a migration changes only where the thread says it is.
    #[cfg(not(target_os = "none"))]
    attempt(block(), |node| {
        may_go()?;
        dyad_host::relocate(node)
    });
}

/// Moves the calling thread to a node. The thread continues there in the same function, at the same place.
///
/// # Errors
///
/// `NoSuchNode`, `NodeDead`; `NotReady` if the thread has no scheduler; `TooDeep` in
/// an invocation or if the frames leave too little of the other stack; `Denied` below a function that is entered
/// from outside of the program, and in a task. The thread goes on where it was.
#[inline(always)]
pub fn migrate(node: NodeId) -> Result<()> {
    block().migrate[REQUEST].store(node.index() as u64 + 1, Ordering::Relaxed);
    go();
    let outcome = outcome();
    if outcome.is_err() {
        take_back(node);
    }
    outcome
}

/// Moves the calling thread to a node, after the pages of the program that this node has, if kernels exchange messages. Over a
/// fused kernel there is nothing to bring: pages stay where they are, and are used from there.
///
/// # Errors
///
/// As for [`migrate`].
#[inline(always)]
pub fn migrate_with_pages(node: NodeId) -> Result<()> {
    block().migrate[WITH_PAGES].store(1, Ordering::Relaxed);
    let outcome = migrate(node);
    // A thread that has stayed, or moved over a fused kernel, has not used it.
    block().migrate[WITH_PAGES].store(0, Ordering::Relaxed);
    outcome
}

/// The thread stays where it is, although it was asked to go to `node`.
#[cold]
#[inline(never)]
fn take_back(node: NodeId) {
    let word = node.index() as u64 + 1;
    let _ =
        block().migrate[REQUEST].compare_exchange(word, 0, Ordering::Relaxed, Ordering::Relaxed);
}

/// Asks the calling thread to go to a node at its next migration point. Gives where it was asked to go before.
pub fn request(node: NodeId) -> Option<NodeId> {
    ask(block(), node)
}

/// Takes back what the calling thread is asked. Gives what that was.
pub fn withdraw() -> Option<NodeId> {
    taken(block())
}

fn ask(thread: &Block, node: NodeId) -> Option<NodeId> {
    let word = node.index() as u64 + 1;
    let before = thread.migrate[REQUEST].swap(word, Ordering::Relaxed);
    NodeId::new(before.checked_sub(1)?)
}

/// The outcome of the calling thread's last migration.
///
/// # Errors
///
/// Those of [`migrate`].
#[inline(never)]
pub fn outcome() -> Result<()> {
    match block().migrate[RESULT].load(Ordering::Relaxed) {
        0 => Ok(()),
        code => Err(Error::from_code(code).unwrap_or(Error::Corrupt)),
    }
}

/// What the calling thread's last migration ends with after all: it has gone somewhere else than it was to.
pub fn set_outcome(e: Error) {
    block().migrate[RESULT].store(e.code(), Ordering::Relaxed);
}

/// The node that the request word names, which is taken away.
fn taken(block: &Block) -> Option<NodeId> {
    NodeId::new(
        block.migrate[REQUEST]
            .swap(0, Ordering::Relaxed)
            .checked_sub(1)?,
    )
}

/// Sends a thread, by `depart`, where it has been asked to go. If it cannot go from here it stays asked.
#[inline(always)]
fn attempt(block: &Block, depart: impl FnOnce(NodeId) -> Result<()>) {
    let node = taken(block);
    let done = node.map_or(Ok(()), depart);
    if let (Some(node), Err(Error::Denied)) = (node, done) {
        // From its next point perhaps, unless a thread asks for something else meanwhile.
        let word = node.index() as u64 + 1;
        let request = &block.migrate[REQUEST];
        let _ = request.compare_exchange(0, word, Ordering::Relaxed, Ordering::Relaxed);
    }
    let code = done.err().map_or(0, Error::code);
    block.migrate[RESULT].store(code, Ordering::Relaxed);
}

#[cfg(target_os = "none")]
pub use target::{enter, land, leave, point_address, restart};

#[cfg(target_os = "none")]
mod target {
    use core::mem::MaybeUninit;
    use core::ptr::{with_exposed_provenance, with_exposed_provenance_mut};
    use core::sync::atomic::Ordering;

    use dyad_abi::user::migrate_word::{REQUEST, RESULT};
    use dyad_abi::user::{data_stack, stack_slot};
    use dyad_abi::{Error, Isa, NodeId, Result};
    use dyad_migrate::{
        Fault, HEADER_WORDS, KEPT, Landing, Memory, SLOT_WORDS, Sites, stay, transform,
    };

    use super::{Block, attempt, block, may_go, of_tasks, stub};
    use crate::emulation::{Apart, Arrived, Going};
    use dyad_abi::service::process;
    use dyad_sys::entry::{Entry, Target};
    use dyad_sys::group;
    use dyad_sys::thread::own;

    /// The thread's native stacks, and what is kept of frames meanwhile.
    struct Stacks([MaybeUninit<u64>; KEPT]);

    impl Stacks {
        #[inline(always)]
        const fn new() -> Stacks {
            Stacks([MaybeUninit::uninit(); KEPT])
        }
    }

    impl Memory for Stacks {
        #[inline(always)]
        fn read(&self, at: u64) -> u64 {
            // SAFETY: 1. `transform` reads frame records of the calling thread only, which lie on its
            // native stack: the build has verified that they form a chain.
            unsafe { with_exposed_provenance::<u64>(at as usize).read() }
        }
        #[inline(always)]
        fn write(&mut self, at: u64, value: u64) {
            // SAFETY: 1. `transform` writes to the stack it was given only, that of the other ISA, on
            // which nothing is needed any more.
            unsafe { with_exposed_provenance_mut::<u64>(at as usize).write(value) };
        }
        #[inline(always)]
        fn keep(&mut self, n: usize, word: u64) {
            if let Some(kept) = self.0.get_mut(n) {
                kept.write(word);
            }
        }
        #[inline(always)]
        fn kept(&self, n: usize) -> u64 {
            // SAFETY: 1. `transform` reads what it has kept, and nothing else.
            self.0
                .get(n)
                .map_or(0, |kept| unsafe { kept.assume_init() })
        }
    }

    /// The program's table of sites.
    fn table() -> Option<&'static [u64]> {
        let header = &raw const stub::dyad_sites;
        // SAFETY: 1. The build has put a table there that is as long as its header says, and that
        // never changes.
        unsafe {
            let per_isa = usize::try_from((*header)[1]).ok()?;
            let words = HEADER_WORDS + Isa::ALL.len() * per_isa * SLOT_WORDS;
            Some(core::slice::from_raw_parts(header.cast::<u64>(), words))
        }
    }

    /// Starts a plain thread: calls the root with `argument` on an empty native stack.
    pub fn enter(argument: u64) -> ! {
        let block = block();
        let id = block.thread as u32;
        block.data_sp.store(data_stack(id).1, Ordering::Relaxed);
        let (_, top) = stack_slot(dyad_sys::isa(), id);
        // SAFETY: 1. The stack is this thread's, and what is on it is given up: this does not return.
        unsafe { stub::dyad_spine_enter(argument, top) }
    }

    /// Continues the calling thread, which [runs tasks](super::runs_tasks), on another node: in `entry(argument)`, on the empty
    /// native stack of that node's ISA. Nothing that is on its native stacks now is ever looked at again, like the
    /// frames of a thread that ends. Returns only if the thread cannot leave.
    pub fn restart(node: NodeId, entry: Target, argument: u64) -> Error {
        // Threads that run no tasks move with their frames.
        let Some(own) = of_tasks() else {
            return Error::Denied;
        };
        let isa = match isa_of(node) {
            Ok(isa) => isa,
            Err(e) => return e,
        };
        let (_, top) = stack_slot(isa, block().thread as u32);
        let stack = [group::empty_on(isa, top), 0];
        let entry = Entry::Moved.to(entry);
        if dyad_sys::is_multiple() {
            let pc = entry | process::WITH_ARGUMENT;
            // SAFETY: 1. As below.
            return unsafe { group::leave(node, pc, stack[0], argument) };
        }
        // SAFETY: 1. The stack is this thread's, and what is on it is given up: `entry` does not return. 2. The data
        // stack stays as it is, and what is on it stays there.
        unsafe { own.jump(node, entry, stack, argument) }
    }

    /// The ISA of a node.
    fn isa_of(node: NodeId) -> Result<Isa> {
        let info = dyad_sys::info()?;
        let nodes = &info.system.nodes[..info.system.node_count as usize];
        let there = nodes.get(node.index()).ok_or(Error::NoSuchNode)?;
        Isa::from_index(there.isa.into()).ok_or(Error::Corrupt)
    }

    /// The slow part of a migration point: frame pointer and return address of the call of the point.
    /// If the thread goes to another ISA, this does not return.
    pub fn leave(fp: u64, ret: u64) {
        let block = block();
        attempt(block, |node| {
            may_go()?;
            depart(block, node, fp, ret)
        });
    }

    fn why(fault: Fault) -> Error {
        match fault {
            Fault::TooDeep => Error::TooDeep,
            // Somewhere above is a function that was entered from outside.
            Fault::UnknownReturn(_) => Error::Denied,
            Fault::Broken(_) => Error::Corrupt,
        }
    }

    /// Lays the frames of the calling thread, which runs on `here`, out on the stack of the other ISA: its top, and the bytes
    /// that it has room for.
    #[inline(never)]
    fn lay_out(here: Isa, from: (u64, u64), stack: (u64, u64)) -> Result<Landing> {
        let sites = table().and_then(|t| Sites::of(t, here.index()));
        let sites = sites.ok_or(Error::Corrupt)?;
        transform(&sites, &mut Stacks::new(), from, stack).map_err(why)
    }

    /// How the calling thread goes on with the frames that it has, on another node of its ISA.
    #[inline(never)]
    fn keep(here: Isa, from: (u64, u64)) -> Result<Landing> {
        let of = |isa: Isa| table().and_then(|t| Sites::of(t, isa.index()));
        let sites = of(here).zip(of(here.other()));
        let (sites, back) = sites.ok_or(Error::Corrupt)?;
        stay(&sites, &back, &Stacks::new(), from).map_err(why)
    }

    fn depart(block: &Block, node: NodeId, fp: u64, ret: u64) -> Result<()> {
        let to = isa_of(node)?;
        let here = dyad_sys::isa();
        if dyad_sys::is_multiple() {
            return depart_by_message(block, (node, to), (here, fp, ret));
        }
        if to == here {
            return own().migrate(node).map(drop);
        }
        let (bottom, top) = stack_slot(to, block.thread as u32);
        let sites = table().and_then(|t| Sites::of(t, here.index()));
        let sites = sites.ok_or(Error::Corrupt)?;
        let mut stacks = Stacks::new();
        // Inline, and so faster than `lay_out`.
        let landing = transform(&sites, &mut stacks, (fp, ret), (top, top - bottom));
        // For an interpreter that takes over in between: see `emulation`.
        let from = [fp, ret];
        let Landing { pc, sp, fp, .. } = landing.map_err(why)?;
        block.migrate[RESULT].store(0, Ordering::Relaxed);
        // SAFETY: 1. There is the return address of a call of the migration point, with the frames below
        // which it was made; the build has verified that code there needs no register but the stack and
        // frame pointers. 2. What is on this stack is not needed then.
        Err(unsafe { own().jump(node, pc, [sp, fp], from.as_ptr() as u64) })
    }

    /// Sends the thread to a node over kernels that only exchange messages: there another kernel thread waits, on the same
    /// stack if the node has the same ISA.
    #[cold]
    #[inline(never)]
    fn depart_by_message(
        block: &Block,
        (node, to): (NodeId, Isa),
        (here, fp, ret): (Isa, u64, u64),
    ) -> Result<()> {
        let (bottom, top) = stack_slot(to, block.thread as u32);
        let landing = match to == here {
            true => keep(here, (fp, ret)),
            false => lay_out(here, (fp, ret), (top, top - bottom - group::WAITING)),
        };
        let Landing { pc, sp, fp, .. } = landing?;
        block.migrate[RESULT].store(0, Ordering::Relaxed);
        // SAFETY: 1. As in `depart`.
        Err(unsafe { group::leave(node, pc, sp, fp) })
    }

    /// Address of the routine that migration points call.
    pub fn point_address() -> u64 {
        stub::dyad_point_address()
    }

    /// How a thread goes on whose code has been interpreted up to a migration point.
    ///
    /// # Errors
    ///
    /// As `leave` finds; `Exists` if it wants to go to where it was stopped, or to a node like that.
    pub fn land(at: &Arrived, _: Apart) -> Result<Going> {
        let block = block();
        let request = &block.migrate[REQUEST];
        let wanted = request.load(Ordering::Relaxed);
        // The thread that has asked may have withdrawn that.
        let node = (at.to)
            .or_else(|| NodeId::new(wanted.checked_sub(1)?))
            .unwrap_or(at.here);
        let to = isa_of(node)?;
        if to == at.isa {
            return Err(Error::Exists);
        }
        let (bottom, top) = stack_slot(to, block.thread as u32);
        let Landing { pc, sp, fp, .. } = lay_out(at.isa, (at.frame, at.back), (top, top - bottom))?;
        if at.to.is_none() {
            // A newer one is for the next point.
            let _ = request.compare_exchange(wanted, 0, Ordering::Relaxed, Ordering::Relaxed);
        }
        block.migrate[RESULT].store(0, Ordering::Relaxed);
        Ok(Going {
            node,
            pc,
            stack: [sp, fp],
            argument: 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use dyad_abi::Isa;

    use super::*;

    fn words(block: &Block) -> [u64; 2] {
        [REQUEST, RESULT].map(|w| block.migrate[w].load(Ordering::Relaxed))
    }

    #[test]
    fn who_cannot_move_stays_asked_and_moves_at_the_next_point_that_can() {
        let (block, node) = (Block::blank(), NodeId::new(1).unwrap());
        let mut asked = std::vec::Vec::new();
        ask(&block, node);
        for done in [Err(Error::Denied), Err(Error::Denied), Ok(())] {
            attempt(&block, |to| {
                asked.push(to);
                done
            });
            let kept = match done {
                Ok(()) => [0, 0],
                Err(why) => [2, why.code()],
            };
            assert_eq!(words(&block), kept);
        }
        assert_eq!(asked, [node; 3]);
        // Then no request is left.
        attempt(&block, |_| unreachable!());
        assert_eq!(words(&block), [0, 0]);
    }

    #[test]
    fn who_is_refused_for_good_is_not_asked_again() {
        let (block, node) = (Block::blank(), NodeId::new(1).unwrap());
        for why in [Error::NodeDead, Error::TooDeep, Error::Full] {
            ask(&block, node);
            attempt(&block, |_| Err(why));
            assert_eq!(words(&block), [0, why.code()]);
        }
    }

    /// Node and request of the calling thread.
    fn state() -> (u64, u64) {
        let at = dyad_sys::where_am_i().unwrap().node.index() as u64;
        (at, block().migrate[REQUEST].load(Ordering::Relaxed))
    }

    /// A thread that was refused is where it was and is asked for nothing: its next point does nothing. The point after a new
    /// request goes where that says.
    #[test]
    fn who_was_refused_goes_nowhere_at_the_next_point() {
        fn entry(_: u64) -> ! {
            let node = |n: u64| NodeId::new(n).unwrap();
            for (to, why) in [(5, Error::NoSuchNode), (1, Error::NodeDead)] {
                dyad_host::kill_node(node(1));
                assert_eq!(migrate(node(to)), Err(why));
                assert_eq!(state(), (0, 0), "refused with {why}");
                point();
                assert_eq!(state(), (0, 0), "refused with {why}, then a point");
            }
            request(node(2));
            point();
            assert_eq!(state(), (2, 0));
            assert_eq!(outcome(), Ok(()));
            // Between tasks only from here on.
            runs_tasks();
            assert_eq!(migrate(node(0)), Err(Error::Denied));
            assert_eq!(state(), (2, 0), "refused within a task");
            point();
            assert_eq!(state(), (2, 0), "refused within a task, then a point");
            assert_eq!(outcome(), Err(Error::Denied));
            // Who is asked by another thread stays asked.
            request(node(0));
            point();
            assert_eq!(state(), (2, 1));
            assert_eq!(withdraw(), Some(node(0)));
            dyad_sys::exit(3)
        }
        let config = dyad_host::Config {
            nodes: [Isa::X86_64, Isa::Aarch64, Isa::Aarch64].to_vec(),
            ..Default::default()
        };
        assert_eq!(dyad_host::run(config, entry).code, 3);
    }

    /// What another thread has asked for since is for the next point.
    #[test]
    fn who_was_refused_takes_only_its_own_request_back() {
        let [own, other] = [1, 2].map(|n| NodeId::new(n).unwrap());
        ask(block(), other);
        take_back(own);
        assert_eq!(withdraw(), Some(other));
        ask(block(), own);
        take_back(own);
        assert_eq!(withdraw(), None);
    }

    #[test]
    fn a_newer_request_takes_the_place_of_one_that_stays() {
        let [old, new] = [1, 2].map(|n| NodeId::new(n).unwrap());
        let block = Block::blank();
        ask(&block, old);
        attempt(&block, |_| {
            ask(&block, new);
            Err(Error::Denied)
        });
        assert_eq!(words(&block), [3, Error::Denied.code()]);
        attempt(&block, |to| {
            assert_eq!(to, new);
            Ok(())
        });
        assert_eq!(words(&block), [0, 0]);
    }
}
