//! Operations of a program on its well-known capabilities.

use core::ptr::{NonNull, with_exposed_provenance, with_exposed_provenance_mut};

use dyad_abi::clock::{KernelCounter, SimCounter};
use dyad_abi::service::memory::Question;
use dyad_abi::service::peer::{Counted, Kernels};
use dyad_abi::service::{INFO_MAGIC, Info, MAX_ARGS, pager, process, reply, slot};
#[cfg(target_os = "none")]
use dyad_abi::service::{INPUT_BASE, MAX_INPUT};
use dyad_abi::user::{PAGE_SIZE, SysInfo, Where};
use dyad_abi::{Error, Isa, NodeId, Result};

use crate::cap::{Cap, Hardware, Sinv, Space, Translation};
use crate::{raw, thread};

const PAGER: Cap<Sinv> = Cap::at(slot::PAGER);
const PROCESS: Cap<Sinv> = Cap::at(slot::PROCESS);

/// The hardware capability for operations that are the same through the capability of any node.
fn hardware() -> Cap<Hardware> {
    const { Cap::at(slot::hardware(NodeId::new(0).unwrap())) }
}

/// Ends the program, with all its threads, with an exit code; 0 is success.
pub fn exit(code: u32) -> ! {
    loop {
        // Neither returns but where it is refused: no such service, no such right.
        let _ = PROCESS.invoke([process::EXIT, code.into(), 0, 0]);
        let _ = thread::own().exit(code);
    }
}

/// Ends what a panic has made pointless: an invocation, whose caller gets the error `Corrupt`, if this
/// is one; else the program, with an exit code.
pub fn abandon(code: u32) -> ! {
    if in_invocation() {
        let mut words = [0; 4];
        words[reply::STATUS] = Error::Corrupt.code();
        // SAFETY: 1. This is an invocation. 2. What is on its stack stays as it is; nobody looks at
        // it again.
        unsafe { raw::end_invocation(words) };
    }
    exit(code)
}

/// The block allocator's answer to a question about a node's memory, or about all memory.
///
/// # Errors
///
/// `NoSuchNode`; `NodeDead` if the allocator's records were lost with a node.
pub fn memory_state(question: Question, node: NodeId) -> Result<u64> {
    let words = [
        process::MEMORY_STATE,
        question as u64,
        node.index() as u64,
        0,
    ];
    PROCESS.request(words)
}

/// Whether this code runs in an invocation, on behalf of a thread of another program.
#[inline]
pub fn in_invocation() -> bool {
    #[cfg(target_os = "none")]
    {
        use dyad_abi::service::{INVOKE_STACKS, MAX_THREAD_IDS, invoke_stack};
        let here = 0u8;
        let at = &raw const here as u64;
        (INVOKE_STACKS..invoke_stack(MAX_THREAD_IDS << 8).0).contains(&at)
    }
    #[cfg(not(target_os = "none"))]
    dyad_host::in_invocation()
}

/// Nanoseconds of fused time since the first node started.
///
/// # Errors
///
/// None that a correct system returns.
pub fn now() -> Result<u64> {
    hardware().now()
}

/// The simulator's count of events on the CPU that this thread runs on. The difference of two readings is the
/// number of events between them, if the thread has not moved.
///
/// # Errors
///
/// `NotReady` if the simulator is off, or its level does not count these events.
pub fn sim_count(counter: SimCounter) -> Result<u64> {
    hardware().count(counter)
}

/// A count that the kernels keep. The difference of two readings is the number of events between them, in the
/// whole system or on this node.
///
/// # Errors
///
/// None that a correct system returns.
pub fn kernel_count(counter: KernelCounter) -> Result<u64> {
    hardware().kernel_count(counter)
}

/// Lets other threads of this CPU run. In an invocation of a service it does nothing.
pub fn yield_now() {
    // It is refused in invocations, whose thread belongs to the caller of the service. A program that wants to wait
    // has nothing else to do.
    if !in_invocation() {
        let _ = thread::own().yield_now();
    }
}

