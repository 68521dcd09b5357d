//! Those who act: workers, one per CPU, and guests. Their state is in statics, because a guest goes
//! on after a migration with another stack.

use core::sync::atomic::{AtomicU64, Ordering};

use dyad_random::SplitMix64;

/// Most workers: one for each CPU of each node.
pub const WORKERS: usize = 64;
/// Guests.
pub const GUESTS: usize = 8;

/// One that acts.
pub struct Actor {
    random: AtomicU64,
    /// Operations made.
    pub ops: AtomicU64,
    /// Worker: guests that are ready here.
    pub ready: AtomicU64,
    /// The call it is at, or was: word, arguments.
    pub call: [AtomicU64; 6],
}

static ACTORS: [Actor; WORKERS + GUESTS] = [const {
    Actor {
        random: AtomicU64::new(0),
        ops: AtomicU64::new(0),
        ready: AtomicU64::new(0),
        call: [const { AtomicU64::new(0) }; 6],
    }
}; WORKERS + GUESTS];

/// An actor: workers first, by `node * 8 + cpu`, then guests.
pub fn actor(n: usize) -> &'static Actor {
    &ACTORS[n % ACTORS.len()]
}

/// Gives each actor its generator.
pub fn sow(seed: u64) {
    for (n, a) in ACTORS.iter().enumerate() {
        let own = (n as u64 + 1).wrapping_mul(0xd134_2543_de82_ef95);
        a.random.store(seed ^ own, Ordering::Relaxed);
    }
}

/// Operations of all.
pub fn operations() -> u64 {
    ACTORS.iter().map(|a| a.ops.load(Ordering::Relaxed)).sum()
}

impl Actor {
    /// The next number of the actor's generator.
    pub fn next(&self) -> u64 {
        let mut random = SplitMix64(self.random.load(Ordering::Relaxed));
        let number = random.next();
        self.random.store(random.0, Ordering::Relaxed);
        number
    }

    /// A number below `n`.
    pub fn below(&self, n: u64) -> u64 {
        self.next() % n
    }

    /// One time in `n`.
    pub fn rarely(&self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// One of these.
    pub fn pick(&self, list: &[u64]) -> u64 {
        list[self.below(list.len() as u64) as usize]
    }
}
