//! Crossing calls: functions that run on one ISA only, called from the other one.
//!
//! | scene | what it does |
//! |---|---|
//! | `all` | everything that a call can carry, recursion in both directions, tables of functions of both ISAs, services called from the other side; the same functions run here; heaps of each node; from both ISAs |
//! | `ping-pong` | so many calls, with canaries in registers, on both stacks and in the heap |
//! | `delays` | so many calls with random delays |
//! | `deep` | so many calls within each other; more than 256 end the program |
//! | `lost` | a call to a machine that dies: the caller is told |
//! | `lost-plain` | the same by a plain call: the program ends |
//! | `lost-nested` | the machine dies while what has been called there has called this one again |
#![no_std]
#![no_main]
#![deny(unsafe_code)]

extern crate alloc;

mod functions;

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::hint::black_box;

use dyad::crossing::{Policy, current_policy, policy, try_call};
use dyad::heap::HeapUse;
use dyad::prelude::task::*;
use dyad::{Isa, heap, report};

use functions::{Canaries, Step, aarch64, x86_64};

/// The functions of an ISA that takes part in a scene.
struct Side {
    null: extern "C" fn(),
    is_here: extern "C" fn() -> u32,
    always_here: extern "C" fn() -> u32,
    asks: extern "C" fn(extern "C" fn() -> u32) -> u32,
    six: extern "C" fn(u64, u32, i64, i32, usize, u64) -> i64,
    #[allow(clippy::type_complexity, reason = "it is what the function takes")]
    mixed: extern "C" fn(f64, u64, f64, f32, &f64, f64, f64, f64, f64, f64) -> f64,
    add: extern "C" fn(&mut [u64; 8], &u64) -> *const u64,
    ackermann: extern "C" fn(u64, u64, u64, &mut u64) -> u64,
    dive: extern "C" fn(u64, f64) -> f64,
    walk: extern "C" fn(&[Step; 6], u64) -> u64,
    services: extern "C" fn(u64) -> u64,
    grows: extern "C" fn(&mut Vec<u64>, u64) -> u64,
    frees: extern "C" fn(&mut Option<Vec<u64>>),
    delay: extern "C" fn(u64, u64) -> u64,
    stays: extern "C" fn(u64) -> u64,
}

macro_rules! side {
    ($isa:ident) => {
        Side {
            null: $isa::null,
            is_here: $isa::is_here,
            always_here: $isa::always_here,
            asks: $isa::asks,
            six: $isa::six,
            mixed: $isa::mixed,
            add: $isa::add,
            ackermann: $isa::ackermann,
            dive: $isa::dive,
            walk: $isa::walk,
            services: $isa::services,
            grows: $isa::grows,
            frees: $isa::frees,
            delay: $isa::delay,
            stays: $isa::stays,
        }
    };
}

/// Words of a page.
const PAGE_WORDS: usize = 512;

/// Functions of both ISAs and of none, in the order in which they are called.
const MIXED: [Step; 6] = [
    x86_64::step,
    aarch64::step,
    aarch64::step,
    x86_64::step,
    plain,
    aarch64::step,
];

static SIDES: [Side; 2] = [side!(x86_64), side!(aarch64)];

/// The functions of an ISA, by pointers that the compiler does not see through.
fn side(isa: Isa) -> &'static Side {
    black_box(&SIDES[isa.index()])
}

fn ackermann(m: u64, n: u64) -> u64 {
    match (m, n) {
        (0, n) => n + 1,
        (m, 0) => ackermann(m - 1, 1),
        (m, n) => ackermann(m - 1, ackermann(m, n - 1)),
    }
}

fn dive(depth: u64, x: f64) -> f64 {
    let below = match depth {
        0 => 0.0,
        _ => dive(depth - 1, x + 1.0),
    };
    x * 2.0 + (x + 0.25) + x / 3.0 + below
}

fn check(name: &str, ok: bool) {
    let isa = dyad::isa();
    report::check(&alloc::format!("crossing.{name}.{isa}"), ok, "");
}