/// Sleeps until fused time reaches `deadline_ns`, or something comes in for the calling
/// thread.
///
/// # Errors
///
/// None that a correct system returns.
pub fn sleep_until(deadline_ns: u64) -> Result<()> {
    thread::wait(deadline_ns).map(drop)
}

/// Continues this thread on another node.
///
/// If that node has the same ISA, the call returns there. If not, the thread continues where it last left
/// that ISA (in its own `migrate` call, or at the program's entry the first time), and this call returns when
/// the thread comes back to this ISA. **So values on the native stack may be stale when it returns**: the
/// caller must keep its state in statics or on the heap, and reload it. Returns the node that the thread is
/// on after that.
///
/// # Errors
///
/// Those of [`Cap::migrate`](crate::cap::Cap::migrate).
pub fn migrate(node: NodeId) -> Result<NodeId> {
    thread::own().migrate(node)
}

/// Maps `len` bytes (rounded up to pages) of new zero-filled memory, at the same address on
/// every ISA. It stays mapped until [`unmap`].
///
/// # Errors
///
/// `BadArgument` for a length of 0, `NoMemory`, `Full` or `TooLarge` if there is no room for it.
pub fn map_anon(len: u64) -> Result<NonNull<u8>> {
    map(len, 0)
}

/// Like [`map_anon`], but with memory of a node: the pages come from that node's supply, on whichever node
/// and by whichever thread they are touched first. While the node is dead they are allocated as by
/// [`map_anon`].
///
/// # Errors
///
/// `NoSuchNode`; and those of [`map_anon`].
pub fn map_anon_on(len: u64, node: NodeId) -> Result<NonNull<u8>> {
    map(len, node.index() as u64 + 1)
}

/// Like [`map_anon`], at addresses from [`INCOHERENT_BASE`](dyad_abi::user::INCOHERENT_BASE) on: the program writes lines of this memory
/// back and drops them, as if no caches were coherent. In a run without coherent caches the simulator has each node keep lines of it for itself.
///
/// # Errors
///
/// Those of [`map_anon`]; `Denied` over several kernels, whose memory is coherent page by page.
pub fn map_anon_incoherent(len: u64) -> Result<NonNull<u8>> {
    map(len, pager::INCOHERENT)
}

fn map(len: u64, home: u64) -> Result<NonNull<u8>> {
    let len = len
        .checked_next_multiple_of(PAGE_SIZE)
        .ok_or(Error::TooLarge)?;
    let address = ask_pager([pager::MAP_ANON, len, home, 0])?;
    NonNull::new(with_exposed_provenance_mut(address as usize)).ok_or(Error::Corrupt)
}

/// Gives memory from [`map_anon`] back.
///
/// # Errors
///
/// `BadArgument` or `NotFound` if this is not a range that was mapped.
///
/// # Safety
///
/// Nothing may use the range any more.
pub unsafe fn unmap(start: NonNull<u8>, len: u64) -> Result<()> {
    let len = len
        .checked_next_multiple_of(PAGE_SIZE)
        .ok_or(Error::TooLarge)?;
    ask_pager([pager::UNMAP, start.as_ptr() as u64, len, 0]).map(drop)
}

/// A request to the pager, which serves one thread of a program at a time. It succeeds a thread that has ended in the
/// middle of a request.
fn ask_pager(words: [u64; 4]) -> Result<u64> {
    loop {
        match PAGER.request(words) {
            Err(Error::Again) => yield_now(),
            done => return done,
        }
    }
}

/// What is mapped in the place of the program's [`info`].
#[inline(always)]
fn info_page() -> &'static Info {
    // SAFETY: 1. The page is mapped, read-only, in every program from its start to its end, and
    // does not change. 2. Every pattern of bits is a valid `Info`.
    unsafe { &*with_exposed_provenance::<Info>(raw::info_page() as usize) }
}

/// The page that tells the program what it has been started with.
///
/// # Errors
///
/// `BadVersion` if it is not of this ABI version.
pub fn info() -> Result<&'static Info> {
    let info = info_page();
    if info.magic != INFO_MAGIC || info.system.abi_version != dyad_abi::ABI_VERSION {
        return Err(Error::BadVersion);
    }
    // Bounds everything that indexes by these.
    if info.system.node_count as usize > info.system.nodes.len() || info.args_len > MAX_ARGS as u64
    {
        return Err(Error::Corrupt);
    }
    Ok(info)
}

