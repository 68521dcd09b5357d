//! Does what programs must not do, to show that the kernels take no harm.
//!
//! | option | values | default |
//! |---|---|---|
//! | `--calls` | bad calls to make | 6000 |
//! | `--seed` | seed of the generator | 1 |
//! | `--fault` | one of [`Fault`]: commits it instead; the program does not survive that | none |
//! | `--services` | `yes`: plays the attacks on [services], and on [peers] if there are some, instead, on a node of each ISA | `no` |
//! | `--moves` | `yes`: forges words of [moves] instead; `storm`: threads on all nodes do, and the program ends meanwhile; `knot`: they ask for moves of each other, which forges nothing; `wild`: a thread moves to the wild place number `--seed` of 16; `peers`: threads on both nodes ask their peers for anything | `no` |
//! | `--on` | `x86_64`, `aarch64`: where the fault is committed | where it starts |
//!
//! System calls and invocations of services are made with edge values and random ones, in batches
//! that alternate between the ISAs. Each must return the error that its documentation says, and the
//! value 0 with it.
#![no_std]
#![no_main]
// The only program that goes round the runtime: what it does is unsafe by intention, in five
// modules.
#![deny(unsafe_code)]

mod calls;
mod fault;
mod moves;
mod peers;
mod services;

use dyad::prelude::task::*;
use dyad::report;

use calls::Abuser;
use fault::Fault;

/// Calls between two migrations.
const BATCH: u64 = 250;

fn number(args: &Args, name: &str, default: u64) -> Result<u64> {
    match args.value(name) {
        None => Ok(default),
        Some(text) => text.parse().map_err(|_| {
            Error::usage(format_args!(
                "{name} cannot be {text:?}; give a whole number"
            ))
        }),
    }
}

#[dyad::task]
async fn main(args: Args) -> Result<()> {
    args.expect_options(&[
        "--calls",
        "--seed",
        "--fault",
        "--on",
        "--services",
        "--moves",
    ])?;
    let calls = number(&args, "--calls", 6000)?;
    let seed = number(&args, "--seed", 1)?;
    let on = args.one_of("--on", &Isa::ALL.map(Isa::name), isa().name())?;
    let fault = args.one_of("--fault", &Fault::ALL.map(Fault::name), "")?;
    if let Some(fault) = Fault::parse(fault) {
        if let Some(isa) = Isa::parse(on) {
            migrate(isa).await?;
        }
        println!("committing {} on {}", fault.name(), isa());
        fault.commit();
        return Err(Error::msg("the fault did no harm"));
    }

    if args.one_of("--services", &["yes", "no"], "no")? == "yes" {
        let mut good = true;
        for _ in Isa::ALL {
            good &= services::play()?;
            migrate(isa().other()).await?;
        }
        return match good {
            true => Ok(()),
            false => Err(Error::msg("a service did what it must not")),
        };
    }
    match args.one_of(
        "--moves",
        &["yes", "storm", "knot", "wild", "peers", "no"],
        "no",
    )? {
        "storm" => return moves::storm(seed),
        "knot" => return moves::knot(seed),
        "wild" => return peers::wild(seed),
        "peers" => return peers::storm(seed),
        "yes" if moves::play()? => return Ok(()),
        "yes" => return Err(Error::msg("a thread does not go on")),
        _ => {}
    }
    let mut abuser = Abuser::new(seed)?;
    let mut made = [0u64; 2];
    while made[0] + made[1] < calls {
        for _ in 0..BATCH {
            abuser.call();
        }
        made[isa() as usize] += BATCH;
        abuser.run_out_of_regions();
        migrate(isa().other()).await?;
    }
    for isa in Isa::ALL {
        let name = format!("abuse.calls.{isa}");
        report::check(&name, made[isa as usize] > 0, made[isa as usize]);
    }
    report::check(
        "abuse.refused",
        abuser.refused() > calls / 4,
        abuser.refused(),
    );
    let wrong = abuser.wrong();
    for line in wrong.lines.iter() {
        println!("  {line}");
    }
    let detail = format!("{} calls did not return what they must", wrong.count);
    if report::check("abuse.results", wrong.count == 0, detail) {
        Ok(())
    } else {
        Err(Error::msg("calls returned what they must not"))
    }
}
