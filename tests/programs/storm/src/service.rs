//! Threads of the program: where they start, what they do, and what is said in the end.

use core::sync::atomic::Ordering;

use dyad_abi::Error;
use dyad_abi::cap::{CapType, Stopped};
use dyad_abi::record::EXIT_FAILED;
use dyad_abi::user::PAGE_SIZE;
use dyad_abi::{NodeId, Result};
use dyad_hostile::{Options, check, first, say};
use dyad_services::first::shut_down;
use dyad_services::rt;
use dyad_services::text::Text;

use crate::actor::{self, GUESTS, actor, operations};
use crate::calls::{LINES, STATUSES, WRONG};
use crate::setup::{GUEST, HOME};
use crate::takedown::{Left, take_down};
use crate::world::WORLD;
use crate::{deaths, guests, hostile, setup, wild};

/// Fused time of a storm without limits.
const DEFAULT_SECONDS: u64 = 10;
/// How long the others may take to stop.
const STOP_NS: u64 = 10_000_000_000;

dyad_services::entry!(start, crate::guests::invoked);

fn start(arg: u64) -> ! {
    let n = (arg % PAGE_SIZE) as usize;
    if arg & GUEST != 0 && hostile::is_on() {
        hostile::live(n % GUEST as usize % GUESTS)
    }
    if arg & GUEST != 0 {
        guests::live(n % GUEST as usize % GUESTS)
    }
    if n != 0 {
        if hostile::is_on() {
            scenery(n)
        }
        worker(n);
        drive_rounds(n)
    }
    first("storm", || {
        begin()?;
        if hostile::is_on() {
            return Ok::<_, Error>(scenes());
        }
        worker(0);
        Ok(end())
    })
}

fn begin() -> Result<()> {
    let (info, options) = (rt::info()?, Options::read()?);
    let seed = options.number("--seed")?.unwrap_or(1);
    let ops = options.number("--ops")?;
    let seconds = match (options.number("--seconds")?, ops) {
        (None, None) => Some(DEFAULT_SECONDS),
        (seconds, _) => seconds,
    };
    actor::sow(seed);
    WORLD.limit.store(ops.unwrap_or(0), Ordering::Relaxed);
    let now = rt::hardware(HOME).now()?;
    let deadline = seconds.map_or(0, |s| now + s * 1_000_000_000);
    WORLD.deadline.store(deadline, Ordering::Relaxed);
    if options.has("--hostile") {
        hostile::turn_on();
    }
    if options.has("--deaths") {
        deaths::expect();
    }
    setup::build(info)?;
    // Tests of deaths kill a machine some time after these words: only now does anything else happen
    // than in every program that starts.
    say(format_args!(
        "storm: seed {seed}, {} nodes with {} CPUs each, {} guests",
        info.system.node_count, info.cpus, GUESTS
    ));
    Ok(())
}

/// What other workers do in scenes.
fn scenery(n: usize) -> ! {
    let hardware = own_hardware(n);
    loop {
        hostile::turns(n);
        let _ = hardware.flush_step(16);
    }
}

/// Plays all scenes and says what came out.
fn scenes() -> bool {
    if let Err(e) = hostile::prepare() {
        return check("hostile.start", false, format_args!("{e}"));
    }
    let mut good = true;
    hostile::play(|o| {
        let name = Text::<64>::of(format_args!("hostile.{}.node{}", o.attack.name(), o.node));
        good &= check(
            name.as_str(),
            o.is_good(),
            format_args!(
                "{} % of its fair share: {} instead of {}; {} blows",
                o.share(),
                o.attacked,
                o.fair,
                o.blows
            ),
        );
    });
    say_wrong();
    let wrong = WRONG.load(Ordering::Relaxed);
    good & check(
        "hostile.statuses",
        wrong == 0,
        format_args!("{wrong} wrong"),
    )
}

/// The hardware of this CPU's node.
fn own_hardware(n: usize) -> dyad_sys::cap::Cap<dyad_sys::cap::Hardware> {
    rt::hardware(NodeId::new(n as u64 / 8).unwrap_or(HOME))
}

fn worker(n: usize) {
    let a = actor(n);
    let hardware = own_hardware(n);
    while !WORLD.is_done() {
        for _ in 0..64 {
            wild::step(a);
        }
        guests::run(n);
        if a.rarely(4) {
            guests::renew(a, a.below(GUESTS as u64) as usize);
        }
        // Another CPU of the node may be at it. As much as one call may do: without coherence an entry of a log costs
        // several steps, and what is freed is used again only as fast as rounds go.
        let _ = hardware.flush_step(80);
        if n == 0 {
            look_at_limits();
            deaths::look();
        } else if !deaths::lives(HOME) {
            // Nobody is left who looks at the limits, takes down and ends the run.
            shut_down(EXIT_FAILED);
        }
    }
    WORLD.stopped.fetch_or(1 << n, Ordering::Release);
}

