//! Ready queues: priorities, within each the groups take turns, and within a group its threads.
//!
//! ```text
//! priority 62   group 0: 3
//! priority  8   group 1: 64 ▶ 65 ▶ 66 ▶ ...    ◀─ has the turn
//!               group 2: 128                   ◀─ is next, however many threads group 1 has
//! ```

/// Number of priorities.
pub const PRIORITIES: usize = 64;

/// Number of groups.
pub const GROUPS: usize = u8::BITS as usize;

/// Priority of a thread: 0 to 63; higher goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Priority(u8);

impl Priority {
    /// The least urgent.
    pub const LOWEST: Priority = Priority(0);
    /// The most urgent.
    pub const HIGHEST: Priority = Priority(PRIORITIES as u8 - 1);

    /// The priority with this number, which is one.
    pub(crate) const fn of(n: u8) -> Priority {
        assert!((n as usize) < PRIORITIES, "there is no such priority");
        Priority(n)
    }

    /// The priority with this number.
    pub const fn new(n: u8) -> Option<Priority> {
        if (n as usize) < PRIORITIES {
            Some(Priority(n))
        } else {
            None
        }
    }

    /// The number.
    pub const fn get(self) -> u8 {
        self.0
    }

    /// The number, in a form that the compiler sees the bound of.
    pub(crate) const fn index(self) -> usize {
        self.0 as usize % PRIORITIES
    }
}

/// Threads that share the time of one, as those of a program do: 0 to 7.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Group(u8);

impl Group {
    /// The group with this number.
    pub const fn new(n: u8) -> Option<Group> {
        if (n as usize) < GROUPS {
            Some(Group(n))
        } else {
            None
        }
    }

    /// The number.
    pub const fn get(self) -> u8 {
        self.0
    }

    /// As [`Priority::index`].
    const fn index(self) -> usize {
        self.0 as usize % GROUPS
    }
}

/// No thread.
const NONE: u16 = u16::MAX;

/// Threads of one group and one priority.
#[derive(Clone, Copy)]
struct Queue {
    first: u16,
    last: u16,
}

#[derive(Clone, Copy)]
struct Link {
    before: u16,
    after: u16,
    /// Where it is queued.
    place: Option<(Priority, Group)>,
}

/// The groups of one priority.
#[derive(Clone, Copy)]
struct Level {
    /// A bit for each group that has threads.
    groups: u8,
    /// The group that had a turn last.
    turn: Group,
    /// Whether that turn is over.
    over: bool,
    /// The thread that passed on first in that turn.
    passed: u16,
}

/// What [`ReadyQueues::pop`] takes out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Popped {
    /// The thread.
    pub thread: usize,
    /// Its priority.
    pub priority: Priority,
    /// Its group, which has the turn now.
    pub group: Group,
    /// Whether that turn begins.
    pub begins: bool,
}

/// Threads that are ready, for thread numbers below `N` (at most 65535).
///
/// A doubly linked list for each group of each priority, kept in an array by thread; one bit for each group with
/// threads, and one for each priority with groups. The turn goes round by the numbers of the groups: between two
/// turns of one group each other one that is ready all the while has one, whatever comes and goes.
pub struct ReadyQueues<const N: usize> {
    waiting: u64,
    levels: [Level; PRIORITIES],
    queues: [[Queue; GROUPS]; PRIORITIES],
    links: [Link; N],
}

impl<const N: usize> Default for ReadyQueues<N> {
    fn default() -> Self {
        ReadyQueues::new()
    }
}

impl<const N: usize> ReadyQueues<N> {
    const FITS: () = assert!(N < NONE as usize && PRIORITIES <= u64::BITS as usize);

    /// Empty queues.
    pub const fn new() -> Self {
        const { Self::FITS };
        ReadyQueues {
            waiting: 0,
            levels: [Level {
                groups: 0,
                turn: Group(GROUPS as u8 - 1),
                over: true,
                passed: NONE,
            }; PRIORITIES],
            queues: [[Queue {
                first: NONE,
                last: NONE,
            }; GROUPS]; PRIORITIES],
            links: [Link {
                before: NONE,
                after: NONE,
                place: None,
            }; N],
        }
    }

    /// Whether the thread is queued.
    pub fn contains(&self, thread: usize) -> bool {
        self.links.get(thread).is_some_and(|l| l.place.is_some())
    }

    /// Puts a thread at the end of its group's queue. `false` if it is queued already or there can be no such
    /// thread; then nothing has changed.
    pub fn push_back(&mut self, thread: usize, priority: Priority, group: Group) -> bool {
        self.insert(thread, priority, group, false)
    }

