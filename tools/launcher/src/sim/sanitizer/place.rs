//! Names of places in fused memory: which structure, which field.
//!
//! | where | name |
//! |---|---|
//! | start of the CXL pool | `superblock.cpus[1][0].activity` |
//! | words of reclamation | `quiesce.requests[0].request` |
//! | inboxes | `inbox of CPU 1/0 from node 0: tail` |
//! | frame records | `record of frame 0x401000: w0` |
//! | kernel objects, by the kind of their frame | `thread 0x40014e2000: owner` |
//!
//! Fields and offsets are the compiler's; the lists of names here leave gaps at worst, which show as
//! numbers.

use std::mem::{offset_of, size_of};

use dyad_abi::ident::{MAX_CPUS, MAX_NODES};
use dyad_abi::user::PAGE_SIZE;
use dyad_abi::{Isa, NodeId};
use dyad_object::component::Component;
use dyad_object::endpoint::{Endpoints, Line};
use dyad_object::space::{RegionSlot, Space, SupplySlot};
use dyad_object::thread::{Frame, RegArea, Thread};
use dyad_object::time::Budgets;
use dyad_retype::{FrameWord, KernelKind, Use};
use dyad_ring::{HEAD_OFFSET, MESSAGE_WORDS, RING_BYTES, SLOTS_OFFSET, TAIL_OFFSET, arrivals};
use dyad_shm::quiesce::{
    CpuAcknowledgement, FlushLog, IntentLine, LogSet, NodePublication, NodeRequest, QuiesceArea,
};
use dyad_shm::superblock::{
    ARRIVALS_OFFSET, ARRIVALS_SPACE, CXL_FRAME_TABLE_OFFSET, CpuEntry, INBOX_OFFSET, INBOX_SPACE,
    NodeEntry, PoolEntry, QUIESCE_OFFSET, RootEntries, ScratchLine,
};
use dyad_shm::{FrameEntry, PhysAddr, PoolId, Superblock};

/// Fields of a structure: names and offsets, ascending.
type Fields = &'static [(&'static str, usize)];

macro_rules! fields {
    ($ty:ty { $($field:ident),* $(,)? }) => {
        &[$((stringify!($field), offset_of!($ty, $field))),*]
    };
}