/// Everything, from the ISA that this is called on.
fn everything() {
    let here = dyad::isa();
    let there = side(here.other());
    check("runs_there", (there.is_here)() == 1 && dyad::isa() == here);
    check("runs_here", (side(here).is_here)() == 1);
    let six = (there.six)(1, 2, -3, -4, 5, u64::MAX);
    check(
        "integers",
        six == (side(here).six)(1, 2, -3, -4, 5, u64::MAX),
    );
    let j = 0.125;
    let mixed = |s: &Side| (s.mixed)(1.5, 9, -2.25, 3.5, &j, 4.0, 5.0, 6.0, 7.0, 8.0);
    check(
        "floats",
        mixed(there).to_bits() == mixed(side(here)).to_bits(),
    );
    let mut on_stack = [1, 2, 3, 4, 5, 6, 7, 8];
    let mut on_heap = Box::new([8; 8]);
    let at = (there.add)(&mut on_stack, &10) == on_stack.as_ptr();
    (there.add)(&mut on_heap, &on_stack[7]);
    let added = on_stack == [11, 12, 13, 14, 15, 16, 17, 18] && *on_heap == [26; 8];
    check("references", at && added);
    let mut deepest = 0;
    let bounced = (there.ackermann)(2, 9, 1, &mut deepest);
    check("ackermann", bounced == ackermann(2, 9) && deepest >= 20);
    dyad::println!("ackermann(2, 9) = {bounced}, {deepest} deep");
    let deep = (there.dive)(63, 0.5);
    check("depth_64", deep.to_bits() == dive(63, 0.5).to_bits());
    let by_hand = MIXED.iter().fold(5, |n, f| black_box(f)(n));
    let (walked, at_home) = ((there.walk)(&MIXED, 5), (side(here).walk)(&MIXED, 5));
    check("tables", walked == by_hand && at_home == by_hand);
    check("services", (there.services)(10) == 46);
    let tried = try_call(there.delay, (3, 4));
    check(
        "try_call",
        tried == Ok(5) && try_call(there.null, ()) == Ok(()),
    );
    check("try_call_here", try_call(side(here).delay, (3, 4)) == Ok(5));
    policies(by_hand);
    check("heaps", heaps().unwrap_or(false));
}

/// Whether memory of each node is there, used and freed from here and from the other ISA.
fn heaps() -> Result<bool> {
    const WORDS: u64 = 1 << 15;
    let here = dyad::isa();
    let there = side(here.other());
    let general = dyad::heap_usage();
    let mut well = true;
    for node in dyad::system()?.nodes() {
        let on = heap::on(node.id)?;
        let is_there = |v: &Vec<u64>| {
            let mut pages = v.chunks(PAGE_WORDS);
            pages.all(|p| heap::node_of(&p[0]) == Some(node.id))
        };
        let mut words: Vec<u64> = on.vec(WORDS as usize);
        words.extend(0..WORDS);
        well &= is_there(&words);
        // It grows over there, and again here, and stays where it is.
        let sum = WORDS * (WORDS - 1) / 2;
        well &= (there.grows)(&mut words, WORDS) == 2 * sum && is_there(&words);
        well &= (side(here).grows)(&mut words, WORDS) == 3 * sum && is_there(&words);
        let mut words = Some(words);
        (there.frees)(&mut words);
        let mut table = on.boxed([node.id.index(); 600]);
        table[1] += 1;
        let at = [&table[0], &table[599]].map(heap::node_of);
        well &= at == [Some(node.id); 2] && table.node() == node.id;
        // Made by another thread, freed here.
        let made = dyad::thread::spawn_on(node.id, move || on.run(|| Box::new([7u64; 4096])))?;
        let made = made.join()?;
        well &= heap::node_of(&made[4095]) == Some(node.id);
        well &= on.usage().is_none_or(|u| u.allocated > 0);
    }
    let system = dyad::system()?;
    let mut left = system.nodes().map(|n| heap::on(n.id).ok()?.usage());
    let all_freed = left.all(|u| u.is_some_and(|u| u.allocated == 0));
    let as_before = |after: HeapUse| general.is_some_and(|g| g.mapped == after.mapped);
    Ok(well && all_freed && dyad::heap_usage().is_some_and(as_before))
}

/// What is called by each policy, from the ISA that this is called on. `walked` is what the table gives.
fn policies(walked: u64) {
    let here = dyad::isa();
    let (own, there) = (side(here), side(here.other()));
    let crossed = (there.six)(1, 2, -3, -4, 5, 6);
    let was = policy(Policy::Local);
    let runs_here = (there.is_here)() == 0 && (own.is_here)() == 1;
    check("local", was == Policy::Cross && runs_here);
    let j = 0.125;
    let mixed = |s: &Side| (s.mixed)(1.5, 9, -2.25, 3.5, &j, 4.0, 5.0, 6.0, 7.0, 8.0);
    let mut words = [1; 8];
    (there.add)(&mut words, &2);
    let same = (there.six)(1, 2, -3, -4, 5, 6) == crossed
        && mixed(there).to_bits() == mixed(own).to_bits()
        && words == [3; 8]
        && (there.dive)(63, 0.5).to_bits() == dive(63, 0.5).to_bits()
        && (there.walk)(&MIXED, 5) == walked
        && try_call(there.delay, (3, 4)) == Ok(5);
    check("local_results", same);
    // Over there the policy is the same, and another thread begins with it.
    let always = (there.always_here)() == 1 && (own.always_here)() == 1;
    check("always", always && (there.asks)(own.is_here) == 0);
    let is_here = there.is_here;
    let inherits = move || is_here() == 0 && current_policy() == Policy::Local;
    let inherited = dyad::thread::spawn(inherits).and_then(|t| t.join());
    check("local_thread", inherited.unwrap_or(false));
    let was = policy(Policy::Cross);
    let crosses = (there.is_here)() == 1 && (there.asks)(own.is_here) == 1;
    check("cross_again", was == Policy::Local && crosses);
}

