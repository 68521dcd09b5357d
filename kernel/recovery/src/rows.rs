//! The rows that a dead CPU was in the middle of, by its intent.

use core::sync::atomic::Ordering;

use dyad_abi::{CpuId, NodeId};
use dyad_captbl::{Owner, Refused as Slot, SlotPlace};
use dyad_coherence::GlobalMem;
use dyad_pgtbl::{Level, Perms, Pte, PteSlot, decode};
use dyad_quiesce::DirtyEntry;
use dyad_retype::{FrameType, Order, Refs, Refused, Use};
use dyad_shm::frame::{Epoch, WeakRef};
use dyad_shm::intent::{IntentRecord, Row};
use dyad_shm::quiesce::QuiesceArea;
use dyad_shm::superblock::QUIESCE_OFFSET;
use dyad_shm::{FrameRef, PhysAddr, PoolId};

use dyad_audit::references::table_of;
use dyad_machine::kernel_ctx::KernelCtx;
use dyad_object::kinds::{CAPTBL_LEAF, CAPTBL_ROOT};
use dyad_object::space::{CLOSING, Space};
use dyad_space::mapping::Driver;

/// Heads and sizes of the blocks whose references are to be counted.
pub type Blocks = [Option<(FrameRef, u64)>; 2];

/// Others are at work on the same words: try again.
#[derive(Debug)]
pub struct Contended;

/// The object of a CPU's last row, whether or not the row is over: a cleared record keeps everything but its
/// row.
pub fn last(cx: &KernelCtx, node: NodeId, cpu: CpuId) -> Option<WeakRef> {
    let area: &QuiesceArea = cx.node.map.get(PoolId::Cxl.base().add(QUIESCE_OFFSET))?;
    let line = area.intents.get(node.index())?.get(cpu.index())?;
    WeakRef::from_bits(cx.words().read(&line.frame))
}

/// Repairs a row that changes a frame or a slot. Of the others, returns the blocks that they are
/// about.
///
/// # Errors
///
/// [`Contended`].
pub fn repair(cx: &KernelCtx, dead: Owner, record: &IntentRecord) -> Result<Blocks, Contended> {
    match record.row {
        Row::ToUntyped | Row::FromUntyped | Row::Split | Row::Merge => {
            let done = cx
                .frames()
                .recover_frame(record.frame, dead.node, cx.epochs(), cx);
            match done {
                Err(Refused::Contended) => Err(Contended),
                // Damage stays what it is.
                Ok(_) | Err(_) => Ok([None; 2]),
            }
        }
        Row::SlotActivate | Row::SlotDeactivate => {
            let Some(place) = SlotPlace::of_intent(record) else {
                return Ok([None; 2]);
            };
            // The leaf may be something else by now.
            if !cx.frames().is_object(place.leaf(), CAPTBL_LEAF) && !lacks!("rows::repair::version")
            {
                return Ok([None; 2]);
            }
            match cx.captbls().recover_slot(place, dead, cx) {
                Err(Slot::Lost) => Err(Contended),
                Ok(_) | Err(_) => Ok([None; 2]),
            }
        }
        Row::Map | Row::Unmap | Row::Cons | Row::Decons | Row::Replace => {
            let block = |w: WeakRef| block(cx, w.frame);
            Ok([
                block(record.frame)?,
                match record.table {
                    Some(table) => block(table)?,
                    None => None,
                },
            ])
        }
    }
}

/// The block in use around a frame.
fn block(cx: &KernelCtx, frame: FrameRef) -> Result<Option<(FrameRef, u64)>, Contended> {
    match cx.frames().head(frame) {
        Ok((head, word)) => Ok(match word.ty {
            FrameType::User(order) => Some((head, order.frames())),
            FrameType::Kernel(_) | FrameType::Frozen(Use::Kernel(_)) => Some((head, 1)),
            // By a recoverer that has died.
            FrameType::Frozen(Use::User) => Some((head, cx.frames().order_by_tails(head).frames())),
            _ => None,
        }),
        // It is being split: it was not in use.
        Err(Refused::Stale) => Err(Contended),
        Err(_) => Ok(None),
    }
}

/// Repairs the entry of a row, if the dead node has left the entry closed and its table has not been
/// replaced. The table and the frame are frozen if they are in use.
pub fn place(cx: &KernelCtx, dead: Owner, record: &IntentRecord) {
    let Some(table) = record.table else {
        return;
    };
    let Ok((word, _)) = cx.frames().read(table.frame) else {
        return;
    };
    let FrameType::Frozen(Use::Kernel(kind)) = word.ty else {
        return;
    };
    let inside =
        record.place.frame_start() == table.frame.address() && record.place.0.is_multiple_of(8);
    if word.version != table.version && !lacks!("rows::place::version") || !inside {
        return;
    }
    if let Some((isa, level)) = table_of(kind) {
        let driver = Driver::new(cx.words(), isa, table.frame.address());
        page_entry(cx, dead, record, &driver, level);
    } else if kind == CAPTBL_ROOT {
        let index = (record.place.offset() / 8) as u32;
        // Refused only if the word is damaged.
        let _ = cx.captbls().recover_entry(table, index, dead, cx);
    } else if kind == Space::KIND {
        root_word(cx, record);
    }
}

