//! Threads of all components: where they start, and what is said in the end.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use dyad_abi::cap::{CapType, authority};
use dyad_abi::{Error, Result};
use dyad_hostile::{Options, check, first, say};
use dyad_services::first::HOME;
use dyad_services::rt::{self, Call};
use dyad_services::text::Text;

use crate::attacker::{self, Play};
use crate::build::{self, Part, Settings, World};
use crate::plan::{Role, SIDES, TALLIES, badge, tally, word, word_of};
use crate::warden::{self, Finding, Judge, in_words};
use crate::{service, victim};

/// Fused time of a run without limits.
const DEFAULT_SECONDS: u64 = 10;
/// How long victims may take to end.
const END_NS: u64 = 20_000_000_000;
/// Operations after which every operation must have been tried.
const ENOUGH: u64 = 100_000;

dyad_services::entry!(start, invoked);

fn start(arg: u64) -> ! {
    match Role::of(arg) {
        Some((Role::Victim, n)) => victim::live(n),
        Some((Role::Attacker, n)) => attacker::live(n),
        Some((Role::Child, n)) => attacker::child(n),
        Some((Role::Helper, n)) => victim::help(n),
        Some((Role::Worker, n)) => loop {
            warden::turn(n as usize);
        },
        None => first("adversary", || {
            set_up().map(|(world, limits)| play(&world, &limits))
        }),
    }
}

fn invoked(call: Call) -> [u64; 4] {
    match call.badge & !0xffff {
        badge::OWN => attacker::invoked(call),
        badge::FAULT => attacker::faulted(call),
        _ => service::serve(call),
    }
}

/// When a run is over.
struct Limits {
    ops: Option<u64>,
    until: Option<u64>,
    rounds: u64,
    deaths: bool,
}

fn set_up() -> Result<(World, Limits)> {
    let info = rt::info()?;
    let options = Options::read()?;
    let ops = options.number("--ops")?;
    let rounds = options.number("--rounds")?.unwrap_or(0);
    let seconds = match (options.number("--seconds")?, ops, rounds) {
        (None, None, 0) => Some(DEFAULT_SECONDS),
        (seconds, ..) => seconds,
    };
    let settings = Settings {
        seed: options.number("--seed")?.unwrap_or(1),
        attackers: options.number("--attackers")?.unwrap_or(SIDES),
        rounds,
        without: options.number("--without")?.unwrap_or(0),
        note_time: options.has("--note-time"),
        nodes: info.system.node_count.into(),
        cpus: info.cpus,
    };
    let mut store = crate::build::store()?;
    let world = build::build(settings, &mut store)?;
    warden::start_workers(&world, &mut store)?;
    warden::begin_all(&world)?;
    let now = rt::hardware(HOME).now()?;
    let limits = Limits {
        ops,
        until: seconds.map(|s| now + s * 1_000_000_000),
        rounds,
        deaths: options.has("--deaths"),
    };
    // Tests of deaths kill a machine some time after these words.
    say(format_args!(
        "adversary: seed {}, {} nodes with {} CPUs each, {} attackers",
        settings.seed, settings.nodes, settings.cpus, settings.attackers
    ));
    Ok((world, limits))
}

/// Operations of an attacker.
fn operations_of(part: &Part) -> u64 {
    part.word(word::OPS).load(Relaxed)
}

fn attackers(world: &World) -> impl Iterator<Item = (usize, &Part)> {
    let all = world.attackers.iter().enumerate();
    all.filter_map(|(n, a)| Some((n, &a.as_ref()?.part)))
}

fn operations(world: &World) -> u64 {
    attackers(world).map(|(_, p)| operations_of(p)).sum()
}

/// Nodes on which the victim has a thread that must go on: all but those that have died.
fn living(world: &World, limits: &Limits) -> impl Iterator<Item = usize> {
    let (nodes, deaths) = (world.settings.nodes.min(SIDES) as usize, limits.deaths);
    (0..nodes).filter(move |&n| !deaths || warden::in_first_life(n))
}

fn is_over(world: &World, limits: &Limits) -> bool {
    let made = |n: usize| world.victim.word(word::made(n as u64)).load(Acquire);
    let late = limits
        .until
        .is_some_and(|end| rt::hardware(HOME).now().is_ok_and(|now| now >= end));
    let enough = limits.ops.is_some_and(|ops| operations(world) >= ops);
    let done = limits.rounds != 0 && living(world, limits).all(|n| made(n) >= limits.rounds);
    late || enough || done
}

fn play(world: &World, limits: &Limits) -> bool {
    let mut judge = Judge::new();
    let from = rt::hardware(HOME).now().unwrap_or(0);
    let mut finding = None;
    while finding.is_none() && !is_over(world, limits) {
        for _ in 0..4 {
            warden::turn(0);
        }
        finding = judge.look(world);
    }
    let ns = rt::hardware(HOME).now().unwrap_or(0) - from;
    warden::stop_attackers();
    let parts = [&world.services[0], &world.services[1], &world.victim];
    for part in parts.into_iter().chain(attackers(world).map(|(_, p)| p)) {
        part.word(word::DONE).store(1, Release);
    }
    let end = rt::hardware(HOME).now().unwrap_or(0) + END_NS;
    while finding.is_none()
        && !living(world, limits).all(warden::has_ended)
        && rt::hardware(HOME).now().is_ok_and(|now| now < end)
    {
        warden::turn(0);
        finding = judge.look(world);
    }
    let mut good = say_found(world, finding, ns);
    good &= check_victims(world, limits);
    say_counts(world, &judge, ns);
    good &= check_variety(world);
    let trace = |n| world.victim.word(word::trace(n)).load(Relaxed);
    check(
        "adversary.trace",
        true,
        format_args!("{:016x} {:016x}", trace(0), trace(1)),
    );
    good
}

