//! Operations on threads, invocations, and faults.

#![allow(unsafe_code)]

use core::ptr::with_exposed_provenance_mut;
use core::sync::atomic::{AtomicU64, Ordering};

use dyad_abi::cap::{CapType, ObjectKind, RegionKind, Rights, SinvOp, Stopped, call_word};
use dyad_abi::emulation::Registers;
use dyad_abi::marker::WindowId;
use dyad_abi::record::EXIT_FAILED;
use dyad_abi::service::{INFO_BASE, slot};
use dyad_abi::user::stack_slot;
use dyad_abi::{Error, Isa, NodeId, Result};
use dyad_services::first::{add_invoke_stacks, bundle};
use dyad_services::rt;
use dyad_sys::cap::{Cap, Memory, Narrow, Sinv, Thread, ThreadSetup};

use crate::call::{expect, expect_one_of, invoke, touch};
use crate::stock::{COMPONENT, ENDPOINTS, HOME, SPACE, Stock, TABLE};
use crate::{deaths, operation, succeed};

/// What threads of this program do, by the low bits of their argument; 0 is the first thread.
pub const YIELDS: u64 = 1;
const FAULTS: u64 = 2;
const EXITS: u64 = 3;
const MIGRATES: u64 = 4;
const JUMPS: u64 = 5;
const LOADS: u64 = 6;
const ILLEGAL: u64 = 7;
const WORKS: u64 = 8;

/// Windows of what is no operation.
const FIRST_TOUCH: u16 = WindowId::of_operation(0, 1).0;
const UNHANDLED: u16 = WindowId::of_operation(0, 2).0;

/// The thread that runs here, for itself.
static SELF: AtomicU64 = AtomicU64::new(0);
/// Registers for `Unload` and `Load`.
static BUFFER: Buffer = Buffer(core::cell::UnsafeCell::new([0; 128]));
/// Where a large region begins.
const REGION: u64 = 0x2100_0000_0000;

struct Buffer(core::cell::UnsafeCell<[u64; 128]>);

// SAFETY: 1. The threads of this program run one at a time, on one CPU.
unsafe impl Sync for Buffer {}

const _: () = assert!(size_of::<Registers>() <= 128 * 8);

fn buffer() -> u64 {
    BUFFER.0.get().expose_provenance() as u64
}

fn this() -> Cap<Thread> {
    Cap::at(dyad_abi::cap::CapIndex(SELF.load(Ordering::Relaxed) as u32))
}

fn another() -> u64 {
    1
}

/// What a thread other than the first does.
pub fn live(what: u64) -> ! {
    if what == WORKS {
        deaths::work();
    }
    loop {
        if !rt::hardware(HOME)
            .node_state(HOME)
            .is_ok_and(|n| n.is_live())
        {
            // Nobody is left who stops this thread and ends the run.
            crate::service::shut_down(EXIT_FAILED);
        }
        match what {
            FAULTS => touch::<UNHANDLED>(with_exposed_provenance_mut(0x30_0000)),
            ILLEGAL => touch::<UNHANDLED>(with_exposed_provenance_mut(usize::MAX & !7)),
            EXITS => {
                let _ = operation!(Thread, ThreadOp::Exit, this(), 7);
            }
            MIGRATES => {
                let _ = operation!(Thread, ThreadOp::Migrate, this(), another());
            }
            JUMPS => {
                let here = HOME.index() as u64;
                let _ = operation!(
                    Thread,
                    ThreadOp::Jump,
                    this(),
                    here,
                    entry().unwrap_or(0),
                    stack_slot(isa(), JUMPS as u32).1,
                    0,
                    INFO_BASE | EXITS
                );
            }
            LOADS => {
                let _ = operation!(
                    Thread,
                    ThreadOp::Load,
                    this(),
                    buffer(),
                    HOME.index() as u64
                );
            }
            _ => {
                let _ = operation!(Thread, ThreadOp::Yield, this());
            }
        }
    }
}