fn look_at_limits() {
    let (limit, deadline) = (&WORLD.limit, &WORLD.deadline);
    let (limit, deadline) = (
        limit.load(Ordering::Relaxed),
        deadline.load(Ordering::Relaxed),
    );
    let late = deadline != 0 && rt::hardware(HOME).now().is_ok_and(|now| now >= deadline);
    if late || (limit != 0 && operations() >= limit) {
        WORLD.done.store(1, Ordering::Release);
    }
}

/// What a worker does after the storm, until the system ends.
fn drive_rounds(n: usize) -> ! {
    let hardware = own_hardware(n);
    loop {
        let _ = hardware.flush_step(64);
        if !deaths::lives(HOME) {
            shut_down(EXIT_FAILED);
        }
        // Guests on their way to the end of what they do.
        guests::run(n);
        for _ in 0..100 {
            dyad_sys::raw::relax();
        }
    }
}

/// Waits until all workers have stopped. Does not return if one does not.
fn all_stopped() -> bool {
    let hardware = rt::hardware(HOME);
    let end = hardware.now().unwrap_or(0) + STOP_NS;
    loop {
        guests::run(0);
        let _ = hardware.flush_step(64);
        deaths::look();
        let all = deaths::alive();
        if WORLD.stopped.load(Ordering::Acquire) & all == all {
            return true;
        }
        if hardware.now().is_ok_and(|now| now > end) {
            let left = all & !WORLD.stopped.load(Ordering::Acquire);
            for n in (0..64).filter(|n| left & 1 << n != 0) {
                let call: [u64; 6] =
                    core::array::from_fn(|i| actor(n).call[i].load(Ordering::Relaxed));
                say(format_args!(
                    "  worker {n} has not stopped: last call {call:x?}"
                ));
            }
            // At its time limit the launcher has all nodes say what they are doing.
            loop {
                let _ = hardware.flush_step(64);
            }
        }
    }
}

/// Takes everything down and says what came out.
fn end() -> bool {
    let mut good = check(
        "storm.all-nodes-alive",
        all_stopped(),
        format_args!("workers {:#x}", WORLD.stopped.load(Ordering::Relaxed)),
    );
    say_statuses();
    let wrong = WRONG.load(Ordering::Relaxed);
    say_wrong();
    good &= check(
        "storm.statuses",
        wrong == 0,
        format_args!("{wrong} of {} results are not plausible", operations()),
    );
    let left = take_down();
    good &= check_left(&left);
    good &= check_variety();
    good
}

fn say_statuses() {
    for (code, count) in STATUSES.iter().enumerate() {
        let count = count.load(Ordering::Relaxed);
        if count > 0 {
            let what = Error::from_code(code as u64).map_or("success", Error::text);
            say(format_args!("  {count:9} times {code:2} {what}"));
        }
    }
    for &why in Stopped::ALL {
        let count = guests::STOPS[why as usize].load(Ordering::Relaxed);
        say(format_args!("  {count:9} times a guest {}", why.name()));
    }
}

fn say_wrong() {
    for line in &LINES {
        let [ty, word, args @ .., status, value] =
            core::array::from_fn::<u64, 9, _>(|i| line[i].load(Ordering::Relaxed));
        if ty == 0 {
            continue;
        }
        let name = CapType::from_number(ty).map_or("?", CapType::name);
        say(format_args!(
            "  wrong: {name} {word:#x} {args:x?}: status {status} value {value:#x}"
        ));
    }
}

fn check_left(left: &Left) -> bool {
    if let Some((what, e)) = left.trouble {
        say(format_args!("  taking down: {what}: {e}"));
    }
    for [pool, n, word, status] in left.stuck.iter().filter(|s| s[2] != 0) {
        say(format_args!(
            "  stuck: frame {n} of pool {pool}: {word:#018x}, status {status}"
        ));
    }
    let returned = check(
        "storm.returned",
        left.untyped == left.frames && left.trouble.is_none(),
        format_args!(
            "{} of {} frames are untyped again",
            left.untyped, left.frames
        ),
    );
    let again = check(
        "storm.usable-again",
        left.reused == left.untyped && (returned || deaths::are_expected()),
        format_args!("{} of {} frames, zero-filled", left.reused, left.frames),
    );
    if deaths::are_expected() {
        let again = deaths::AGAIN.load(Ordering::Relaxed);
        say(format_args!(
            "  workers of a node have begun again {again} times"
        ));
    }
    returned && again
}

/// A storm in which nothing happens shows nothing.
fn check_variety() -> bool {
    let count = |c: &core::sync::atomic::AtomicU64| c.load(Ordering::Relaxed);
    let [good, all] = [count(&STATUSES[0]), operations()];
    let (invoked, faults, made) = (
        count(&guests::INVOKED),
        count(&guests::FAULTS),
        count(&guests::MADE),
    );
    let migrated = count(&guests::STOPS[Stopped::Left as usize]);
    // A machine that has died early has not done much.
    let least = if deaths::are_expected() { 0 } else { 10 };
    let enough = good > all / 20 && [invoked, faults, made, migrated].iter().all(|&n| n > least);
    check(
        "storm.variety",
        enough,
        format_args!(
            "{all} operations, {good} succeeded; {made} guests made, {migrated} times one left, \
             {invoked} invocations, {faults} faults"
        ),
    )
}
