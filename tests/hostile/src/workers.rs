//! Workers: root threads of all CPUs but the first one.

#![allow(unsafe_code)]

use dyad_abi::cap::{ObjectKind, RegionKind};
use dyad_abi::service::{scheduler_line, slot};
use dyad_abi::user::stack_slot;
use dyad_abi::{CpuId, NodeId, Result};
use dyad_services::first::{COMPONENT, HOME, SPACE, Store};
use dyad_services::image::isas_of;
use dyad_services::rt;
use dyad_sys::cap::{Cap, Thread, ThreadSetup};

/// Ids of workers are smaller.
const IDS: u32 = 64;

/// Starts a worker on every CPU but the first one. Its argument is that of its scheduler line. Each other node has
/// `supply` frames for what its workers touch.
///
/// # Errors
///
/// As the kernel says.
pub fn start(store: &mut Store, entry: u64, supply: u64, arg: fn(u64) -> u64) -> Result<()> {
    stacks(store)?;
    let (nodes, cpus) = (store.nodes as usize, store.cpus as usize);
    for node in NodeId::first(nodes) {
        if node != HOME {
            SPACE.supply(node, store.keep_memory(node.index(), supply)?)?;
        }
        for cpu in CpuId::first(cpus) {
            let line = scheduler_line(node, cpu);
            if line != 0 {
                let thread = store.keep(ObjectKind::Thread)?;
                begin(node, cpu, thread, (entry, arg(line)))?;
            }
        }
    }
    Ok(())
}

/// Declares the stacks of workers.
///
/// # Errors
///
/// As the kernel says.
pub fn stacks(store: &Store) -> Result<()> {
    for isa in isas_of(store.isas) {
        let ((bottom, _), (_, top)) = (stack_slot(isa, 1), stack_slot(isa, IDS));
        SPACE.add_region(bottom, top - bottom, RegionKind::Anonymous, true)?;
    }
    Ok(())
}

/// Makes a thread begin as the root of a CPU, at the entry of this program, with an argument.
///
/// # Errors
///
/// As the kernel says.
pub fn begin(
    node: NodeId,
    cpu: CpuId,
    thread: Cap<Thread>,
    (entry, arg): (u64, u64),
) -> Result<()> {
    let setup = ThreadSetup {
        component: COMPONENT,
        entry,
        arg,
        id: scheduler_line(node, cpu) as u32,
        layout: 0,
        ids: Cap::at(slot::THREAD_IDS),
        tag: 0,
        scheduler: None,
    };
    // SAFETY: 1. Callers pass the entry of this program. 2. Each line is the id of one thread.
    unsafe { thread.configure(&setup)? };
    rt::hardware(node).start_cpu(cpu, thread)
}