/// The ISA that this runs on.
fn isa() -> Isa {
    rt::hardware(HOME)
        .where_am_i()
        .map_or(Isa::X86_64, |w| w.isa)
}

/// Where threads of this program start.
fn entry() -> Result<u64> {
    Ok(bundle()?.entry())
}

fn make(stock: &mut Stock, what: u64) -> Result<Cap<Thread>> {
    let thread: Cap<Thread> = stock.object(ObjectKind::Thread)?;
    begin(thread, what)?;
    Ok(thread)
}

/// The id of the next thread: each has its own.
static NEXT_ID: AtomicU64 = AtomicU64::new(1);
/// The last id that has stacks.
const LAST_ID: u32 = 255;

fn begin(thread: Cap<Thread>, what: u64) -> Result<()> {
    configure(thread, what, Some(ENDPOINTS))?;
    succeed!(Thread, ThreadOp::Resume, thread, 0);
    Ok(())
}

fn configure(
    thread: Cap<Thread>,
    what: u64,
    scheduler: Option<Cap<dyad_sys::cap::Receive>>,
) -> Result<()> {
    let setup = ThreadSetup {
        component: COMPONENT,
        entry: entry()?,
        arg: INFO_BASE | what,
        id: NEXT_ID.fetch_add(1, Ordering::Relaxed) as u32,
        layout: 0,
        ids: Cap::at(slot::THREAD_IDS),
        tag: 100,
        scheduler,
    };
    let endpoints = scheduler.map_or(0, |e| u64::from(e.index().get()));
    let args = [
        u64::from(setup.component.index().get()),
        setup.entry,
        setup.arg,
        u64::from(setup.id) | u64::from(setup.tag) << 32,
        endpoints | u64::from(setup.ids.index().get()) << 32,
    ];
    succeed!(
        Thread,
        ThreadOp::Configure,
        thread,
        args[0],
        args[1],
        args[2],
        args[3],
        args[4]
    );
    Ok(())
}

/// Runs a thread until it stops in one of these ways.
fn run_until(thread: Cap<Thread>, wanted: &[Stopped]) {
    SELF.store(thread.index().get().into(), Ordering::Relaxed);
    for _ in 0..64 {
        let r = operation!(
            Thread,
            ThreadOp::Dispatch,
            thread,
            10_000_000 | 9 << 56,
            slot::TIME.get().into()
        );
        let why = Stopped::from_number(r.value & 0xff);
        if r.status != 0 {
            expect("Thread.Dispatch", r.status);
            return;
        }
        match why {
            Some(Stopped::Preempted | Stopped::Interrupted) => {}
            Some(why) if wanted.contains(&why) => return,
            _ => return expect("a stop that was not expected", r.value & 0xff),
        }
    }
}

/// Stacks for threads, and memory for their pages on other nodes.
pub fn prepare(stock: &mut Stock, nodes: usize) -> Result<()> {
    for isa in Isa::ALL {
        let (bottom, _) = stack_slot(isa, 1);
        let (_, top) = stack_slot(isa, LAST_ID);
        SPACE.add_region(bottom, top - bottom, RegionKind::Anonymous, true)?;
    }
    add_invoke_stacks()?;
    for node in NodeId::first(nodes).filter(|&n| n != HOME) {
        let from: Cap<Memory> = Cap::at(slot::memory(node.index()));
        let place = stock.slot()?;
        let part = Narrow::range(from_first(node)?, 2048);
        let memory: Cap<Memory> = TABLE.copy_in(place.index(), from, Rights::ALL, None, part)?;
        SPACE.supply(node, memory)?;
    }
    Ok(())
}

/// Makes a thread that is ready on a node, and never runs.
pub fn make_ready(stock: &mut Stock, home: NodeId) -> Result<()> {
    let thread: Cap<Thread> = stock.object(ObjectKind::Thread)?;
    configure(thread, YIELDS, Some(ENDPOINTS))?;
    let place = 1 << 63 | home.index() as u64;
    succeed!(Thread, ThreadOp::Resume, thread, place);
    Ok(())
}

