//! Builds what the tests are going to need while the first of them run, if all tests of the tier do.
//!
//! A system keeps two cores busy, but not all the time, and most of a build has one core's worth of work. Whoever
//! needs a program that is being built waits for that (`migrate-rt` locks its folder, cargo its own), and
//! what does not build is reported by the test that needs it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use dyad_abi::Isa;
use dyad_launcher::build::{self, Kernel};
use dyad_launcher::error::Error;
use dyad_launcher::{apps, signals};
use dyad_tier::Tier;
use libtest_mimic::Arguments;

/// Programs that are built at a time.
const WORKERS: usize = 2;

/// How much less urgent builds are than the machines of tests.
const NICE: i32 = 10;

/// Begins, unless only some tests are to run.
pub fn start(args: &Arguments) {
    if args.list || args.filter.is_some() || args.ignored {
        return;
    }
    thread::spawn(|| {
        // Of this thread, and of threads and processes that it starts. Builds are as good without.
        let _ = rustix::process::nice(NICE);
        let _ = everything();
    });
}

fn everything() -> Result<(), Error> {
    let silent: build::Progress<'_> = &mut |_| {};
    let kernels: &[Kernel] = match Tier::now() {
        Tier::Quick => &[Kernel::Plain],
        Tier::Full | Tier::Long => &[Kernel::Plain, Kernel::Listed],
    };
    for &kind in kernels {
        for isa in Isa::ALL {
            build::kernel(isa, kind, silent)?;
        }
    }
    build::services(silent)?;
    build::plugin(silent)?;
    let apps = apps::available();
    let next = AtomicUsize::new(0);
    let build_some = || {
        while let Some(app) = apps.get(next.fetch_add(1, Ordering::Relaxed)) {
            if signals::count() > 0 {
                break;
            }
            // One that does not build keeps no other from being built.
            let _ = apps::find(app).and_then(|source| build::app(&source, &mut |_| {}));
        }
    };
    // A program's stages have one core's worth of work between them, so two programs are built at a time.
    thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(build_some);
        }
    });
    Ok(())
}
