//! What the programs of the NAS Parallel Benchmarks have in common, as async tasks: their options,
//! phases that run on one node or hop between two, and what is printed in the end.
//!
//! | option | values | default |
//! |---|---|---|
//! | `--class` | `S`, `W`, `A` | `S` |
//! | `--hop` | `on`: each phase runs on the other node than the one before, `off` | `on` |
//! | `--home` | `x86_64`, `aarch64`: where it starts, and runs without hops | where it starts |
//!
//! Each timed phase is a sample of window [`REGION`] of the simulator. The last line has a
//! checksum of all results; it is the same however the program is run.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

use core::fmt::Display;

use dyad::prelude::*;
use dyad::report;
use dyad::sys::marker;
use dyad_abi::marker::WindowId;
use npb::class::Class;
use npb::kernel::{Kernel, Phase};

/// The window around what is timed.
pub const REGION: u16 = WindowId::FREE;

/// What is known of a benchmark before it runs.
#[derive(Clone, Copy, Debug)]
pub struct Title<'a> {
    /// Its two letters.
    pub name: &'a str,
    /// Size of the problem.
    pub size: &'a str,
    /// How many iterations it makes.
    pub iterations: u32,
}

/// How to run it.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Size of the problem.
    pub class: Class,
    hop: bool,
    home: Option<Isa>,
}

impl Options {
    /// What the words of the command line say.
    ///
    /// # Errors
    ///
    /// Says which word is wrong, and what is possible.
    pub fn read(args: &Args) -> Result<Options> {
        args.expect_options(&["--class", "--hop", "--home"])?;
        let class = args.one_of("--class", &Class::ALL.map(Class::name), "S")?;
        let home = args.one_of("--home", &Isa::ALL.map(Isa::name), isa().name())?;
        Ok(Options {
            class: Class::parse(class).unwrap_or(Class::S),
            hop: args.one_of("--hop", &["on", "off"], "on")? == "on",
            home: args.value("--home").and(Isa::parse(home)),
        })
    }

    /// Goes home, and finds the node to hop to.
    ///
    /// # Errors
    ///
    /// If there is no such place.
    pub async fn settle(&self) -> Result<Places> {
        Places::settle(self.home, self.hop).await
    }
}

/// The node to hop to.
fn partner(home: NodeId) -> Result<NodeId> {
    let away = system()?.partner(home);
    away.ok_or_else(|| Error::msg("there is no other live node; use --hop off"))
}

/// Where phases run.
#[derive(Clone, Copy, Debug)]
pub struct Places {
    home: NodeId,
    away: Option<NodeId>,
}

impl Places {
    /// Goes to that ISA, if one is given, which makes it the home; and, if phases are to hop, finds
    /// the node to hop to: of the other ISA if there is one, else another live one.
    ///
    /// # Errors
    ///
    /// If there is no such place.
    pub async fn settle(home: Option<Isa>, hop: bool) -> Result<Places> {
        if let Some(isa) = home {
            migrate(isa)
                .await
                .map_err(|e| Error::msg(format_args!("cannot make {isa} the home: {e}")))?;
        }
        let home = node();
        let away = match hop {
            true => Some(partner(home)?),
            false => None,
        };
        Ok(Places { home, away })
    }

    /// Where a phase runs, if those before it are so many.
    pub fn turn(&self, before: u32) -> NodeId {
        match self.away {
            Some(away) if before % 2 == 1 => away,
            _ => self.home,
        }
    }

    /// Goes to a node. Returns whether that was a migration.
    ///
    /// # Errors
    ///
    /// If the node has died.
    pub async fn go(node: NodeId) -> Result<bool> {
        if dyad::node() == node {
            return Ok(false);
        }
        migrate_to(node).await?;
        Ok(true)
    }

    /// Goes home. Returns whether that was a migration.
    ///
    /// # Errors
    ///
    /// If the node has died.
    pub async fn go_home(&self) -> Result<bool> {
        Places::go(self.home).await
    }

    /// Says where phases run.
    pub fn describe(&self) -> String {
        match self.away {
            Some(away) => format!(
                "Phases in turn on node {} ({}) and node {away}",
                self.home,
                isa()
            ),
            None => format!("Staying on node {} ({})", self.home, isa()),
        }
    }

    /// Prints the head of the output. At home.
    pub fn announce(&self, title: &Title<'_>, class: Class) {
        println!();
        println!(
            " NAS Parallel Benchmarks, Dyad version - {} Benchmark",
            title.name
        );
        println!();
        println!(" Size:  {}  (class {class})", title.size);
        println!(" Iterations:   {}", title.iterations);
        println!(" {}", self.describe());
        println!();
    }

    /// Runs a kernel to its end, and comes home.
    ///
    /// # Errors
    ///
    /// If a node has died.
    pub async fn drive(&self, kernel: &mut impl Kernel) -> Result<Ran> {
        let mut ran = Ran::default();
        while let Some(phase) = kernel.next() {
            let start = Instant::now();
            ran.hops += u32::from(Places::go(self.turn(ran.phases)).await?);
            advance(kernel, phase);
            ran.phases += 1;
            if phase.timed {
                ran.timed += start.elapsed();
            }
        }
        ran.hops += u32::from(self.go_home().await?);
        Ok(ran)
    }
}

/// A phase, in a window if it is timed. Nothing else is in the window.
#[inline(never)]
fn advance(kernel: &mut impl Kernel, phase: Phase) {
    match phase.timed {
        true => marker::window::<REGION, _>(|| kernel.advance(&mut || ())),
        false => kernel.advance(&mut || ()),
    }
}

/// What a run took.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ran {
    /// Time of the timed phases, and of the migrations before them.
    pub timed: Duration,
    /// Phases, timed or not.
    pub phases: u32,
    /// Migrations.
    pub hops: u32,
}

impl Ran {
    /// Prints the tail of the output, and reports the verification as a check.
    ///
    /// # Errors
    ///
    /// If the result is not the official one.
    pub fn conclude(&self, title: &Title<'_>, class: Class, kernel: &impl Kernel) -> Result<()> {
        let us = self.timed.as_micros().max(1);
        let verdict = kernel.verify();
        let line = |name: &str, value: &dyn Display| {
            println!(" {name:<16}= {:>24}", format!("{value}"));
        };
        println!();
        println!(" {} Benchmark Completed", title.name);
        line("Class", &class);
        line("Size", &title.size);
        line("Iterations", &title.iterations);
        let seconds = format!("{}.{:06}", us / 1_000_000, us % 1_000_000);
        line("Time in seconds", &seconds);
        line("Operation type", &"floating point");
        line("Phases", &self.phases);
        line("Migrations", &self.hops);
        line(
            "Verification",
            &if verdict.ok {
                "SUCCESSFUL"
            } else {
                "UNSUCCESSFUL"
            },
        );
        println!();
        let name = title.name.to_lowercase();
        report::counter(&format!("{name}.hops"), self.hops.into());
        let ok = report::check(&format!("{name}.verification"), verdict.ok, verdict.detail);
        println!(" Checksum of all results = {:016x}", kernel.checksum());
        match ok {
            true => Ok(()),
            false => Err(Error::msg("verification failed")),
        }
    }
}