/// Makes a thread begin that does [`deaths::work`], without a scheduler.
pub fn begin_worker(thread: Cap<Thread>) -> Result<()> {
    configure(thread, WORKS, None)
}

/// Performs every operation on threads.
pub fn run(stock: &mut Stock, nodes: usize) -> Result<()> {
    prepare(stock, nodes)?;
    faults(stock)?;
    registers(stock)?;
    let thread = make(stock, EXITS)?;
    run_until(thread, &[Stopped::Exited]);
    let thread = make(stock, JUMPS)?;
    run_until(thread, &[Stopped::Exited, Stopped::Left]);
    let _ = operation!(Thread, ThreadOp::Deadline, thread);
    invocations(stock)?;
    let thread = make(stock, MIGRATES)?;
    run_until(thread, &[Stopped::Left]);
    Ok(())
}

/// The first untyped frame of a node's pool that has as many behind it.
fn from_first(node: NodeId) -> Result<u64> {
    let pool = dyad_services::pool::PoolMemory::of(node.index())?;
    Ok(dyad_services::frames::Account::new()
        .carve(&pool, 2048)?
        .first())
}

fn registers(stock: &mut Stock) -> Result<()> {
    let thread = make(stock, YIELDS)?;
    run_until(thread, &[Stopped::Yielded]);
    succeed!(Thread, ThreadOp::Stop, thread);
    let isa = rt::hardware(HOME).where_am_i()?.isa;
    succeed!(Thread, ThreadOp::ReadRegister, thread, isa as u64, 3);
    let value = succeed!(Thread, ThreadOp::ReadRegister, thread, isa as u64, 3);
    succeed!(
        Thread,
        ThreadOp::WriteRegister,
        thread,
        isa as u64,
        3,
        value
    );
    succeed!(Thread, ThreadOp::Unload, thread, isa as u64, buffer());
    succeed!(Thread, ThreadOp::Deadline, thread);
    succeed!(
        Thread,
        ThreadOp::Resume,
        thread,
        1 << 63 | HOME.index() as u64
    );
    run_until(thread, &[Stopped::Yielded]);
    // Another thread goes on with those registers: it yields.
    let loads = make(stock, LOADS)?;
    run_until(loads, &[Stopped::Yielded, Stopped::Left]);
    let started: Cap<Thread> = stock.object(ObjectKind::Thread)?;
    begin(started, YIELDS)?;
    succeed!(Thread, ThreadOp::Stop, started);
    succeed!(
        Hardware,
        HardwareOp::StartCpu,
        rt::hardware(NodeId::new(1).ok_or(Error::NoSuchNode)?),
        0,
        started.index().get().into()
    );
    Ok(())
}

fn invocations(stock: &mut Stock) -> Result<()> {
    let invoked = bundle()?.invoked().ok_or(Error::BadBundle)?;
    let place = stock.slot()?;
    // SAFETY: 1. The entry is that of this program.
    let sinv: Cap<Sinv> = unsafe { COMPONENT.make_sinv(place, invoked, 5, Rights::ALL)? };
    const INVOKE: u16 = WindowId::of_operation(CapType::Sinv as u32, SinvOp::Invoke as u32).0;
    for _ in 0..4 {
        let status = invoke::<INVOKE>(call_word(sinv.index(), SinvOp::Invoke as u32), [1, 2, 3, 4]);
        expect("Sinv.Invoke", status);
    }
    Ok(())
}

/// Faults that the kernel handles, and such as it reports.
fn faults(stock: &mut Stock) -> Result<()> {
    SPACE.add_region(REGION, 1 << 40, RegionKind::Anonymous, true)?;
    for n in 0..8 {
        touch::<FIRST_TOUCH>(with_exposed_provenance_mut((REGION + (n << 36)) as usize));
    }
    for n in 0..64 {
        let thread = make(stock, if n % 2 == 0 { FAULTS } else { ILLEGAL })?;
        run_until(thread, &[Stopped::Faulted]);
    }
    expect_one_of("faults", 0, &[0]);
    Ok(())
}
