//! Floating-point registers of user mode, for real: no thread sees another's, or computes with
//! another's control word; and registers that no thread takes away stay.

use core::sync::atomic::Ordering;

use dyad_abi::cap::{
    CapIndex, CapType, HardwareOp, MAP_WRITE, ObjectKind, Rights, SinvOp, SpaceOp, TableAt,
    call_word,
};
use dyad_abi::user::PAGE_SIZE;
use dyad_shm::PhysAddr;

use super::rig::Rig;
use super::user_calls::{FP_TABLE, FpWords, for_real};
use super::user_real::{CODE, DATA, Probe, TABLE, install};
use super::{Outcome, Stop, ensure, gives, ktest};

/// First and last register, two words each, and the control word.
type Shown = [u64; 5];

fn shown(rig: &Rig<'_>, at: PhysAddr) -> Shown {
    let word = |i: u64| rig.cx.node.map.word(at.add(8 * i));
    core::array::from_fn(|i| word(i as u64).load(Ordering::Relaxed))
}

/// The two tables in the page at `data`: of who calls, and of who is entered.
struct Fp {
    own: PhysAddr,
    entered: PhysAddr,
}

impl Fp {
    fn new(probe: &Probe) -> Fp {
        Fp {
            own: probe.data.add(TABLE - DATA),
            entered: probe.data.add(FP_TABLE - DATA),
        }
    }

    fn set(rig: &Rig<'_>, table: PhysAddr, word: u64, value: u64) {
        let at = rig.cx.node.map.word(table.add(8 * word));
        at.store(value, Ordering::Relaxed);
    }

    /// Puts a call into a table.
    fn prepare(rig: &Rig<'_>, table: PhysAddr, call: &[u64], control: u64) {
        let numbers = rig.cx.machine.user_probe().call;
        for i in 0..32 {
            Fp::set(rig, table, i, 0);
        }
        for i in 0..16 {
            Fp::set(rig, table, FpWords::BEFORE + i, 0x77);
        }
        for (&n, &v) in numbers.iter().zip(call) {
            Fp::set(rig, table, n as u64, v);
        }
        Fp::set(rig, table, FpWords::CONTROL, control);
    }

    /// Runs the probe, which touches `address` and makes a call. What it showed before and after.
    fn run(&self, rig: &Rig<'_>, probe: &Probe, call: &[u64], address: u64) -> [Shown; 2] {
        let machine = rig.cx.machine;
        let control = machine.user_probe().fp_control[1];
        Fp::prepare(rig, self.own, call, control);
        Fp::set(rig, self.own, FpWords::ADDRESS, address);
        let area = probe.thread.regs(machine.isa());
        let entry = CODE + machine.user_probe().fp;
        machine.init_regs(area, entry, TABLE, DATA);
        for_real(|| machine.run_area(area));
        [FpWords::BEFORE, FpWords::AFTER].map(|word| shown(rig, self.own.add(8 * word)))
    }

    /// What showed in who was entered.
    fn seen(&self, rig: &Rig<'_>) -> Shown {
        shown(rig, self.entered.add(8 * FpWords::BEFORE))
    }
}

/// As at the start.
fn fresh(rig: &Rig<'_>) -> Shown {
    [0, 0, 0, 0, rig.cx.machine.user_probe().fp_control[0]]
}

/// As the probe leaves them.
fn spoilt(rig: &Rig<'_>) -> Shown {
    let ones = !0;
    let control = rig.cx.machine.user_probe().fp_control[1];
    [ones, ones, ones, ones, control]
}

/// A capability that invokes a component at the code that uses the registers.
fn entrance(rig: &Rig<'_>, component: dyad_shm::frame::WeakRef) -> Result<CapIndex, Stop> {
    let entry = CODE + rig.cx.machine.user_probe().fp_entered;
    Ok(rig.put(CapType::Sinv, Rights::ALL, Some(component), [entry, 0, 0])?)
}

#[ktest]
fn invocations_carry_no_floating_point_registers_either_way(rig: &Rig<'_>) -> Outcome {
    let probe = install(rig)?;
    let fp = Fp::new(&probe);
    let (callee, _, _) = rig.other_component()?;
    let sinv = entrance(rig, callee)?;
    let word = call_word(sinv, SinvOp::Invoke as u32);
    // The first way is the long one, the others are short.
    for time in 0..4u64 {
        Fp::prepare(
            rig,
            fp.entered,
            &[],
            rig.cx.machine.user_probe().fp_control[2],
        );
        let [before, after] = fp.run(rig, &probe, &[word, 1, 2, 3, 4], DATA);
        gives!((time, before), (time, fresh(rig)));
        gives!((time, fp.seen(rig)), (time, fresh(rig)));
        gives!((time, after), (time, fresh(rig)));
        gives!(probe.thread.depth.load(Ordering::Relaxed), 0);
    }
    Ok(None)
}

#[ktest]
fn floating_point_registers_stay_in_other_calls(rig: &Rig<'_>) -> Outcome {
    let probe = install(rig)?;
    let fp = Fp::new(&probe);
    let here = [rig.cx.node.id().index() as u64, 0, 0];
    let h = rig.put(CapType::Hardware, Rights::ALL, None, here)?;
    let word = call_word(h, HardwareOp::Now as u32);
    let [before, after] = fp.run(rig, &probe, &[word], DATA);
    gives!((before, after), (fresh(rig), spoilt(rig)));
    // They are the thread's, also when the CPU has run no other thread in between.
    rig.cx.machine.leave_space(&rig.k);
    rig.cx
        .machine
        .enter_component(&rig.k, rig.component.bits())?;
    let [before, after] = fp.run(rig, &probe, &[word], DATA);
    gives!((before, after), (spoilt(rig), spoilt(rig)));
    Ok(None)
}

/// The handler maps the page, and has other registers and another control word.
#[ktest]
fn fault_handlers_neither_see_nor_change_floating_point_registers(rig: &Rig<'_>) -> Outcome {
    let probe = install(rig)?;
    let fp = Fp::new(&probe);
    let isa = rig.cx.machine.isa();
    let sinv = entrance(rig, rig.component)?;
    let component = rig.cap(ObjectKind::Component, rig.component, Rights::ALL)?;
    let op = dyad_abi::cap::ComponentOp::SetFaultHandler as u32;
    rig.sys(component, op, &[sinv.get().into()])?;
    let space = rig.cap(ObjectKind::Space, rig.space, Rights::ALL)?;
    let here = [rig.cx.node.id().index() as u64, 0, 0];
    let h = rig.put(CapType::Hardware, Rights::ALL, None, here)?;
    for time in 0..3u64 {
        let va = DATA + (1 + time) * PAGE_SIZE;
        let page = rig.user()?;
        let frame = rig.put(CapType::Frame, Rights::ALL, Some(page), [0, 1, 0])?;
        let at = TableAt { isa, level: 1 };
        let map = call_word(space, SpaceOp::Map as u32);
        let map = [map, at.bits(), va, frame.get().into(), 0, MAP_WRITE];
        Fp::prepare(
            rig,
            fp.entered,
            &map,
            rig.cx.machine.user_probe().fp_control[2],
        );
        let now = call_word(h, HardwareOp::Now as u32);
        let [_, after] = fp.run(rig, &probe, &[now], va);
        gives!((time, fp.seen(rig)), (time, fresh(rig)));
        gives!((time, after), (time, spoilt(rig)));
        ensure!(
            super::spaces::look(&rig.k, rig.space, isa, va).is_some(),
            "the handler has not mapped the page"
        );
    }
    Ok(None)
}
