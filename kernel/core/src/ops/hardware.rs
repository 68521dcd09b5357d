//! Operations on a node's hardware. All but reading the clock and node states act on the node the
//! caller runs on, and need the capability for just that one.

use dyad_abi::cap::{CapIndex, CapType, HardwareOp, SendOp};
use dyad_abi::user::{MAX_WRITE, Where};
use dyad_abi::{CpuId, Error, NodeId, Result};
use dyad_shm::frame::Epoch;

use crate::cx::{Cx, Operand};
use crate::object::find;
use crate::object::thread::Thread;
use crate::{Platform, clock, console, copy, dispatch, end, inbox, quiet};

/// Carries an operation on hardware out.
pub fn dispatch<P: Platform>(cx: &Cx, this: &Operand, op: HardwareOp, a: [u64; 5]) -> Result<u64> {
    let node = NodeId::new(this.payload[0]).ok_or(Error::Corrupt)?;
    // These are true everywhere.
    match op {
        HardwareOp::Now => return Ok(clock::now::<P>().0),
        HardwareOp::Where => {
            return Ok(Where {
                node: cx.node.id(),
                cpu: cx.cpu(),
                isa: P::ISA,
            }
            .pack());
        }
        HardwareOp::NodeState => {
            let of = NodeId::new(a[0])
                .filter(|n| n.index() < cx.node.params.node_count)
                .ok_or(Error::NoSuchNode)?;
            let word = cx.node.sb.node_word(of);
            return Ok((word.incarnation as u64) << 32 | word.state as u64);
        }
        HardwareOp::Quiesced => {
            let stamp = Epoch::new(a[0]).ok_or(Error::BadArgument)?;
            return Ok(cx.node.tables.quiesced(stamp) as u64);
        }
        HardwareOp::StartCpu => return start_cpu::<P>(cx, node, a),
        HardwareOp::Shutdown => {
            let code = u32::try_from(a[0]).map_err(|_| Error::BadArgument)?;
            end::shut_down::<P>(cx.node, code);
            return Ok(0);
        }
        _ => {}
    }
    if node != cx.node.id() && !lacks!("ops::hardware::dispatch::node") {
        return Err(Error::NotReady);
    }
    match op {
        HardwareOp::FlushStep => quiet::flush_step::<P>(cx, a[0]),
        HardwareOp::FlushTlb => {
            P::flush_tlb();
            Ok(0)
        }
        HardwareOp::AttachIrq => attach(cx, a),
        HardwareOp::Write => write::<P>(cx, a[0], a[1]),
        HardwareOp::Report => console::report::<P>(cx, a[0]),
        _ => Err(Error::BadSyscall),
    }
}

fn start_cpu<P: Platform>(cx: &Cx, node: NodeId, a: [u64; 5]) -> Result<u64> {
    let cpu = CpuId::new(a[0])
        .filter(|c| c.index() < cx.node.params.cpus)
        .ok_or(Error::BadArgument)?;
    let thread = CapIndex::new(a[1]).ok_or(Error::NoCap)?;
    let thread = cx.operand(
        thread,
        CapType::Thread,
        dyad_abi::cap::ThreadOp::Resume.right(),
    )?;
    let object = thread.object()?;
    let t: &'static Thread = find(cx.node, object, Thread::KIND)?;
    if node == cx.node.id() {
        dispatch::set_root::<P>(cx, cpu, t)?;
        return Ok(0);
    }
    let m = dyad_ring::Message([
        inbox::kind::ROOT,
        object.bits(),
        cpu.index() as u64,
        0,
        0,
        0,
        0,
        0,
    ]);
    let first = CpuId::first(1).next().ok_or(Error::Corrupt)?;
    inbox::send::<P>(node, first, &m)?;
    Ok(0)
}

/// Interrupts of this node become messages.
fn attach(cx: &Cx, a: [u64; 5]) -> Result<u64> {
    let slot = usize::try_from(a[0])
        .ok()
        .and_then(|n| cx.node.interrupts.get(n))
        .ok_or(Error::BadArgument)?;
    if a[1] == 0 {
        slot.lock().take();
        return Ok(0);
    }
    let send = CapIndex::new(a[1]).ok_or(Error::NoCap)?;
    let send = cx
        .operand(send, CapType::Send, SendOp::Send.right())?
        .unguarded()?;
    *slot.lock() = Some((send.object()?, send.payload[0], send.payload[1]));
    Ok(0)
}

/// Writes text of the caller to this node's console.
fn write<P: Platform>(cx: &Cx, at: u64, len: u64) -> Result<u64> {
    let n = (len as usize).min(MAX_WRITE);
    let mut text = [0; 256];
    let mut done = 0;
    while done < n {
        let part = (n - done).min(text.len());
        let from = at.checked_add(done as u64).ok_or(Error::BadAddress)?;
        copy::copy_in::<P>(cx, cx.space()?, from, &mut text[..part])?;
        console::user::<P>(&text[..part]);
        done += part;
    }
    Ok(n as u64)
}
