//! NPB IS, hopping between ISAs or staying on one.
//!
//! | option | values | default |
//! |---|---|---|
//! | `--class` | `S`, `W`, `A` | `S` |
//! | `--hop` | `on`: ranks are summed up and verified on the other ISA, `off` | `on` |
//! | `--home` | `x86_64`, `aarch64`: where everything else runs | where it starts |
//!
//! The last line has a checksum of all results; it is the same however the program is run.
#![no_std]
#![no_main]
#![deny(unsafe_code)]

use dyad::prelude::*;
use dyad::report;
use npb::checksum::Fnv;
use npb::is::{Class, ITERATIONS, Is, VERIFICATIONS};

struct Options {
    class: Class,
    hop: bool,
    home: Option<Isa>,
}

impl Options {
    fn read(args: &Args) -> Result<Options> {
        args.expect_options(&["--class", "--hop", "--home"])?;
        let class = args.one_of("--class", &Class::ALL.map(Class::name), "S")?;
        let home = args.one_of("--home", &Isa::ALL.map(Isa::name), isa().name())?;
        Ok(Options {
            class: Class::parse(class).unwrap_or(Class::S),
            hop: args.one_of("--hop", &["on", "off"], "on")? == "on",
            home: args.value("--home").and(Isa::parse(home)),
        })
    }
}

#[dyad::task]
async fn main(args: Args) -> Result<()> {
    let options = Options::read(&args)?;
    if let Some(isa) = options.home {
        migrate(isa)
            .await
            .map_err(|e| Error::msg(format_args!("cannot make {isa} the home: {e}")))?;
    }
    let home = node();
    let away = match options.hop {
        true => Some(partner(home)?),
        false => None,
    };
    announce(&options, home, away);

    let mut sum = Fnv::new();
    let mut passed = 0;
    let mut is = Is::generate(options.class);
    sum.word(is.keys_checksum());

    let mut ranking = Duration::ZERO;
    for t in 1..=ITERATIONS {
        println!("        {t}");
        let start = Instant::now();
        is.stamp(t);
        is.count();
        if let Some(away) = away {
            migrate_to(away).await?;
        }
        is.accumulate();
        // Verified where the ranks were made, and again at home if that is elsewhere.
        let mut verified = is.verify_partial(t);
        if away.is_some() {
            migrate_to(home).await?;
            verified = verified.and_then(|_| is.verify_partial(t));
        }
        ranking += start.elapsed();
        match verified {
            Ok(n) => passed += n,
            Err(e) => println!(" {e}"),
        }
        sum.word(is.ranks_checksum());
    }
    is.sort();
    sum.word(is.sorted_checksum());
    let full = is.verify_full();
    match &full {
        Ok(()) => passed += 1,
        Err(e) => println!(" full verification: {e}"),
    }

    conclude(&options, ranking, passed);
    let ok = report::check(
        "is.verification",
        passed == VERIFICATIONS,
        format_args!("class {}: {passed} of {VERIFICATIONS}", options.class),
    );
    let sorted = report::check("is.full", full.is_ok(), "keys in order, none lost");
    println!(" Checksum of all results = {:016x}", sum.value());
    if ok && sorted {
        Ok(())
    } else {
        Err(Error::msg("verification failed"))
    }
}

/// The node to hop to: of the other ISA if there is one, else another live one.
fn partner(home: NodeId) -> Result<NodeId> {
    let away = system()?.partner(home);
    away.ok_or_else(|| Error::msg("there is no other live node; use --hop off"))
}

fn announce(options: &Options, home: NodeId, away: Option<NodeId>) {
    println!();
    println!(" NAS Parallel Benchmarks, Dyad version - IS Benchmark");
    println!();
    println!(
        " Size:  {}  (class {})",
        options.class.keys(),
        options.class
    );
    println!(" Iterations:   {ITERATIONS}");
    match away {
        Some(away) => println!(
            " Counting on node {home} ({}), ranking on node {away}",
            isa()
        ),
        None => println!(" Staying on node {home} ({})", isa()),
    }
    println!();
    println!("   iteration");
}

fn conclude(options: &Options, ranking: Duration, passed: u32) {
    let us = (ranking.as_micros() as u64).max(1);
    let keys = options.class.keys() as u64 * u64::from(ITERATIONS);
    let verdict = match passed == VERIFICATIONS {
        true => "SUCCESSFUL",
        false => "UNSUCCESSFUL",
    };
    println!();
    println!();
    println!(" IS Benchmark Completed");
    let line = |name: &str, value: &dyn core::fmt::Display| {
        println!(" {name:<16}= {:>24}", format!("{value}"));
    };
    line("Class", &options.class);
    line("Size", &options.class.keys());
    line("Iterations", &ITERATIONS);
    let seconds = format!("{}.{:06}", us / 1_000_000, us % 1_000_000);
    line("Time in seconds", &seconds);
    // Millions of keys per second: keys per microsecond.
    let rate = format!("{}.{:02}", keys / us, keys % us * 100 / us);
    line("Mop/s total", &rate);
    line("Operation type", &"keys ranked");
    line("Verification", &verdict);
    println!();
}
