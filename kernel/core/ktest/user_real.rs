//! User mode for real: code of the probe runs as the thread of a component, and its calls and
//! faults go through the whole kernel.
//!
//! The probe loads its registers from a table at its stack pointer, makes one call, and stores what
//! it finds afterwards ([`UserProbe`](super::UserProbe)). It cannot be invoked itself: invocations
//! start without a stack.

use core::sync::atomic::Ordering;

use dyad_abi::cap::{
    CapType, HardwareOp, Introspection, ObjectKind, RegionKind, Rights, call_word,
};
use dyad_abi::user::PAGE_SIZE;
use dyad_abi::{Error, Isa};
use dyad_pgtbl::Perms;
use dyad_shm::PhysAddr;

use super::rig::{self, Rig};
use super::user_calls::for_real;
use super::{Outcome, Stop, TestCtx, ensure, gives, ktest, spaces};
use dyad_object::component::Entry;
use dyad_object::thread::Thread;
use dyad_space::mapping::page;

pub(super) const CODE: u64 = 0x4100_0000;
pub(super) const DATA: u64 = 0x4200_0000;
pub(super) const TABLE: u64 = DATA + 0x400;
const FRESH: u64 = 0x5000_0000;
const OUT: u64 = 64;

/// The probe, mapped into the rig's space.
pub(super) struct Probe {
    /// Frame of its tables.
    pub(super) data: PhysAddr,
    pub(super) thread: &'static Thread,
}

pub(super) fn install(rig: &Rig<'_>) -> Result<Probe, Stop> {
    let (cx, isa) = (rig.cx, rig.cx.machine.isa());
    let probe = cx.machine.user_probe();
    spaces::furnish(rig, rig.space)?;
    let map = |va: u64, perms: Perms| -> Result<PhysAddr, Stop> {
        let pa = rig.user()?.frame.address();
        spaces::map(rig, rig.space, isa, va, page(pa, perms))?;
        Ok(pa)
    };
    let code = map(CODE, Perms::EXECUTE)?;
    let data = map(DATA, Perms::WRITE)?;
    ensure!(cx.node.map.write_bytes(code, probe.code), "no room");
    cx.machine.publish_here(code)?;
    let thread = rig.as_thread(rig.thread)?;
    thread.started[isa.index()].store(1, Ordering::Relaxed);
    thread.id.store(6, Ordering::Relaxed);
    // The rig only said that the CPU is in its space.
    cx.machine.leave_space(&rig.k);
    cx.machine.enter_component(&rig.k, rig.component.bits())?;
    Ok(Probe { data, thread })
}

impl Probe {
    /// Word `i` of a table in the page at `pa`.
    fn word(&self, rig: &Rig<'_>, pa: PhysAddr, i: u64) -> u64 {
        rig.cx.node.map.word(pa.add(8 * i)).load(Ordering::Relaxed)
    }

    /// Runs the probe with these words in the registers of a call.
    fn run(&self, rig: &Rig<'_>, call: &[u64], sp: u64) {
        let (cx, isa) = (rig.cx, rig.cx.machine.isa());
        let numbers = cx.machine.user_probe().call;
        let at = |i: u64| cx.node.map.word(self.data.add(0x400 + 8 * i));
        for i in 0..32 {
            at(i).store(0, Ordering::Relaxed);
        }
        for i in OUT..OUT + 34 {
            at(i).store(!0, Ordering::Relaxed);
        }
        for (&n, &v) in numbers.iter().zip(call) {
            at(n as u64).store(v, Ordering::Relaxed);
        }
        let area = self.thread.regs(isa);
        cx.machine.init_regs(area, CODE, sp, DATA);
        for_real(|| cx.machine.run_area(area));
    }

    /// Makes a call; status and value.
    fn call(&self, rig: &Rig<'_>, call: &[u64]) -> (u64, u64) {
        self.run(rig, call, TABLE);
        let [status, value, ..] = rig.cx.machine.user_probe().results;
        let out = |r: usize| self.word(rig, self.data, 0x80 + OUT + r as u64);
        (out(status), out(value))
    }
}

#[ktest]
fn user_code_makes_calls_and_gets_their_results(rig: &Rig<'_>) -> Outcome {
    let probe = install(rig)?;
    let here = [rig.cx.node.id().index() as u64, 0, 0];
    let h = rig.put(CapType::Hardware, Rights::ALL, None, here)?;
    let before = rig.cx.machine.fused_ns();
    let now = probe.call(rig, &[call_word(h, HardwareOp::Now as u32)]);
    ensure!(now.0 == 0 && now.1 >= before, "{now:x?} after {before:#x}");
    let told = probe.call(rig, &[call_word(h, 30)]);
    let kind = Introspection::from_bits(told.1).map(|i| i.kind);
    gives!((told.0, kind), (0, Some(CapType::Hardware)));
    // Five arguments arrive: a thread is configured with a scheduler.
    let (t, object) = rig.new_cap(ObjectKind::Thread)?;
    let c = rig.cap(ObjectKind::Component, rig.component, Rights::ALL)?;
    let (ends, endpoints) = rig.new_cap(ObjectKind::Endpoints)?;
    let word = call_word(t, dyad_abi::cap::ThreadOp::Configure as u32);
    let n = |c: dyad_abi::cap::CapIndex| c.get() as u64;
    let ids = n(rig.thread_ids()?) << 32;
    let is = probe.call(rig, &[word, n(c), CODE, 7, rig.id(1), n(ends) | ids]);
    gives!(is, (0, 0));
    let t = rig.as_thread(object)?;
    gives!(t.scheduler.load(Ordering::Relaxed), endpoints.bits());
    gives!(t.arg.load(Ordering::Relaxed), 7);
    Ok(None)
}