const SUPERBLOCK: Fields = fields!(Superblock {
    magic,
    format,
    abi_version,
    layout_hash,
    coherence,
    memory_model,
    shape,
    control,
    control_arg,
    epoch,
    clock_owner,
    shutdown,
    self_test,
    program,
    ending,
    recoverer,
    shootdowns,
    reserved,
    roots,
    nodes,
    cpus,
    pools,
    scratch,
});
const NODE: Fields = fields!(NodeEntry {
    state,
    heartbeat,
    doorbell,
    kind,
    image,
    phase,
    barrier,
    clock_request,
    clock_answer,
    clock_time,
    migrations,
    clock_error,
    reserved,
});
const CPU: Fields = fields!(CpuEntry {
    pending,
    rung,
    arrived,
    flush,
    reserved,
    activity,
    taken,
    flushed,
    own_reserved
});
const POOL: Fields = fields!(PoolEntry {
    base,
    size,
    frame_table,
    first_frame,
    end_frame,
    formatted,
    reserved,
});
const ROOTS: Fields = fields!(RootEntries {
    entries,
    image,
    reserved
});
const QUIESCE: Fields = fields!(QuiesceArea {
    publications,
    requests,
    acknowledgements,
    intents,
    log_set,
    logs,
});
const PUBLICATION: Fields = fields!(NodePublication {
    published,
    reserved
});
const REQUEST: Fields = fields!(NodeRequest {
    request,
    full_flushes,
    reserved
});
const ACKNOWLEDGEMENT: Fields = fields!(CpuAcknowledgement {
    acknowledged,
    reserved
});
const INTENT: Fields = fields!(IntentLine {
    row,
    frame,
    table,
    place,
    reserved
});
const LOG_SET: Fields = fields!(LogSet { logs, reserved });
const LOG: Fields = fields!(FlushLog {
    head,
    reserved,
    entries
});
const RECORD: Fields = fields!(FrameEntry { w0, w1 });
const THREAD: Fields = fields!(Thread {
    owner,
    crossing,
    trail,
    cpu,
    slice_end,
    used_fp,
    started,
    carried,
    id,
    tag,
    component,
    scheduler,
    budget,
    depth,
    entry,
    arg,
    result,
    result_status,
    result_value,
    waits_at,
    waits_line,
    deadline,
    priority,
    fault,
    budget_from,
    budget_line,
    exit_code,
    budget_reserved,
    reserved,
    event_link,
    event,
    unused,
    carried_fp,
    kept_fp,
    frames,
    parked,
    regs,
    saved,
    fp,
    saved_fp,
});
const INVOCATION: Fields = fields!(Frame {
    component,
    pc,
    sp,
    info
});
const COMPONENT: Fields = fields!(Component {
    captbl,
    space,
    handler,
    changer,
    home,
    generation,
    reserved,
    handlers,
    rest,
});
const ENDPOINTS: Fields = fields!(Endpoints { lines });
const ENDPOINT: Fields = fields!(Line {
    bits,
    waiter,
    events,
    taken,
    bound,
    reserved
});
const SPACE: Fields = fields!(Space {
    roots,
    faults_filled,
    faults_copied,
    slots_used,
    tickets,
    region_changes,
    confirmed,
    supplies,
    round,
    reserved,
    regions,
});
const SUPPLY: Fields = fields!(SupplySlot {
    runs,
    cursor,
    in_vain,
    tables
});
const REGION: Fields = fields!(RegionSlot {
    start,
    end,
    kind,
    reserved
});
const BUDGETS: Fields = fields!(Budgets { left, debt, rest });
const SLOT: Fields = &[("header", 0), ("epoch", 8), ("contents", 16)];

const SLOT_BYTES: usize = 64;
const WORD: usize = 8;

/// The field at an offset, and how far into it that is.
fn field(fields: Fields, offset: usize) -> (&'static str, usize) {
    let found = fields.iter().rev().find(|(_, start)| *start <= offset);
    found.map_or(("", offset), |(name, start)| (name, offset - start))
}

/// A plain structure: a field, and the word of it if it is not the first.
fn plain(fields: Fields, offset: usize) -> String {
    let (name, into) = field(fields, offset);
    match into / WORD {
        0 => name.to_string(),
        word => format!("{name}[{word}]"),
    }
}

/// The element of an array at an offset, and the rest.
fn element<T>(offset: usize) -> (usize, usize) {
    (offset / size_of::<T>(), offset % size_of::<T>())
}

/// As [`element`], of an array by node and CPU.
fn by_cpu<T>(offset: usize) -> (String, usize) {
    let (i, rest) = element::<T>(offset);
    (format!("[{}][{}]", i / MAX_CPUS, i % MAX_CPUS), rest)
}

fn superblock(offset: usize) -> String {
    let (name, into) = field(SUPERBLOCK, offset);
    match name {
        "roots" => {
            let (isa, rest) = element::<RootEntries>(into);
            format!("roots[{isa}].{}", plain(ROOTS, rest))
        }
        "nodes" => {
            let (n, rest) = element::<NodeEntry>(into);
            format!("nodes[{n}].{}", plain(NODE, rest))
        }
        "cpus" => {
            let (which, rest) = by_cpu::<CpuEntry>(into);
            format!("cpus{which}.{}", plain(CPU, rest))
        }
        "pools" => {
            let (n, rest) = element::<PoolEntry>(into);
            format!("pools[{n}].{}", plain(POOL, rest))
        }
        "scratch" => {
            let (n, rest) = element::<ScratchLine>(into);
            format!("scratch[{n}].words[{}]", rest / WORD)
        }
        _ => plain(SUPERBLOCK, offset),
    }
}

