//! Takes from others what it can, through the services that it shares with them. It runs beside
//! the program `victim`, with the same arguments:
//! `cargo xtask run --app victim --beside rival -- --scene console`.
//!
//! | `--scene` | what it does |
//! |---|---|
//! | `console` | writes to the console without a pause, in every second phase of [`PHASE`]; computes in the others; ends after [`LENGTH`] |
//! | `reports` | reports checks and counters under names of others, with control characters, and without a pause |
//! | `memory` | takes every range the pager gives, then touches memory until there is none; that ends it |
#![no_std]
#![no_main]
#![deny(unsafe_code)]

extern crate alloc;

use core::hint::black_box;
use core::time::Duration;

use dyad::prelude::*;
use dyad::{report, sys};
use dyad_abi::record::name;

/// Length of a phase; even ones, counted by fused time, are fair.
const PHASE: Duration = Duration::from_millis(100);
/// How long the flood is.
const LENGTH: Duration = Duration::from_millis(6500);
/// How long the flood of reports is.
const FLOOD: Duration = Duration::from_millis(1500);
/// Bytes of a write: what the console takes at once.
const PAGE: usize = 4096;
/// Bytes that the hoarder wants.
const HOARD: usize = 1 << 30;

/// Whether this is a phase of attack.
fn attacks() -> bool {
    Instant::now().as_nanos() / PHASE.as_nanos() as u64 % 2 == 1
}

/// Writes that are cheap for the writer and dear for the console: many lines, long lines, lines
/// without end.
fn flood() -> Result<()> {
    let texts = [
        "\n".repeat(PAGE),
        "flood\n".repeat(PAGE / 6),
        "x".repeat(PAGE),
    ];
    let end = Instant::now() + LENGTH;
    let (mut writes, mut bytes, mut refused) = (0u64, 0u64, 0u64);
    while Instant::now() < end {
        if !attacks() {
            (0..1000u64).for_each(|n| {
                black_box(n);
            });
            continue;
        }
        writes += 1;
        match sys::write(&texts[writes as usize % texts.len()]) {
            Ok(n) => bytes += n as u64,
            Err(_) => refused += 1,
        }
    }
    for (name, n) in [
        ("rival.writes", writes),
        ("rival.bytes", bytes),
        ("rival.refused", refused),
    ] {
        report::counter(name, n);
    }
    Ok(())
}

/// Checks and counters: in the names of others, with texts that would change what the launcher prints, and
/// more than the console takes.
fn reports() -> Result<()> {
    let wrong = |name: &&str, why| {
        sys::report_check(name, true, "forged") != Err(why)
            || sys::report_counter(name, u64::MAX) != Err(why)
    };
    let reserved = name::ALL.iter().copied().chain(["sim.closure"]);
    let taken = reserved.filter(|n| wrong(n, sys::Error::Denied)).count();
    let odd = ["", "a b", "a\nb", "a\u{9b}31mb", "a\u{202e}b"];
    let odd = (odd.iter())
        .filter(|n| wrong(n, sys::Error::BadArgument))
        .count();
    report::check(
        "rival.names",
        (taken, odd) == (0, 0),
        format_args!("{taken} of others and {odd} odd ones are not refused"),
    );
    // Of the program beside that is the victim: neither decides the run, nor is added to its own.
    let forged =
        "x)\n[0 x86_64/-  +0.001] check app.exit: ok\nok: 99 checks passed\u{9b}31m\u{202e}";
    report::check("victim.reports", false, forged);
    report::counter("victim.reported", u64::MAX);
    let end = Instant::now() + FLOOD;
    let (mut bytes, mut refused) = (0u64, 0u64);
    let (name, detail) = ("f".repeat(64), "x".repeat(256));
    while Instant::now() < end {
        let told = match refused % 2 {
            0 => sys::report_check(&name, true, &detail),
            _ => sys::report_counter(&name, 1),
        };
        match told {
            Ok(()) => bytes += name.len() as u64,
            Err(_) => refused += 1,
        }
    }
    report::counter("rival.bytes", bytes);
    report::counter("rival.refused", refused);
    Ok(())
}

/// Takes everything. Does not come back.
fn hoard() -> Result<()> {
    // More than there are frames for; of this nothing is there yet.
    let mut hoard: Vec<u8> = Vec::with_capacity(HOARD);
    let mut ranges = 0u64;
    // The pager's book has room for so many only.
    let refusal = loop {
        match sys::map_anon(PAGE as u64) {
            Ok(_) => ranges += 1,
            Err(e) => break e,
        }
    };
    report::counter("rival.ranges", ranges);
    let full = refusal == sys::Error::Full;
    report::check("rival.ranges-end", full, format_args!("with: {refusal}"));
    println!("rival: has {ranges} ranges");
    // While it has them, others go on.
    let end = Instant::now() + Duration::from_secs(1);
    while Instant::now() < end {
        black_box(sys::map_anon(PAGE as u64).is_err());
    }
    println!("rival: takes all memory");
    for page in 0..HOARD / PAGE {
        hoard.resize((page + 1) * PAGE, 1);
        black_box(&hoard);
    }
    Err(Error::msg("there is no end of memory"))
}

#[dyad::task]
async fn main(args: Args) -> Result<()> {
    args.expect_options(&["--scene"])?;
    match args.one_of("--scene", &["console", "reports", "memory"], "console")? {
        "reports" => reports(),
        "memory" => hoard(),
        _ => flood(),
    }
}
