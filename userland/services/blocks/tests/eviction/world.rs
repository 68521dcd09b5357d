//! A model of what eviction is done to: frames, pages in the tables of two ISAs, translations that CPUs
//! hold, and supplies that faults take frames of. Whatever changes it is a *point*: others do something
//! there, and nodes die.

mod kernel;

use std::cell::{Cell, RefCell};
use std::panic::resume_unwind;

use dyad_abi::ident::MAX_NODES;
use dyad_abi::user::TABLES_PART;
use dyad_abi::{Error, Result};
use dyad_blocks::{MAX_RUNS, Run};

/// Nodes, of the one ISA, the other, and the first again.
pub const NODES: usize = 3;
const ISAS: [usize; NODES] = [0, 1, 0];
/// Pages of the program.
pub const PAGES: usize = 48;
/// What a fault has in hand that takes a page table.
const TABLE: usize = usize::MAX;
/// Entries that one call looks at, and frames that one call counts.
const LOOKS: usize = 7;

/// Pools, and how many frames each has.
pub const POOLS: [(usize, u64); 4] = [(0, 16), (1, 12), (2, 8), (MAX_NODES, 8)];
const FRAMES: usize = 44;

/// A frame: those of all pools are counted one after the other.
pub type At = usize;

/// A frame of a pool.
pub fn at(pool: usize, n: u64) -> At {
    let before = POOLS.iter().take_while(|p| p.0 != pool);
    before.map(|p| p.1 as usize).sum::<usize>() + n as usize
}

fn frames(run: &Run) -> std::ops::Range<At> {
    let first = at(run.pool, run.first);
    first..first + run.frames as usize
}

/// What is left out of the kernel, to see that it is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lacks {
    Nothing,
    /// CPUs keep their translations.
    Shootdown,
    /// Faults go on to take frames that were taken from their node.
    Closing,
    /// Frames that are in hand are not seen.
    Hands,
    /// A page that one table has at its new frame is made usable at the old one in the other table.
    Moved,
    /// Pages are moved without their contents.
    Contents,
    /// Parked pages are left so.
    Unparking,
}

/// What others do, at a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// The program writes a page on a node, once; the first time, a fault takes a frame for it.
    Write(usize, usize),
    /// A fault of a node has taken a frame for a page, and has not mapped it yet.
    Take(usize, usize),
    /// The same, for a page table.
    Table(usize),
    /// A page is given back.
    Unmap(usize),
    /// A node dies.
    Kill(usize),
    /// The next so many steps of the kernel say that something is in the way.
    Again(u32),
    /// A frame that nobody uses, and that is open to faults of a node, becomes a page table.
    Object(At),
}

/// The panic of a thread whose node has died.
pub struct Died;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Entry {
    Empty,
    Leaf(At),
    Parked(At),
}