fn quiesce(offset: usize) -> String {
    let (name, into) = field(QUIESCE, offset);
    let cpu =
        |(which, rest): (String, usize), fields| format!("{name}{which}.{}", plain(fields, rest));
    match name {
        "publications" => {
            let (n, rest) = element::<NodePublication>(into);
            format!("{name}[{n}].{}", plain(PUBLICATION, rest))
        }
        "requests" => {
            let (n, rest) = element::<NodeRequest>(into);
            format!("{name}[{n}].{}", plain(REQUEST, rest))
        }
        "log_set" => format!("{name}.{}", plain(LOG_SET, into)),
        "acknowledgements" => cpu(by_cpu::<CpuAcknowledgement>(into), ACKNOWLEDGEMENT),
        "intents" => cpu(by_cpu::<IntentLine>(into), INTENT),
        _ => {
            let (which, rest) = by_cpu::<FlushLog>(into);
            let (name, into) = field(LOG, rest);
            // Which entry says nothing.
            let name = if name == "entries" || into != 0 {
                "entries"
            } else {
                name
            };
            format!("logs{which}.{name}")
        }
    }
}

fn arrival(offset: u64) -> String {
    let (cpu, word) = (
        offset / arrivals::BYTES,
        offset % arrivals::BYTES / WORD as u64,
    );
    let (node, cpu) = (cpu as usize / MAX_CPUS, cpu as usize % MAX_CPUS);
    format!("at CPU {node}/{cpu}: word {word}")
}

fn inbox(offset: usize) -> String {
    let (ring, rest) = (offset as u64 / RING_BYTES, offset as u64 % RING_BYTES);
    let (cpu, sender) = (ring as usize / MAX_NODES, ring as usize % MAX_NODES);
    let (node, cpu) = (cpu / MAX_CPUS, cpu % MAX_CPUS);
    let what = match rest {
        HEAD_OFFSET..SLOTS_OFFSET => "head".to_string(),
        TAIL_OFFSET..HEAD_OFFSET => "tail".to_string(),
        _ => {
            let word = rest / WORD as u64 % MESSAGE_WORDS as u64;
            format!("word {word} of a message")
        }
    };
    format!("inbox of CPU {node}/{cpu} from node {sender}: {what}")
}

/// What a kernel object of this kind is called, and its field.
fn object(kind: KernelKind, offset: usize) -> (String, String) {
    for (i, isa) in Isa::ALL.into_iter().enumerate() {
        for level in 0..4 {
            if KernelKind::page_table(isa, level) == Some(kind) {
                debug_assert_eq!(isa.index(), i);
                let what = format!("{isa} page table of level {}", level + 1);
                return (what, format!("entry {}", offset / WORD));
            }
        }
    }
    if let Some(level) = (0..8).find(|&l| KernelKind::captbl(l) == Some(kind)) {
        let field = match level {
            0 => format!("slot.{}", plain(SLOT, offset % SLOT_BYTES)),
            _ => "entry".into(),
        };
        return (format!("capability table of level {level}"), field);
    }
    let (name, field) = match kind {
        KernelKind::THREAD => ("thread", thread(offset)),
        KernelKind::COMPONENT => ("component", plain(COMPONENT, offset)),
        KernelKind::ENDPOINTS => {
            let (n, rest) = element::<Line>(field(ENDPOINTS, offset).1);
            ("endpoints", format!("lines[{n}].{}", plain(ENDPOINT, rest)))
        }
        KernelKind::ADDRESS_SPACE => ("address space", space(offset)),
        KernelKind::TIME => ("time budgets", plain(BUDGETS, offset)),
        KernelKind::LIVENESS => ("liveness entries", format!("count {}", offset / WORD)),
        _ => ("kernel object", format!("+{offset:#x}")),
    };
    (name.to_string(), field)
}

