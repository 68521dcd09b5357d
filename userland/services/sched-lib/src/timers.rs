//! Deadlines of sleeping threads: a binary heap that knows where each thread is in it.

/// Index of a thread that is not in the heap.
const NOWHERE: u16 = u16::MAX;

/// Deadlines, at most one for each thread number below `N` (at most 65535).
pub struct Timers<const N: usize> {
    deadlines: [u64; N],
    /// Thread numbers, a heap by deadline.
    heap: [u16; N],
    /// Place of each thread in `heap`.
    places: [u16; N],
    used: usize,
}

impl<const N: usize> Default for Timers<N> {
    fn default() -> Self {
        Timers::new()
    }
}

impl<const N: usize> Timers<N> {
    const FITS: () = assert!(N < NOWHERE as usize);

    /// Timers of no thread.
    pub const fn new() -> Self {
        const { Self::FITS };
        Timers {
            deadlines: [0; N],
            heap: [0; N],
            places: [NOWHERE; N],
            used: 0,
        }
    }

    /// Sets the deadline of a thread, which replaces a previous one. `false` if the thread number is out of
    /// range.
    pub fn set(&mut self, thread: usize, deadline: u64) -> bool {
        if thread >= N {
            return false;
        }
        self.cancel(thread);
        self.deadlines[thread] = deadline;
        self.put(self.used, thread as u16);
        self.used += 1;
        self.rise(self.used - 1);
        true
    }

    /// Takes the deadline of a thread away. `false` if it has none.
    pub fn cancel(&mut self, thread: usize) -> bool {
        let Some(place) = self.places.get(thread).map(|&p| p as usize) else {
            return false;
        };
        if place == NOWHERE as usize {
            return false;
        }
        self.places[thread] = NOWHERE;
        self.used -= 1;
        if place != self.used {
            let moved = self.heap[self.used];
            self.put(place, moved);
            self.rise(place);
            self.sink(self.places[moved as usize] as usize);
        }
        true
    }

    /// The next deadline.
    pub fn next(&self) -> Option<u64> {
        (self.used > 0).then(|| self.at(0))
    }

    /// Takes out one thread whose deadline is not after `now`, the earliest first.
    pub fn expired(&mut self, now: u64) -> Option<usize> {
        if self.next()? > now {
            return None;
        }
        let thread = self.heap[0] as usize;
        self.cancel(thread);
        Some(thread)
    }

    fn at(&self, place: usize) -> u64 {
        self.deadlines[self.heap[place] as usize]
    }

    fn put(&mut self, place: usize, thread: u16) {
        self.heap[place] = thread;
        self.places[thread as usize] = place as u16;
    }

    fn swap(&mut self, a: usize, b: usize) {
        let (x, y) = (self.heap[a], self.heap[b]);
        self.put(a, y);
        self.put(b, x);
    }

    fn rise(&mut self, mut place: usize) {
        while place > 0 {
            let parent = (place - 1) / 2;
            if self.at(parent) <= self.at(place) {
                return;
            }
            self.swap(parent, place);
            place = parent;
        }
    }

    fn sink(&mut self, mut place: usize) {
        loop {
            let children = [2 * place + 1, 2 * place + 2];
            let least = children
                .into_iter()
                .filter(|&c| c < self.used)
                .min_by_key(|&c| self.at(c));
            match least {
                Some(child) if self.at(child) < self.at(place) => {
                    self.swap(child, place);
                    place = child;
                }
                _ => return,
            }
        }
    }
}
