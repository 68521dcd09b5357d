//! Threads of the image: who they are, where they begin; and the warden's own life.

use core::sync::atomic::Ordering::{Relaxed, Release};

use dyad_abi::service::INFO_BASE;
use dyad_abi::user::PAGE_SIZE;
use dyad_abi::{Error, Result};
use dyad_hostile::image::Image;
use dyad_hostile::{Broken, Options, check, during, first, say, workers};
use dyad_services::first::bundle;
use dyad_services::rt::Call;
use dyad_services::text::Text;

use crate::build::{self, Frames};
use crate::cases::CASES;
use crate::run::{Outcome, Warden};
use crate::shared::{ATTACKER, SERVICE, VICTIM, report, state, word};
use crate::store::Store;
use crate::{me, sched, victim};

/// Frames for the stacks of workers on other nodes.
const WORKERS: u64 = 512;
dyad_services::entry!(start, invoked);

/// Invocations of a component of this image: of the victim's service, or of an attacker's own.
fn invoked(call: Call) -> [u64; 4] {
    if call.badge & SERVICE != 0 {
        return victim::serve(call);
    }
    let case = report(word::NOTES - 1).load(Relaxed) as usize;
    match CASES.get(case) {
        Some(case) => (case.serve)(call),
        None => [Error::Corrupt.code(), 0, 0, 0],
    }
}

fn start(arg: u64) -> ! {
    if arg & VICTIM != 0 {
        victim::live()
    }
    if arg & ATTACKER != 0 {
        attack(arg)
    }
    let n = (arg % PAGE_SIZE) as usize;
    if n != 0 {
        loop {
            sched::turn(n);
        }
    }
    first("attack", play)
}

/// The life of a thread of an attacker.
fn attack(arg: u64) -> ! {
    let (case, n) = ((arg >> 8 & 0xffff) as usize, arg & 0xff);
    let Some(case) = CASES.get(case) else {
        me::done()
    };
    if n == 0 {
        report(word::STATE).store(state::AT_WORK, Release);
        (case.act)();
        me::done()
    }
    loop {
        (case.help)(n);
    }
}

/// Where threads of every component begin.
pub fn entry_address() -> u64 {
    report(word::NOTES - 2).load(Relaxed)
}

/// A worker for every CPU but the warden's.
fn start_workers(store: &mut Store, image: &Image) -> Result<()> {
    workers::start(store, image.entry(), WORKERS, |line| INFO_BASE | line)?;
    for line in sched::lines(store.nodes, store.cpus).skip(1) {
        while sched::turns(line) < 2 {
            sched::turn(0);
        }
    }
    Ok(())
}

/// Whether an attack is of the part that is asked for.
fn is_of_part(part: Option<&str>, name: &str) -> bool {
    let attack = attack_list::ATTACKS.iter().find(|a| a.name == name);
    match part {
        Some("quick") => attack.is_some_and(attack_list::Attack::is_quick),
        Some("rest") => attack.is_some_and(|a| !a.is_quick()),
        _ => true,
    }
}

/// Builds everything, plays all attacks, and says what came out of each.
fn play() -> core::result::Result<bool, Broken> {
    let options = during("options", Options::read())?;
    let (only, part) = (options.value("--only"), options.value("--part"));
    let mut store = during("taking stock", Store::new())?;
    let image = during("image", bundle().and_then(|b| Image::new(&mut store, b)))?;
    let victim = during("frames", Frames::new(&mut store))?;
    let attacker = during("frames", Frames::new(&mut store))?;
    during("workers", start_workers(&mut store, &image))?;
    say(format_args!(
        "attack: {} nodes with {} CPUs each, {} attacks",
        store.nodes,
        store.cpus,
        CASES.len()
    ));
    let mut warden = Warden {
        store,
        image,
        frames: [victim, attacker],
    };
    let mut good = true;
    for (n, case) in CASES.iter().enumerate() {
        if only.is_some_and(|name| name != case.name) || !is_of_part(part, case.name) {
            continue;
        }
        let outcome = warden.play(n, case);
        let name = Text::<64>::of(format_args!("attack.{}", case.name));
        good &= check(
            name.as_str(),
            matches!(outcome, Outcome::Held { .. }),
            format_args!("{outcome}"),
        );
        // What is left of it may be in the way of every other one.
        if matches!(outcome, Outcome::Broken(_)) {
            break;
        }
    }
    say(format_args!(
        "attack: {} tables were gone through",
        build::CLEARED.load(Relaxed)
    ));
    Ok(good)
}
