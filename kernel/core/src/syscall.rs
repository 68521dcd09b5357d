//! System calls: decoding and the calls themselves. Semantics are in [`dyad_abi::syscall`].

use core::fmt;
use core::sync::atomic::Ordering;

use dyad_abi::syscall::Syscall;
use dyad_abi::user::{
    MAX_REPORT_DETAIL, MAX_REPORT_NAME, MAX_WRITE, NodeInfo, ReportArgs, ReportKind, SysInfo,
    TRANSLATE_EXEC, TRANSLATE_PA, TRANSLATE_WRITE, Where,
};
use dyad_abi::{ABI_VERSION, Error, Isa, NodeId, Result};
use dyad_pgtbl::Perms;
use dyad_shm::PoolId;
use dyad_shm::superblock::NodeState;

use crate::clock::{self, FusedTime};
use crate::cpu::CpuLocal;
use crate::node::Node;
use crate::platform::RegArea;
use crate::space::Space;
use crate::thread::ThreadFrame;
use crate::user_copy::{copy_in, copy_out};
use crate::{Platform, console, end, migrate, sched};

/// Carries a system call out and sets its result. Calls that end the thread or move it away do
/// not set one.
pub fn dispatch<P: Platform>(
    node: &'static Node,
    local: &'static CpuLocal,
    thread: &'static ThreadFrame,
    area: &'static RegArea,
    number: u64,
    a: [u64; 5],
) {
    let Some(call) = Syscall::from_number(number) else {
        P::set_result(area, Error::BadSyscall.code(), 0);
        return;
    };
    let result = match call {
        Syscall::Exit => {
            end::program_exited::<P>(node, thread, a[0]);
            return;
        }
        Syscall::Migrate => match node_id(a[0]) {
            Ok(to) if to == node.id() => Ok(to.index() as u64),
            Ok(to) => match migrate::away::<P>(node, thread, to) {
                // Gone: its registers are no longer ours to write.
                Ok(()) => return,
                Err(e) => Err(e),
            },
            Err(e) => Err(e),
        },
        Syscall::Yield => {
            P::set_result(area, 0, 0);
            sched::yield_current::<P>(node, local);
            return;
        }
        Syscall::SleepUntil => {
            P::set_result(area, 0, 0);
            if clock::now::<P>().0 < a[0] {
                sched::sleep_current::<P>(node, local, FusedTime(a[0]));
            }
            return;
        }
        Syscall::Null => Ok(0),
        Syscall::Now => Ok(clock::now::<P>().0),
        Syscall::Where => Ok(Where {
            node: node.id(),
            cpu: local.id(),
            isa: P::ISA,
        }
        .pack()),
        Syscall::Write
        | Syscall::MapAnon
        | Syscall::Unmap
        | Syscall::SysInfo
        | Syscall::Args
        | Syscall::Report
        | Syscall::Translate => Space::find(node, thread.space.load(Ordering::Relaxed))
            .and_then(|space| in_space::<P>(node, &space, call, a)),
    };
    match result {
        Ok(value) => P::set_result(area, 0, value),
        Err(e) => P::set_result(area, e.code(), 0),
    }
}

fn node_id(n: u64) -> Result<NodeId> {
    NodeId::new(n).ok_or(Error::NoSuchNode)
}

/// The calls that work on the caller's address space.
fn in_space<P: Platform>(
    node: &'static Node,
    space: &Space<'_>,
    call: Syscall,
    a: [u64; 5],
) -> Result<u64> {
    match call {
        Syscall::Write => {
            let n = (a[1] as usize).min(MAX_WRITE);
            let mut text = [0; 256];
            let mut done = 0;
            while done < n {
                let part = (n - done).min(text.len());
                let at = a[0].checked_add(done as u64).ok_or(Error::BadAddress)?;
                copy_in::<P>(node, space, at, &mut text[..part])?;
                console::user::<P>(&text[..part]);
                done += part;
            }
            Ok(n as u64)
        }
        Syscall::MapAnon => space.map_anonymous(a[0]),
        Syscall::Unmap => {
            space.unmap_region(a[0], a[1])?;
            // A program has one thread and CPUs leave its space when they stop running it, so
            // only this CPU can hold translations of it.
            P::flush_tlb();
            Ok(0)
        }
        Syscall::SysInfo => sys_info::<P>(node, space, a[0], a[1]),
        Syscall::Args => {
            let text = node.params.args.as_bytes();
            let n = text.len().min(a[1] as usize);
            copy_out::<P>(node, space, a[0], &text[..n])?;
            Ok(text.len() as u64)
        }
        Syscall::Report => report::<P>(node, space, a[0]),
        Syscall::Translate => {
            let isa = Isa::from_index(a[1]).ok_or(Error::BadArgument)?;
            let (pa, leaf, _) = space
                .with_table(isa, |t| t.translate(a[0]))
                .ok_or(Error::NoIsa)?
                .filter(|(_, leaf, _)| leaf.perms.contains(Perms::USER))
                .ok_or(Error::BadAddress)?;
            let flag = |p, bit| if leaf.perms.contains(p) { bit } else { 0 };
            Ok((pa.0 & TRANSLATE_PA)
                | flag(Perms::WRITE, TRANSLATE_WRITE)
                | flag(Perms::EXECUTE, TRANSLATE_EXEC))
        }
        _ => Err(Error::BadSyscall),
    }
}

