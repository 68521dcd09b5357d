//! Whether all tables agree: the frame table with all page tables of both ISAs, capability tables,
//! spaces, components, threads and endpoints.
//!
//! For systems in which nothing goes on: no CPU is in a row, and no thread changes hands. Nothing is
//! changed, and no memory is needed: references are counted for [`BATCH`] blocks at a time, with a
//! walk over all objects for each batch. How long it takes grows with the square of what there is: it
//! is for tests, and for the audit at the end of a run, not for anything that others
//! wait for.
//!
//! | module | concern |
//! |---|---|
//! | [`at_end`] | the audit of a run that ends |
//! | [`mod@references`] | what the frame table counts, as the objects have it; also for recovery |
//! | [`scan`] | walks over all frames, a bounded number of records at a time; also for recovery |
//!
//! | what is found | says |
//! |---|---|
//! | [`Fault::References`] | the count of a block is not the number of references to it |
//! | [`Fault::LeftBehind`] | something is in the middle of a change that no CPU is making |
//! | [`Fault::Wrong`] | a reference is to something it cannot be to |
//! | [`Fault::Damaged`] | a word that no code writes |
//! | [`Fault::Orphan`] | a thread belongs to a node that is not there |
//! | [`Fault::Waiting`] | endpoint and thread disagree about who waits |

#![no_std]
#![forbid(unsafe_code)]

mod at_end;
pub mod references;
pub mod scan;

pub use at_end::at_end;

use core::fmt;

use dyad_abi::cap::{LEAF_SLOTS, Woken};
use dyad_abi::{CpuId, NodeId};
use dyad_captbl::{SLOT_BYTES, SlotHeader};
use dyad_retype::{FrameType, FrameWord, KernelKind, Refs, Use};
use dyad_shm::frame::WeakRef;
use dyad_shm::superblock::NodeState;
use dyad_shm::{FrameRef, PhysAddr};

use dyad_machine::kernel_ctx::KernelCtx;
use dyad_object::endpoint::{Endpoints, Line, waiting};
use dyad_object::thread::{DOUBTED, State, Thread};
use dyad_object::{find, link_to, linked};

use dyad_object::kinds::CAPTBL_LEAF;
use references::{Reference, Tally, Wanted, references, refers, table_of};
use scan::{Cursor, Next};

/// Blocks whose references are counted at a time.
pub const BATCH: usize = 128;
/// Longest list of events.
const MAX_LIST: usize = 1 << 16;

/// A contradiction that the audit has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The record of a block has other references than there are.
    References {
        /// Head of the block.
        head: FrameRef,
        /// The number of references in the record.
        recorded: u32,
        /// Found.
        found: u32,
    },
    /// A frame, slot, entry or row is in the middle of a change.
    LeftBehind {
        /// The place of the change.
        at: PhysAddr,
        /// A description of the change.
        what: &'static str,
    },
    /// A reference in the object `from` is to the frame `to`, which is not what the reference must name.
    Wrong {
        /// The object.
        from: FrameRef,
        /// The frame.
        to: FrameRef,
    },
    /// A word has a value that nothing writes.
    Damaged {
        /// The damaged word, or the frame that it is in.
        at: PhysAddr,
    },
    /// The thread's owner is not there.
    Orphan {
        /// The thread.
        thread: FrameRef,
        /// The owner of the thread.
        node: NodeId,
    },
    /// An endpoint's waiter or list names a thread that is not there, or the other way round.
    Waiting {
        /// The thread.
        thread: FrameRef,
        /// The finding, in words.
        what: &'static str,
    },
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::References {
                head,
                recorded,
                found,
            } => write!(
                f,
                "the block at {} has {recorded} references in its record, and {found} were found",
                head.address()
            ),
            Fault::LeftBehind { at, what } => write!(f, "{at}: {what} in the middle of a change"),
            Fault::Wrong { from, to } => write!(
                f,
                "the object at {} refers to {}, which is something else",
                from.address(),
                to.address()
            ),
            Fault::Damaged { at } => write!(f, "{at}: a word that nobody writes"),
            Fault::Orphan { thread, node } => write!(
                f,
                "the thread at {} belongs to node {node}, which is not there",
                thread.address()
            ),
            Fault::Waiting { thread, what } => {
                write!(f, "the thread at {} {what}", thread.address())
            }
        }
    }
}

