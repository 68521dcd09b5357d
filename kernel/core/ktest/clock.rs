//! The simulator's clock: histories that are the same in every run, and user mode that cannot look
//! past it.
//!
//! How long a test's beginning takes depends on the host: nodes spin until they have met. So these
//! tests begin at a moment of simulated time, into which the CPU is woken: from there on everything
//! they do is determined, and their remarks, which tests on the host compare, must be the same in all
//! runs. With the machine's own clock they can show nothing.

use core::sync::atomic::Ordering;

use dyad_abi::{CpuId, Isa};
use dyad_pgtbl::Perms;
use dyad_ring::Message;

use super::user_calls::at_fault;
use super::user_real::CODE;
use super::{Outcome, Stop, TestCtx, Text, ensure, ktest, remark, rig, spaces};
use dyad_machine::fused;
use dyad_machine::inbox::kind;
use dyad_object::tables;
use dyad_space::mapping::page;

/// Tests begin at multiples of this, in nanoseconds.
const GRID: u64 = 100_000_000;
const TICKS: u64 = 1000;
const HOUR: u64 = 3_600_000_000_000;
/// Doorbells of the test of those.
const RINGS: u64 = 400;

fn needed() -> Result<(), Stop> {
    match fused::is_on() {
        true => Ok(()),
        false => Err(Stop::Skipped(Text::new(format_args!(
            "only with the simulator's clock"
        )))),
    }
}

/// Passes time by `pass` until the timer has interrupted at a deadline.
fn until(cx: &TestCtx<'_>, deadline: u64, pass: &mut dyn FnMut()) {
    let (_, before, _) = cx.machine.interrupts();
    cx.machine.set_timer(Some(deadline));
    while cx.machine.interrupts().1 == before {
        pass();
    }
}

/// Sleeps into the next but one moment at which tests begin.
fn align(cx: &TestCtx<'_>) -> u64 {
    let start = (cx.machine.clock_ns() / GRID + 2) * GRID;
    until(cx, start, &mut || cx.machine.wait());
    start
}

/// A history: what has happened, and when since its beginning.
struct History(u64);

impl History {
    fn add(&mut self, what: u64) {
        self.0 = (self.0 ^ what).wrapping_mul(0x0000_0100_0000_01b3);
        self.0 ^= self.0 >> 29;
    }
}

fn history_of_ticks(cx: &TestCtx<'_>, ticks: u64, period: u64, pass: &mut dyn FnMut()) -> Outcome {
    needed()?;
    cx.machine.say("ticks begin");
    let start = align(cx);
    let (mut history, mut worst, mut now) = (History(0), 0, start);
    for n in 1..=ticks {
        let deadline = start + n * period;
        until(cx, deadline, pass);
        now = cx.machine.clock_ns();
        ensure!(now >= deadline, "tick {n} is {} ns early", deadline - now);
        worst = worst.max(now - deadline);
        history.add(now - start);
    }
    cx.machine.say("ticks end");
    remark!(
        "{ticks} ticks, history {:016x}, at most {worst} ns late, {} ns",
        history.0,
        now - start
    )
}

/// Everybody sleeps: time jumps.
#[ktest]
fn simulated_ticks_asleep(cx: &TestCtx<'_>) -> Outcome {
    history_of_ticks(cx, TICKS, 1_000_000, &mut || cx.machine.wait())
}

/// Likewise for longer, and before that for longer than anybody would wait: simulated time is not the
/// host's.
#[ktest]
fn simulated_ticks_asleep_for_long(cx: &TestCtx<'_>) -> Outcome {
    needed()?;
    let end = cx.machine.clock_ns() + HOUR;
    until(cx, end, &mut || cx.machine.wait());
    let late = cx.machine.clock_ns() - end;
    ensure!(late < 1_000, "{late} ns late after an hour");
    history_of_ticks(cx, 20 * TICKS, 1_000_000, &mut || cx.machine.wait())
}

/// Something to do that depends on nothing.
fn work(state: &mut u64) {
    for _ in 0..200 {
        *state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        core::hint::black_box(&state);
    }
}

fn ticks_at_work(cx: &TestCtx<'_>, ticks: u64, period: u64) -> Outcome {
    let mut state = 1;
    history_of_ticks(cx, ticks, period, &mut || {
        work(&mut state);
        cx.machine.poll();
    })
}

