//! Tests on real machines, driven by libtest-mimic.
//!
//! Two kinds. *In-kernel tests* are read from the kernel images and appear as
//! `SYSTEM::NAME`, once per kind of system they run on; all that are selected for a system run in
//! one boot of it, and the system is started again if a test brings it down. *System tests* drive
//! the launcher from outside: whole runs, bad input, deaths.
//!
//! Each test names its tiers where it is made (`times::test`), and a run includes the tests of its tier.
//!
//! Systems run one at a time where CPUs must really overlap or the host's time matters; groups of `times::BESIDE` run
//! two tests at a time.
#![forbid(unsafe_code)]

mod abuse;
mod adversary;
mod ahead;
mod asking;
mod attack;
mod back_ends;
mod batch;
mod benchmarks;
mod bounds;
mod classes;
mod clock;
mod console;
mod crossing;
mod dead_answer;
mod deaths;
mod emulation;
mod explore;
mod flood;
mod fuzz;
mod gallery;
mod jumping;
mod kill;
mod kv;
mod memory;
mod messages;
mod migrate_threads;
mod migration;
mod multiple;
mod names;
mod programs;
mod quiescence;
mod rivals;
mod runs;
mod sanitizer;
mod simulation;
mod std_pieces;
mod storm;
mod supervision;
mod threads;
mod times;
mod translations;
mod validation;
mod windows;
mod workloads;

use std::process::ExitCode;

use dyad_launcher::setup::{self, Requirements};
use libtest_mimic::Arguments;

fn main() -> ExitCode {
    let mut args = Arguments::from_args();
    // Whatever was asked for: a test says whether it may run beside another one.
    args.test_threads = Some(times::TOGETHER);
    if let Err(e) = setup::ensure(&Requirements::ALL, &mut |what| eprintln!("{what}")) {
        eprintln!("{e}");
        return ExitCode::from(2);
    }
    let names = match names::from_images() {
        Ok(names) => names,
        Err(e) => {
            eprintln!("{e}");
            return ExitCode::from(1);
        }
    };
    times::begin(&args);
    ahead::start(&args);
    let mut trials = batch::trials(&names);
    trials.extend(programs::trials());
    trials.extend(runs::trials());
    trials.extend(memory::trials());
    trials.extend(benchmarks::trials());
    trials.extend(classes::trials());
    trials.extend(workloads::trials());
    trials.extend(multiple::trials());
    trials.extend(kv::trials());
    trials.extend(messages::trials());
    trials.extend(abuse::trials());
    trials.extend(attack::trials());
    trials.extend(std_pieces::trials());
    trials.extend(storm::trials());
    trials.extend(adversary::trials());
    trials.extend(windows::trials());
    trials.extend(bounds::trials());
    trials.extend(migrate_threads::trials());
    trials.extend(back_ends::trials());
    trials.extend(fuzz::trials());
    trials.extend(gallery::trials());
    trials.extend(validation::trials());
    trials.extend(simulation::trials());
    trials.extend(translations::trials(&names));
    trials.extend(emulation::trials());
    trials.extend(explore::trials());
    trials.extend(sanitizer::trials());
    trials.extend(clock::trials());
    trials.extend(supervision::trials());
    trials.extend(quiescence::trials());
    trials.extend(threads::trials());
    trials.extend(rivals::trials());
    trials.extend(migration::trials());
    trials.extend(deaths::trials());
    trials.extend(dead_answer::trials());
    trials.extend(crossing::trials());
    trials.extend(flood::trials());
    trials.extend(jumping::trials());
    trials.extend(asking::trials());
    let (trials, others) = times::of_this_run(trials);
    let conclusion = libtest_mimic::run(&args, trials);
    print!("{}", times::report());
    if others > 0 {
        println!("{others} tests are in other tiers: cargo xtask test --help");
    }
    conclusion.exit_code()
}