#[ktest]
fn user_code_is_refused_what_it_may_not(rig: &Rig<'_>) -> Outcome {
    let probe = install(rig)?;
    let object = rig.object(ObjectKind::Thread)?;
    let weak = rig.cap(ObjectKind::Thread, object, Rights(1 << 30))?;
    let empty = rig.free_slot();
    for (word, why) in [
        (call_word(empty, 3), Error::NoCap),
        (call_word(empty, 0), Error::NoCap),
        (call_word(weak, 3), Error::Denied),
        (call_word(weak, 0), Error::Denied),
        (call_word(weak, 77), Error::BadSyscall),
        (1 << 15 | 3 << 32, Error::NoCap),
        (u64::MAX, Error::NoCap),
        (0, Error::TooDeep),
    ] {
        let is = probe.call(rig, &[word, !0, !0, !0, !0, !0]);
        gives!((word, is), (word, (why.code(), 0)));
    }
    Ok(None)
}

#[ktest]
fn user_code_returns_four_words_to_its_caller(rig: &Rig<'_>) -> Outcome {
    let cx = rig.cx;
    let probe = install(rig)?;
    let (callee, _, _) = rig.other_component()?;
    let entered = CODE + cx.machine.user_probe().entered;
    let area = probe.thread.regs(cx.machine.isa());
    let results = cx.machine.user_probe().results;
    for time in 0..5 {
        // The caller shows its registers where it goes on, which is at its table.
        cx.machine.set_user_pc_sp(area, entered, DATA + 0x800);
        let to = Entry {
            component: callee,
            address: CODE,
            badge: 0,
        };
        cx.machine.enter(&rig.k, to, [0; 4])?;
        probe.run(rig, &[0, 5, 6, 7, 8 + time], TABLE);
        gives!(rig.k.local.component.get(), rig.component.bits());
        for (&r, want) in results.iter().zip([0, 5, 6, 7, 8 + time]) {
            let is = probe.word(rig, probe.data, 0x100 + OUT + r as u64);
            ensure!(is == want, "result {r} is {is:#x}, not {want:#x}");
        }
        gives!(probe.thread.depth.load(Ordering::Relaxed), 0);
    }
    Ok(None)
}

/// The table is in a page that has never been touched: the first load faults, the page comes, and it
/// is all zeros.
#[ktest]
fn user_code_gets_pages_of_anonymous_regions_when_it_touches_them(rig: &Rig<'_>) -> Outcome {
    let probe = install(rig)?;
    let kind = RegionKind::Anonymous as u64 | 1 << 8;
    spaces::region(&rig.k, rig.space, FRESH, 4 * PAGE_SIZE, kind)?;
    let isa = rig.cx.machine.isa();
    probe.run(rig, &[], FRESH + PAGE_SIZE + 0x400);
    for isa in rig.cx.node.isas() {
        let there = spaces::look(&rig.k, rig.space, isa, FRESH + PAGE_SIZE);
        ensure!(there.is_some(), "not in the table of {isa}");
    }
    let here = spaces::look(&rig.k, rig.space, isa, FRESH + PAGE_SIZE);
    let pa = here.ok_or(Error::NotFound)?.1.pa;
    let status = rig.cx.machine.user_probe().results[0] as u64;
    // Zeros are the end of an invocation, in which it is not.
    let is = probe.word(rig, pa, 0x80 + OUT + status);
    gives!(is, Error::TooDeep.code());
    Ok(None)
}

/// The page is in the other ISA's table only: it is shown here without a message.
#[ktest]
fn user_code_finds_pages_of_the_other_isas_table(cx: &TestCtx<'_>) -> Outcome {
    let isa = cx.machine.isa();
    let Some(other) = Isa::ALL.into_iter().find(|&i| i != isa) else {
        return Ok(None);
    };
    rig::with(cx, |rig| {
        let probe = install(rig)?;
        let kind = RegionKind::Shared as u64 | 1 << 8;
        spaces::region(&rig.k, rig.space, FRESH, 4 * PAGE_SIZE, kind)?;
        let pa = rig.user()?.frame.address();
        spaces::map(rig, rig.space, other, FRESH, page(pa, Perms::WRITE))?;
        ensure!(
            spaces::look(&rig.k, rig.space, isa, FRESH).is_none(),
            "it is here already"
        );
        let rung = cx.node.sb.cpu(cx.next(), rig.k.cpu());
        let rung = || rung.rung.load(Ordering::Relaxed);
        let before = rung();
        probe.run(rig, &[], FRESH + 0x400);
        let here = spaces::look(&rig.k, rig.space, isa, FRESH);
        gives!(here.map(|(_, leaf)| leaf.pa), Some(pa));
        let status = cx.machine.user_probe().results[0] as u64;
        let is = probe.word(rig, pa, 0x80 + OUT + status);
        gives!(is, Error::TooDeep.code());
        gives!(rung(), before);
        Ok(None)
    })
}