fn say_found(world: &World, finding: Option<Finding>, ns: u64) -> bool {
    let seed = world.settings.seed;
    let ops = operations(world);
    let Some(finding) = finding else {
        return check(
            "adversary.nothing-found",
            true,
            format_args!("seed {seed}, {ops} operations"),
        );
    };
    for (n, part) in attackers(world) {
        say(format_args!(
            "attacker {n}: {} operations; the last ones:",
            operations_of(part)
        ));
        let last = operations_of(part) as usize;
        for i in last.saturating_sub(word::RING_CALLS)..last {
            let at = word::RING + i % word::RING_CALLS * word::CALL_WORDS;
            let [number, thread, call, a, b, c, d, e, status, value] =
                core::array::from_fn(|k| part.word(at + k).load(Relaxed));
            say(format_args!(
                "  {number} thread {thread}: {call:#x} [{a:#x}, {b:#x}, {c:#x}, {d:#x}, {e:#x}]: {status} {value:#x}"
            ));
        }
    }
    say(format_args!(
        "to repeat: the same nodes and CPUs, --bare --app adversary -- --seed {seed}"
    ));
    check(
        "adversary.nothing-found",
        false,
        format_args!(
            "{}: {finding:x?}; seed {seed}, after {ops} operations, {} ms",
            in_words(&finding),
            ns / 1_000_000
        ),
    )
}

fn check_victims(world: &World, limits: &Limits) -> bool {
    let (cut, latest) = warden::lateness();
    let mut good = cut == 0;
    let mut made = [0; SIDES as usize];
    let mut text = Text::<160>::of(format_args!(""));
    for n in living(world, limits) {
        made[n] = world.victim.word(word::made(n as u64)).load(Acquire);
        let (rightly, ran, charged) = Judge::is_charged_rightly(world, n);
        good &= rightly && made[n] > 0 && warden::has_ended(n);
        if !rightly {
            text = Text::of(format_args!(
                "; node {n} ran {ran} ns and was charged {charged}"
            ));
        }
    }
    check(
        "adversary.victims",
        good,
        format_args!(
            "{made:?} rounds, {cut} slices cut short, {:?} us at most between slices{}",
            latest.map(|ns| ns / 1000),
            text.as_str()
        ),
    )
}

fn say_counts(world: &World, judge: &Judge, ns: u64) {
    let ops = operations(world);
    say(format_args!(
        "{ops} operations in {} ms; attackers began anew {} times; services: {} calls of victims, {} of attackers",
        ns / 1_000_000,
        judge.restarts,
        world
            .services
            .iter()
            .map(|s| s.word(word::CALLS).load(Relaxed))
            .sum::<u64>(),
        world
            .services
            .iter()
            .map(|s| s.word(word::CALLS + 1).load(Relaxed))
            .sum::<u64>(),
    ));
    for code in 0..32 {
        let count: u64 = attackers(world)
            .map(|(_, p)| p.word(word::STATUSES + code).load(Relaxed))
            .sum();
        if count > 0 {
            let what = Error::from_code(code as u64).map_or("success", Error::text);
            say(format_args!("  {count:9} times {code:2} {what}"));
        }
    }
    for &play in Play::ALL.iter() {
        let count: u64 = attackers(world)
            .map(|(_, p)| p.word(word::PLAYS + play as usize).load(Relaxed))
            .sum();
        say(format_args!("  {count:9} times {play:?}"));
    }
}

/// Passes number and name of each operation of a type to `each`.
fn operations_of_type(ty: CapType, mut each: impl FnMut(u64, &'static str)) {
    authority::of(ty).for_each(|row| each(row.number.into(), row.name));
}

/// A run in which attackers do little shows little.
fn check_variety(world: &World) -> bool {
    let ops = operations(world);
    let count = |ty, op, at| -> u64 {
        let word = tally(ty, op) + at;
        let words = world
            .attackers
            .iter()
            .flatten()
            .map(|a| word_of(a.part.tally, word));
        words.map(|w| w.load(Relaxed)).sum()
    };
    let (mut all, mut succeeded, mut never) = (0, 0, None);
    for &ty in CapType::ALL {
        operations_of_type(ty, |op, name| {
            all += 1;
            succeeded += u64::from(count(ty, op, TALLIES) > 0);
            if count(ty, op, 0) == 0 {
                never = Some((ty, name));
            }
        });
    }
    check(
        "adversary.variety",
        never.is_none() || ops < ENOUGH,
        format_args!(
            "{ops} operations of {all} kinds, {succeeded} kinds succeeded; never tried: {never:?}"
        ),
    )
}