/// The interrupts come while the CPU works.
#[ktest]
fn simulated_ticks_at_work(cx: &TestCtx<'_>) -> Outcome {
    ticks_at_work(cx, TICKS, 100_000)
}

/// Likewise, as often as a kernel's own ticks. There are fewer: there is much work in between.
#[ktest]
fn simulated_ticks_at_work_for_long(cx: &TestCtx<'_>) -> Outcome {
    ticks_at_work(cx, TICKS / 10, 1_000_000)
}

/// Likewise, with little time in between, and while the CPU works on memory: where there are
/// caches, most of the time passes in accesses, and so deadlines are passed in the middle of blocks.
#[ktest]
fn simulated_ticks_at_work_on_memory(cx: &TestCtx<'_>) -> Outcome {
    let mut words = [1u64; 256];
    history_of_ticks(cx, TICKS, 10_000, &mut || {
        for i in 2..words.len() {
            words[i] = words[i - 1].wrapping_add(words[i - 2] ^ words[words.len() - i]);
            core::hint::black_box(&mut words);
        }
        cx.machine.poll();
    })
}

/// Node 0 rings node 1, which sleeps for the first half and works for the second. What is measured
/// is from before the message is written to after the interrupt has been taken.
#[ktest(pair)]
fn simulated_doorbells(cx: &TestCtx<'_>) -> Outcome {
    needed()?;
    let m = cx.machine;
    let here = cx.node.id().index();
    m.drain();
    cx.node.test_received[0].store(0, Ordering::Relaxed);
    cx.meet()?;
    // All begin at the same moment; it is far enough away for everybody to have met by then.
    let announced = cx.word(0);
    if here == 0 {
        announced.store((m.clock_ns() / GRID + 2) * GRID, Ordering::Release);
    }
    cx.meet()?;
    let start = announced.load(Ordering::Acquire);
    until(cx, start, &mut || m.wait());
    let (mut history, mut least, mut most) = (History(0), u64::MAX, 0);
    let mut state = here as u64;
    match here {
        0 => {
            let (Some(to), Some(cpu)) = (cx.node.all().nth(1), CpuId::new(0)) else {
                return Ok(None);
            };
            for n in 0..RINGS {
                until(cx, start + (n + 1) * 50_000, &mut || m.wait());
                work(&mut state);
                let now = m.clock_ns();
                cx.word(1).store(now, Ordering::Release);
                let message = Message([kind::TEST, 0, n, 0, 0, 0, 0, 0]);
                m.send(to, cpu, &message)?;
                history.add(now - start);
            }
        }
        1 => {
            let deadline = start + (RINGS + 20) * 50_000;
            m.set_timer(Some(deadline));
            for n in 0..RINGS {
                // Only who is not attentive is rung.
                let (before, timers, _) = m.interrupts();
                ensure!(m.prepare_sleep(), "message {n} came before its time");
                while m.interrupts().0 == before && m.interrupts().1 == timers {
                    if n < RINGS / 2 {
                        m.wait();
                    } else {
                        work(&mut state);
                        m.poll();
                    }
                }
                let now = m.clock_ns();
                m.attentive();
                m.drain();
                let got = cx.node.test_received[0].load(Ordering::Relaxed);
                ensure!(got == n + 1, "{got} messages after doorbell {n}");
                let way = now - cx.word(1).load(Ordering::Acquire);
                (least, most) = (least.min(way), most.max(way));
                history.add(now - start);
            }
        }
        _ => {}
    }
    m.set_timer(None);
    cx.meet()?;
    m.drain();
    match here {
        1 => remark!("history {:016x}, {least} to {most} ns", history.0),
        0 => remark!("history {:016x}", history.0),
        _ => Ok(None),
    }
}

