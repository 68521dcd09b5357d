//! Commutes between two nodes for a while. If the other one dies while the task is at home, the task
//! stays there, and goes on commuting once the node has come back. It is lost if it is there when
//! the node dies.
//!
//! Memory that it is given on the other node is that node's: it must keep its contents when the node
//! has died, and the node's share of memory must go on being usable.
//!
//! | option | values | default |
//! |---|---|---|
//! | `--seconds` | how long it commutes | 2 |
//! | `--home` | number of the node that is home | where it starts |
//! | `--away` | number of the other node | one of the other ISA |
//! | `--lives` | how many lives of the other node it must have been to; it waits for the last | 1 |
#![no_std]
#![no_main]
#![deny(unsafe_code)]

use dyad::prelude::task::*;
use dyad::report;

/// Bytes written on each trip.
const LUGGAGE: usize = 64 << 10;
/// How much of it is kept, in trips.
const KEPT: usize = 16;
/// How long it works at home between two trips.
const AT_HOME: Duration = Duration::from_millis(1);
/// How often a node that has died is tried again.
const AGAIN: Duration = Duration::from_millis(10);
/// How long it waits for the last life of the node.
const PATIENCE: Duration = Duration::from_secs(30);

struct Options {
    length: Duration,
    home: NodeId,
    away: NodeId,
    lives: u32,
}

fn number(args: &Args, name: &str) -> Result<Option<u64>> {
    let Some(text) = args.value(name) else {
        return Ok(None);
    };
    text.parse()
        .map(Some)
        .map_err(|_| Error::usage(format_args!("{name} takes a number, not {text:?}")))
}

impl Options {
    fn read(args: &Args) -> Result<Options> {
        args.expect_options(&["--seconds", "--home", "--away", "--lives"])?;
        let system = dyad::system()?;
        let node = |name| match number(args, name)? {
            None => Ok(None),
            Some(n) => NodeId::new(n)
                .filter(|&n| system.node(n).is_some())
                .map(Some)
                .ok_or_else(|| {
                    let last = system.nodes().count() - 1;
                    Error::usage(format_args!("{name}: there are nodes 0 to {last}, not {n}"))
                }),
        };
        let home = node("--home")?.unwrap_or(dyad::node());
        let partner = system
            .nodes()
            .filter(|n| n.id != home)
            .max_by_key(|n| n.isa != isa())
            .map(|n| n.id);
        let away = node("--away")?
            .or(partner)
            .ok_or_else(|| Error::msg("there is no other node to go to"))?;
        Ok(Options {
            length: Duration::from_secs(number(args, "--seconds")?.unwrap_or(2)),
            home,
            away,
            lives: number(args, "--lives")?.unwrap_or(1) as u32,
        })
    }
}

/// What has been written on a trip.
struct Luggage {
    trip: u64,
    words: Vec<u64>,
}

impl Luggage {
    fn pack(trip: u64) -> Luggage {
        let words = (0..LUGGAGE as u64 / 8)
            .map(|i| dyad_random::mix(trip) ^ i)
            .collect();
        Luggage { trip, words }
    }

    fn is_whole(&self) -> bool {
        self.words == Luggage::pack(self.trip).words
    }
}

/// What has happened.
#[derive(Default)]
struct Diary {
    trips: u64,
    refused: u64,
    /// The life of the other node that it was last in.
    life: u32,
    kept: Vec<Luggage>,
    damaged: u64,
    wrong: Option<dyad::sys::Error>,
}

impl Diary {
    fn unpack(&mut self, all: bool) {
        let leave = if all { 0 } else { KEPT };
        while self.kept.len() > leave {
            let first = self.kept.remove(0);
            self.damaged += u64::from(!first.is_whole());
        }
    }

    async fn trip(&mut self, home: NodeId, away: NodeId) -> Result<()> {
        if let Err(e) = migrate_to(away).await {
            if e != dyad::sys::Error::NodeDead {
                self.wrong = self.wrong.or(Some(e));
            }
            self.refused += 1;
            sleep(AGAIN).await;
            return Ok(());
        }
        self.kept.push(Luggage::pack(self.trips));
        let life = dyad::system()?.node(away).map_or(0, |n| n.incarnation);
        migrate_to(home).await?;
        if life != self.life {
            println!("trip {}: to life {life} of node {away}", self.trips);
            self.life = life;
        }
        self.trips += 1;
        self.unpack(false);
        Ok(())
    }
}

#[dyad::task]
async fn main(args: Args) -> Result<()> {
    let Options {
        length,
        home,
        away,
        lives,
    } = Options::read(&args)?;
    migrate_to(home).await?;
    println!("commuting between node {home} and node {away}");
    let start = Instant::now();
    let mut diary = Diary::default();
    loop {
        let passed = start.elapsed();
        if passed > length && (diary.life >= lives || passed > length + PATIENCE) {
            break;
        }
        diary.trip(home, away).await?;
        let work = Instant::now();
        while work.elapsed() < AT_HOME {
            core::hint::spin_loop();
        }
    }
    diary.unpack(true);
    let trips = diary.trips;
    let good = [
        report::check(
            "node-deaths.memory",
            diary.damaged == 0,
            format_args!("{} of {trips} pieces of luggage are damaged", diary.damaged),
        ),
        report::check(
            "node-deaths.errors",
            diary.wrong.is_none(),
            match diary.wrong {
                None => format!("{} trips refused because the node was dead", diary.refused),
                Some(e) => format!("a trip was refused: {e}"),
            },
        ),
        report::check(
            "node-deaths.lives",
            diary.life >= lives,
            format_args!(
                "{trips} trips, the last one to life {} of {lives}",
                diary.life
            ),
        ),
    ];
    match good.iter().all(|&g| g) {
        true => Ok(()),
        false => Err(Error::msg("a check failed")),
    }
}