    /// Puts a thread at the front of its group's queue. `false` as in [`push_back`](Self::push_back).
    pub fn push_front(&mut self, thread: usize, priority: Priority, group: Group) -> bool {
        self.insert(thread, priority, group, true)
    }

    fn insert(&mut self, thread: usize, priority: Priority, group: Group, front: bool) -> bool {
        if thread >= N || self.contains(thread) {
            return false;
        }
        let me = thread as u16;
        let queue = &mut self.queues[priority.index()][group.index()];
        let (before, after) = match front {
            true => (NONE, queue.first),
            false => (queue.last, NONE),
        };
        if before == NONE {
            queue.first = me;
        } else {
            self.links[before as usize].after = me;
        }
        if after == NONE {
            queue.last = me;
        } else {
            self.links[after as usize].before = me;
        }
        self.links[thread] = Link {
            before,
            after,
            place: Some((priority, group)),
        };
        self.levels[priority.index()].groups |= 1 << group.index();
        self.waiting |= 1 << priority.index();
        true
    }

    /// Takes a thread out, wherever it is. `false` if it is not queued.
    pub fn remove(&mut self, thread: usize) -> bool {
        let Some(Link {
            before,
            after,
            place: Some((priority, group)),
        }) = self.links.get(thread).copied()
        else {
            return false;
        };
        let queue = &mut self.queues[priority.index()][group.index()];
        if before == NONE {
            queue.first = after;
        } else {
            self.links[before as usize].after = after;
        }
        if after == NONE {
            queue.last = before;
        } else {
            self.links[after as usize].before = before;
        }
        if queue.first == NONE {
            self.emptied(priority, group);
        }
        self.links[thread].place = None;
        true
    }

    /// The thread that goes first.
    pub fn first(&self) -> Option<Popped> {
        let priority = Priority(self.waiting.checked_ilog2()? as u8);
        let level = &self.levels[priority.index()];
        let queues = &self.queues[priority.index()];
        let mut group = level.turn;
        let mut thread = queues[group.index()].first;
        // Nothing of the group is ready, or all others have had the CPU since this one passed it on.
        let begins = level.over || thread == NONE || thread == level.passed;
        if begins {
            // The next group by number; itself comes last.
            let after = group.index() as u32 + 1;
            let distance = level.groups.rotate_right(after).trailing_zeros();
            group = Group(((after + distance) % GROUPS as u32) as u8);
            thread = queues[group.index()].first;
        }
        Some(Popped {
            thread: thread as usize,
            priority,
            group,
            begins,
        })
    }

    /// Removes and returns the thread that goes first. Its group has the turn from now on, until
    /// [`end`](Self::end), or until nothing of it is ready.
    pub fn pop(&mut self) -> Option<Popped> {
        let popped = self.first()?;
        let Popped {
            thread,
            priority,
            group,
            begins,
        } = popped;
        // As `remove` does, of the first of a queue.
        let link = &mut self.links[thread];
        link.place = None;
        let after = link.after;
        let queue = &mut self.queues[priority.index()][group.index()];
        queue.first = after;
        let level = &mut self.levels[priority.index()];
        level.turn = group;
        level.over = false;
        if begins {
            level.passed = NONE;
        }
        if after == NONE {
            queue.last = NONE;
            self.emptied(priority, group);
        } else {
            self.links[after as usize].before = NONE;
        }
        Some(popped)
    }

    /// A group has no thread of this priority any more.
    fn emptied(&mut self, priority: Priority, group: Group) {
        let level = &mut self.levels[priority.index()];
        level.groups &= !(1 << group.index());
        if level.groups == 0 {
            self.waiting &= !(1 << priority.index());
        }
    }

    /// Whether the group has threads of this priority.
    pub fn has(&self, priority: Priority, group: Group) -> bool {
        self.levels[priority.index()].groups & 1 << group.index() != 0
    }

    /// Whether the group has the turn of this priority.
    pub fn is_on(&self, priority: Priority, group: Group) -> bool {
        let level = &self.levels[priority.index()];
        level.turn == group && !level.over
    }

    /// Ends the turn of this priority: other groups go first now.
    pub fn end(&mut self, priority: Priority) {
        self.levels[priority.index()].over = true;
    }

    /// Ends the turn of this priority if the group has it.
    pub fn leave(&mut self, priority: Priority, group: Group) {
        if self.is_on(priority, group) {
            self.end(priority);
        }
    }

    /// A thread passes the CPU on: to others of its group while that has the turn, and when all have had it, to other
    /// groups.
    pub fn pass(&mut self, thread: usize, priority: Priority, group: Group) {
        if self.is_on(priority, group) && thread < N {
            let passed = &mut self.levels[priority.index()].passed;
            if *passed == NONE {
                *passed = thread as u16;
            }
        }
    }
}