/// What the audit has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Blocks in use.
    pub blocks: u64,
    /// References to them.
    pub references: u64,
    /// Page tables and blocks of user memory that nothing refers to. Their capabilities may still be used.
    pub unreferenced: u64,
    /// The first of them.
    pub first_unreferenced: Option<WeakRef>,
    /// Capabilities.
    pub capabilities: u64,
    /// Threads that have not ended.
    pub threads: u64,
    /// Faults reported.
    pub faults: u64,
}

struct Walk<'a> {
    cx: &'a KernelCtx,
    report: &'a mut dyn FnMut(Fault),
    sum: Summary,
}

/// Whether a block of this type may be without references: user memory and page tables.
fn may_be_forgotten(ty: FrameType) -> bool {
    match ty {
        FrameType::User(_) => true,
        FrameType::Kernel(kind) => table_of(kind).is_some(),
        _ => false,
    }
}

/// Compares everything with everything; calls `report` for what does not agree.
pub fn walk(cx: &KernelCtx, report: &mut dyn FnMut(Fault)) -> Summary {
    let mut w = Walk {
        cx,
        report,
        sum: Summary::default(),
    };
    w.intents();
    let mut cursor = Cursor::START;
    let mut tally = Tally::<BATCH>::new();
    loop {
        let next = w.next(&mut cursor);
        if let Some((head, word)) = next
            && let Some(frames) = w.block(head, word)
        {
            tally.add(head, frames);
        }
        if next.is_none() || tally.is_full() {
            w.compare(&mut tally);
        }
        if next.is_none() {
            return w.sum;
        }
    }
}

