//! What the tests have in common: memory for loom, and a host of threads.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use dyad_coherence::GlobalMem;
use dyad_coherence::model::LoomMem;
use dyad_msg::Host;
use dyad_msg::words::Words;
use dyad_shm::PhysAddr;

/// Memory of a model.
pub struct Loom(pub LoomMem);

fn at(n: u64) -> PhysAddr {
    PhysAddr(8 * n)
}

impl Words for Loom {
    fn count(&self) -> u64 {
        u64::MAX
    }
    #[track_caller]
    fn load(&self, n: u64, order: Ordering) -> u64 {
        self.0.load(at(n), order)
    }
    #[track_caller]
    fn store(&self, n: u64, value: u64, order: Ordering) {
        self.0.store(at(n), value, order);
    }
    fn or(&self, n: u64, bits: u64) -> u64 {
        self.0.or(at(n), bits)
    }
    fn and(&self, n: u64, bits: u64) -> u64 {
        self.0.and(at(n), bits)
    }
    fn swap(&self, n: u64, value: u64) -> u64 {
        self.0.swap(at(n), value)
    }
    #[track_caller]
    fn fence(&self) {
        self.0.fence();
    }
}

/// A machine whose nodes are threads of this process.
#[derive(Clone)]
pub struct Threads(Arc<Inner>);

struct Inner {
    start: Instant,
    /// Not the real time, if it is not 0.
    time: AtomicU64,
    bells: Vec<(Mutex<bool>, Condvar)>,
    alive: Vec<AtomicBool>,
    rung: AtomicU64,
}

/// One of its nodes.
#[derive(Clone)]
pub struct Node(Threads, usize);

impl Threads {
    pub fn new(count: usize) -> Threads {
        Threads(Arc::new(Inner {
            start: Instant::now(),
            time: AtomicU64::new(0),
            bells: (0..count).map(|_| Default::default()).collect(),
            alive: (0..count).map(|_| AtomicBool::new(true)).collect(),
            rung: AtomicU64::new(0),
        }))
    }

    pub fn node(&self, n: usize) -> Node {
        Node(self.clone(), n)
    }

    /// Time stands still, and is this.
    pub fn set_time(&self, ns: u64) {
        self.0.time.store(ns, Ordering::SeqCst);
    }

    pub fn kill(&self, n: usize) {
        self.0.alive[n].store(false, Ordering::SeqCst);
    }

    pub fn revive(&self, n: usize) {
        self.0.alive[n].store(true, Ordering::SeqCst);
    }

    pub fn rung(&self) -> u64 {
        self.0.rung.load(Ordering::SeqCst)
    }
}

impl Host for Node {
    fn now(&self) -> u64 {
        match self.0.0.time.load(Ordering::SeqCst) {
            0 => self.0.0.start.elapsed().as_nanos() as u64 + 1,
            ns => ns,
        }
    }

    fn ring(&self, station: usize) {
        self.0.0.rung.fetch_add(1, Ordering::SeqCst);
        let (bell, wakes) = &self.0.0.bells[station];
        *bell.lock().unwrap() = true;
        wakes.notify_one();
    }

    fn sleep(&self, until: u64) {
        let (bell, wakes) = &self.0.0.bells[self.1];
        let wait = Duration::from_nanos(until.saturating_sub(self.now()));
        let rung = bell.lock().unwrap();
        let (mut rung, _) = wakes.wait_timeout_while(rung, wait, |rung| !*rung).unwrap();
        *rung = false;
    }

    fn relax(&self) {
        std::hint::spin_loop();
    }

    fn alive(&self, station: usize) -> bool {
        self.0.0.alive[station].load(Ordering::SeqCst)
    }
}

pub use dyad_random::SplitMix64;

/// Contents that say which message they are of.
pub fn contents(seed: u64, len: usize, to: &mut Vec<u8>) {
    let mut random = SplitMix64(seed);
    to.clear();
    while to.len() < len {
        to.extend_from_slice(&random.next().to_le_bytes());
    }
    to.truncate(len);
}
