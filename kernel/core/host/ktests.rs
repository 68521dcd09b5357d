//! The in-kernel tests of operations, on host machines of both ISAs.

use dyad_abi::Isa;

use super::{Did, Machine, MockA64, MockX86, World};
use crate::ktest::{self, Outcome, Stop};
use crate::sched::quiet;
use dyad_machine::Platform;
use dyad_machine::kernel_ctx::KernelCtx;

/// Frames of a pool: enough for any one test.
const FRAMES: u64 = 2048;

/// Runs a test on each node of a pair by itself, as the machines do.
pub fn run(test: fn(&ktest::TestCtx<'_>) -> Outcome) {
    let isas = [Isa::X86_64, Isa::Aarch64];
    let w = World::new(&isas, FRAMES);
    on::<MockX86>(&w, 0, test);
    on::<MockA64>(&w, 1, test);
}

/// A machine that takes part in rounds.
pub fn joined<P: Platform>(w: &World, which: usize) -> Machine {
    let m = w.machine(which);
    m.enter();
    let cx = KernelCtx {
        node: m.node(),
        local: m.local(),
    };
    quiet::attach(&cx);
    quiet::join::<P>(&cx).unwrap();
    m
}

fn on<P: Platform>(w: &World, which: usize, test: fn(&ktest::TestCtx<'_>) -> Outcome) {
    let m = joined::<P>(w, which);
    passes::<P>(ktest::run_here::<P>(m.node(), test));
}

/// Panics unless a test has succeeded.
pub fn passes<P: Platform>(outcome: Outcome) {
    match outcome {
        Ok(_) => {}
        Err(Stop::Skipped(why)) => panic!("{}: skipped: {why}", P::ISA),
        Err(Stop::Failed(why)) => panic!("{}: {why}", P::ISA),
    }
}

/// A node that has published that it is quiet has no translations from before.
#[test]
fn rounds_drop_translations() {
    let w = World::new(&[Isa::X86_64], FRAMES);
    let m = joined::<MockX86>(&w, 0);
    let cx = KernelCtx {
        node: m.node(),
        local: m.local(),
    };
    for _ in 0..3 {
        m.did();
        while quiet::flush_step::<MockX86>(&cx, 1) == Ok(0) {}
        assert!(m.did().contains(&Did::FlushedTlb));
    }
}
