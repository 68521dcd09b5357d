//! Functions in which a thread goes on that jumps there.
//!
//! A jump knows the C convention only. The build gives another one to functions in which threads may migrate, and to all that
//! calls through pointers can mean beside such. So a thread jumps to a function that is exported, which keeps the C convention
//! whatever it calls, and that calls the one that is meant, as the build has it.

#![allow(unsafe_code)]

use core::sync::atomic::{AtomicUsize, Ordering};

/// What is meant. It has an argument, and an empty stack.
pub type Target = fn(u64) -> !;

/// The exported functions. They take one argument; the others make them of a kind that no function of a program is.
type Exported = extern "C" fn(u64, u64, u64, u64, u64, u64) -> !;

/// A function to jump to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A thread begins that has come by message.
    Begins,
    /// A thread that runs tasks has moved.
    Moved,
    /// A thread that runs tasks goes on that was interpreted.
    Landed,
}

/// What each of them calls. A program has one of each.
static TARGETS: [AtomicUsize; 3] = [const { AtomicUsize::new(0) }; 3];

impl Entry {
    /// The address to jump to, to go on in `target`.
    pub fn to(self, target: Target) -> u64 {
        let known = &TARGETS[self as usize];
        let target = target as usize;
        // Over several kernels a store takes the page from the other nodes.
        if known.load(Ordering::Relaxed) != target {
            known.store(target, Ordering::Release);
        }
        let exported: Exported = match self {
            Entry::Begins => dyad_entry_begins,
            Entry::Moved => dyad_entry_moved,
            Entry::Landed => dyad_entry_landed,
        };
        exported as usize as u64
    }

    fn go(self, argument: u64) -> ! {
        let target = TARGETS[self as usize].load(Ordering::Acquire);
        // SAFETY: 1. `to` stores a function there before it gives the address out, and nothing else is ever stored.
        let target = unsafe { core::mem::transmute::<usize, Target>(target) };
        target(argument)
    }
}

#[unsafe(no_mangle)]
extern "C" fn dyad_entry_begins(argument: u64, _: u64, _: u64, _: u64, _: u64, _: u64) -> ! {
    Entry::Begins.go(argument)
}

#[unsafe(no_mangle)]
extern "C" fn dyad_entry_moved(argument: u64, _: u64, _: u64, _: u64, _: u64, _: u64) -> ! {
    Entry::Moved.go(argument)
}

#[unsafe(no_mangle)]
extern "C" fn dyad_entry_landed(argument: u64, _: u64, _: u64, _: u64, _: u64, _: u64) -> ! {
    Entry::Landed.go(argument)
}