fn thread(offset: usize) -> String {
    let (name, into) = field(THREAD, offset);
    match name {
        "frames" => {
            let (_, rest) = element::<Frame>(into);
            format!("frames[..].{}", plain(INVOCATION, rest))
        }
        "parked" | "regs" => {
            let (isa, _) = element::<RegArea>(into);
            format!("{name}[{isa}]")
        }
        "saved" | "fp" | "saved_fp" => name.to_string(),
        _ => plain(THREAD, offset),
    }
}

fn space(offset: usize) -> String {
    let (name, into) = field(SPACE, offset);
    match name {
        "supplies" => {
            let (n, rest) = element::<SupplySlot>(into);
            format!("supplies[{n}].{}", plain(SUPPLY, rest))
        }
        "regions" => {
            let (_, rest) = element::<RegionSlot>(into);
            format!("regions[..].{}", plain(REGION, rest))
        }
        _ => plain(SPACE, offset),
    }
}

/// A place in fused memory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The structure.
    pub structure: String,
    /// The field in it.
    pub field: String,
}

impl Place {
    fn new(structure: impl Into<String>, field: impl Into<String>) -> Place {
        Place {
            structure: structure.into(),
            field: field.into(),
        }
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.structure, self.field)
    }
}

/// Names the word at a physical address. `frame` is the record of its frame, `pools` the number of
/// bytes of each pool.
pub fn place(at: u64, frame: u64, bytes: impl Fn(PoolId) -> u64) -> Place {
    let Some(pool) = PoolId::of(PhysAddr(at)) else {
        return Place::new("memory", format!("{at:#x}"));
    };
    let offset = at - pool.base().0;
    let records = match pool {
        PoolId::Cxl => CXL_FRAME_TABLE_OFFSET,
        PoolId::Local(_) => 0,
    };
    if pool == PoolId::Cxl && offset < records {
        return match offset {
            o if o < QUIESCE_OFFSET => Place::new("superblock", superblock(o as usize)),
            o if o < QUIESCE_OFFSET + size_of::<QuiesceArea>() as u64 => {
                Place::new("quiesce", quiesce((o - QUIESCE_OFFSET) as usize))
            }
            o if (ARRIVALS_OFFSET..ARRIVALS_OFFSET + ARRIVALS_SPACE).contains(&o) => {
                Place::new("arrivals", arrival(o - ARRIVALS_OFFSET))
            }
            o if (INBOX_OFFSET..INBOX_OFFSET + INBOX_SPACE).contains(&o) => {
                Place::new("inboxes", inbox((o - INBOX_OFFSET) as usize))
            }
            o => Place::new("CXL pool", format!("+{o:#x}")),
        };
    }
    let into = offset - records;
    let table = bytes(pool) / PAGE_SIZE * size_of::<FrameEntry>() as u64;
    if into < table {
        let (_, rest) = element::<FrameEntry>(into as usize);
        return Place::new("frame record", plain(RECORD, rest));
    }
    let word = FrameWord::from_bits(frame);
    match word.and_then(|w| w.ty.in_use()) {
        Some(Use::Kernel(kind)) => {
            let (structure, field) = object(kind, (at % PAGE_SIZE) as usize);
            Place::new(structure, field)
        }
        Some(Use::User) => Place::new("user memory", format!("+{:#x}", at % PAGE_SIZE)),
        None => Place::new("unused frame", format!("+{:#x}", at % PAGE_SIZE)),
    }
}