/// What user programs may know of the system.
pub fn describe(node: &Node) -> SysInfo {
    let mut info = SysInfo {
        abi_version: ABI_VERSION,
        node_count: node.params.node_count as u32,
        cxl_base: PoolId::Cxl.base().0,
        cxl_size: node.map.size(PoolId::Cxl),
        ..SysInfo::default()
    };
    for n in node.all() {
        let word = node.sb.node_word(n);
        info.nodes[n.index()] = NodeInfo {
            isa: node.isa(n) as u32,
            cpus: node.params.cpus as u32,
            live: (word.state == NodeState::Live) as u32,
            incarnation: word.incarnation,
            pool_base: PoolId::Local(n).base().0,
            pool_size: node.map.size(PoolId::Local(n)),
        };
    }
    info
}

fn sys_info<P: Platform>(node: &Node, space: &Space<'_>, ptr: u64, len: u64) -> Result<u64> {
    let info = describe(node);
    let mut bytes = [0u8; size_of::<SysInfo>()];
    let mut at = 0;
    let mut put = |b: &[u8]| {
        bytes[at..at + b.len()].copy_from_slice(b);
        at += b.len();
    };
    put(&info.abi_version.to_le_bytes());
    put(&info.node_count.to_le_bytes());
    put(&info.cxl_base.to_le_bytes());
    put(&info.cxl_size.to_le_bytes());
    for n in &info.nodes {
        for w in [n.isa, n.cpus, n.live, n.incarnation] {
            put(&w.to_le_bytes());
        }
        put(&n.pool_base.to_le_bytes());
        put(&n.pool_size.to_le_bytes());
    }
    let n = at.min(len as usize);
    copy_out::<P>(node, space, ptr, &bytes[..n])?;
    Ok(at as u64)
}

/// A bounded text from user memory; what is not valid UTF-8 shows as question marks.
struct UserText<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

impl<const N: usize> UserText<N> {
    fn read<P: Platform>(node: &Node, space: &Space<'_>, ptr: u64, len: u64) -> Result<Self> {
        if len > N as u64 {
            return Err(Error::TooLarge);
        }
        let mut t = UserText {
            bytes: [0; N],
            len: len as usize,
        };
        copy_in::<P>(node, space, ptr, &mut t.bytes[..len as usize])?;
        Ok(t)
    }
}

impl<const N: usize> fmt::Display for UserText<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.bytes[..self.len].utf8_chunks() {
            f.write_str(chunk.valid())?;
            if !chunk.invalid().is_empty() {
                // One byte each, so that a line with the longest text is never cut.
                f.write_str("?")?;
            }
        }
        Ok(())
    }
}

fn report<P: Platform>(node: &Node, space: &Space<'_>, ptr: u64) -> Result<u64> {
    let mut bytes = [0u8; size_of::<ReportArgs>()];
    copy_in::<P>(node, space, ptr, &mut bytes)?;
    let word = |i: usize| {
        let mut w = [0; 8];
        w.copy_from_slice(&bytes[i * 8..i * 8 + 8]);
        u64::from_le_bytes(w)
    };
    let [kind, value, name, name_len, detail, detail_len] = core::array::from_fn(word);
    let kind = ReportKind::from_number(kind).ok_or(Error::BadArgument)?;
    let name: UserText<MAX_REPORT_NAME> = UserText::read::<P>(node, space, name, name_len)?;
    if name.len == 0 {
        return Err(Error::BadArgument);
    }
    let detail: UserText<MAX_REPORT_DETAIL> = UserText::read::<P>(node, space, detail, detail_len)?;
    let text = console::Value::Text;
    match kind {
        ReportKind::Check => console::record::<P>(
            "check",
            &[
                ("name", text(format_args!("{name}"))),
                ("ok", console::Value::Bool(value == 1)),
                ("detail", text(format_args!("{detail}"))),
            ],
        ),
        ReportKind::Counter => console::record::<P>(
            "counter",
            &[
                ("name", text(format_args!("{name}"))),
                ("value", console::Value::Number(value)),
            ],
        ),
    }
    Ok(0)
}