/// Of no ISA in particular.
extern "C" fn plain(n: u64) -> u64 {
    n ^ 0x5555
}

/// A generator of numbers: xorshift.
fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// Calls, with canaries.
fn ping_pong(calls: u64) -> bool {
    let there = side(dyad::isa().other());
    let (canaries, on_heap) = (Canaries::new(calls), Box::new(Canaries::new(!calls)));
    let mut registers: [u64; 6] = core::array::from_fn(|i| black_box(i as u64 + 1));
    let mut count = 0;
    for i in 0..calls {
        count = (there.delay)(0, count);
        for (r, n) in registers.iter_mut().zip(1..) {
            *r = r.wrapping_mul(n).wrapping_add(i);
        }
    }
    let mut expected: [u64; 6] = core::array::from_fn(|i| i as u64 + 1);
    for i in 0..calls {
        for (r, n) in expected.iter_mut().zip(1..) {
            *r = r.wrapping_mul(n).wrapping_add(i);
        }
    }
    count == calls && registers == expected && canaries.live(calls) && on_heap.live(!calls)
}

fn delays(calls: u64, seed: u64) -> bool {
    let there = side(dyad::isa().other());
    let mut state = seed | 1;
    let mut count = 0;
    for _ in 0..calls {
        // Now and then longer than the other machine looks out for the thread.
        let turns = |state: &mut u64| match random(state) % 64 {
            0 => random(state) % 4096,
            n => n % 32,
        };
        count = (there.delay)(turns(&mut state), count);
        for _ in 0..turns(&mut state) {
            dyad::sys::raw::relax();
        }
    }
    count == calls
}

#[dyad::task]
async fn main(args: Args) -> Result<()> {
    args.expect_options(&["--scene", "--calls", "--seed"])?;
    let calls = |default| args.number("--calls", default, 1..=u64::MAX);
    // Also in scenes that need neither.
    let (_, seed) = (calls(1)?, args.number("--seed", 1, 0..=u64::MAX)?);
    let other = dyad::isa().other();
    if dyad::system()?.nearest(other, dyad::node()).is_none() {
        return Err(Error::msg(format_args!(
            "there is no node of {other}: calls need both ISAs"
        )));
    }
    let scene = args.value("--scene").unwrap_or("all");
    match scene {
        "all" => {
            everything();
            // From the other one, and with what `Migrate` has parked on both.
            dyad::task::migrate(dyad::isa().other()).await?;
            everything();
            dyad::task::migrate(dyad::isa().other()).await?;
            everything();
        }
        "ping-pong" => {
            let calls = calls(10_000)?;
            for _ in 0..2 {
                let start = dyad::sys::now()?;
                check("ping_pong", ping_pong(calls));
                let took = dyad::sys::now()? - start;
                dyad::println!(
                    "{calls} calls from {}: {} ns each",
                    dyad::isa(),
                    took / calls.max(1)
                );
                dyad::task::migrate(dyad::isa().other()).await?;
            }
        }
        "delays" => {
            let calls = calls(20_000)?;
            for _ in 0..2 {
                check("delays", delays(calls, seed));
                dyad::task::migrate(dyad::isa().other()).await?;
            }
        }
        "lost" => {
            let there = side(dyad::isa().other());
            let before = Canaries::new(3);
            let lost = try_call(there.stays, (u64::MAX,));
            check("lost", lost == Err(dyad::sys::Error::NodeDead));
            // There is nobody to call by now.
            let again = try_call(there.delay, (0, 1));
            check("lost_again", again == Err(dyad::sys::Error::NodeDead));
            check("goes_on", before.live(3));
        }
        "lost-nested" => {
            let leads_on = match dyad::isa() {
                Isa::X86_64 => aarch64::leads_on,
                Isa::Aarch64 => x86_64::leads_on,
            };
            // The machine in between dies while what it has called is here.
            let n = leads_on(3_000_000_000);
            dyad::println!("it came back with {n}");
        }
        "deep" => {
            let calls = calls(255)?;
            let sum = (side(dyad::isa().other()).dive)(calls, 1.0);
            dyad::println!("{calls} more calls within the first: {sum}");
        }
        "lost-plain" => {
            (side(dyad::isa().other()).stays)(u64::MAX);
        }
        _ => {
            return Err(Error::usage(format_args!(
                "--scene is all, ping-pong, delays, deep, lost, lost-nested or lost-plain, not {scene:?}"
            )));
        }
    }
    Ok(())
}
