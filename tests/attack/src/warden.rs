//! Threads of the image: who they are, where they begin; and the warden's own life.

use core::fmt;
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::{Relaxed, Release};

use dyad_abi::cap::{ObjectKind, RegionKind};
use dyad_abi::record::{EXIT_BOOT, EXIT_FAILED, EXIT_OK};
use dyad_abi::service::{INFO_BASE, slot};
use dyad_abi::user::{PAGE_SIZE, ReportKind, stack_slot};
use dyad_abi::{CpuId, Error, Isa, NodeId, Result};
use dyad_services::first::{COMPONENT, HOME, SPACE, bundle, shut_down};
use dyad_services::rt::{self, Call};
use dyad_services::text::Text;
use dyad_sys::cap::{Cap, Thread, ThreadSetup};

use crate::build::{self, Frames};
use crate::cases::CASES;
use crate::image::Image;
use crate::run::{Outcome, Warden};
use crate::shared::{ATTACKER, SERVICE, VICTIM, report, state, word};
use crate::store::Store;
use crate::{me, sched, victim};

/// Frames for the stacks of workers on other nodes.
const WORKERS: u64 = 512;
/// Whether the first thread has begun.
static BEGUN: AtomicBool = AtomicBool::new(false);

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
    if BEGUN.swap(true, Relaxed) {
        check("attack.begins-once", false, format_args!("begins again"));
        shut_down(EXIT_FAILED)
    }
    match play() {
        Ok(true) => shut_down(EXIT_OK),
        Ok(false) => shut_down(EXIT_FAILED),
        Err((what, e)) => {
            check("attack.start", false, format_args!("{what}: {e}"));
            shut_down(EXIT_BOOT)
        }
    }
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

/// Writes a line to the console of the warden's node.
pub fn say(what: fmt::Arguments<'_>) {
    let text = Text::<320>::of(format_args!("{what}\n"));
    // There is nobody to tell that there is nobody to tell.
    let _ = rt::hardware(HOME).write(text.as_str());
}

fn check(name: &str, ok: bool, detail: fmt::Arguments<'_>) -> bool {
    let detail = Text::<250>::of(detail);
    let _ = rt::hardware(HOME).report(ReportKind::Check, ok.into(), name, detail.as_str());
    ok
}

/// What went wrong, and in which step.
type Done<T> = core::result::Result<T, (&'static str, Error)>;

fn during<T>(what: &'static str, result: Result<T>) -> Done<T> {
    result.map_err(|e| (what, e))
}

/// A worker for every CPU but the warden's.
fn workers(store: &mut Store, image: &Image) -> Result<()> {
    let (nodes, cpus) = (store.nodes as usize, store.cpus as usize);
    let last = (8 * nodes) as u32;
    for isa in Isa::ALL {
        let ((bottom, _), (_, top)) = (stack_slot(isa, 1), stack_slot(isa, last));
        match SPACE.add_region(bottom, top - bottom, RegionKind::Anonymous, true) {
            Ok(()) => {}
            Err(e) if nodes > 1 => return Err(e),
            Err(_) => {}
        }
    }
    for node in NodeId::first(nodes) {
        if node != HOME {
            SPACE.supply(node, store.keep_memory(node.index(), WORKERS)?)?;
        }
        for cpu in CpuId::first(cpus) {
            let n = node.index() * 8 + cpu.index();
            if n == 0 {
                continue;
            }
            let thread: Cap<Thread> = store.keep(ObjectKind::Thread)?;
            let setup = ThreadSetup {
                component: COMPONENT,
                entry: image.entry(),
                arg: INFO_BASE | n as u64,
                id: n as u32,
                ids: Cap::at(slot::THREAD_IDS),
                tag: 0,
                scheduler: None,
            };
            build::configure(thread, &setup)?;
            rt::hardware(node).start_cpu(cpu, thread)?;
        }
    }
    for line in sched::lines(nodes as u64, cpus as u64).skip(1) {
        while sched::turns(line) < 2 {
            sched::turn(0);
        }
    }
    Ok(())
}

/// The value of `--only`.
fn only() -> Option<&'static str> {
    let info = rt::info().ok()?;
    let len = (info.args_len as usize).min(info.args.len());
    let text = core::str::from_utf8(&info.args[..len]).ok()?;
    let mut words = text.split_whitespace();
    words.by_ref().find(|&w| w == "--only")?;
    words.next()
}

/// Builds everything, plays all attacks, and says what came out of each.
fn play() -> Done<bool> {
    let only = only();
    let mut store = during("taking stock", Store::new())?;
    let image = during("image", bundle().and_then(|b| Image::new(&mut store, b)))?;
    let victim = during("frames", Frames::new(&mut store))?;
    let attacker = during("frames", Frames::new(&mut store))?;
    during("workers", workers(&mut store, &image))?;
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
        if only.is_some_and(|name| name != case.name) {
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
        if matches!(outcome, Outcome::Broken { .. }) {
            break;
        }
    }
    say(format_args!(
        "attack: {} tables were gone through",
        build::CLEARED.load(Relaxed)
    ));
    Ok(good)
}