impl Walk<'_> {
    fn fault(&mut self, f: Fault) {
        self.sum.faults += 1;
        (self.report)(f);
    }

    /// The next block.
    fn next(&mut self, cursor: &mut Cursor) -> Option<(FrameRef, FrameWord)> {
        let mut steps = u32::MAX;
        loop {
            match cursor.next_head(self.cx.node, &mut steps) {
                Next::Block(head, word) => return Some((head, word)),
                Next::Damaged(frame) => self.fault(Fault::Damaged {
                    at: frame.address(),
                }),
                Next::Working => steps = u32::MAX,
                Next::End => return None,
            }
        }
    }

    /// Rows and recoveries that are under way: there are none when the system is at rest.
    fn intents(&mut self) {
        for n in self.cx.node.all() {
            let left = self.cx.node.word_of(n).state == NodeState::Recovering;
            for c in CpuId::first(self.cx.node.params.cpus) {
                if let Some(record) = self.cx.epochs().intents(n, c).read() {
                    self.fault(Fault::LeftBehind {
                        at: record.frame.frame.address(),
                        what: "the row of a CPU",
                    });
                }
            }
            if left {
                self.fault(Fault::LeftBehind {
                    at: PhysAddr(n.index() as u64),
                    what: "the recovery of a node",
                });
            }
        }
    }

    /// Examines one block by itself. Returns its size if it can have references.
    fn block(&mut self, head: FrameRef, word: FrameWord) -> Option<u64> {
        let at = head.address();
        match word.ty {
            FrameType::Untyped(order) | FrameType::User(order) => {
                if self.cx.frames().order_by_tails(head) != order {
                    self.fault(Fault::Damaged { at });
                }
                let used = matches!(word.ty, FrameType::User(_));
                self.sum.blocks += used as u64;
                used.then_some(order.frames())
            }
            FrameType::Kernel(kind) => {
                self.sum.blocks += 1;
                self.object(head, kind);
                Some(1)
            }
            FrameType::Retyping(_) | FrameType::Frozen(_) => {
                let what = "a frame";
                self.fault(Fault::LeftBehind { at, what });
                None
            }
            FrameType::Tail(_) | FrameType::Reserved => {
                self.fault(Fault::Damaged { at });
                None
            }
            FrameType::Retired => None,
        }
    }

    /// Examines an object by itself: its contents and its references.
    fn object(&mut self, object: FrameRef, kind: KernelKind) {
        let map = self.cx.node.map;
        if refers(kind) {
            let cx = self.cx;
            references(cx, object, kind, &mut |r| self.reference(object, r));
        } else if kind == CAPTBL_LEAF {
            self.leaf(object);
        } else if kind == Thread::KIND {
            if let Some(t) = map.get::<Thread>(object.address()) {
                self.thread(object, t);
            }
        } else if kind == Endpoints::KIND
            && let Some(e) = map.get::<Endpoints>(object.address())
        {
            for line in &e.lines {
                self.line(line);
            }
        }
    }

    /// Whether a reference names something that it may name. Pages may also be in RESERVED frames, because
    /// init maps the archive.
    fn reference(&mut self, from: FrameRef, r: Reference) {
        match r {
            Reference::Own => {}
            Reference::Odd(_) => self.fault(Fault::Damaged { at: from.address() }),
            Reference::Changing(_) => self.fault(Fault::LeftBehind {
                at: from.address(),
                what: "an entry",
            }),
            Reference::To(to, wanted) => {
                let word = self.cx.frames().head(to).map(|(_, word)| word);
                let right = word.is_ok_and(|word| match (wanted, word.ty) {
                    (Wanted::Page, FrameType::User(_) | FrameType::Reserved) => true,
                    (Wanted::Object(kind), FrameType::Kernel(is)) => is == kind,
                    (Wanted::Version(weak, kind), FrameType::Kernel(is)) => {
                        is == kind && weak.version == word.version
                    }
                    _ => false,
                });
                if !right {
                    self.fault(Fault::Wrong { from, to });
                }
            }
        }
    }

    /// Slots are in use or not, and nothing between. What capabilities are for does not matter: they
    /// are weak, and may be dead.
    fn leaf(&mut self, leaf: FrameRef) {
        for i in 0..LEAF_SLOTS as u64 {
            let at = leaf.address().add(i * SLOT_BYTES);
            match self.cx.captbls().read(at).map(|slot| slot.header) {
                Ok(SlotHeader::Free) => {}
                Ok(SlotHeader::Active { .. }) => self.sum.capabilities += 1,
                Ok(SlotHeader::Reserved(_) | SlotHeader::Closing(_)) => {
                    let what = "a slot";
                    self.fault(Fault::LeftBehind { at, what });
                }
                Err(_) => self.fault(Fault::Damaged { at }),
            }
        }
    }

    /// Whether the owner of a thread is present, and whether the thread is registered where it waits.
    fn thread(&mut self, frame: FrameRef, t: &'static Thread) {
        let words = self.cx.words();
        let Some(owner) = t.owner(words) else {
            return self.fault(Fault::Damaged {
                at: frame.address(),
            });
        };
        if matches!(owner.state, State::None | State::Gone) {
            return;
        }
        self.sum.threads += 1;
        if owner.state == State::Stopped {
            return;
        }
        let word = self.cx.node.word_of(owner.node);
        // A node that has left in good order has taken its threads with it.
        let there = matches!(
            word.state,
            NodeState::Live | NodeState::Suspect | NodeState::Left
        );
        if !there || !owner.is(owner.node, word.incarnation) {
            self.fault(Fault::Orphan {
                thread: frame,
                node: owner.node,
            });
        }
        if owner.state == State::Blocked {
            let at = WeakRef::from_bits(words.read(&t.waits_at))
                .and_then(|e| find::<Endpoints>(self.cx.node, e, Endpoints::KIND).ok())
                .and_then(|e| e.line(words.read(&t.waits_line)).ok());
            // An endpoint that has been given up has no waiters.
            if let Some(line) = at
                && waiting(words.read(&line.waiter)) != Some(frame)
            {
                self.fault(Fault::Waiting {
                    thread: frame,
                    what: "waits where nobody finds it",
                });
            }
        }
    }

    /// The frame that a link names, and the thread there, if there is one. Links are written by the
    /// kernel only, but by nodes that may have died: nothing is taken for granted.
    fn named(&self, word: u64) -> Option<(FrameRef, Option<&'static Thread>)> {
        let frame = linked(word)?;
        let is = self.cx.frames().read(frame).is_ok_and(|(word, _)| {
            word.ty == FrameType::Kernel(Thread::KIND)
                || word.ty == FrameType::Frozen(Use::Kernel(Thread::KIND))
        });
        let thread = is.then(|| self.cx.node.map.get(frame.address())).flatten();
        Some((frame, thread))
    }

    /// The waiter and the lists of an endpoint. A list that is a circle ends, too.
    fn line(&mut self, line: &Line) {
        let words = self.cx.words();
        let waiter = waiting(words.read(&line.waiter)).map(link_to);
        if let Some((thread, t)) = waiter.and_then(|w| self.named(w)) {
            let blocked = t
                .and_then(|t| t.owner(words))
                .is_some_and(|o| o.state == State::Blocked);
            if !blocked {
                let what = "is at an endpoint and does not wait";
                self.fault(Fault::Waiting { thread, what });
            }
        }
        for list in [&line.events, &line.taken] {
            let mut word = words.read(list);
            for n in 0.. {
                let Some((thread, t)) = self.named(word) else {
                    break;
                };
                let why = |t: &Thread| Woken::from_number(words.read(&t.event) & !DOUBTED);
                let noted = t.is_some_and(|t| why(t).is_some());
                if !noted || n > MAX_LIST {
                    let what = "is on a list it is not for";
                    self.fault(Fault::Waiting { thread, what });
                    break;
                }
                word = t.map_or(0, |t| words.read(&t.event_link));
            }
        }
    }

    /// Counts the references to the blocks of a batch, compares, and begins another one.
    fn compare(&mut self, tally: &mut Tally<BATCH>) {
        let mut cursor = Cursor::START;
        while let Some((frame, word)) = self.next_quietly(&mut cursor) {
            if let FrameType::Kernel(kind) | FrameType::Frozen(Use::Kernel(kind)) = word.ty
                && refers(kind)
            {
                tally.count_all(self.cx, frame, kind);
            }
        }
        for c in tally.blocks() {
            let word = self.cx.frames().read(c.head).ok().map(|(word, _)| word);
            let recorded = word.map_or(Refs::ZERO, |word| word.refs);
            if let Some(word) = word
                && c.found == 0
                && may_be_forgotten(word.ty)
            {
                self.sum.unreferenced += 1;
                let first = WeakRef {
                    frame: c.head,
                    version: word.version,
                };
                self.sum.first_unreferenced.get_or_insert(first);
            }
            self.sum.references += c.found as u64;
            if recorded.get() != c.found {
                self.fault(Fault::References {
                    head: c.head,
                    recorded: recorded.get(),
                    found: c.found,
                });
            }
        }
        *tally = Tally::new();
    }

    /// The next block in use, in a walk that counts. The walk before has reported damaged records.
    fn next_quietly(&self, cursor: &mut Cursor) -> Option<(FrameRef, FrameWord)> {
        let mut steps = u32::MAX;
        loop {
            match cursor.next(self.cx.node, &mut steps) {
                Next::Block(head, word) => return Some((head, word)),
                Next::Damaged(_) | Next::Working => steps = u32::MAX,
                Next::End => return None,
            }
        }
    }
}