/// The pools that there are: local ones by node.
pub fn pool_of(index: usize, nodes: usize) -> PoolId {
    match NodeId::new(index as u64).filter(|_| index < nodes) {
        Some(n) => PoolId::Local(n),
        None => PoolId::Cxl,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dyad_retype::{FrameType, Order};
    use dyad_shm::Version;

    fn named(at: u64, ty: Option<FrameType>) -> String {
        let frame = ty.map_or(0, |ty| FrameWord::new(Version(3), ty).bits());
        place(at, frame, |_| 64 << 20).to_string()
    }

    #[test]
    fn structures_of_the_cxl_pool_have_names() {
        let cxl = PoolId::Cxl.base().0;
        let nodes = offset_of!(Superblock, nodes) as u64;
        let cpus = offset_of!(Superblock, cpus) as u64;
        let activity = offset_of!(CpuEntry, activity) as u64;
        let intents = QUIESCE_OFFSET + offset_of!(QuiesceArea, intents) as u64;
        let logs = QUIESCE_OFFSET + offset_of!(QuiesceArea, logs) as u64;
        for (offset, name) in [
            (0, "superblock.magic"),
            (
                offset_of!(Superblock, recoverer) as u64,
                "superblock.recoverer",
            ),
            (nodes + 128 + 8, "superblock.nodes[1].heartbeat"),
            (cpus + 128 * 8 + activity, "superblock.cpus[1][0].activity"),
            (QUIESCE_OFFSET + 64, "quiesce.publications[1].published"),
            (intents + 64 * 9 + 16, "quiesce.intents[1][1].table"),
            (logs - 64, "quiesce.log_set.logs"),
            (logs, "quiesce.logs[0][0].head"),
            (logs + 4096 + 640, "quiesce.logs[0][1].entries"),
            (
                INBOX_OFFSET + TAIL_OFFSET,
                "inboxes.inbox of CPU 0/0 from node 0: tail",
            ),
            (
                INBOX_OFFSET + RING_BYTES + HEAD_OFFSET,
                "inboxes.inbox of CPU 0/0 from node 1: head",
            ),
            (
                INBOX_OFFSET + RING_BYTES * 8 + SLOTS_OFFSET + 72,
                "inboxes.inbox of CPU 0/1 from node 0: word 1 of a message",
            ),
            (
                ARRIVALS_OFFSET + arrivals::BYTES * 9 + 16,
                "arrivals.at CPU 1/1: word 2",
            ),
            (CXL_FRAME_TABLE_OFFSET + 24, "frame record.w1"),
        ] {
            assert_eq!(named(cxl + offset, None), name);
        }
    }

    #[test]
    fn objects_are_named_by_the_kind_of_their_frame() {
        let local = PoolId::Local(NodeId::new(1).unwrap()).base().0;
        assert_eq!(named(local + 16, None), "frame record.w0");
        let frame = local + (32 << 20);
        let kernel = |kind| Some(FrameType::Kernel(kind));
        let word = |n: u64| frame + 8 * n;
        let table = KernelKind::page_table(Isa::Aarch64, 0).unwrap();
        let slots = KernelKind::captbl(0).unwrap();
        let regs = offset_of!(Thread, regs) as u64 + size_of::<RegArea>() as u64;
        for (at, ty, name) in [
            (word(0), kernel(KernelKind::THREAD), "thread.owner"),
            (
                frame + regs + 80,
                kernel(KernelKind::THREAD),
                "thread.regs[1]",
            ),
            (word(4), kernel(KernelKind::COMPONENT), "component.home"),
            (
                word(9),
                kernel(KernelKind::ENDPOINTS),
                "endpoints.lines[1].waiter",
            ),
            (
                word(1),
                kernel(KernelKind::ADDRESS_SPACE),
                "address space.roots[1]",
            ),
            (
                word(7),
                kernel(table),
                "aarch64 page table of level 1.entry 7",
            ),
            (
                word(9),
                kernel(slots),
                "capability table of level 0.slot.epoch",
            ),
            (
                word(9),
                Some(FrameType::User(Order::FRAME)),
                "user memory.+0x48",
            ),
            (word(9), None, "unused frame.+0x48"),
        ] {
            assert_eq!(named(at, ty), name);
        }
        assert_eq!(named(0x1000, None), "memory.0x1000");
    }

    #[test]
    fn lists_of_fields_are_in_order() {
        for list in [
            SUPERBLOCK, NODE, CPU, POOL, ROOTS, QUIESCE, LOG, THREAD, COMPONENT, ENDPOINT, SPACE,
            BUDGETS,
        ] {
            assert!(list.is_sorted_by_key(|f| f.1), "{list:?}");
        }
    }
}
