//! What `cargo xtask bench kernel` and `cargo xtask bench migration` measure.
//!
//! | `--what` | what is measured | as |
//! |---|---|---|
//! | `kernel` | the operations of the kernel: [`kernel`] | a task |
//! | a list of `micro`, `chase`, `bfs`, `futex` | what it costs a task to change its ISA: [`migration`] | a task |
//! | `threads` | what it costs a plain thread to change its ISA: [`threads`] | a plain thread |
//! | `emulation` | what it costs to move a plain thread wherever it is: [`emulation`] | a plain thread |
//!
//! Each has options of its own. What the simulator's windows have counted those commands read from the simulator;
//! the program itself knows only times.
#![no_std]
#![no_main]
// Capability operations on the program itself, and windows.
#![deny(unsafe_code)]

extern crate alloc;

mod emulation;
mod figures;
mod kernel;
mod migration;
mod threads;

use dyad::prelude::thread::*;

/// What the command line asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Kernel,
    Migration,
    Threads,
    Emulation,
}

impl What {
    #[inline(never)]
    fn read(args: &Args) -> Result<What> {
        match args.value("--what") {
            Some("kernel") => return Ok(What::Kernel),
            Some("threads") => return Ok(What::Threads),
            Some("emulation") => return Ok(What::Emulation),
            _ => {}
        }
        let possible = "kernel, threads, emulation, or a list of micro, chase, bfs, futex";
        let Some(list) = args.value("--what") else {
            let why = format_args!("say what to measure: --what {possible}");
            return Err(Error::usage(why));
        };
        let is_known = |word: &&str| migration::MEASUREMENTS.contains(word);
        match list.split(',').find(|word| !is_known(word)) {
            None => Ok(What::Migration),
            Some(word) => Err(Error::usage(format_args!(
                "--what cannot have {word:?}; possible: {possible}"
            ))),
        }
    }
}

#[dyad::main]
fn main(args: Args) -> Result<()> {
    match What::read(&args)? {
        What::Kernel => dyad::task::run(kernel::main(args)),
        What::Migration => dyad::task::run(migration::main(args)),
        What::Threads => threads::main(&args),
        What::Emulation => emulation::main(&args),
    }
}