/// Whether the program is a process on each node, over kernels that only exchange messages.
#[inline]
pub fn is_multiple() -> bool {
    // Each hop asks. A page of another version has ended the program where it began.
    info_page().kernels == Kernels::Multiple as u64
}

/// What the program's peer on this node has counted so far; 0 if the kernels share what they know.
///
/// # Errors
///
/// As the service says.
pub fn counted(what: Counted) -> Result<u64> {
    match is_multiple() {
        true => PROCESS.request([process::COUNTED, what as u64, 0, 0]),
        false => Ok(0),
    }
}

/// The nodes and pools of the system in their current state.
///
/// # Errors
///
/// Those of [`info`].
pub fn sys_info() -> Result<SysInfo> {
    let mut system = info()?.system;
    let nodes = NodeId::first(system.node_count as usize);
    for (id, node) in nodes.zip(&mut system.nodes) {
        let now = hardware().node_state(id)?;
        node.live = now.is_live().into();
        node.incarnation = now.incarnation;
    }
    Ok(system)
}

/// Whether a node lives.
///
/// # Errors
///
/// `NoSuchNode`.
pub fn is_live(node: NodeId) -> Result<bool> {
    Ok(hardware().node_state(node)?.is_live())
}

/// The argument text and the environment of an info page; empty if they are no text.
pub fn texts(info: &Info) -> (&str, &str) {
    let text = |bytes| core::str::from_utf8(bytes).unwrap_or_default();
    let len = (info.args_len as usize).min(info.args.len());
    let (args, rest) = info.args.split_at(len);
    let env = &rest[..(info.env_len as usize).min(rest.len())];
    (text(args), text(env))
}

/// The environment: `NAME=VALUE` texts, separated by tabs.
///
/// # Errors
///
/// Those of [`info`].
pub fn environment() -> Result<&'static str> {
    Ok(texts(info()?).1)
}

/// Wall-clock time at the start of the machines, in nanoseconds since 1970-01-01 UTC, and the seed of the
/// program's random numbers.
///
/// # Errors
///
/// Those of [`info`].
pub fn wall_and_seed() -> Result<(u64, u64)> {
    let info = info()?;
    Ok((info.wall_ns, info.random))
}

/// The standard input of the program.
///
/// # Errors
///
/// Those of [`info`]; `Corrupt` if it is longer than it can be.
pub fn input() -> Result<&'static [u8]> {
    #[cfg(not(target_os = "none"))]
    return Ok(dyad_host::input());
    #[cfg(target_os = "none")]
    match info()?.input_len {
        0 => Ok(&[]),
        len if len > MAX_INPUT => Err(Error::Corrupt),
        len => {
            let start = with_exposed_provenance(INPUT_BASE as usize);
            // SAFETY: 1. Init maps that many bytes there, read-only, from the program's start to its end. 2.
            // They are in no other program, and nobody changes them.
            Ok(unsafe { core::slice::from_raw_parts(start, len as usize) })
        }
    }
}

/// Copies the program's argument text into `buffer`, as much as fits. Returns its full length.
///
/// # Errors
///
/// Those of [`info`].
pub fn args(buffer: &mut [u8]) -> Result<usize> {
    let info = info()?;
    let text = &info.args[..info.args_len as usize];
    let len = text.len().min(buffer.len());
    buffer[..len].copy_from_slice(&text[..len]);
    Ok(text.len())
}

/// The mapping of `address` in `isa`'s page table of this program.
///
/// # Errors
///
/// `BadAddress` or `NotFound` if `address` is not mapped.
pub fn translate(address: u64, isa: Isa) -> Result<Translation> {
    const { Cap::<Space>::at(slot::SPACE) }.translate(isa, address)
}

/// Node, CPU and ISA this runs on.
///
/// # Errors
///
/// None that a correct system returns.
pub fn where_am_i() -> Result<Where> {
    hardware().where_am_i()
}