impl Entry {
    fn frame(self) -> Option<At> {
        match self {
            Entry::Empty => None,
            Entry::Leaf(at) | Entry::Parked(at) => Some(at),
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Frame {
    user: bool,
    object: bool,
    refs: u32,
    contents: u64,
}

#[derive(Clone, Copy, Debug)]
struct Page {
    entries: [Entry; 2],
    /// What was written last.
    last: Option<u64>,
}

struct State {
    frames: [Frame; FRAMES],
    pages: [Page; PAGES],
    supplies: [[Option<Run>; MAX_RUNS]; NODES],
    translations: [[Option<At>; PAGES]; NODES],
    hands: [Option<(usize, At)>; NODES],
    /// What a page is just being moved to.
    new: Option<At>,
    /// To whom each frame was open last.
    owners: [Option<usize>; FRAMES],
    live: [bool; NODES],
    values: u64,
}

/// The model, and what is going to happen in it.
pub struct World {
    state: RefCell<State>,
    script: RefCell<Vec<(u32, Act)>>,
    /// How many points there have been.
    pub points: Cell<u32>,
    /// The node on which the leader runs; `None` while no operation is under way.
    pub leads: Cell<Option<usize>>,
    in_the_way: Cell<u32>,
    lacks: Lacks,
}

impl World {
    /// A world in which no frame is used and nothing is mapped.
    pub fn new(lacks: Lacks) -> World {
        let page = Page {
            entries: [Entry::Empty; 2],
            last: None,
        };
        World {
            state: RefCell::new(State {
                frames: [Frame::default(); FRAMES],
                pages: [page; PAGES],
                supplies: [[None; MAX_RUNS]; NODES],
                translations: [[None; PAGES]; NODES],
                hands: [None; NODES],
                new: None,
                owners: [None; FRAMES],
                live: [true; NODES],
                values: 0,
            }),
            script: RefCell::default(),
            points: Cell::new(0),
            leads: Cell::new(None),
            in_the_way: Cell::new(0),
            lacks,
        }
    }

    /// What the script says happens now; and whoever leads is no more if its node has died.
    fn point(&self) {
        let now = self.points.replace(self.points.get() + 1);
        let acts: Vec<Act> = (self.script.borrow().iter())
            .filter(|(at, _)| *at == now)
            .map(|(_, act)| *act)
            .collect();
        for act in acts {
            // What others come to is their business.
            let _ = self.act(act);
        }
        self.supplies_are_apart();
        if let Some(node) = self.leads.get()
            && !self.lives_now(node)
        {
            resume_unwind(Box::new(Died));
        }
    }

    /// The pause between two pieces.
    pub fn pause(&self) {
        self.leads.set(None);
        self.point();
    }

    pub fn lives_now(&self, node: usize) -> bool {
        self.state.borrow().live[node]
    }

    /// The live node that leads if all before it are dead.
    pub fn leader(&self, order: [usize; NODES]) -> Option<usize> {
        order.into_iter().find(|&n| self.lives_now(n))
    }

    pub fn act(&self, act: Act) -> Result<()> {
        let s = &mut *self.state.borrow_mut();
        match act {
            Act::Write(node, page) if s.live[node] => {
                s.values += 1;
                let value = s.values;
                s.write(node, page, value)
            }
            Act::Take(node, page) if s.live[node] && s.hands[node].is_none() => {
                if s.pages[page].entries == [Entry::Empty; 2] {
                    let at = s.take(node)?;
                    s.hands[node] = Some((page, at));
                }
                Ok(())
            }
            Act::Table(node) if s.live[node] && s.hands[node].is_none() => {
                s.hands[node] = Some((TABLE, s.take(node)?));
                Ok(())
            }
            Act::Unmap(page) => {
                s.unmap(page);
                Ok(())
            }
            Act::Kill(node) => {
                s.live[node] = false;
                s.translations[node] = [None; PAGES];
                Ok(())
            }
            Act::Again(n) => {
                self.in_the_way.set(n);
                Ok(())
            }
            Act::Object(at) => {
                let open = (0..NODES).any(|n| s.open(n, false).any(|f| f == at));
                let frame = &mut s.frames[at];
                frame.object |= open && !frame.user;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Faults that are under way come to their end.
    pub fn finish_faults(&self) {
        let s = &mut *self.state.borrow_mut();
        (0..NODES).for_each(|n| s.finish(n));
    }

    /// Something is in the way, as often as the script says.
    fn way(&self, e: Error) -> Result<()> {
        match self.in_the_way.get() {
            0 => Ok(()),
            n => {
                self.in_the_way.set(n - 1);
                Err(e)
            }
        }
    }

    /// No frame is open to two nodes.
    fn supplies_are_apart(&self) {
        let s = self.state.borrow();
        let mut seen = 0u64;
        for node in 0..NODES {
            // A run that moves up in the list may be there twice meanwhile.
            let mine = s.open(node, false).fold(0, |mine, at| mine | 1 << at);
            assert!(
                seen & mine == 0,
                "frames {seen:#x} are open, and {mine:#x} to node {node}"
            );
            seen |= mine;
        }
    }

    /// What holds whenever nobody is in the middle of a step. `idle`: nothing is on its way.
    pub fn laws(&self, idle: bool) {
        let s = self.state.borrow();
        let mut refs = [0; FRAMES];
        let mut owner = [None; FRAMES];
        for (n, page) in s.pages.iter().enumerate() {
            let (mut usable, mut parked) = (None, None);
            for e in page.entries {
                let Some(at) = e.frame() else { continue };
                refs[at] += 1;
                let first = *owner[at].get_or_insert(n);
                assert_eq!(first, n, "frame {at} is two pages");
                match e {
                    Entry::Parked(_) => parked = Some(at),
                    _ => {
                        let first = *usable.get_or_insert(at);
                        assert_eq!(first, at, "page {n} is at two places: {page:?}");
                    }
                }
            }
            assert!(!idle || parked.is_none(), "page {n} stays parked");
            let place = usable.or(parked);
            if let Some(last) = page.last {
                let there = place.map(|at| s.frames[at].contents);
                assert_eq!(there, Some(last), "page {n} is not what was written");
            }
            // What a CPU would use is what the tables have.
            for node in (0..NODES).filter(|&n| s.live[n] && idle) {
                if let Some(at) = s.translations[node][n] {
                    assert_eq!(Some(at), place, "node {node} uses an old frame");
                }
            }
        }
        for (at, frame) in s.frames.iter().enumerate() {
            assert_eq!(frame.refs, refs[at], "frame {at}");
            let held = s.is_held(at);
            assert!(!frame.user || frame.refs > 0 || held, "frame {at} is lost");
            assert!(frame.user || frame.refs == 0, "frame {at} is used and free");
        }
    }

    /// How many frames of a run are in use.
    pub fn used(&self, run: &Run) -> u64 {
        let s = self.state.borrow();
        let used = |at: &At| s.frames[*at].user || s.frames[*at].object;
        frames(run).filter(used).count() as u64
    }

    /// All pages are given back: then all frames are, but for those that the dead had in hand.
    pub fn comes_back(&self) {
        self.finish_faults();
        let s = &mut *self.state.borrow_mut();
        (0..PAGES).for_each(|page| s.unmap(page));
        for (at, frame) in s.frames.iter().enumerate() {
            assert!(
                !frame.user || s.is_held(at),
                "frame {at} does not come back"
            );
        }
    }

    /// From here on points are counted, and others do what the script says.
    pub fn begin(&self, script: &[(u32, Act)]) {
        *self.script.borrow_mut() = script.to_vec();
        self.points.set(0);
    }

    pub fn is_mapped(&self, page: usize) -> bool {
        self.state.borrow().pages[page].last.is_some()
    }
}

impl State {
    /// Whether a thread has a frame in hand, or had it when its node died.
    fn is_held(&self, at: At) -> bool {
        self.new == Some(at) || self.hands.iter().flatten().any(|(_, held)| *held == at)
    }

    /// The frames that faults of a node take; `pages`: without what is kept for tables.
    fn open(&self, node: usize, pages: bool) -> impl Iterator<Item = At> {
        let supply = self.supplies[node];
        let kept = match supply {
            [Some(home), Some(_), ..] if pages => home.frames / TABLES_PART,
            _ => 0,
        };
        let runs = supply.into_iter().map_while(|r| r);
        runs.enumerate().flat_map(move |(n, mut run)| {
            run.frames -= if n == 0 { kept } else { 0 };
            frames(&run)
        })
    }

    /// A frame in the hands of a fault.
    fn take(&mut self, node: usize) -> Result<At> {
        // What was added last first.
        let free = |at: &At| !self.frames[*at].user && !self.frames[*at].object;
        let at = self.open(node, true).filter(free).last();
        let at = at.ok_or(Error::NoMemory)?;
        (self.frames[at].user, self.frames[at].contents) = (true, 0);
        Ok(at)
    }

    fn copy(&mut self, old: At, node: usize, lacks: Lacks) -> Result<At> {
        let to = self.take(node)?;
        self.new = Some(to);
        if lacks != Lacks::Contents {
            self.frames[to].contents = self.frames[old].contents;
        }
        Ok(to)
    }

    /// A frame that nothing refers to is nobody's.
    fn give_back(&mut self, at: At) {
        let frame = &mut self.frames[at];
        frame.user &= frame.refs != 0;
    }

    fn let_go(&mut self, at: At) {
        self.frames[at].refs -= 1;
        self.give_back(at);
    }

    fn show(&mut self, page: usize, isa: usize, at: At) {
        self.pages[page].entries[isa] = Entry::Leaf(at);
        self.frames[at].refs += 1;
    }

    /// Where a write of a node goes, after a fault if need be.
    fn place(&mut self, node: usize, page: usize) -> Result<At> {
        let isa = ISAS[node];
        let entries = self.pages[page].entries;
        match (entries[isa], entries[1 - isa]) {
            (Entry::Leaf(at), _) => Ok(at),
            (Entry::Parked(_), _) | (Entry::Empty, Entry::Parked(_)) => Err(Error::Again),
            (Entry::Empty, Entry::Leaf(at)) => {
                self.show(page, isa, at);
                Ok(at)
            }
            (Entry::Empty, Entry::Empty) => {
                let at = self.take(node)?;
                self.put(node, page, at);
                Ok(at)
            }
        }
    }

    fn write(&mut self, node: usize, page: usize, value: u64) -> Result<()> {
        let at = match self.translations[node][page] {
            Some(at) => at,
            None => self.place(node, page)?,
        };
        self.translations[node][page] = Some(at);
        self.frames[at].contents = value;
        self.pages[page].last = Some(value);
        Ok(())
    }

    /// A fault maps what it has in hand, in the table of its ISA and mostly in the other one.
    fn put(&mut self, node: usize, page: usize, at: At) {
        self.show(page, ISAS[node], at);
        if !page.is_multiple_of(3) {
            self.show(page, 1 - ISAS[node], at);
        }
        self.pages[page].last = Some(0);
    }

    fn finish(&mut self, node: usize) {
        if !self.live[node] {
            return;
        }
        if let Some((page, at)) = self.hands[node].take() {
            if page == TABLE {
                (self.frames[at].user, self.frames[at].object) = (false, true);
                return;
            }
            match self.pages[page].entries == [Entry::Empty; 2] {
                true => self.put(node, page, at),
                // Somebody else was faster.
                false => self.give_back(at),
            }
        }
    }

    fn unmap(&mut self, page: usize) {
        for isa in 0..2 {
            if let Some(at) = self.pages[page].entries[isa].frame() {
                self.pages[page].entries[isa] = Entry::Empty;
                self.let_go(at);
            }
        }
        self.pages[page].last = None;
        self.translations.iter_mut().for_each(|t| t[page] = None);
    }
}
