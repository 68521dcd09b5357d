//! Ready queues: first in, first out for each priority, the most urgent in two instructions.

/// Number of priorities.
pub const PRIORITIES: usize = 64;

/// Priority of a thread: 0 to 63; higher goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Priority(u8);

impl Priority {
    /// The least urgent.
    pub const LOWEST: Priority = Priority(0);
    /// The most urgent.
    pub const HIGHEST: Priority = Priority(PRIORITIES as u8 - 1);

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
}

/// No thread.
const NONE: u16 = u16::MAX;

#[derive(Clone, Copy)]
struct Queue {
    first: u16,
    last: u16,
}

#[derive(Clone, Copy)]
struct Link {
    before: u16,
    after: u16,
    /// Priority it is queued with.
    priority: Option<Priority>,
}

/// Threads that are ready, for thread numbers below `N` (at most 65535).
///
/// A doubly linked list for each priority, kept in an array by thread, and one bit for each list
/// that is not empty.
pub struct ReadyQueues<const N: usize> {
    waiting: u64,
    queues: [Queue; PRIORITIES],
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
            queues: [Queue {
                first: NONE,
                last: NONE,
            }; PRIORITIES],
            links: [Link {
                before: NONE,
                after: NONE,
                priority: None,
            }; N],
        }
    }

    /// Whether the thread is queued.
    pub fn contains(&self, thread: usize) -> bool {
        self.links.get(thread).is_some_and(|l| l.priority.is_some())
    }

    /// Puts a thread at the end of its priority's queue. `false` if it is queued already or there
    /// can be no such thread; then nothing has changed.
    pub fn push_back(&mut self, thread: usize, priority: Priority) -> bool {
        self.insert(thread, priority, false)
    }

    /// Puts a thread at the front of its priority's queue. `false` as in
    /// [`push_back`](Self::push_back).
    pub fn push_front(&mut self, thread: usize, priority: Priority) -> bool {
        self.insert(thread, priority, true)
    }

    fn insert(&mut self, thread: usize, priority: Priority, front: bool) -> bool {
        if thread >= N || self.contains(thread) {
            return false;
        }
        let me = thread as u16;
        let queue = &mut self.queues[priority.0 as usize];
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
            priority: Some(priority),
        };
        self.waiting |= 1 << priority.0;
        true
    }

    /// Takes a thread out, wherever it is. `false` if it is not queued.
    pub fn remove(&mut self, thread: usize) -> bool {
        let Some(Link {
            before,
            after,
            priority: Some(priority),
        }) = self.links.get(thread).copied()
        else {
            return false;
        };
        let queue = &mut self.queues[priority.0 as usize];
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
            self.waiting &= !(1 << priority.0);
        }
        self.links[thread].priority = None;
        true
    }

    /// The thread that goes first, and its priority.
    pub fn first(&self) -> Option<(usize, Priority)> {
        let priority = Priority(self.waiting.checked_ilog2()? as u8);
        Some((self.queues[priority.0 as usize].first as usize, priority))
    }

    /// Removes and returns the thread that goes first.
    pub fn pop(&mut self) -> Option<(usize, Priority)> {
        let (thread, priority) = self.first()?;
        self.remove(thread);
        Some((thread, priority))
    }
}