/// Instructions by which programs could see the host's time, or wait for it, and what would fault if
/// one did not.
const X86: [(&str, &[u8]); 9] = [
    ("rdtsc", &[0x0f, 0x31]),
    ("rdtscp", &[0x0f, 0x01, 0xf9]),
    ("rdpmc", &[0x0f, 0x33]),
    ("rdrand", &[0x0f, 0xc7, 0xf0]),
    ("rdseed", &[0x0f, 0xc7, 0xf8]),
    ("hlt", &[0xf4]),
    ("in from the interval timer", &[0xe4, 0x40]),
    ("in from the real-time clock", &[0xe4, 0x71]),
    ("in from a port in a register", &[0xed]),
];
const X86_END: &[u8] = &[0x0f, 0x0b];
const ARM: [(&str, u32); 9] = [
    ("mrs cntvct_el0", 0xd53b_e040),
    ("mrs cntpct_el0", 0xd53b_e020),
    ("mrs cntvctss_el0", 0xd53b_e0c0),
    ("mrs cntpctss_el0", 0xd53b_e0a0),
    ("mrs cntfrq_el0", 0xd53b_e000),
    ("mrs cntv_tval_el0", 0xd53b_e300),
    ("mrs pmccntr_el0", 0xd53b_9d00),
    ("msr cntv_ctl_el0", 0xd51b_e320),
    ("wfi", 0xd503_207f),
];
const ARM_END: u32 = 0xd420_0020;

#[ktest]
fn user_mode_cannot_see_the_host_s_time(cx: &TestCtx<'_>) -> Outcome {
    let isa = cx.machine.isa();
    rig::with(cx, |rig| {
        spaces::furnish(rig, rig.space)?;
        let code = rig.user()?.frame.address();
        spaces::map(rig, rig.space, isa, CODE, page(code, Perms::EXECUTE))?;
        let thread = rig.as_thread(rig.thread)?;
        thread.started[isa.index()].store(1, Ordering::Relaxed);
        cx.machine.leave_space(&rig.k);
        cx.machine.enter_component(&rig.k, rig.component.bits())?;
        let faults_at = |bytes: &[u8]| -> Result<u64, Stop> {
            ensure!(cx.node.map.write_bytes(code, bytes), "no room");
            cx.machine.publish_here(code)?;
            let area = thread.regs(isa);
            // Nothing is put on the stack.
            cx.machine.init_regs(area, CODE, CODE + 0x800, 0);
            at_fault(|| cx.machine.run_area(area))
        };
        let mut buffer = [0; 16];
        let count = if isa == Isa::X86_64 {
            X86.len()
        } else {
            ARM.len()
        };
        for i in 0..count {
            let (name, len) = match isa {
                Isa::X86_64 => {
                    let (name, bytes) = X86[i];
                    buffer[..bytes.len()].copy_from_slice(bytes);
                    buffer[bytes.len()..][..X86_END.len()].copy_from_slice(X86_END);
                    (name, bytes.len() + X86_END.len())
                }
                Isa::Aarch64 => {
                    buffer[..4].copy_from_slice(&ARM[i].1.to_le_bytes());
                    buffer[4..8].copy_from_slice(&ARM_END.to_le_bytes());
                    (ARM[i].0, 8)
                }
            };
            let at = faults_at(&buffer[..len])?;
            ensure!(at == CODE, "{name} was executed: the fault is at {at:#x}");
        }
        // What is tested with does fault where it should: an instruction that may be executed.
        let harmless: &[u8] = match isa {
            Isa::X86_64 => &[0x90, 0x0f, 0x0b],
            Isa::Aarch64 => &[0x1f, 0x20, 0x03, 0xd5, 0x20, 0x00, 0x20, 0xd4],
        };
        let at = faults_at(harmless)?;
        ensure!(at > CODE, "a no-operation faults");
        remark!("{count} instructions")
    })
}

/// The clock's pages are the system's: no program is given their frames.
#[ktest]
fn pages_of_the_clock_are_nobody_s(cx: &TestCtx<'_>) -> Outcome {
    let usable = tables::Layout::of(&cx.node.params, dyad_shm::PoolId::Cxl).usable;
    let first = dyad_shm::superblock::CLOCK_OFFSET / dyad_abi::user::PAGE_SIZE;
    let pages = dyad_shm::clock::NODE_BYTES / dyad_abi::user::PAGE_SIZE;
    let end = first + pages * dyad_abi::ident::MAX_NODES as u64;
    ensure!(end <= usable.start, "{end} > {}", usable.start);
    Ok(None)
}