/// Whether a frozen frame is what the intent says, and which page table.
fn frozen_table(cx: &KernelCtx, what: WeakRef) -> Option<(dyad_abi::Isa, Level)> {
    match cx.frames().read(what.frame) {
        Ok((word, _)) if word.version == what.version => match word.ty {
            FrameType::Frozen(Use::Kernel(kind)) => table_of(kind),
            _ => None,
        },
        _ => None,
    }
}

/// An entry of a page table.
///
/// | the row | the entry | becomes |
/// |---|---|---|
/// | unlink | closed | what it was: the table may have entries, which no walk could reach otherwise |
/// | unmap | closed | empty |
/// | map | there | empty: what it was copied from may have been unmapped since, and the dead node has not looked again |
///
/// A page that a fault has put there stays: it may be a new one, to which others have written.
fn page_entry(cx: &KernelCtx, dead: Owner, record: &IntentRecord, d: &Driver, level: Level) {
    let raw = cx.words().load_fresh(record.place, Ordering::Acquire);
    let isa = d.isa();
    let place = PteSlot {
        entry: record.place,
        raw,
        level,
        above: None,
    };
    // It may have died before it had logged what it changed.
    cx.log(DirtyEntry::Table(place.table()));
    let child = level.below().map(|below| (isa, below));
    let is_link = child.is_some() && frozen_table(cx, record.frame) == child;
    match decode(isa, raw, level) {
        Pte::Closing { node } if node == dead.node && is_link => {
            // It fails only if the entry is not closed by the dead node any more; so do others.
            let _ = d.reopen_table(&place, node, record.frame.frame.address());
            return;
        }
        Pte::Closing { node } if node == dead.node => {}
        Pte::Leaf(leaf)
            if record.row == Row::Map
                && leaf.pa == record.frame.frame.address()
                && (!leaf.perms.contains(Perms::OWNED) || lacks!("rows::page_entry::owned")) =>
        {
            // In the name of the dead node: the recoverer after this one finds it closed.
            if d.close(&place, &leaf, dead.node).is_err() {
                return;
            }
        }
        _ => return,
    }
    let at = record.frame.frame.address();
    cx.log(match level {
        Level::L2 => DirtyEntry::LargeUser(at),
        _ => DirtyEntry::User(at),
    });
    let stamp = if lacks!("rows::page_entry::stamp") {
        Epoch::ZERO
    } else {
        cx.epochs().now()
    };
    let _ = d.empty(&place, dead.node, stamp);
}

/// Repairs a root of an address space. The word does not name the node that has closed it: it is not a live
/// CPU, if no live CPU is in a row about the root.
fn root_word(cx: &KernelCtx, record: &IntentRecord) {
    let Some(word) = cx
        .node
        .map
        .get::<core::sync::atomic::AtomicU64>(record.place)
    else {
        return;
    };
    if cx.words().read(word) != CLOSING || is_at_work(cx, record.place) {
        return;
    }
    let root = match frozen_table(cx, record.frame) {
        Some((_, Level::L4)) => record.frame.bits(),
        _ => 0,
    };
    cx.words().exchange(word, CLOSING, root);
}

/// Whether a live CPU is in a row about an entry.
fn is_at_work(cx: &KernelCtx, place: PhysAddr) -> bool {
    cx.node.all().any(|n| {
        cx.node.is_live(n)
            && CpuId::first(cx.node.params.cpus).any(|c| {
                let record = cx.epochs().intents(n, c).read();
                record.is_some_and(|r| r.place == place)
            })
    })
}

/// Gives back a frame that a fault had taken: it lies in the supply of a space, was what the CPU
/// last worked on, and nothing refers to it.
pub fn give_back(cx: &KernelCtx, what: WeakRef) {
    let frames = cx.frames();
    let Ok((word, _)) = frames.read(what.frame) else {
        return;
    };
    let used = match word.ty {
        FrameType::User(Order::FRAME) => Use::User,
        FrameType::Kernel(kind) if table_of(kind).is_some() => Use::Kernel(kind),
        _ => return,
    };
    if word.version == what.version && word.refs == Refs::ZERO {
        // Refused only if another CPU has found a use for it.
        let _ = frames.to_untyped(what, used, cx.epochs(), &cx.intents(), cx);
    }
}
